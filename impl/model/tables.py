"""Embedding tables for the per-layer embedding: in memory when small, row by row from the files when not."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model.clauses import TENSOR, reject
from assay.impl.stores.checkpoint.inventory import InventoryRow


class Pieces(Protocol):
    """Whoever hands out the bytes of a tensor by range."""

    def pieces(self, name: str, *, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the bytes [begin, end) of a tensor."""


class Held:
    """Rows that are there already."""

    def __init__(self, rows: mx.array) -> None:
        self._rows = rows

    def rows(self) -> mx.array:
        """Returns them."""
        return self._rows

    def close(self) -> None:
        """Has nothing to give up."""


class ResidentRows:
    """A table in memory, float32 [row, width]."""

    def __init__(self, table: mx.array) -> None:
        self.table = table

    def ask(self, ids: NDArray[np.int64]) -> Held:
        """Returns the rows asked for; a row outside the table is refused before it reaches MLX."""
        _bound(ids, self.table.shape[0])
        return Held(mx.take(self.table, mx.array(ids), axis=0))


class FileRows:
    """A table in the tensors of a checkpoint, one after another; each row is read from its own tensor's extent."""

    def __init__(self, reader: Pieces, records: Sequence[InventoryRow], width: int) -> None:
        self._reader = reader
        self._records = list(records)
        self._width = width
        self._starts = np.cumsum([0, *(record.shape[0] for record in records)])
        self._row_bytes = (records[0].end - records[0].begin) // records[0].shape[0]

    def ask(self, ids: NDArray[np.int64]) -> Held:
        """Returns the rows asked for, float32; a row that is asked for twice is read once."""
        _bound(ids, int(self._starts[-1]))
        distinct, back = np.unique(ids, return_inverse=True)
        data = b"".join(self._row(int(row)) for row in distinct)
        kind = self._records[0].dtype
        if kind == "BF16":
            words = np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)
            values = words.view(np.float32)
        else:
            values = np.frombuffer(data, "<f4" if kind == "F32" else "<f2").astype(np.float32)
        return Held(mx.array(values.reshape(-1, self._width)[back.reshape(-1)]))

    def _row(self, row: int) -> bytes:
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        begin = (row - int(self._starts[part])) * self._row_bytes
        pieces = self._reader.pieces(self._records[part].name, begin=begin, end=begin + self._row_bytes)
        return b"".join(pieces)


def _bound(ids: NDArray[np.int64], rows: int) -> None:
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < rows:
        bad = int(ids.min()) if ids.min() < 0 else int(ids.max())
        raise reject(TENSOR, "ple rows", expected=f"0 .. {rows - 1}", got=bad)
