"""The memory of an expert cache: one array a role over all slots, written in place, multiplied by slot number.

A layer that holds all of its experts multiplies `matrices[expert]`; this multiplies `matrices[slot]`. The arrays of a
slot hold the same values in the same layout as those of a resident expert, and MLX makes one product a tile either
way, so that the bytes of a result can't depend on where a record lies or which others are there.

A slot may be written only while nothing that reads it is left to evaluate: the leases of the cache see to that.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model.experts import Codec
from assay.impl.model.geometry import Geometry
from assay.impl.stores.expert_major import affine4

Bytes = bytes | memoryview
GATE, UP, DOWN = range(3)
_BITS: Final = 4
_LARGE: Final = 1 << 16
_ROWS_AT_ONCE: Final = 16
"""Rows of a large matrix that are turned together: what they touch stays in the cache, which takes a third of the time."""


class _Dense:
    """Matrices [slot, input, output] in float32 of records in float32 or BF16."""

    def __init__(self, capacity: int, shape: tuple[int, int], codec: Codec) -> None:
        self.array = mx.zeros((capacity, shape[1], shape[0]))
        mx.eval(self.array)
        self._shape = shape
        self._is_half = codec == "bf16"
        view = np.asarray(self.array)  # the same memory
        self._view: NDArray[Any] = view
        if self._is_half:  # the low halves of widened values stay zero
            self._view = view.view("<u2").reshape(capacity, shape[1], shape[0], 2)[..., 1]

    def put(self, slot: int, data: Bytes) -> None:
        values = np.frombuffer(data, "<u2" if self._is_half else "<f4")
        rows = values.reshape(self._shape)
        step = _ROWS_AT_ONCE if values.size >= _LARGE else len(rows)
        target = self._view[slot]
        for start in range(0, len(rows), step):
            target[:, start : start + step] = rows[start : start + step].T

    def product(self, x: mx.array, slots: mx.array) -> mx.array:
        return mx.gather_mm(x, self.array, rhs_indices=slots)

    @staticmethod
    def size_bytes(shape: tuple[int, int]) -> int:
        return 4 * shape[0] * shape[1]


class _Packed:
    """Codes, scales and biases [slot, output, ...] of records in affine codes."""

    def __init__(self, capacity: int, shape: tuple[int, int], _codec: Codec) -> None:
        groups = shape[1] // affine4.GROUP
        self._shape = shape
        self.codes = mx.zeros((capacity, shape[0], groups * 8), mx.uint32)
        self.scales, self.biases = (mx.zeros((capacity, shape[0], groups)) for _ in range(2))
        mx.eval(self.codes, self.scales, self.biases)
        self._views = [np.asarray(one) for one in (self.codes, self.scales, self.biases)]

    def put(self, slot: int, data: Bytes) -> None:
        words, scales, biases = affine4.separate(np.frombuffer(data, np.uint8).reshape(self._shape[0], -1))
        self._views[0][slot] = words
        self._views[1][slot] = affine4.from_bf16(scales)
        self._views[2][slot] = affine4.from_bf16(biases)

    def product(self, x: mx.array, slots: mx.array) -> mx.array:
        return mx.gather_qmm(
            x, self.codes, self.scales, self.biases, rhs_indices=slots, transpose=True,
            group_size=affine4.GROUP, bits=_BITS,
        )  # fmt: skip

    @staticmethod
    def size_bytes(shape: tuple[int, int]) -> int:
        groups = shape[1] // affine4.GROUP
        return shape[0] * groups * (8 * 4 + 2 * 4)


class RecordPool:
    """Slots for whole records of one codec and geometry."""

    def __init__(self, capacity: int, codec: Codec, geometry: Geometry) -> None:
        kind = _kind(codec)
        self._roles = [kind(capacity, shape, codec) for shape in _shapes(geometry)]

    def put(self, slot: int, role: int, data: Bytes) -> None:
        """Writes one role of a record: gate 0, up 1, down 2, in the bytes of its store."""
        self._roles[role].put(slot, data)

    def inner(
        self, x: mx.array, slots: Sequence[int], gated: Callable[[mx.array, mx.array], mx.array]
    ) -> mx.array:
        """Returns what the down projection takes, lazily: tile i of `x` [tile, row, hidden] by slot i."""
        numbers = mx.array(np.asarray(slots, np.uint32))
        return gated(self._roles[GATE].product(x, numbers), self._roles[UP].product(x, numbers))

    def down(self, inner: mx.array, slots: Sequence[int]) -> mx.array:
        """Returns the down projections of tiles [tile, row, width] by slot, lazily."""
        return self._roles[DOWN].product(inner, mx.array(np.asarray(slots, np.uint32)))


def record_memory_bytes(codec: Codec, geometry: Geometry) -> int:
    """Returns the bytes that one record takes in a pool; in the store it takes as many or fewer."""
    kind = _kind(codec)
    return sum(kind.size_bytes(shape) for shape in _shapes(geometry))


def _kind(codec: Codec) -> type[_Dense] | type[_Packed]:
    return _Packed if codec == "mlx-affine4" else _Dense


def _shapes(geometry: Geometry) -> list[tuple[int, int]]:
    width, hidden = geometry.expert_width, geometry.hidden
    return [(width, hidden), (width, hidden), (hidden, width)]
