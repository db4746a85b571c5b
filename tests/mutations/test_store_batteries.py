"""The stores' batteries bite: controls hold, and no mutation survives or dies at another clause."""

import pytest

from assay.impl.stores.expert_major.layout import Header
from assay.impl.stores.ple_rows.layout import PleHeader
from assay.mutations import expert_store, ple_store, store_bytes
from assay.mutations.battery import Battery, BatteryContext
from assay.mutations.runner import run_batteries


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"), [("expert-store", 700), ("ple-store", 550), ("store-bytes", 8500)]
)
def test_no_mutation_survives(name: str, least: int) -> None:
    run = run_batteries([name], BatteryContext())
    counts = run.batteries[name]
    assert (run.survivors, run.killed_elsewhere) == ([], [])
    assert counts.killed == counts.total >= least


@pytest.mark.parametrize("battery", [expert_store.BATTERY, ple_store.BATTERY, store_bytes.BATTERY])
def test_mutations_have_names_of_their_own(battery: Battery) -> None:
    names = [one.id for one in battery.mutations(BatteryContext())]
    assert len(names) == len(set(names))


def test_every_field_of_the_expert_header_is_mutated() -> None:
    fields = {one.field for one in expert_store.BATTERY.mutations(BatteryContext()) if one.area == "header"}
    assert fields == set(Header.__slots__)


def test_every_field_of_the_row_header_is_mutated() -> None:
    fields = {
        one.field.split("[")[0] for one in ple_store.mutations(BatteryContext()) if one.area == "header"
    }
    assert fields == set(PleHeader.__slots__)


def test_a_well_formed_but_edited_directory_is_not_the_expected_one() -> None:
    data = store_bytes.gguf_sample()
    place = data.index(b"token_embd")
    edited = data[:place] + b"T" + data[place + 1 :]
    found = store_bytes.judge_gguf_copy(edited)
    assert [(one.code, one.where) for one in found] == [("gguf.directory.expected", "tensors")]
