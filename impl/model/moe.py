"""Routed experts and the shared one. Rows are sorted by expert for many tokens, gathered for few."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import mlx.core as mx
import numpy as np

from assay.impl.model import backend
from assay.impl.model.experts import Experts
from assay.impl.model.numerics import Numerics
from assay.impl.model.router import Routing

Part = Callable[[str, mx.array], None]

SORTED_FROM: Final = 4
"""Tokens from which rows are sorted by expert; below it, one gathered product a projection is cheaper."""
TILE_ROWS: Final = 16
"""Rows of one expert that are multiplied together when the mode does not pin another number."""


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
    (alone,) = numerics.halves(partial(_shared, weights, numerics), x)
    opened = numerics.linear(x, weights.shared_scale)
    outputs = _routed(x, weights.experts, routing.ids, numerics, (alone, opened))
    routed = mx.sum(outputs * routing.weights[:, :, None], axis=1)
    part("routed", routed)
    part("shared", alone)
    part("shared_gate", opened)
    return routed + mx.sigmoid(opened) * alone


def _shared(weights: MoeWeights, numerics: Numerics, x: mx.array) -> tuple[mx.array, ...]:
    inner = numerics.silu(numerics.linear(x, weights.shared_gate)) * numerics.linear(x, weights.shared_up)
    return (numerics.linear(inner, weights.shared_down),)


def _routed(
    x: mx.array, experts: Experts, ids: mx.array, numerics: Numerics, meanwhile: Sequence[mx.array]
) -> mx.array:
    """Returns the output of every chosen expert, [token, rank, hidden]; the device makes `meanwhile` while the host sorts."""
    tokens, used = ids.shape
    rows = numerics.tile_rows or 1
    if tokens < SORTED_FROM:
        source = mx.repeat(x, used, axis=0)[:, None, :]
        if rows > 1:
            source = mx.concatenate([source, mx.zeros((tokens * used, rows - 1, x.shape[1]))], axis=1)
        return _expert(source, experts, ids.reshape(-1), numerics)[:, 0].reshape(tokens, used, -1)
    rows = numerics.tile_rows or TILE_ROWS
    mx.eval(ids)  # tiles are cut by the host; NumPy's own conversion would swallow an error of the evaluation
    backend.start(*meanwhile)
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
    def gated(gate: mx.array, up: mx.array) -> mx.array:
        return numerics.silu(gate) * up

    return (experts.outputs(x, ids, gated),)
