"""Rows of a table that lies in many shards: logical row -> (shard, slot) -> that shard's own extent.

Shards may lie in any order, in different files, with anything between them. There is no base offset plus row times
stride over the whole table; each shard says where it is.
"""

import itertools
from collections.abc import Sequence
from typing import Final

from assay.impl.stores.extents import Extent
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

SHARD: Final = declare(
    "rows.shard",
    Authority.RULE,
    "Each shard holds exactly its rows, and no two shards share bytes of a file.",
    source="PLE shards of the checkpoint; bug report A8",
    cause="shards of different tables, or an extent computed from another shard's",
)
SHARD_ROW: Final = declare(
    "rows.row",
    Authority.FORM,
    "A row number is inside the table.",
    source="PLE shards of the checkpoint; bug report A8",
    cause="a hash of another table",
)

_STAGE: Final = "rows"


class RowShards:
    """One table over the extents of its shards, in logical order."""

    def __init__(self, shards: Sequence[Extent], row_bytes: int) -> None:
        """Takes the shards in the order of their rows.

        Raises:
            ContractError: rows.shard.
        """
        if not shards or row_bytes < 1:
            raise _error(SHARD, "shards", "at least one, with rows of at least a byte", len(shards))
        self.row_bytes = row_bytes
        self._shards = list(shards)
        self._starts = [0]
        for shard in shards:
            if shard.size % row_bytes or not shard.size:
                raise _error(SHARD, shard.name, f"whole rows of {row_bytes} bytes", f"{shard.size} bytes")
            self._starts.append(self._starts[-1] + shard.size // row_bytes)
        _check_disjoint(self._shards)

    @property
    def rows(self) -> int:
        """Number of rows of the whole table."""
        return self._starts[-1]

    def locate(self, row: int) -> tuple[int, int]:
        """Returns shard and slot of a row.

        Raises:
            ContractError: rows.row.
        """
        if not 0 <= row < self.rows:
            raise _error(SHARD_ROW, "row", f"0..{self.rows - 1}", row)
        low, high = 0, len(self._shards)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._starts[middle] <= row else (low, middle)
        return low, row - self._starts[low]

    def read(self, first: int, count: int) -> bytes:
        """Returns consecutive rows, across shards if need be.

        Raises:
            ContractError: rows.row.
            AdmissionError: store.file.*.
        """
        if count < 0 or first < 0 or count > self.rows - first:
            raise _error(SHARD_ROW, "rows", f"a range inside {self.rows}", f"{count} from {first}")
        pieces = []
        while count:
            shard, slot = self.locate(first)
            here = min(count, self._starts[shard + 1] - first)
            pieces.append(self._shards[shard].read(slot * self.row_bytes, here * self.row_bytes))
            first, count = first + here, count - here
        return b"".join(pieces)


def _check_disjoint(shards: Sequence[Extent]) -> None:
    by_file: dict[tuple[int, ...], list[Extent]] = {}
    for shard in shards:
        by_file.setdefault(shard.file.identity[:2], []).append(shard)
    for extents in by_file.values():
        ordered = sorted(extents, key=lambda one: one.start)
        for one, other in itertools.pairwise(ordered):
            if other.start < one.start + one.size:
                raise _error(SHARD, other.name, f"a start from {one.start + one.size}", other.start)


def _error(code: str, where: str, expected: object, got: object) -> ContractError:
    return ContractError(Finding.of(code, _STAGE, where, expected=expected, got=got))
