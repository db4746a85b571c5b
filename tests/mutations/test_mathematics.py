"""Battery `mathematics`: its mistakes can be made, are caught where they say, and never touch the shipped oracles."""

import ast
import sys
from importlib import resources

import pytest

from assay.mutations import capture_vectors, vectors
from assay.mutations.battery import BatteryContext, InvalidMutationError
from assay.mutations.code_copy import ORACLES, Edit, apply_edit, code_copy
from assay.mutations.mathematics import BATTERY, judge_edits
from assay.mutations.mathematics_catalogue import MISTAKES
from assay.mutations.runner import judge_one
from assay.oracles import norms

CONTEXT = BatteryContext()
MUTATIONS = BATTERY.mutations(CONTEXT)
CHARTER = (
    "norm.without-one", "qsa.relu-after-sum", "residual.no-quarter", "norm.silu-gate", "gdn.modulo-heads",
    "conv.three-for-nine", "conv.reset-at-chunk", "ple.history-reset", "ple.reversed-multipliers",
    "ple.float64-products", "ple.tokenizer-size", "qsa.rank-order", "qsa.tie-to-higher", "router.tie-to-higher",
    "qsa.physical-slots", "moe.weights-by-id",
)  # fmt: skip


def test_every_mistake_of_the_charter_is_in_the_battery() -> None:
    assert set(CHARTER) <= {one.id for one in MISTAKES}
    assert len(MISTAKES) == len({one.id for one in MISTAKES}) >= 40


def test_every_mistake_names_a_vector_that_ships() -> None:
    known = {one.id for listed in vectors.read_vectors().values() for one in listed}
    known |= {f"{case}:" for case in capture_vectors.CASES}
    assert {one.caught_by for one in MISTAKES} <= known


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.id)
def test_every_anchor_stands_in_its_function_once(mistake) -> None:
    for edit in mistake.edits:
        source = (resources.files("assay.oracles") / f"{edit.module}.py").read_text(encoding="utf-8")
        tree = ast.parse(source)
        apply_edit(tree, edit)
        assert ast.dump(tree) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("index", range(0, len(MUTATIONS), 12), ids=lambda index: MUTATIONS[index].id)
def test_a_mistake_dies_at_the_vector_that_it_names(index: int) -> None:
    """Every twelfth; the gate runs them all."""
    fate = judge_one(BATTERY, index, MUTATIONS[index], CONTEXT)
    assert fate.how == "killed"
    assert MISTAKES[index].caught_by.rstrip(":") in fate.places


def test_the_shipped_oracles_have_no_finding() -> None:
    assert BATTERY.control(CONTEXT) == []


def test_the_forced_mistake_is_killed() -> None:
    assert judge_one(BATTERY, 0, BATTERY.forced(CONTEXT), CONTEXT).how == "killed"


def test_the_first_rung_that_differs_is_the_one_that_is_named() -> None:
    """A mistake of the recurrent output gate is not blamed on the layers behind it."""
    gate = Edit("norms", "gated", "sigmoid(gates)", "gates * sigmoid(gates)")
    with code_copy(ORACLES, [gate]) as copy:
        found = list(capture_vectors.findings("small/short-row-alone", copy.module))
    assert [(one.code, one.where.partition(" index")[0]) for one in found] == [
        ("vector.captured", "small/short-row-alone: layers.0.gdn token 0")
    ]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("norms", "rms", "gain + kind.type(2)", "gain"), "stands there 0 times"),
        (Edit("norms", "rms", "kind", "np"), "times: kind"),
        (Edit("norms", "rms", "values", "values"), "changes nothing"),
        (Edit("norms", "rns", "values", "x"), "no such function"),
        (Edit("norm", "rms", "values", "x"), "no module norm"),
    ],
)
def test_an_edit_that_can_not_be_made_is_refused(edit: Edit, message: str) -> None:
    with pytest.raises(InvalidMutationError, match=message), code_copy(ORACLES, [edit]):
        pass


def test_a_copy_leaves_the_interpreter_as_it_was() -> None:
    edit = Edit("norms", "rms", "gain + kind.type(1)", "gain")
    with code_copy(ORACLES, [edit]) as copy:
        mutated = copy.module("norms")
        assert mutated.rms([3.0, 4.0], [0.0, 0.0]).tolist() == [0.0, 0.0]
        assert mutated.rms is not norms.rms
    assert not [name for name in sys.modules if name.startswith(ORACLES.copy)]
    assert norms.rms([3.0, 4.0], [0.0, 0.0])[0] == pytest.approx(0.848528, abs=1e-6)


def test_a_copy_is_used_throughout_the_copy() -> None:
    """The whole model of a copy calls the copy's norm and not the shipped one."""
    edit = Edit("norms", "rms", "gain + kind.type(1)", "gain")
    with code_copy(ORACLES, [edit]) as copy:
        assert copy.module("model").norms is copy.module("norms")
        assert copy.module("catalogue").OPERATIONS["norm.rms"].function is copy.module("norms").rms


def test_a_crash_is_not_the_catch_that_a_mistake_asks_for() -> None:
    broken = (Edit("norms", "rms", "gain + kind.type(1)", "undefined_name"),)
    codes = {one.code for one in judge_edits(broken, captures=False)}
    assert codes == {vectors.RAISED}
