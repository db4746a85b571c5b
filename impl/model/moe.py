"""Routed experts and the shared one. Rows are sorted by expert for many tokens, gathered for few."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import mlx.core as mx
import numpy as np

from assay.impl.model.numerics import Numerics
from assay.impl.model.router import Routing

Part = Callable[[str, mx.array], None]

SORTED_FROM: Final = 4
"""Tokens from which rows are sorted by expert; below it, one gathered product a projection is cheaper."""
TILE_ROWS: Final = 16
"""Rows of one expert that are multiplied together when the mode does not pin another number."""


WIDENED: Final = 16
"""Expert matrices of a narrower type that are widened at a time."""


class Experts(Protocol):
    """All routed experts of one layer, by tiles of rows: one product for each (tile, expert) pair."""

    def gate_up(self, x: mx.array, ids: mx.array) -> tuple[mx.array, mx.array]:
        """Returns gate and up projections [tile, row, width] of rows [tile, row, hidden] by experts [tile]."""

    def down(self, x: mx.array, ids: mx.array) -> mx.array:
        """Returns the down projection [tile, row, hidden] of rows [tile, row, width] by experts [tile]."""


@dataclass(frozen=True, slots=True)
class DenseExperts:
    """Experts as matrices in their stored type: up and gate [expert, hidden, width], down [expert, width, hidden]."""

    gate_matrix: mx.array
    up_matrix: mx.array
    down_matrix: mx.array

    def gate_up(self, x: mx.array, ids: mx.array) -> tuple[mx.array, mx.array]:
        """Returns gate and up projections of tiles of rows."""
        return _gather(x, self.gate_matrix, ids), _gather(x, self.up_matrix, ids)

    def down(self, x: mx.array, ids: mx.array) -> mx.array:
        """Returns the down projection of tiles of rows."""
        return _gather(x, self.down_matrix, ids)


@dataclass(frozen=True, slots=True)
class Packed:
    """Matrices [expert, output, input] in MLX affine codes: packed words, scales and biases."""

    codes: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int
    bits: int

    def product(self, x: mx.array, ids: mx.array) -> mx.array:
        """Returns [tile, row, output] of rows [tile, row, input] by experts [tile]."""
        return mx.gather_qmm(
            x, self.codes, self.scales, self.biases, rhs_indices=ids, transpose=True,
            group_size=self.group_size, bits=self.bits,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackedExperts:
    """Experts in affine codes, multiplied as they are stored."""

    gate_matrix: Packed
    up_matrix: Packed
    down_matrix: Packed

    def gate_up(self, x: mx.array, ids: mx.array) -> tuple[mx.array, mx.array]:
        """Returns gate and up projections of tiles of rows."""
        return self.gate_matrix.product(x, ids), self.up_matrix.product(x, ids)

    def down(self, x: mx.array, ids: mx.array) -> mx.array:
        """Returns the down projection of tiles of rows."""
        return self.down_matrix.product(x, ids)


@dataclass(frozen=True, slots=True)
class MoeWeights:
    """Weights of one layer; projections [input, output] in their stored type."""

    router: mx.array
    experts: Experts
    shared_gate: mx.array
    shared_up: mx.array
    shared_down: mx.array
    shared_scale: mx.array


def forward(x: mx.array, weights: MoeWeights, routing: Routing, numerics: Numerics, part: Part) -> mx.array:
    """Returns the routed experts by their weights plus the shared one by its gate, float32 [token, hidden].

    Order: routed outputs are added in rank order, so that a token's sum does not depend on its neighbours.
    Source: facts 2.6; bug report A19 (weights are indexed by rank, never by expert id).
    """
    outputs = _routed(x, weights.experts, routing.ids, numerics)
    routed = mx.sum(outputs * routing.weights[:, :, None], axis=1)
    (alone,) = numerics.halves(partial(_shared, weights, numerics), x)
    opened = numerics.linear(x, weights.shared_scale)
    part("routed", routed)
    part("shared", alone)
    part("shared_gate", opened)
    return routed + mx.sigmoid(opened) * alone


def _shared(weights: MoeWeights, numerics: Numerics, x: mx.array) -> tuple[mx.array, ...]:
    inner = numerics.silu(numerics.linear(x, weights.shared_gate)) * numerics.linear(x, weights.shared_up)
    return (numerics.linear(inner, weights.shared_down),)


def _routed(x: mx.array, experts: Experts, ids: mx.array, numerics: Numerics) -> mx.array:
    """Returns the output of every chosen expert, [token, rank, hidden]."""
    tokens, used = ids.shape
    rows = numerics.tile_rows or 1
    if tokens < SORTED_FROM:
        source = mx.repeat(x, used, axis=0)[:, None, :]
        if rows > 1:
            source = mx.concatenate([source, mx.zeros((tokens * used, rows - 1, x.shape[1]))], axis=1)
        return _expert(source, experts, ids.reshape(-1), numerics)[:, 0].reshape(tokens, used, -1)
    rows = numerics.tile_rows or TILE_ROWS
    mx.eval(ids)  # tiles are cut by the host; NumPy's own conversion would swallow an error of the evaluation
    flat = np.asarray(ids).reshape(-1)
    order = np.argsort(flat, kind="stable")
    counts = np.bincount(flat)
    tiles = -(-counts // rows)
    first = np.cumsum(tiles) - tiles
    begin = np.cumsum(counts) - counts
    within = np.arange(order.size) - begin[flat[order]]
    places = (first[flat[order]] + within // rows) * rows + within % rows
    total = int(tiles.sum())
    tokens_of = np.zeros(total * rows, np.int32)
    tokens_of[places] = order // used
    tiled = mx.take(x, mx.array(tokens_of), axis=0).reshape(total, rows, -1)
    owners = np.repeat(np.arange(counts.size), tiles).astype(np.uint32)
    outputs = _expert(tiled, experts, mx.array(owners), numerics)
    back = np.empty(order.size, np.int32)
    back[order] = places
    return mx.take(outputs.reshape(total * rows, -1), mx.array(back), axis=0).reshape(tokens, used, -1)


def _expert(x: mx.array, experts: Experts, ids: mx.array, numerics: Numerics) -> mx.array:
    return numerics.halves(partial(_tiles, experts, numerics), x, ids)[0]


def _tiles(experts: Experts, numerics: Numerics, x: mx.array, ids: mx.array) -> tuple[mx.array, ...]:
    gate, up = experts.gate_up(x, ids)
    return (experts.down(numerics.silu(gate) * up, ids),)


def _gather(x: mx.array, matrices: mx.array, ids: mx.array) -> mx.array:
    if matrices.dtype == mx.float32:
        return mx.gather_mm(x, matrices, rhs_indices=ids)
    pieces = []  # MLX gathers float32 matrices only, on the CPU; few are widened at a time
    for start in range(0, x.shape[0], WIDENED):
        stop = min(start + WIDENED, x.shape[0])
        pieces.append(x[start:stop] @ mx.take(matrices, ids[start:stop], axis=0).astype(mx.float32))
    return pieces[0] if len(pieces) == 1 else mx.concatenate(pieces)
