"""Sparse attention by gathered rows: score groups, choose the set, emit by time, gather, attend.

Nothing here has the extent of queries times keys. Queries go in tiles whose size is bounded by bytes; a tile's scores
have one value for each complete group, its gathered rows one for each selected token. Rows are named by their place
from the sequence's anchor, so padding has no row and a physical place never matters.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model import columns, norms, rope
from assay.impl.model.clauses import CEILING, refuse
from assay.impl.model.columns import Column
from assay.impl.model.geometry import Geometry
from assay.impl.model.numerics import Numerics

Part = Callable[[str, mx.array], None]
_LAST: Final = 2**31 - 1

TILE_BYTES: Final = 32 << 20
TILE_QUERIES: Final = 128
SCORE_GROUPS: Final = 512
"""Groups that are scored together."""
WIDTH_STEP: Final = 16
"""Selections are padded to a multiple of this many groups: a function of the query's own history, so that a query
meets the same shapes whatever chunk it stands in."""


@dataclass(frozen=True, slots=True)
class QsaWeights:
    """Weights of one layer; projections [input, output] in their stored type, gains and biases float32."""

    q: mx.array
    k: mx.array
    v: mx.array
    o: mx.array
    q_gain: mx.array
    k_gain: mx.array
    index: mx.array
    index_q_gain: mx.array
    index_k_gain: mx.array
    q_bias: mx.array | None = None
    k_bias: mx.array | None = None
    v_bias: mx.array | None = None
    o_bias: mx.array | None = None


@dataclass(frozen=True, slots=True)
class Cache:
    """What a layer carries for one sequence; row i is the i-th token from the anchor.

    Attributes:
        keys: [row, key head, dim], after norm and rotation.
        values: [row, key head, dim].
        raw: [row, index dim], before pooling, norm and rotation.
        pooled: [group, index dim]: mean of four raw keys, normed and rotated at the group's first position.
    """

    keys: Column
    values: Column
    raw: Column
    pooled: Column


@dataclass(frozen=True, slots=True)
class Fresh:
    """Rows of one chunk that are not published yet, shaped as those of the cache."""

    keys: mx.array
    values: mx.array
    raw: mx.array
    pooled: mx.array


@dataclass(slots=True)
class Counters:
    """Physical work of sparse attention, all layers and queries together.

    Attributes:
        groups_scored: scores computed.
        groups_selected: groups emitted.
        largest_width: most tokens that one query attended to.
        gathered_rows: key rows gathered, padding of the tiles included; as many value rows.
        gathered_bytes: bytes of both.
        raw_key_bytes: raw index keys pooled.
        pooled_key_bytes: pooled keys read for scoring.
        workspace_bytes: largest tile: its scores and its gathered rows.
        dense_mask_bytes: always 0: there is no mask over queries and keys.
    """

    groups_scored: int = 0
    groups_selected: int = 0
    largest_width: int = 0
    gathered_rows: int = 0
    gathered_bytes: int = 0
    raw_key_bytes: int = 0
    pooled_key_bytes: int = 0
    workspace_bytes: int = 0
    dense_mask_bytes: int = field(default=0, init=False)


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told of what happens inside: parts for a capture, scores for the finite check, counters."""

    part: Part
    check: Callable[[mx.array], None]
    counters: Counters
    is_recording: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows that a tile of queries attends to.

    Attributes:
        rows: int32 [query, place], from the anchor, ascending where valid, inside the visible rows everywhere.
        is_valid: bool [query, place].
    """

    rows: mx.array
    is_valid: mx.array


def fresh(geometry: Geometry, rows: int = 0) -> Cache:
    """Returns the cache before the first token; `rows` are to come, if that is known."""
    heads = (geometry.kv_heads, geometry.head_dim)
    return Cache(
        columns.empty(heads, rows),
        columns.empty(heads, rows),
        columns.empty((geometry.index_dim,), rows),
        columns.empty((geometry.index_dim,), rows // geometry.ratio),
    )


def forward(
    x: mx.array,
    weights: QsaWeights,
    caches: Sequence[Cache],
    positions: Sequence[NDArray[np.int64]],
    starts: Sequence[NDArray[np.int64]],
    geometry: Geometry,
    numerics: Numerics,
    watch: Watch,
) -> tuple[mx.array, list[Fresh]]:
    """Returns the block output of all rows, and the rows that each sequence's cache gains.

    Args:
        x: float32 [row, hidden]: the rows of one sequence after those of another.
        weights: of this layer.
        caches: of each sequence before its rows.
        positions: int64 [row, 3] rotary positions of the new rows of each sequence.
        starts: int64 [group, 3] positions of the first tokens of the groups that its new rows complete.
        geometry: dimensions.
        numerics: how products are made.
        watch: who is told.

    Source: facts 2.4 and 2.5; AFN-016, AFN-017; bug reports A10 to A12.
    """
    g = geometry
    queries, raw_keys, values, index = numerics.halves(partial(_projected, weights, numerics), x)
    fused = queries.reshape(-1, g.heads, 2, g.head_dim)
    q_normed = norms.rms(fused[:, :, 0], weights.q_gain, g.eps)
    k_normed = norms.rms(raw_keys.reshape(-1, g.kv_heads, g.head_dim), weights.k_gain, g.eps)
    index = index.reshape(-1, g.index_heads + 1, g.index_dim)
    index_query = norms.rms(index[:, : g.index_heads], weights.index_q_gain, g.eps)
    parts = (
        ("q_proj", queries), ("k_proj", raw_keys), ("v_proj", values), ("q_norm", q_normed), ("k_norm", k_normed),
        ("index_qk", index.reshape(x.shape[0], -1)), ("index_query", index_query),
    )  # fmt: skip
    for name, array in parts:
        watch.part(name, array)
    turn = rope.turns(g, np.concatenate(positions))
    q, k, asked = (rope.rotate(one, turn) for one in (q_normed, k_normed, index_query))
    values = values.reshape(k.shape)
    outputs, gained, start = [], [], 0
    shown = _Shown()
    for cache, rows, group_starts in zip(caches, positions, starts, strict=True):
        stop = start + rows.shape[0]
        raw = index[start:stop, g.index_heads]
        pooled = _pool(cache, raw, group_starts, weights, g, watch.counters)
        new = Fresh(k[start:stop], values[start:stop], raw, pooled)
        gained.append(new)
        outputs.append(_attend_all(q[start:stop], asked[start:stop], cache, new, g, numerics, watch, shown))
        start = stop
    attended = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs)
    gated, out = numerics.halves(partial(_finished, weights, numerics), attended, fused[:, :, 1])
    shown.tell(watch.part)
    watch.part("gated", gated)
    return out, gained


def _projected(weights: QsaWeights, numerics: Numerics, x: mx.array) -> tuple[mx.array, ...]:
    """Returns queries with their gates, keys, values, and index queries with the raw index key, of each row."""
    return (
        _biased(numerics.linear(x, weights.q), weights.q_bias),
        _biased(numerics.linear(x, weights.k), weights.k_bias),
        _biased(numerics.linear(x, weights.v), weights.v_bias),
        numerics.linear(x, weights.index),
    )


def _finished(
    weights: QsaWeights, numerics: Numerics, attended: mx.array, gates: mx.array
) -> tuple[mx.array, ...]:
    """Returns gated attention [row, head * dim], and the block output."""
    gated = (attended * numerics.sigmoid(gates)).reshape(attended.shape[0], -1)
    return gated, _biased(numerics.linear(gated, weights.o), weights.o_bias)


def select(scores: mx.array, complete: NDArray[np.int32], budget: int, places: int) -> mx.array:
    """Returns the chosen groups of each query, int32 [query, places], ascending, -1 beyond the last.

    Args:
        scores: float32 [query, group]; what stands beyond a query's complete groups is not looked at.
        complete: groups that each query sees whole.
        budget: most groups of one query.
        places: columns of the result, at least the groups that any query here selects.

    Order: membership by score descending, then by the smaller position: all above the budget-th score, and of those
        that equal it the first ones. No order among equals is asked of a sort. Emission ascending.
    Source: AFN-017; bug report A10.
    """
    queries, groups = scores.shape
    ordinals = mx.arange(groups, dtype=mx.int32)[None, :]
    is_seen = ordinals < mx.array(complete.astype(np.int32))[:, None]
    seen = mx.where(is_seen, scores + 0.0, -math.inf)  # -0.0 becomes 0.0: the two are equal scores
    if groups > budget:
        cut = -mx.partition(-seen, budget - 1, axis=-1)[:, budget - 1 : budget]
        above, equal = seen > cut, seen == cut
        left = budget - mx.sum(above, axis=-1, keepdims=True)
        chosen = (above | (equal & (mx.cumsum(equal.astype(mx.int32), axis=-1) <= left))) & is_seen
    else:
        chosen = is_seen
    place = mx.where(chosen, mx.cumsum(chosen.astype(mx.int32), axis=-1) - 1, places)
    empty = mx.full((queries, places + 1), -1, dtype=mx.int32)
    ordinals = mx.broadcast_to(ordinals, (queries, groups))
    return mx.put_along_axis(empty, mx.minimum(place, places), ordinals, axis=-1)[:, :places]


def expand(groups: mx.array, visible: NDArray[np.int32], ratio: int) -> Selection:
    """Returns the rows of the chosen groups, four to a group, then the raw tail.

    Args:
        groups: int32 [query, place], -1 for an empty place.
        visible: rows that each query sees, its own included.
        ratio: rows of a group.
    """
    seen = visible.astype(np.int32)[:, None]
    inside = groups[:, :, None] * ratio + mx.arange(ratio, dtype=mx.int32)
    is_chosen = mx.broadcast_to((groups >= 0)[:, :, None], inside.shape)
    tail = seen // ratio * ratio + np.arange(ratio - 1, dtype=np.int32)
    rows = mx.concatenate([inside.reshape(groups.shape[0], -1), mx.array(tail)], axis=1)
    is_valid = mx.concatenate([is_chosen.reshape(groups.shape[0], -1), mx.array(tail < seen)], axis=1)
    return Selection(mx.clip(rows, 0, mx.array(seen - 1)), is_valid)


def dense(q: mx.array, k: mx.array, v: mx.array, geometry: Geometry) -> mx.array:
    """Returns causal attention over all rows, float32 [query, head, dim]: the bounded form, for comparison.

    Args:
        q: float32 [query, head, dim], the last positions of the rows.
        k: float32 [row, key head, dim].
        v: float32 [row, key head, dim].
        geometry: dimensions.

    Raises:
        ContractError: model.qsa.dense-ceiling, before anything is allocated.

    Domain: visible rows up to the selection width; there the sparse and the dense form see the same rows.
    Source: AFN-011.
    """
    visible, queries = k.shape[0], q.shape[0]
    if visible > geometry.selection_width:
        raise refuse(
            CEILING, "k", expected=f"at most {geometry.selection_width} visible keys", got=f"{visible}"
        )
    places = np.arange(visible)[None, :] <= np.arange(visible - queries, visible)[:, None]
    out = mx.fast.scaled_dot_product_attention(
        q.swapaxes(0, 1)[None], k.swapaxes(0, 1)[None], v.swapaxes(0, 1)[None],
        scale=geometry.head_dim**-0.5, mask=mx.array(places),
    )  # fmt: skip
    return out[0].swapaxes(0, 1)


def attend(q: mx.array, keys: mx.array, values: mx.array, is_valid: mx.array) -> mx.array:
    """Returns attention of each query over its own gathered rows, float32 [query, head, dim].

    Args:
        q: float32 [query, head, dim].
        keys: float32 [query, key head, place, dim]; query head h reads key head floor(h / (heads / key heads)).
        values: float32, as `keys`.
        is_valid: bool [query, place]; an empty place has weight exactly 0.
    """
    queries, heads, dim = q.shape
    kv_heads = keys.shape[1]
    products = (q.reshape(queries, kv_heads, heads // kv_heads, dim) @ keys.swapaxes(-1, -2)) * dim**-0.5
    shown = mx.where(is_valid[:, None, None, :], products, -math.inf)
    out = mx.softmax(shown, axis=-1, precise=True) @ values
    return out.reshape(queries, heads, dim)


def _pool(
    cache: Cache,
    raw: mx.array,
    starts: NDArray[np.int64],
    weights: QsaWeights,
    g: Geometry,
    counters: Counters,
) -> mx.array:
    """Returns the keys of the groups that the new rows complete, float32 [group, index dim]."""
    if not starts.shape[0]:
        return mx.zeros((0, g.index_dim))
    waiting = mx.array(cache.raw.rows[cache.pooled.length * g.ratio :])
    line = mx.concatenate([waiting, raw]) if waiting.shape[0] else raw
    members = line[: starts.shape[0] * g.ratio].reshape(starts.shape[0], g.ratio, g.index_dim)
    normed = norms.rms(mx.mean(members, axis=1), weights.index_k_gain, g.eps)
    counters.raw_key_bytes += members.size * 4
    return rope.rotate(normed[:, None], rope.turns(g, starts))[:, 0]


def _attend_all(
    q: mx.array,
    asked: mx.array,
    cache: Cache,
    new: Fresh,
    g: Geometry,
    numerics: Numerics,
    watch: Watch,
    shown: "_Shown",
) -> mx.array:
    """Returns attention of all new rows of one sequence, tile by tile."""
    outputs = []
    for number, (first, stop, places) in enumerate(_tiles(cache.keys.length, q.shape[0], g)):
        visible = np.arange(first, stop, dtype=np.int32) + cache.keys.length + 1
        complete = visible // g.ratio
        with numerics.turn(number, q.shape[0]):
            groups, scores = _choose(asked[first:stop], cache, new, complete, places, g, numerics, watch)
            selection = expand(groups, visible, g.ratio)
            keys = _gather(cache.keys, new.keys, selection.rows)
            values = _gather(cache.values, new.values, selection.rows)
            outputs.append(attend(q[first:stop], keys, values, selection.is_valid))
        _count(watch.counters, visible, keys, scores, g)
        if watch.is_recording:
            shown.add(selection, scores, complete)
    return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs)


def _choose(
    asked: mx.array,
    cache: Cache,
    new: Fresh,
    complete: NDArray[np.int32],
    places: int,
    g: Geometry,
    numerics: Numerics,
    watch: Watch,
) -> tuple[mx.array, mx.array | None]:
    """Returns the chosen groups of one tile, and their scores where they were needed."""
    groups, queries = int(complete[-1]), complete.size
    if groups <= g.budget_groups and not watch.is_recording:
        ordinals = np.broadcast_to(np.arange(places, dtype=np.int32), (queries, places))
        return mx.array(np.where(ordinals < complete[:, None], ordinals, -1)), None
    if not groups:
        return mx.full((queries, places), -1, dtype=mx.int32), mx.zeros((queries, 0))
    pieces = []
    for start in range(0, groups, SCORE_GROUPS):
        keys = _slice(cache.pooled, new.pooled, start, min(start + SCORE_GROUPS, groups))
        products = mx.maximum(numerics.scores(asked, keys), 0.0)
        pieces.append(mx.sum(products, axis=1))
    scores = (pieces[0] if len(pieces) == 1 else mx.concatenate(pieces, axis=1)) / math.sqrt(g.index_dim)
    watch.check(scores)
    return select(scores, complete, g.budget_groups, places), scores


def _tiles(length: int, tokens: int, g: Geometry) -> Iterator[tuple[int, int, int]]:
    """Yields first and last query and the places for groups of each tile; every query of a tile has as many places.

    Places depend on the query's own history only, so that no chunk changes the shapes that a query meets.
    """
    first = 0
    while first < tokens:
        places = _places(length + first + 1, g)
        row_bytes = (places * g.ratio + g.ratio - 1) * g.kv_heads * g.head_dim * 8
        row_bytes += (length + tokens) // g.ratio * 4 * (g.index_heads + 4)
        stop = min(tokens, first + max(1, min(TILE_QUERIES, TILE_BYTES // row_bytes)))
        if places < g.budget_groups:  # grows with the history
            last = places * g.ratio + g.ratio - 1 - length
            stop = min(stop, max(first + 1, last))
        yield first, stop, places
        first = stop


def _places(visible: int, g: Geometry) -> int:
    groups = min(visible // g.ratio, g.budget_groups)
    return min(-(-max(groups, 1) // WIDTH_STEP) * WIDTH_STEP, g.budget_groups)


def _gather(column: Column, new: mx.array, rows: mx.array) -> mx.array:
    """Returns rows [query, key head, place, dim] out of the published ones and the new ones; ids are bounded first."""
    length = column.length
    behind = _rows(new, mx.clip(rows - length, 0, new.shape[0] - 1))
    if not length:
        return behind
    before = _rows(column.array, mx.minimum(rows, length - 1))
    return mx.where((rows < length)[:, None, :, None], before, behind)


def _rows(table: mx.array, rows: mx.array) -> mx.array:
    """Returns rows of a table [row, key head, dim] head by head, so that products read them in order."""
    heads = table.shape[1]
    places = rows[:, None, :] * heads + mx.arange(heads, dtype=mx.int32)[None, :, None]
    return mx.take(table.reshape(-1, table.shape[2]), places, axis=0)


def _slice(column: Column, new: mx.array, start: int, stop: int) -> mx.array:
    """Returns the consecutive rows [start, stop) out of the published ones and the new ones."""
    length = column.length
    if stop <= length:
        return column.array[start:stop]
    if start >= length:
        return new[start - length : stop - length]
    return mx.concatenate([column.array[start:length], new[: stop - length]])


def _count(
    counters: Counters, visible: NDArray[np.int32], keys: mx.array, scores: mx.array | None, g: Geometry
) -> None:
    complete = visible // g.ratio
    selected = np.minimum(complete, g.budget_groups)
    counters.groups_selected += int(selected.sum())
    counters.largest_width = max(counters.largest_width, int((selected * g.ratio + visible % g.ratio).max()))
    counters.gathered_rows += keys.shape[0] * keys.shape[2]
    counters.gathered_bytes += keys.size * 8
    scored = 0 if scores is None else scores.size
    counters.groups_scored += 0 if scores is None else int(complete.sum())
    counters.pooled_key_bytes += 0 if scores is None else scores.shape[1] * g.index_dim * 4
    counters.workspace_bytes = max(counters.workspace_bytes, scored * 4 + keys.size * 8)


class _Shown:
    """Scores and selected rows for a capture; -1 stands for nothing."""

    def __init__(self) -> None:
        self._scores: list[mx.array] = []
        self._rows: list[mx.array] = []

    def add(self, selection: Selection, scores: mx.array | None, complete: NDArray[np.int32]) -> None:
        """Adds one tile; places between the last group and the tail are closed up by a sort."""
        self._rows.append(mx.sort(mx.where(selection.is_valid, selection.rows, _LAST), axis=-1))
        if scores is None or not scores.shape[1]:
            self._scores.append(mx.full((complete.size, 1), -1.0))
            return
        seen = mx.arange(scores.shape[1])[None, :] < mx.array(complete.astype(np.int32))[:, None]
        self._scores.append(mx.where(seen, scores, -1.0))

    def tell(self, part: Part) -> None:
        """Hands the arrays of all tiles over, if there are any."""
        if self._rows:
            part("index_scores", _ragged(self._scores))
            rows = _ragged(self._rows)
            part("selected", mx.where(rows == _LAST, -1, rows))


def _ragged(arrays: list[mx.array]) -> mx.array:
    """Joins tiles of different widths, -1 on the right."""
    width = max(array.shape[1] for array in arrays)
    return mx.concatenate(
        [mx.pad(array, [(0, 0), (0, width - array.shape[1])], constant_values=-1) for array in arrays]
    )


def _biased(x: mx.array, bias: mx.array | None) -> mx.array:
    return x if bias is None else x + bias
