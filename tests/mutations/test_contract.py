"""The battery of the contract: what it lists, and that everything it lists is caught where it should be."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from assay.mutations import contract, contract_published
from assay.mutations.battery import BatteryContext, Mutation
from assay.mutations.json_edits import apply_edits
from assay.mutations.runner import judge_one, prove_controls
from assay.provenance.catalogue import load_all_clauses
from assay.provenance.paths import checkpoint_directory
from assay.spec.clauses import Authority, clause
from assay.spec.leaves import leaves, path_text
from assay.spec.profiles import profile_document

ALONE = BatteryContext()
# Counts by area of the published battery; the last two of its 153 change upstream's facts.
PUBLISHED_COUNTS = {
    "sourcePins": 7, "fileSha256": 1, "transformersSource": 1, "identity": 3, "pinnedConfig": 9, "derived": 5,
    "tensorRoles": 6, "pleHash": 10, "pleExtent": 22, "expertStore": 14, "norms": 3, "graph": 3, "exclusions": 2,
    "license": 2, "admission": 63,
}  # fmt: skip


@cache
def listed() -> dict[str, Mutation]:
    return {one.id: one for one in contract.list_mutations(ALONE)}


def fate(mutation: Mutation, context: BatteryContext) -> str:
    return judge_one(contract.BATTERY, 0, mutation, context).how


def test_the_published_mutations_are_all_there() -> None:
    counts = Counter(name.partition(".")[0] for name, _, _ in contract_published.PUBLISHED)
    assert dict(counts) == PUBLISHED_COUNTS
    assert sum(counts.values()) + 2 == 153


def test_every_expected_clause_exists() -> None:
    load_all_clauses()
    expected = {one for _, _, clauses in contract_published.PUBLISHED for one in clauses.split("|")}
    assert {one for one in expected if clause(one) is None} == set()


@pytest.mark.parametrize("row", contract_published.PUBLISHED, ids=lambda row: row[0])
def test_a_published_mutation_is_rejected_at_its_clause_without_upstreams_data(
    row: contract_published.Row,
) -> None:
    mutation = listed()[row[0]]
    found = judge_one(contract.BATTERY, 0, mutation, ALONE)
    assert (found.how, set(found.codes) & set(row[2].split("|")) != set()) == ("killed", True)


@pytest.mark.checkpoint
@pytest.mark.parametrize("row", contract_published.PUBLISHED, ids=lambda row: row[0])
def test_a_published_mutation_is_rejected_at_the_first_of_its_clauses(
    row: contract_published.Row, checkpoint: Path
) -> None:
    context = BatteryContext(checkpoint)
    mutation = listed()[row[0]]
    assert row[2].split("|")[0] in judge_one(contract.BATTERY, 0, mutation, context).codes


@pytest.mark.checkpoint
def test_headers_that_classify_a_tensor_otherwise_are_caught(checkpoint: Path) -> None:
    mutation = contract._published_classification()
    assert fate(mutation, BatteryContext(checkpoint)) == "killed"


@pytest.mark.checkpoint
def test_a_zeroed_padding_row_is_caught(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published fixture records the probe of the two rows; real shards would let assay read them."""
    recorded = {"embed_all_zero": False, "lm_head_all_zero": False}
    facts = contract.replace(contract._upstream(checkpoint), all_zero_rows=recorded)
    monkeypatch.setattr(contract, "_upstream", lambda _checkpoint: facts)
    context = BatteryContext(checkpoint)
    assert "fixturePaddingProbe" in {one.id for one in contract.list_mutations(context)}
    assert fate(contract._published_padding_row(), context) == "killed"


def test_every_leaf_of_the_contract_has_a_mutation_of_its_value() -> None:
    covered = {one.field for one in listed().values() if one.id.endswith(":value")}
    assert {path_text(path) for path, _ in leaves(profile_document("qwen4exp"))} <= covered


@pytest.mark.checkpoint
def test_every_entry_of_the_real_headers_and_index_has_a_mutation(checkpoint: Path) -> None:
    areas = Counter(one.area for one in contract.list_mutations(BatteryContext(checkpoint)))
    # 1,658 tensors: each is renamed, dropped and sent to another shard, and has a dtype, two offsets and a shape.
    assert areas["real headers"] >= 1658 * 10
    assert areas["real index"] == 1658 * 3 + 131 + 2


def test_an_edit_leaves_the_document_that_others_share_alone() -> None:
    before = profile_document("qwen4exp")
    for edit, _ in list(contract.leaf_edits(before))[:500]:
        apply_edits(before, (edit,))
    assert before == profile_document("qwen4exp")


def test_the_controls_hold_with_and_without_upstreams_data() -> None:
    prove_controls(contract.BATTERY, ALONE)
    prove_controls(contract.BATTERY, BatteryContext(checkpoint_directory()))


def test_a_sample_of_the_generated_mutations_dies_at_its_leaf() -> None:
    sample = [one for one in listed().values() if one.id.startswith("contract:")][::23]
    assert [one.id for one in sample if fate(one, ALONE) != "killed"] == []


@pytest.mark.slow
@pytest.mark.checkpoint
def test_a_sample_of_everything_leaves_no_survivor_and_a_reason_for_every_pin(checkpoint: Path) -> None:
    """The gate `mutations.contract` runs all of them; this keeps a hundredth under test."""
    load_all_clauses()
    context = BatteryContext(checkpoint)
    sample = contract.list_mutations(context)[::97]
    fates = [(one, judge_one(contract.BATTERY, 0, one, context)) for one in sample]
    assert [one.id for one, found in fates if found.how not in {"killed", "equivalent"}] == []
    pinned = [one for one, found in fates if found.authority is Authority.PIN]
    assert pinned
    assert [one.id for one in pinned if not contract._pin_reason(one)] == []
