"""Memory is used again when nobody looks at it, and never before (bug report A23, store side)."""

import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from assay.impl.stores.expert_major.store import ExpertStore
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.recycled import RecycledBuffers
from assay.mutations.store_samples import SMALL_FAMILY, sample_bytes, small_component, small_manifest


def test_a_buffer_that_nobody_looks_at_is_used_again() -> None:
    buffers = RecycledBuffers(2)
    for _ in range(5):
        buffers.take(100)
    assert buffers.made == 1


@pytest.mark.parametrize(
    "look",
    [
        lambda view: view,
        lambda view: view[10:20],
        lambda view: view.toreadonly()[3:4],
        lambda view: np.frombuffer(view, np.uint8),
        lambda view: np.frombuffer(view, np.uint8)[5:6],
    ],
    ids=["view", "slice", "read-only slice", "array", "slice of an array"],
)
def test_a_buffer_that_is_looked_at_in_any_way_is_not(look: object) -> None:
    buffers = RecycledBuffers(4)
    view = buffers.take(100)
    view[:] = b"\xa5" * 100
    seen = look(view)
    del view
    for _ in range(3):
        buffers.take(100)[:] = b"\x5a" * 100
    assert set(bytes(seen)) == {0xA5}
    assert buffers.made == 2


def test_a_smaller_buffer_is_not_handed_out_for_a_larger_read() -> None:
    buffers = RecycledBuffers(2)
    buffers.take(10)
    assert [len(buffers.take(size)) for size in (11, 10, 3)] == [11, 10, 3]
    assert buffers.made == 2


def test_a_reader_that_takes_records_one_by_one_needs_few_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[RecycledBuffers] = []

    class Watched(RecycledBuffers):
        def __init__(self, kept: int) -> None:
            super().__init__(kept)
            made.append(self)

    monkeypatch.setattr("assay.impl.stores.expert_major.store.RecycledBuffers", Watched)
    digests = write_expert_store(tmp_path / "store", small_manifest(), SMALL_FAMILY, small_component)
    assert digests is not None
    places = [(layer, expert) for layer in range(3) for expert in range(4)] * 20
    with StoreFile.open(tmp_path / "store") as file:
        store = ExpertStore.open(file.extent(), SMALL_FAMILY).with_digests(digests)
        for record, (layer, expert) in zip(store.read_records(places, 2), places, strict=True):
            assert record.component(1) == sample_bytes(layer, 1, expert, 4608)
    assert made[-1].made <= 2 * 2 + 2


def test_the_bytes_of_a_record_can_not_be_written_to(tmp_path: Path) -> None:
    write_expert_store(tmp_path / "store", small_manifest(), SMALL_FAMILY, small_component)
    with StoreFile.open(tmp_path / "store") as file:
        record = ExpertStore.open(file.extent(), SMALL_FAMILY).read_record(0, 0)
    with pytest.raises(TypeError):
        record.data[0] = 1
    with pytest.raises(TypeError):
        record.component(0)[0] = 1


class Holders(RuleBasedStateMachine):
    """However views are kept and dropped, what is held never changes."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers = RecycledBuffers(3)
        self.held: list[tuple[memoryview, int]] = []
        self.next = 0

    @rule(size=st.integers(1, 64), keep=st.booleans())
    def take(self, size: int, keep: bool) -> None:
        self.next = (self.next + 1) % 256
        view = self.buffers.take(size)
        view[:] = bytes([self.next]) * size
        if keep:
            self.held.append((view.toreadonly(), self.next))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))

    @invariant()
    def what_is_held_is_unchanged(self) -> None:
        for view, number in self.held:
            assert set(view) == {number}

    @invariant()
    def few_are_remembered(self) -> None:
        gc.collect(0)
        assert len(self.buffers._buffers) <= 3


TestHolders = Holders.TestCase
TestHolders.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
