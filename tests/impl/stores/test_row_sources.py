"""Where rows and parameters come from: shards in any order, and names filled exactly once."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from assay.impl.stores.checkpoint.fill_once import FillOnce
from assay.impl.stores.checkpoint.row_shards import RowShards
from assay.impl.stores.extents import Extent, StoreFile
from assay.mutations.store_memory import memory_extent
from assay.spec.errors import AssayError

ROW = struct.Struct("<2f")


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(AssayError) as caught:
        call()
    return caught.value.finding.code, caught.value.finding.where


@pytest.fixture
def shards(tmp_path: Path) -> list[Extent]:
    """Three shards of four rows, row r = [r, r + 0.5], stored in the order 2, 0, 1 with 64 junk bytes between."""
    data, starts = b"", {}
    for shard in (2, 0, 1):
        starts[shard] = len(data)
        data += b"".join(ROW.pack(row, row + 0.5) for row in range(4 * shard, 4 * shard + 4)) + b"\xee" * 64
    (tmp_path / "table").write_bytes(data)
    file = StoreFile.open(tmp_path / "table")
    return [file.extent(starts[shard], 32, f"shard {shard}") for shard in range(3)]


@pytest.mark.parametrize("row", [0, 3, 4, 7, 8, 11])
def test_a_row_comes_from_its_own_shard(shards: list[Extent], row: int) -> None:
    """Bug report A8."""
    assert ROW.unpack(RowShards(shards, 8).read(row, 1)) == (row, row + 0.5)


def test_a_row_behind_the_table_is_refused(shards: list[Extent]) -> None:
    """Bug report A8: row 12."""
    assert refusal(lambda: RowShards(shards, 8).read(12, 1)) == ("rows.row", "rows")
    assert refusal(lambda: RowShards(shards, 8).locate(12)) == ("rows.row", "row")


def test_rows_cross_shards_in_order(shards: list[Extent]) -> None:
    got = RowShards(shards, 8).read(2, 9)
    assert [ROW.unpack_from(got, 8 * place)[0] for place in range(9)] == list(range(2, 11))


def test_shards_that_share_bytes_are_refused(shards: list[Extent]) -> None:
    file = shards[0].file
    overlapping = [shards[0], file.extent(shards[0].start + 8, 32, "shard 1")]
    assert refusal(lambda: RowShards(overlapping, 8)) == ("rows.shard", "shard 1")


@pytest.mark.parametrize("size", [0, 31])
def test_a_shard_of_half_a_row_is_refused(size: int) -> None:
    assert refusal(lambda: RowShards([memory_extent(bytes(64), 0, size, "s")], 8)) == ("rows.shard", "s")


def test_a_scale_comes_from_the_artifact_or_not_at_all() -> None:
    """Bug report A9: code 2.0, stored scale 0.25, all memory poisoned with a plausible 1.0."""
    memory = np.full(2, 1.0, dtype=np.float32)
    ledger: FillOnce[np.ndarray] = FillOnce(["code", "scale"])
    ledger.fill("code", memory[:1])
    memory[0] = 2.0
    assert refusal(ledger.finish) == ("parameters.once", "scale")
    memory[1] = 0.25
    ledger.fill("scale", memory[1:])
    filled = ledger.finish()
    assert float(filled["code"][0] * filled["scale"][0]) == 0.5


@pytest.mark.parametrize("name", ["code", "another"])
def test_a_name_is_filled_once_and_only_if_declared(name: str) -> None:
    ledger: FillOnce[int] = FillOnce(["code"])
    ledger.fill("code", 1)
    assert refusal(lambda: ledger.fill(name, 2)) == ("parameters.once", name)
