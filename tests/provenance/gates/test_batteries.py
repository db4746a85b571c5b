"""A gate that runs a battery passes only when every mutation was killed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.mutations import runner
from assay.mutations.battery import Battery, BatteryContext, InvalidMutationError, Mutation
from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.gates.batteries import battery_result
from assay.spec.clauses import Authority, declare
from assay.spec.documents.mutation_run import MutationRun
from assay.spec.errors import EvidenceError, Finding
from assay.spec.verdicts import Outcome

RULE = declare("test.battery-gate", Authority.RULE, "The value is 7.", source="this test", cause="a mutation")
KILLED = [Finding.of(RULE, "test", "value", expected=7, got=8)]


def judge(mutation: Mutation, _context: BatteryContext) -> list[Finding]:
    if mutation.id == "not-applied":
        raise InvalidMutationError("no anchor")
    return [] if mutation.id == "survivor" else KILLED


@pytest.fixture
def result_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., GateResult]:
    def call(*ids: str, is_clean: bool = True) -> GateResult:
        toy = Battery(
            name="toy",
            title="A toy.",
            mutations=lambda _context: [Mutation(id_, "area", "field", "value = 8", (RULE,)) for id_ in ids],
            judge=judge,
            control=lambda _context: [] if is_clean else KILLED,
            forced=lambda _context: Mutation("forced", "area", "field", "value = 8", (RULE,)),
        )
        monkeypatch.setattr(runner, "battery_named", lambda _name: toy)
        runner._listed.cache_clear()
        return battery_result("toy", GateContext(None, tmp_path))

    return call


def test_a_battery_without_survivors_passes_and_carries_its_counts(
    result_of: Callable[..., GateResult],
) -> None:
    result = result_of("one", "two")
    counts = MutationRun.model_validate(result.measurements["battery"]).batteries["toy"]
    assert (result.outcome, counts.total, counts.killed) == (Outcome.PASS, 2, 2)


@pytest.mark.parametrize("id_", ["survivor", "not-applied"])
def test_a_survivor_and_a_mutation_that_was_not_applied_fail_the_gate(
    result_of: Callable[..., GateResult], id_: str
) -> None:
    result = result_of("one", id_)
    assert result.outcome is Outcome.FAIL
    assert [(one.code, one.where) for one in result.findings] == [("gate.mutation-survived", f"toy: {id_}")]


def test_a_battery_without_mutations_decides_nothing(result_of: Callable[..., GateResult]) -> None:
    assert result_of().outcome is Outcome.INCONCLUSIVE


def test_a_battery_that_fails_the_unchanged_thing_is_broken(result_of: Callable[..., GateResult]) -> None:
    with pytest.raises(EvidenceError) as caught:
        result_of("one", is_clean=False)
    assert (caught.value.finding.code, caught.value.finding.where) == ("mutations.control", "toy")
