"""The battery `gguf` edits every entry and every record, and nothing survives."""

import pytest

from assay.impl.stores.artifact.descriptor import fixture_descriptor
from assay.mutations import gguf
from assay.mutations.battery import BatteryContext
from assay.mutations.runner import judge_one, prove_controls

CONTEXT = BatteryContext()


def test_every_entry_and_every_record_is_edited() -> None:
    edited = {mutation.field for mutation in gguf.mutations(CONTEXT)}
    descriptor = fixture_descriptor()
    assert set(descriptor.entries) <= edited
    assert {one.name for one in descriptor.dense} | {"ds4.expert_major.v2", "ds4.ple_rows.v1"} <= edited


def test_mutations_have_names_of_their_own() -> None:
    names = [one.id for one in gguf.mutations(CONTEXT)]
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_every_seventh_mutation_dies_at_its_own_clause() -> None:
    """The whole battery is a gate; a seventh of it meets every kind of edit dozens of times."""
    prove_controls(gguf.BATTERY, CONTEXT)
    mutations = gguf.mutations(CONTEXT)
    assert {
        mutation.id: fate.how
        for index, mutation in enumerate(mutations[::7])
        if (fate := judge_one(gguf.BATTERY, index, mutation, CONTEXT)).how != "killed"
    } == {}
