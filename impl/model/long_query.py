"""One query of one attention layer over a long history of random rows: what it costs, and what it selects.

The layer is `qsa.forward` itself; only the history is made up, block by block, so that 262,144 rows of the published
dimensions need their own memory and no more.
"""

import time
from dataclasses import dataclass
from typing import Final

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model import columns, norms, qsa, rope
from assay.impl.model.columns import Buffer, Column
from assay.impl.model.geometry import Geometry
from assay.impl.model.numerics import Numerics
from assay.impl.model.qsa import Cache, Counters, Fresh, QsaWeights, Watch

_BLOCK: Final = 4096


@dataclass(frozen=True, slots=True)
class Asked:
    """What one query did.

    Attributes:
        rows: the rows that it attended to, in order.
        output: float32 [head * dim] before the output projection, gated.
        seconds: of one further, plain run.
        peak_bytes: most memory above what was held before.
        published_bytes: rows that publishing the query wrote behind the history; nothing of the history is moved.
        publish_seconds: how long that took.
        history_bytes: rows of the history itself.
    """

    rows: list[int]
    output: NDArray[np.float32]
    counters: Counters
    seconds: float
    peak_bytes: int
    published_bytes: int
    publish_seconds: float
    history_bytes: int


class LongHistory:
    """A layer with random weights and a cache of `visible - 1` rows; the query is the last one."""

    def __init__(self, geometry: Geometry, visible: int, seed: int = 0) -> None:
        g = geometry
        self._g, self._visible = g, visible
        values = np.random.default_rng(seed)

        def matrix(rows: int, width: int) -> mx.array:
            return mx.array(values.standard_normal((rows, width)).astype("f") / np.sqrt(rows))

        one = mx.ones
        self._weights = QsaWeights(
            q=matrix(g.hidden, 2 * g.heads * g.head_dim), k=matrix(g.hidden, g.kv_heads * g.head_dim),
            v=matrix(g.hidden, g.kv_heads * g.head_dim), o=mx.eye(g.heads * g.head_dim),
            q_gain=one((g.head_dim,)), k_gain=one((g.head_dim,)), index=matrix(g.hidden, (g.index_heads + 1) * g.index_dim),
            index_q_gain=one((g.index_dim,)), index_k_gain=one((g.index_dim,)),
        )  # fmt: skip
        self._x = mx.array(values.standard_normal((1, g.hidden)).astype("f"))
        heads, before = (g.kv_heads, g.head_dim), visible - 1
        self._cache = Cache(
            _filled(values, before, heads), _filled(values, before, heads), _filled(values, before, (g.index_dim,)),
            columns.empty((g.index_dim,), visible // g.ratio),
        )  # fmt: skip
        self._pool(before // g.ratio)
        self._told: dict[str, mx.array] = {}
        self._fresh = Fresh(*(mx.zeros((0, 1)) for _ in range(4)))
        self._pooled = mx.zeros((0, g.index_dim))

    def ask(self) -> Asked:
        """Runs the query twice: recorded, then plainly under the clock."""
        told: dict[str, mx.array] = {}
        counters = Counters()
        out = self._run(Watch(told.__setitem__, lambda _scores: None, counters, is_recording=True))
        rows = np.array(told["selected"])[0]
        mx.reset_peak_memory()
        held, started = mx.get_active_memory(), time.perf_counter()
        self._run(Watch(lambda *_: None, lambda _scores: None, Counters(), is_recording=False))
        seconds = time.perf_counter() - started
        peak = mx.get_peak_memory() - held
        self._told = told
        published, publishing = self._publish()
        chosen = [int(one) for one in rows if one >= 0]
        history = sum(one.rows.nbytes for one in self._columns())
        return Asked(chosen, np.array(out)[0], counters, seconds, peak, published, publishing, history)

    def scores(self) -> NDArray[np.float64]:
        """Returns the scores of all complete groups in float64, from the query and keys of the last `ask`."""
        g, turn = self._g, self._turn()
        query = rope.rotate(self._told["index_query"], turn)
        keys = np.concatenate([self._cache.pooled.rows, np.array(self._pooled)]).astype(np.float64)
        products = np.maximum(keys @ np.array(query)[0].astype(np.float64).T, 0)
        return np.asarray(products.sum(axis=1) / np.sqrt(g.index_dim))

    def attention(self, rows: list[int]) -> NDArray[np.float64]:
        """Returns gated attention over the given rows in float64, [head * dim]."""
        g, turn = self._g, self._turn()
        fused = np.array(self._told["q_proj"]).reshape(g.heads, 2, g.head_dim).astype(np.float64)
        query = np.array(rope.rotate(self._told["q_norm"], turn))[0].astype(np.float64)
        new_key = np.array(rope.rotate(self._told["k_norm"], turn))
        new_value = np.array(self._told["v_proj"]).reshape(1, g.kv_heads, g.head_dim)
        inside = [row for row in rows if row < self._visible - 1]
        newest = [new_key] if len(inside) < len(rows) else []
        keys = np.concatenate([self._cache.keys.rows[inside], *newest]).astype(np.float64)
        values = np.concatenate([self._cache.values.rows[inside], *([new_value] if newest else [])]).astype(
            np.float64
        )
        repeat, lines = g.heads // g.kv_heads, []
        for head in range(g.heads):
            line = keys[:, head // repeat] @ query[head] / np.sqrt(g.head_dim)
            powers = np.exp(line - line.max())
            mixed = (powers / powers.sum()) @ values[:, head // repeat]
            lines.append(mixed / (1 + np.exp(-fused[head, 1])))
        return np.concatenate(lines)

    def _columns(self) -> tuple[Column, ...]:
        cache = self._cache
        return cache.keys, cache.values, cache.raw, cache.pooled

    def _publish(self) -> tuple[int, float]:
        """Appends the query's rows as a transaction does, in place, and takes them back; returns bytes and seconds."""
        fresh = self._fresh
        new = [np.asarray(one) for one in (fresh.keys, fresh.values, fresh.raw, fresh.pooled)]
        started = time.perf_counter()
        grown = [columns.appended(one, rows) for one, rows in zip(self._columns(), new, strict=True)]
        seconds = time.perf_counter() - started
        moved = sum(
            one.rows.nbytes
            for one, old in zip(grown, self._columns(), strict=True)
            if one.buffer is not old.buffer
        )
        for column, attempt in zip(self._columns(), grown, strict=True):
            columns.released(column, attempt)
        return sum(rows.nbytes for rows in new) + moved, seconds

    def _run(self, watch: Watch) -> mx.array:
        g = self._g
        out, fresh = qsa.forward(
            self._x, self._weights, [self._cache], [_positions([self._visible - 1])], [self._starts()], g,
            Numerics(is_deterministic=True), watch,
        )  # fmt: skip
        mx.eval(out, fresh[0].keys, fresh[0].values, fresh[0].raw, fresh[0].pooled)
        self._fresh, self._pooled = fresh[0], fresh[0].pooled
        return out

    def _starts(self) -> NDArray[np.int64]:
        complete, before = self._visible // self._g.ratio, (self._visible - 1) // self._g.ratio
        return _positions([group * self._g.ratio for group in range(before, complete)])

    def _turn(self) -> rope.Turn:
        return rope.turns(self._g, _positions([self._visible - 1]))

    def _pool(self, groups: int) -> None:
        """Pools the keys of the published groups, block by block, as chunks would have done."""
        g = self._g
        for start in range(0, groups, _BLOCK):
            stop = min(start + _BLOCK, groups)
            raw = self._cache.raw.rows[start * g.ratio : stop * g.ratio]
            mean = mx.mean(mx.array(raw.reshape(stop - start, g.ratio, g.index_dim)), axis=1)
            normed = norms.rms(mean, self._weights.index_k_gain, g.eps)
            turned = rope.rotate(
                normed[:, None], rope.turns(g, _positions(range(start * g.ratio, stop * g.ratio, g.ratio)))
            )
            pooled = columns.appended(self._cache.pooled, np.array(turned[:, 0]))
            self._cache = Cache(self._cache.keys, self._cache.values, self._cache.raw, pooled)


def _filled(values: np.random.Generator, rows: int, shape: tuple[int, ...]) -> Column:
    buffer = Buffer(rows + 1, shape)  # the query's row goes behind them
    for start in range(0, rows, _BLOCK):
        stop = min(start + _BLOCK, rows)
        buffer.view[start:stop] = values.standard_normal((stop - start, *shape), dtype=np.float32)
    buffer.claimed = rows
    return Column(buffer, rows)


def _positions(places: "list[int] | range") -> NDArray[np.int64]:
    return np.repeat(np.array(places, np.int64).reshape(-1, 1), 3, axis=1)
