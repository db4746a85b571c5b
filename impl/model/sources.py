"""The tensors of a checkpoint as MLX arrays, looked up by name and shape before a byte is read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model.clauses import HASH, TENSOR, reject
from assay.impl.model.ple import Rows
from assay.impl.model.tables import FileRows, ResidentRows
from assay.impl.stores.checkpoint.inventory import InventoryRow

PREFIXES: Final = ("model.language_model.", "model.", "language_model.model.", "")
"""What stands before `layers.` in the names: the published checkpoint, save_pretrained, older conversions."""
WIDEN_BELOW_BYTES: Final = 2 << 30
"""Weights of at most this many stored bytes are widened to float32 once, exactly; MLX's CPU products in narrower types
use no BLAS. Larger ones stay in their stored type and are widened as they are used."""
RESIDENT_BELOW_BYTES: Final = 256 << 20
"""Embedding tables up to this size are held in memory; larger ones are read row by row."""
_STORED: Final[dict[str, tuple[str, Any]]] = {
    "F32": ("<f4", None),
    "F16": ("<f2", None),
    "BF16": ("<u2", mx.bfloat16),
}


class Tensors(Protocol):
    """Where bytes come from: a `CheckpointReader`, or memory."""

    rows: dict[str, InventoryRow]

    def pieces(self, name: str, *, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the bytes [begin, end) of a tensor."""

    def read(self, name: str) -> bytes:
        """Returns all bytes of a small tensor."""


class Memory:
    """Tensors in memory in the form of a checkpoint reader."""

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self._tensors = tensors
        self.rows = {
            name: InventoryRow(
                name,
                "I64" if array.dtype.kind == "i" else "F32",
                array.shape,
                "memory",
                0,
                self._layout(name).nbytes,
            )
            for name, array in tensors.items()
        }

    def pieces(self, name: str, *, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the bytes [begin, end) of a tensor."""
        yield self.read(name)[begin:end]

    def read(self, name: str) -> bytes:
        """Returns all bytes of a tensor."""
        return self._layout(name).tobytes()

    def _layout(self, name: str) -> NDArray[Any]:
        array = self._tensors[name]
        return array.astype("<i8" if array.dtype.kind == "i" else "<f4")


class Source:
    """The tensors of a checkpoint by the names of this module, as MLX arrays."""

    def __init__(self, reader: Tensors) -> None:
        self._reader = reader
        self.resident_bytes = 0
        own = [row for row in reader.rows.values() if "ngram_embedding" not in row.name]
        self._widens = sum(row.end - row.begin for row in own) <= WIDEN_BELOW_BYTES
        self._prefix = next(
            (prefix for prefix in PREFIXES if f"{prefix}embed_tokens.weight" in reader.rows), PREFIXES[0]
        )

    def name(self, name: str) -> str:
        """Returns the stored name of a tensor below the text model."""
        return self._prefix + name

    def has(self, name: str) -> bool:
        """Says whether a stored name exists."""
        return name in self._reader.rows

    def row(self, name: str, shape: Sequence[int]) -> InventoryRow:
        """Returns the record of a tensor with this shape and a type that can be read."""
        row = self._reader.rows.get(name)
        if row is None:
            raise reject(TENSOR, name, expected=f"a tensor {list(shape)}", got="none")
        if row.shape != tuple(shape) or row.dtype not in _STORED:
            expected = f"{list(shape)} in {', '.join(_STORED)}"
            raise reject(TENSOR, name, expected=expected, got=f"{list(row.shape)} {row.dtype}")
        return row

    def matrix(self, name: str, shape: Sequence[int]) -> mx.array:
        """Returns a tensor as stored, widened to float32 when all weights fit."""
        found = _array(self._bytes(self.row(name, shape)), self._reader.rows[name])
        if self._widens and found.dtype != mx.float32:
            found = found.astype(mx.float32)
        return self._kept(found)

    def projection(self, name: str, outputs: int, inputs: int) -> mx.array:
        """Returns a linear layer's matrix as [input, output]."""
        return self._kept(mx.contiguous(self.matrix(name, (outputs, inputs)).T), again=True)

    def vector(self, name: str, shape: Sequence[int]) -> mx.array:
        """Returns a small tensor in float32."""
        found = _array(self._bytes(self.row(name, shape)), self._reader.rows[name])
        return self._kept(found.astype(mx.float32))

    def buffer(self, name: str, derived: Sequence[int]) -> None:
        """Refuses a stored int64 vector that is not the derived one; where none is stored there is nothing to judge."""
        row = self._reader.rows.get(name)
        if row is None:
            return
        if row.dtype != "I64" or len(row.shape) != 1 or row.shape[0] > 4096:
            raise reject(TENSOR, name, expected="a vector of I64", got=f"{list(row.shape)} {row.dtype}")
        stored = [int(one) for one in np.frombuffer(self._reader.read(name), "<i8")]
        if stored != list(derived):
            raise reject(HASH, name, expected=list(derived), got=stored)

    def table(self, names: Sequence[str], rows: int, width: int) -> Rows:
        """Returns a table that lies in one tensor or in several, one after another."""
        records = self.records(names, rows, width)
        size = sum(record.end - record.begin for record in records)
        if size <= RESIDENT_BELOW_BYTES:
            parts = [_array(self._bytes(record), record).astype(mx.float32) for record in records]
            return ResidentRows(self._kept(parts[0] if len(parts) == 1 else mx.concatenate(parts)))
        return FileRows(self._reader, records, width)

    def records(self, names: Sequence[str], rows: int, width: int) -> list[InventoryRow]:
        """Returns the records of a table's parts, which together have its rows."""
        records, found = [], 0
        for name in names:
            stored = self._reader.rows.get(name)
            height = stored.shape[0] if stored is not None and len(stored.shape) == 2 else 0
            records.append(self.row(name, (height, width)))
            found += height
        if found != rows or len({record.dtype for record in records}) != 1:
            kinds = ", ".join(sorted({record.dtype for record in records}))
            raise reject(
                TENSOR, names[0], expected=f"{rows} rows of one type", got=f"{found} rows of {kinds}"
            )
        return records

    def made(self, array: mx.array) -> mx.array:
        """Returns an array of what was read, evaluated, so that the parts of it can go."""
        mx.eval(array)
        return array

    def _bytes(self, row: InventoryRow) -> NDArray[np.uint8]:
        data = np.empty(row.end - row.begin, np.uint8)
        at = 0
        for piece in self._reader.pieces(row.name):
            data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        return data

    def _kept(self, array: mx.array, *, again: bool = False) -> mx.array:
        mx.eval(array)
        self.resident_bytes += 0 if again else array.nbytes
        return array


def _array(data: NDArray[np.uint8], row: InventoryRow) -> mx.array:
    layout, kind = _STORED[row.dtype]
    values = mx.array(data.view(layout).reshape(row.shape))
    return values if kind is None else values.view(kind)
