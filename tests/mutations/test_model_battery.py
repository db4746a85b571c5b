"""The battery `model`: every edit can be made, the unchanged model passes, and mistakes of each kind are caught."""

import ast
from importlib import resources

import pytest

from assay.mutations import model_clauses
from assay.mutations.battery import BatteryContext
from assay.mutations.code_copy import apply_edit
from assay.mutations.model import BATTERY, judge_edits
from assay.mutations.model_catalogue import MISTAKES, Mistake
from assay.mutations.runner import judge_one, prove_controls

SAMPLE = (
    "norm.without-one", "gdn.heads-modulo", "qsa.relu-after", "qsa.tie-later", "router.tie-later", "ple.history-reset",
    "state.copy-history", "state.slot-zero", "state.fork-shares", "transaction.no-finite", "transaction.late-install",
    "transaction.error-inherited", "sampler.padding",
)  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.id)
def test_every_edit_can_be_made_in_the_shipped_code(mistake: Mistake) -> None:
    for edit in mistake.edits:
        source = (resources.files("assay.impl.model") / f"{edit.module}.py").read_text(encoding="utf-8")
        apply_edit(ast.parse(source), edit)


def test_ids_are_unique_and_clauses_are_those_of_the_probes() -> None:
    assert len({one.id for one in MISTAKES}) == len(MISTAKES)
    known = {
        model_clauses.CAPTURE,
        model_clauses.STATE,
        model_clauses.WHOLE,
        model_clauses.BOUNDS,
        model_clauses.RAISED,
    }
    assert {one.caught_by for one in MISTAKES} <= known


def test_every_module_of_the_mechanisms_has_a_mistake() -> None:
    touched = {edit.module for one in MISTAKES for edit in one.edits}
    assert touched >= {
        "norms", "residual", "rope", "conv", "gdn", "qsa", "router", "moe", "ple", "graph", "loader", "columns",
        "transaction", "bank", "sampler", "trace", "numerics",
    }  # fmt: skip


def test_the_unchanged_model_passes_and_the_forced_mistake_is_killed() -> None:
    prove_controls(BATTERY, BatteryContext())


@pytest.mark.parametrize("name", SAMPLE)
def test_a_mistake_is_caught_at_its_clause(name: str) -> None:
    context = BatteryContext()
    mutation = next(one for one in BATTERY.mutations(context) if one.id == name)
    assert judge_one(BATTERY, 0, mutation, context).how == "killed"


def test_a_copy_leaves_the_shipped_model_alone() -> None:
    from assay.impl.model import norms

    before = norms.gated
    mistake = next(one for one in MISTAKES if one.id == "norm.silu-gate")
    assert judge_edits(mistake.edits)
    assert norms.gated is before
    assert judge_edits(()) == []
