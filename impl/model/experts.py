"""The routed experts of one layer, wherever their weights lie: as matrices, in affine codes, or with somebody who streams.

A layer asks for outputs of tiles of rows and never sees a weight. Records, as the expert store has them, become experts
here, so that a layer that holds all of them and one that gets them record by record multiply the same arrays.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Protocol

import mlx.core as mx
import numpy as np

from assay.impl.model.geometry import Geometry
from assay.impl.stores.expert_major import affine4

Gated = Callable[[mx.array, mx.array], mx.array]
Bytes = bytes | memoryview
Codec = Literal["f32", "bf16", "mlx-affine4"]
"""How the expert store of a private artifact holds its records."""

WIDENED: Final = 16
"""Expert matrices of a narrower type that are widened at a time."""


def from_records(
    records: Iterable[Iterable[Bytes]], count: int, codec: Codec, geometry: Geometry
) -> "DenseExperts | PackedExperts":
    """Returns experts 0, 1, ... out of as many records; one is held at a time beside the result.

    Args:
        records: for each expert the bytes of gate, up and down, rows of outputs one after another.
        count: of records.
        codec: of the records. Values of 16 bits are widened, exactly; so are scales and biases of affine codes.
        geometry: width and hidden size.
    """
    shapes = [(geometry.expert_width, geometry.hidden)] * 2 + [(geometry.hidden, geometry.expert_width)]
    if codec == "mlx-affine4":
        packed = [_PackedSpace(count, shape) for shape in shapes]
        _fill(packed, records)
        return PackedExperts(*(one.finished() for one in packed))
    dense = [_DenseSpace(count, shape, codec) for shape in shapes]
    _fill(dense, records)
    return DenseExperts(*(one.finished() for one in dense))


class Experts(Protocol):
    """All routed experts of one layer, wherever their weights lie.

    Attributes:
        has_guesses: whether it wants to know early where rows will probably go; what it does with it can't change a
            result.
    """

    has_guesses: ClassVar[bool]

    def hint(self, ids: mx.array) -> None:
        """Takes the experts that the layer's router makes of the rows as they are one block earlier.

        Args:
            ids: int32 [token, used], not evaluated.
        """

    def outputs(self, x: mx.array, ids: mx.array, gated: Gated) -> mx.array:
        """Returns what each tile's expert makes of its rows, float32 [tile, row, hidden].

        Args:
            x: float32 [tile, row, hidden]; rows that only fill a tile are zeros or repeats, and nobody reads them.
            ids: [tile], the expert of each tile, inside the table; ascending where many tokens were sorted, in rank
                order where few were gathered. It may not be evaluated yet.
            gated: makes the input of the down projection out of gate and up projections [tile, row, width].
        """


@dataclass(frozen=True, slots=True)
class DenseExperts:
    """Experts as matrices in their stored type: up and gate [expert, hidden, width], down [expert, width, hidden]."""

    has_guesses: ClassVar[bool] = False

    gate_matrix: mx.array
    up_matrix: mx.array
    down_matrix: mx.array

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return self.gate_matrix.nbytes + self.up_matrix.nbytes + self.down_matrix.nbytes

    def hint(self, ids: mx.array) -> None:
        """Needs none: all weights are there."""

    def outputs(self, x: mx.array, ids: mx.array, gated: Gated) -> mx.array:
        """Returns the outputs of tiles of rows, lazily."""
        inner = gated(_gather(x, self.gate_matrix, ids), _gather(x, self.up_matrix, ids))
        return _gather(inner, self.down_matrix, ids)


@dataclass(frozen=True, slots=True)
class Packed:
    """Matrices [expert, output, input] in MLX affine codes: packed words, scales and biases."""

    codes: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and biases."""
        return self.codes.nbytes + self.scales.nbytes + self.biases.nbytes

    def product(self, x: mx.array, ids: mx.array) -> mx.array:
        """Returns [tile, row, output] of rows [tile, row, input] by experts [tile]."""
        return mx.gather_qmm(
            x, self.codes, self.scales, self.biases, rhs_indices=ids, transpose=True,
            group_size=self.group_size, bits=self.bits,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackedExperts:
    """Experts in affine codes, multiplied as they are stored."""

    has_guesses: ClassVar[bool] = False

    gate_matrix: Packed
    up_matrix: Packed
    down_matrix: Packed

    @property
    def nbytes(self) -> int:
        """Bytes of all codes, scales and biases."""
        return self.gate_matrix.nbytes + self.up_matrix.nbytes + self.down_matrix.nbytes

    def hint(self, ids: mx.array) -> None:
        """Needs none: all weights are there."""

    def outputs(self, x: mx.array, ids: mx.array, gated: Gated) -> mx.array:
        """Returns the outputs of tiles of rows, lazily."""
        inner = gated(self.gate_matrix.product(x, ids), self.up_matrix.product(x, ids))
        return self.down_matrix.product(inner, ids)


def _gather(x: mx.array, matrices: mx.array, ids: mx.array) -> mx.array:
    if matrices.dtype == mx.float32:
        return mx.gather_mm(x, matrices, rhs_indices=ids)
    pieces = []  # MLX gathers float32 matrices only, on the CPU; few are widened at a time
    for start in range(0, x.shape[0], WIDENED):
        stop = min(start + WIDENED, x.shape[0])
        pieces.append(x[start:stop] @ mx.take(matrices, ids[start:stop], axis=0).astype(mx.float32))
    return pieces[0] if len(pieces) == 1 else mx.concatenate(pieces)


class _Space(Protocol):
    """Room for one role of all experts."""

    def put(self, expert: int, data: Bytes) -> None:
        """Takes the bytes of one expert."""


class _DenseSpace:
    """Matrices [expert, input, output] of the bytes of matrices [output, input]."""

    def __init__(self, count: int, shape: tuple[int, int], codec: Codec) -> None:
        self._held = np.empty((count, shape[1], shape[0]), np.float32)
        self._shape, self._codec = shape, codec

    def put(self, expert: int, data: Bytes) -> None:
        if self._codec == "f32":
            values = np.frombuffer(data, "<f4")
        else:
            values = affine4.from_bf16(np.frombuffer(data, "<u2"))
        self._held[expert] = values.reshape(self._shape).T

    def finished(self) -> mx.array:
        return mx.array(self._held)


class _PackedSpace:
    """Codes, scales and biases of the bytes of blocks."""

    def __init__(self, count: int, shape: tuple[int, int]) -> None:
        self._rows, groups = shape[0], shape[1] // affine4.GROUP
        self._codes = np.empty((count, shape[0], groups * 8), np.uint32)
        self._scales = np.empty((count, shape[0], groups), np.float32)
        self._biases = np.empty_like(self._scales)

    def put(self, expert: int, data: Bytes) -> None:
        words, scales, biases = affine4.separate(np.frombuffer(data, np.uint8).reshape(self._rows, -1))
        self._codes[expert] = words
        self._scales[expert], self._biases[expert] = affine4.from_bf16(scales), affine4.from_bf16(biases)

    def finished(self) -> Packed:
        return Packed(mx.array(self._codes), mx.array(self._scales), mx.array(self._biases), affine4.GROUP, 4)


def _fill(spaces: Sequence[_Space], records: Iterable[Iterable[Bytes]]) -> None:
    for expert, record in enumerate(records):
        for space, data in zip(spaces, record, strict=True):
            space.put(expert, data)
