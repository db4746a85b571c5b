"""The experts of one layer as a wavefront: each is used as soon as its parts are there, whatever the order.

Resident records go first. Of the others gate and up are multiplied when they have arrived and down when it has, each
into a result of its own; tiles come back in the order in which they were asked for, and the model adds them up in
rank order. So neither the order of arrival nor the size of the cache is in any sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model.experts import Gated
from assay.impl.runtime.cache import Lease
from assay.impl.runtime.lanes import Lane
from assay.impl.runtime.policies import Key
from assay.impl.runtime.prefill import Mode, choose
from assay.impl.runtime.streaming import Stream

Tiles = NDArray[np.int32]
MOST_AT_ONCE: Final = 128
"""Records that are leased together at most; a reader's queue holds as many exact requests of two lanes."""


@dataclass(slots=True)
class _Wave:
    """What one lease computes.

    Attributes:
        x: all tiles of the layer.
        tiles: expert -> numbers of its tiles.
        waiting: records that are not used up yet.
        inner: record -> input of its down projection, where that is made already.
        pieces: tile numbers and their results, in order of completion.
    """

    x: mx.array
    tiles: dict[int, Tiles]
    lease: Lease
    gated: Gated
    waiting: list[Key]
    inner: dict[Key, mx.array] = field(default_factory=dict)
    pieces: list[tuple[Tiles, mx.array]] = field(default_factory=list)


class StreamedExperts:
    """The routed experts of one layer, from a stream; takes the place of resident ones in the model."""

    has_guesses: ClassVar[bool] = True

    def __init__(self, stream: Stream, layer: int) -> None:
        self._stream = stream
        self._layer = layer

    def hint(self, ids: mx.array) -> None:
        """Takes what the router makes of the rows before this layer's attention; lazily, int32 [token, used]."""
        if self._stream.options.has_guesses:
            self._stream.lane.hints[self._layer] = ids

    def outputs(self, x: mx.array, ids: mx.array, gated: Gated) -> mx.array:
        """Returns what each tile's expert makes of its rows, float32 [tile, row, hidden].

        Raises:
            AdmissionError: runtime.read.*, for a record that can't be had.
            ContractError: runtime.cache.working-set.
        """
        stream, lane = self._stream, self._stream.lane
        hint = lane.hints.pop(self._layer + 1, None)
        stream.evaluate([ids] if hint is None else [ids, hint], self._layer, "until routed")
        stream.settle(lane)  # what the layer before it read has been evaluated on the way to these ids
        stream.forget_guesses()
        stream.drain(lane)
        owners = np.asarray(ids).astype(np.int32)
        tiles = {
            int(expert): np.flatnonzero(owners == expert).astype(np.int32) for expert in np.unique(owners)
        }
        lane.resident[self._layer] = frozenset(
            expert for expert in tiles if stream.cache.is_ready((self._layer, expert))
        )
        todo, pieces = sorted(tiles), []
        while todo:
            batch = self._batch(todo)
            began = stream.clock()
            lease = stream.lease(lane, self._layer, batch)
            lane.lease = lease
            ahead = [expert for expert in todo if expert not in set(batch)]
            if ahead and stream.options.has_guesses:
                stream.guess(self._layer, self._batch(ahead), 1.0)
            elif hint is not None:
                self._look_ahead(lane, np.asarray(hint))
            wave = _Wave(x, tiles, lease, gated, list(lease.places))
            given_up = self._run(lane, wave, began)
            pieces += wave.pieces
            done = set(batch) - {expert for _, expert in given_up}
            todo = [expert for expert in todo if expert not in done]
            if todo:
                lane.pending = [piece for _, piece in wave.pieces]
                stream.settle(lane)
        found = _in_order(pieces, owners.size)
        lane.pending = [found]
        return found

    def _batch(self, todo: Sequence[int]) -> list[int]:
        """Returns the experts that are leased together: those that are there first, then in the order of the store."""
        cache = self._stream.cache
        used, most = self._stream.geometry.experts_used, cache.capacity // self._stream.lanes
        if len(todo) > most:  # half computes, half is read ahead
            most //= 2
        most = max(used, most)
        ranked = sorted(todo, key=lambda expert: ((self._layer, expert) not in cache, expert))
        return ranked[: min(most, MOST_AT_ONCE)]

    def _look_ahead(self, lane: Lane, ids: NDArray[np.int32]) -> None:
        """Asks early for the next layer: for what its router will probably say, or for all of it where that is sooner."""
        stream, layer = self._stream, self._layer + 1
        guessed, counts = np.unique(ids, return_counts=True)
        lacks = [expert for expert in range(stream.geometry.experts) if (layer, expert) not in stream.cache]
        needed = len(set(guessed.tolist()) & set(lacks))
        mode = choose(needed, len(lacks), lane.phase_tokens, stream.options.rates)
        stream.counts.modes[mode] = stream.counts.modes.get(mode, 0) + 1
        if mode is Mode.MACRO:
            stream.guess(layer, lacks, needed / len(lacks))
            return
        ranked = [int(guessed[place]) for place in np.argsort(-counts, kind="stable")]
        stream.guess(layer, ranked, 0.5)

    def _run(self, lane: Lane, wave: _Wave, began_ns: int) -> list[Key]:
        """Computes every record of a lease; returns those that another lane's failed read took away.

        What counts as a wait begins when nothing is left to compute, at the lease if nothing was there, and ends when a
        record is in its place and multiplied: asking, reading, judging, waking and moving are all in it, the turns of
        other lanes are not.
        """
        stream, cache = self._stream, self._stream.cache
        given_up: list[Key] = []
        idle_from = None if wave.lease.resident else began_ns
        ticket = stream.ticket_of(wave.waiting)
        turns_before = lane.counts.turn_wait_ns
        while wave.waiting:
            stream.collect(lane, wave.waiting)
            gone = [key for key in wave.waiting if not cache.is_current(wave.lease.places[key])]
            given_up += gone
            for key in gone:
                wave.waiting.remove(key)
                wave.inner.pop(key, None)
            if self._compute(wave):
                if idle_from is not None:
                    others = lane.counts.turn_wait_ns - turns_before
                    self._waited(lane, max(0, stream.clock() - idle_from - others))
                    stream.note_wait(ticket, idle_from)
                    idle_from = None
                continue
            if not wave.waiting:
                continue
            if idle_from is None:
                made = [piece for _, piece in wave.pieces] + list(wave.inner.values())
                stream.evaluate(made, self._layer, "experts")  # before anything is called a wait
                idle_from, turns_before = stream.clock(), lane.counts.turn_wait_ns
                ticket = stream.ticket_of(wave.waiting)
            keys = tuple(key for key in wave.waiting if not cache.is_ready(key))
            if not stream.has_news(keys):
                stream.pause(lane, partial(stream.has_news, keys))
        return given_up

    def _waited(self, lane: Lane, waited_ns: int) -> None:
        lane.counts.expert_wait_ns += waited_ns
        total, count = self._stream.counts.by_layer_ns.get(self._layer, (0, 0))
        self._stream.counts.by_layer_ns[self._layer] = (total + waited_ns, count + 1)

    def _compute(self, wave: _Wave) -> bool:
        """Computes with what is there, and says whether anything was."""
        cache, lease = self._stream.cache, wave.lease
        both = [key for key in wave.waiting if cache.part(lease, key, "down") is not None]
        half = [
            key for key in wave.waiting if key not in both and cache.part(lease, key, "gate_up") is not None
        ]
        if self._stream.options.is_barrier and len(both) < len(wave.waiting):
            return False
        whole = [key for key in both if key not in wave.inner]
        begun: list[Any] = []
        if whole:
            numbers, slots = self._tiles_of(wave, whole)
            inner = self._inner(wave, numbers, slots)
            wave.pieces.append((numbers, self._stream.pool.down(inner, slots)))
            begun.append(wave.pieces[-1][1])
        for key in both:
            if key in wave.inner:
                numbers, slots = self._tiles_of(wave, [key])
                wave.pieces.append((numbers, self._stream.pool.down(wave.inner.pop(key), slots)))
                begun.append(wave.pieces[-1][1])
            wave.waiting.remove(key)
        for key in half:
            if key not in wave.inner:
                numbers, slots = self._tiles_of(wave, [key])
                wave.inner[key] = self._inner(wave, numbers, slots)
                begun.append(wave.inner[key])
        if begun:
            mx.async_eval(begun)  # type: ignore[no-untyped-call]
        return bool(begun)

    def _tiles_of(self, wave: _Wave, keys: Sequence[Key]) -> tuple[Tiles, list[int]]:
        """Returns the tiles of some records, and for each tile the slot that it is multiplied with."""
        numbers = [wave.tiles[expert] for _, expert in keys]
        slots = [wave.lease.places[key].slot for key, own in zip(keys, numbers, strict=True) for _ in own]
        return np.concatenate(numbers), slots

    def _inner(self, wave: _Wave, numbers: Tiles, slots: Sequence[int]) -> mx.array:
        rows = mx.take(wave.x, mx.array(numbers), axis=0)
        return self._stream.pool.inner(rows, slots, wave.gated)


def _in_order(pieces: Sequence[tuple[Tiles, mx.array]], count: int) -> mx.array:
    """Returns the results of all tiles in the order of their numbers."""
    numbers = np.concatenate([one for one, _ in pieces])
    arrays = [array for _, array in pieces]
    whole = arrays[0] if len(arrays) == 1 else mx.concatenate(arrays)
    if (numbers == np.arange(count)).all():
        return whole
    back = np.empty(count, np.int32)
    back[numbers] = np.arange(count, dtype=np.int32)
    return mx.take(whole, mx.array(back), axis=0)
