"""Which gates run, and which must decide."""

import pytest

from assay.provenance.gates.base import Gate
from assay.provenance.gates.selection import Selection, select
from assay.spec.errors import UsageError
from assay.spec.verdicts import Label

IDS = ("contract.rules", "contract.checkpoint", "contractual", "parity")
GATES = tuple(Gate(id_, "", ("x",), Label.IMPLEMENTED, "m:f") for id_ in IDS)


def chosen(names: list[str], only: list[str], require: list[str]) -> tuple[list[str], set[str], set[str]]:
    found: Selection = select(GATES, names, only, require)
    return [gate.id for gate in found.gates], set(found.required), set(found.left_out)


def test_without_names_all_run_and_none_is_required() -> None:
    assert chosen([], [], []) == (list(IDS), set(), set())


def test_named_gates_run_and_are_required() -> None:
    assert chosen(["parity"], [], []) == (["parity"], {"parity"}, set())


@pytest.mark.parametrize(
    "pattern", ["contract", "contract.", "contract.*", "contract.rules,contract.checkpoint"]
)
def test_a_beginning_stands_for_all_ids_below_it(pattern: str) -> None:
    assert chosen([], [pattern], []) == (["contract.rules", "contract.checkpoint"], set(), set())


def test_a_star_stands_for_all() -> None:
    assert chosen(["*"], [], []) == (list(IDS), set(IDS), set())


def test_a_required_gate_outside_only_is_left_out_but_reported() -> None:
    assert chosen([], ["parity"], ["contract.rules"]) == (
        ["contract.rules", "parity"], {"contract.rules"}, {"contract.rules"},
    )  # fmt: skip


def test_a_named_gate_outside_only_is_left_out_but_reported() -> None:
    assert chosen(["contract"], ["contract.rules"], []) == (
        ["contract.rules", "contract.checkpoint"], {"contract.rules", "contract.checkpoint"}, {"contract.checkpoint"},
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [(["contrakt"], [], []), ([], ["nope"], []), ([], [], ["contract.rulez"])]
)
def test_an_unknown_gate_is_a_usage_error(arguments: tuple[list[str], list[str], list[str]]) -> None:
    with pytest.raises(UsageError) as caught:
        select(GATES, *arguments)
    assert (caught.value.finding.code, caught.value.finding.where) == ("usage.argument", "gate")


def test_names_and_only_without_a_common_gate_are_a_usage_error() -> None:
    with pytest.raises(UsageError) as caught:
        select(GATES, ["parity"], ["contract"], [])
    assert (caught.value.finding.code, caught.value.finding.where) == ("usage.argument", "--only")


@pytest.mark.parametrize("where", [0, 1, 2])
@pytest.mark.parametrize("pattern", ["", " ", "parity,", ","])
def test_an_empty_name_is_a_usage_error_and_not_every_gate(where: int, pattern: str) -> None:
    arguments: list[list[str]] = [[], [], []]
    arguments[where] = [pattern]
    with pytest.raises(UsageError) as caught:
        select(GATES, *arguments)
    assert (caught.value.finding.code, caught.value.finding.where) == ("usage.argument", "gate")


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [("par", ["parity"]), ("contract.ch", ["contract.checkpoint"]), ("contractu", ["contractual"])],
)
def test_a_beginning_may_end_inside_a_word(pattern: str, ids: list[str]) -> None:
    assert chosen([], [pattern], [])[0] == ids
