"""One stream: a reader, a cache and its memory, shared by the layers of a model and by the lanes that run it.

The model asks layers for experts and tables for rows and doesn't know where they come from. Everything here runs in
the turn of some lane; the reader's threads only ring a bell. Bytes go from the reader's slots into the cache's in the
turn of whoever looks next, and only if the place is still theirs: a read that was begun for an earlier owner of a slot
finds another generation there and is dropped.

A record is verified before it is ready. Its gate and up projections may be multiplied earlier, as soon as they have
arrived; what comes of them can't leave the layer before the down projection has, which is after the verification.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Final, Self

import mlx.core as mx

from assay.impl.model.experts import Codec
from assay.impl.model.geometry import Geometry
from assay.impl.runtime.cache import ExpertCache, Lease, Place
from assay.impl.runtime.lanes import Bell, Lane, Turns
from assay.impl.runtime.plans import Asker, expert_request
from assay.impl.runtime.policies import Key, make_policy
from assay.impl.runtime.pool import RecordPool
from assay.impl.runtime.stream_types import Flight, MakeReader, Notes, Options, StreamCounts
from assay.impl.runtime.tickets import Phase, Priority, ReadRequest, State, Ticket
from assay.impl.stores.expert_major.store import ExpertStore
from assay.impl.stores.ple_rows.store import PleStore
from assay.spec.errors import ContractError

PARTS: Final = ("gate_up", "down")
ROLES: Final = ((0, 1), (2,))
"""Roles of each part, in the order in which they arrive."""
HAND_OFF_S: Final = 200e-6
"""What it costs to wake a thread and to evaluate one step more, in seconds; a wave of smaller parts only loses."""
USUAL_RATE: Final = 1e9
"""Bytes a second of a device that was not measured."""
GUESSES: Final = "guesses"
"""Owner of predicted tickets: a cached record belongs to no sequence."""


class Stream:
    """Experts and rows of one artifact, from disk."""

    def __init__(
        self,
        experts: ExpertStore,
        rows: PleStore,
        geometry: Geometry,
        codec: Codec,
        options: Options,
        make_reader: MakeReader,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Takes its memory at once.

        Args:
            experts: with record digests, or what is read stays unverified.
            rows: pages always have digests.
            geometry: of the model.
            codec: of the records.
            options: how it runs.
            make_reader: makes the reader, given what to call whenever a part or a ticket has arrived or ended.
            clock: nanoseconds.
        """
        self.geometry = geometry
        self.options = options
        self.experts_store = experts
        self.rows_store = rows
        self.counts = StreamCounts()
        self.turns = Turns()
        self.bell = Bell()
        self.clock = clock
        policy = make_policy(options.policy, options.capacity, self._value)
        self.cache = ExpertCache(options.capacity, PARTS, policy)
        self.pool = RecordPool(options.capacity, codec, geometry)
        self.reader = make_reader(self.bell.ring)
        self.lanes = 1
        self.notes: Notes | None = None
        self._read_parts = ROLES if self._is_worth_splitting() else (sum(ROLES, ()),)
        self._main = Lane()
        self._local = threading.local()
        self._flights: dict[Key, Flight] = {}
        self._backlog: deque[tuple[Key, float]] = deque()
        self._released = 0
        self._guard = threading.Lock()
        self._is_wanted = False  # whether the lane that has the turn waits for the guard
        self._is_closing = False
        self._mover = threading.Thread(target=self._move_guesses, name="mover", daemon=True)
        self._mover.start()

    @property
    def lane(self) -> Lane:
        """The lane of this thread."""
        return getattr(self._local, "lane", self._main)

    @contextmanager
    def running(self, lane: Lane) -> Iterator[None]:
        """Runs this thread as a lane, in its turn; the turn is given away at the end."""
        self.take_turn(lane)
        self._local.lane = lane
        try:
            yield
        finally:
            del self._local.lane
            self.give_turn()

    def pass_on(self) -> None:
        """Lets every other lane that can run go first."""
        if self.turns.waiting:
            self.give_turn()
            self.take_turn(self.lane)

    def take_turn(self, lane: Lane) -> None:
        """Waits for the turn of a lane; with it comes everything that the lane may change."""
        started = self.clock()
        self.turns.take()
        lane.counts.turn_wait_ns += self.clock() - started
        self._take_guard()
        lane.counts.turns += 1

    def give_turn(self) -> None:
        """Gives the turn to who has waited longest."""
        self._leave_guard()
        self.turns.give()

    def evaluate(self, arrays: Sequence[mx.array], layer: int | None, stage: str) -> None:
        """Evaluates arrays in this lane's turn; guesses that arrive meanwhile are moved to their places."""
        lane, started = self.lane, self.clock()
        self._leave_guard()
        try:
            mx.eval(arrays)
        finally:
            ended = self.clock()
            self._take_guard()
            lane.counts.move_wait_ns += self.clock() - ended
        if self.notes is not None:
            self.notes.staged(lane.name, layer, stage, started, ended)

    def note_wait(self, ticket: Ticket | None, started_ns: int) -> None:
        """Notes that the lane of this thread stood still for a ticket until now."""
        if self.notes is not None and ticket is not None:
            self.notes.waited(ticket, None, started_ns, self.clock())

    def ticket_of(self, keys: Sequence[Key]) -> Ticket | None:
        """Returns the ticket of the first of these records that is on its way."""
        return next((self._flights[key].ticket for key in keys if key in self._flights), None)

    def begin_chunk(self, tokens: int) -> Lane:
        """Begins a chunk of this thread's lane: a new generation, so that what an earlier one asked for is stale."""
        lane = self.lane
        self.end_chunk(lane)
        lane.generation += 1
        lane.phase_tokens = tokens
        lane.counts.chunks += 1
        self.reader.advance(lane.name, lane.generation)
        self.bell.ring()  # another lane may have joined a read that is stale now
        return lane

    def end_chunk(self, lane: Lane) -> None:
        """Ends a chunk, however it went: nothing is left that reads a slot, and no lease."""
        lane.hints.clear()
        self.settle(lane)

    def settle(self, lane: Lane) -> None:
        """Finishes what still reads leased slots, then gives the lease back."""
        pending, lane.pending = lane.pending, []
        lease, lane.lease = lane.lease, None
        try:
            if pending:
                self.evaluate(pending, None, "finish experts")
        except (RuntimeError, MemoryError):
            mx.synchronize()  # the chunk fails where its end is evaluated; here only the slots matter
        finally:
            if lease is not None:
                self.cache.release(lease)
                self._released += 1
                self.bell.ring()

    def lease(self, lane: Lane, layer: int, experts: Sequence[int]) -> Lease:
        """Leases records of a layer and begins to read those that are missing; waits while other lanes hold too much.

        Raises:
            ContractError: runtime.cache.working-set.
        """
        keys = [(layer, expert) for expert in experts]
        found = self.cache.acquire(keys)
        while found is None:
            lane.counts.slot_wait_ns += self.pause(lane, partial(self._has_released, self._released))
            found = self.cache.acquire(keys)
        lease, dropped = found
        for place in dropped:
            self._forget(place.key)
        self.ask(lane, [lease.places[key] for key in lease.missing])
        for key in lease.joined:
            flight = self._flights.get(key)
            if flight is not None and not flight.ticket.request.is_exact:
                self.reader.promote(flight.ticket, Priority.EXACT, self.clock())
        return lease

    def ask(self, lane: Lane, places: Collection[Place]) -> None:
        """Begins exact reads of records into their places."""
        phase = Phase.DECODE if lane.phase_tokens == 1 else Phase.PREFILL
        now = self.clock()
        requests = [
            expert_request(
                self.experts_store,
                Asker(lane.name, lane.generation, phase, place.key[0], (1 << min(lane.phase_tokens, 64)) - 1),
                place.key[1],
                parts=self._read_parts,
                deadline_ns=now,
            )
            for place in places
        ]
        self.counts.exact_bytes += sum(one.size_bytes for one in requests)
        for place, ticket in zip(places, self.reader.submit(requests), strict=True):
            self._flights[place.key] = Flight(place, ticket)

    def guess(self, layer: int, experts: Sequence[int], confidence: float) -> None:
        """Begins to read records that a later step probably needs, as far as nothing exact needs their slots.

        No more than the options say are under way at once; the others follow as these arrive.
        """
        self._backlog.extend(((layer, expert), confidence) for expert in experts)
        self._top_up()

    def forget_guesses(self) -> None:
        """Drops what was guessed and not asked for yet: the step that it was for has come."""
        self._backlog.clear()

    def collect(self, lane: Lane, keys: Collection[Key]) -> bool:
        """Moves what has arrived of these records into their places, and says whether anything has.

        Raises:
            AdmissionError: runtime.read.*, for a record that can't be had; its place is given up.
        """
        is_new = False
        for key in keys:
            flight = self._flights.get(key)
            if flight is not None:
                is_new |= self._advance(lane, flight)
        return is_new

    def drain(self, lane: Lane) -> None:
        """Moves every guess that has arrived into its place, forgets those that were dropped, and asks for more."""
        started = self.clock()
        for flight in list(self._flights.values()):
            if self._has_landed(flight):
                self._advance(lane, flight)
        self._top_up()
        lane.counts.move_wait_ns += self.clock() - started

    def has_news(self, keys: Collection[Key]) -> bool:
        """Says whether `collect` would find anything; may be asked without the turn."""
        for key in keys:
            flight = self._flights.get(key)
            if flight is None:
                return True  # another lane moved it
            state = flight.ticket.state
            if state not in {State.QUEUED, State.READING}:
                return True
            if _early(flight.ticket) > flight.taken and not self.options.is_barrier:
                return True
        return False

    def pause(self, lane: Lane, is_so: Callable[[], bool]) -> int:
        """Gives the turn away until something is so, and returns the nanoseconds until it was."""
        started = self.clock()
        self.give_turn()
        self.bell.until(is_so)
        waited = self.clock() - started
        self.take_turn(lane)
        return waited

    def close(self) -> None:
        """Gives up every read and ends the reader."""
        self._backlog.clear()
        self.settle(self._main)
        self.stop()
        self.reader.close()
        self._flights.clear()

    def stop(self) -> None:
        """Ends the thread that moves guesses; in the turn of a lane."""
        self._is_closing = True
        self.bell.ring()
        self._guard.release()
        try:
            self._mover.join()
        finally:
            self._guard.acquire()

    def __enter__(self) -> Self:
        self.take_turn(self._main)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        finally:
            self.give_turn()

    def _advance(self, lane: Lane, flight: Flight) -> bool:
        ticket = flight.ticket
        if ticket.state is State.READY:
            try:
                view = self.reader.wait(ticket)
            except ContractError:  # dropped or stale since the line above
                return self._lost(lane, flight)
            del self._flights[flight.place.key]
            with view:
                self._move(flight, view, len(PARTS))
            self.reader.release(ticket)
            self.counts.records += 1
            return True
        if ticket.state is State.FAILED:
            is_needed = self._is_leased(flight.place)
            del self._flights[flight.place.key]
            self.cache.abandon(flight.place)
            self.bell.ring()
            if is_needed:  # what a chunk asked for that has ended since is nobody's loss
                self.reader.wait(ticket)  # raises what went wrong
            return True
        if ticket.state not in {State.QUEUED, State.READING}:
            return self._lost(lane, flight)
        arrived = _early(ticket)
        if arrived <= flight.taken or self.options.is_barrier:
            return False
        try:
            view = self.reader.wait(ticket, arrived - 1)
        except ContractError:
            return self._lost(lane, flight)
        with view:
            self._move(flight, view, arrived)
        self.counts.early += 1
        return True

    def _lost(self, lane: Lane, flight: Flight) -> bool:
        """Asks again for a record whose read was dropped or became stale, if somebody holds its place.

        A part that was used before its record was verified may be what was wrong with it. So a place that has one is
        given up, and with it whatever was computed from it; whoever holds it leases the record anew.
        """
        del self._flights[flight.place.key]
        if self._is_leased(flight.place) and not flight.taken:
            self.counts.retried += 1
            self.ask(lane, [flight.place])
        else:
            self.cache.abandon(flight.place)
            self.bell.ring()
        return True

    def _move(self, flight: Flight, view: memoryview, parts: int) -> None:
        """Copies the parts up to `parts` that are not there yet into the place, if it is still this record's."""
        place = flight.place
        components = self.experts_store.layer(place.key[0]).components
        for part in range(flight.taken, parts):
            if self.cache.is_current(place):
                for role in ROLES[part]:
                    one = components[role]
                    data = view[one.record_offset : one.record_offset + one.expert_bytes]
                    self.pool.put(place.slot, role, data)
            self.cache.publish(place, PARTS[part], payload=True)
        flight.taken = parts

    def _forget(self, key: Key) -> None:
        flight = self._flights.pop(key, None)
        if flight is not None and flight.ticket.state in {State.QUEUED, State.READING, State.READY}:
            self.reader.cancel(flight.ticket)

    def _is_leased(self, place: Place) -> bool:
        return self.cache.is_current(place) and self.cache.is_leased(place)

    def _has_released(self, before: int) -> bool:
        return self._released != before

    def _top_up(self) -> None:
        """Asks for guesses until as many are under way as may be, or no slot is left for them."""
        under_way = sum(1 for one in self._flights.values() if not one.ticket.request.is_exact)
        places: list[Place] = []
        requests: list[ReadRequest] = []
        while self._backlog and under_way + len(places) < self.options.most_guesses:
            key, confidence = self._backlog.popleft()
            if key in self.cache:
                continue
            place = self.cache.predict(key)
            if place is None:
                self._backlog.clear()
                break
            places.append(place)
            requests.append(
                expert_request(
                    self.experts_store, Asker(GUESSES, 0, Phase.PREFILL, key[0]), key[1],
                    parts=self._read_parts, priority=Priority.NEAR, confidence=confidence,
                )
            )  # fmt: skip
        if not places:
            return
        self.counts.guessed_bytes += sum(one.size_bytes for one in requests)
        for place, ticket in zip(places, self.reader.submit(requests), strict=True):
            self._flights[place.key] = Flight(place, ticket)

    def _has_landed(self, flight: Flight) -> bool:
        return flight.ticket.state not in {State.QUEUED, State.READING} and not self._is_leased(flight.place)

    def _move_guesses(self) -> None:
        """Moves guesses while lanes evaluate or wait; what a lane holds is left to the lane."""

        def has_work() -> bool:
            if self._is_closing or self._is_wanted:
                return self._is_closing
            return any(self._has_landed(one) for one in list(self._flights.values()))

        while True:
            self.bell.until(has_work)
            with self._guard:
                if self._is_closing:
                    return
                for flight in list(self._flights.values()):
                    if self._is_wanted:
                        break  # a lane waits for this one record at most
                    if self._has_landed(flight):
                        self._advance(self._main, flight)
                else:
                    self._top_up()

    def _leave_guard(self) -> None:
        """Gives the guard back, and wakes the mover for what it left when this lane wanted the guard."""
        if any(self._has_landed(one) for one in self._flights.values()):
            self.bell.ring()
        self._guard.release()

    def _take_guard(self) -> None:
        """Takes the guard in the turn of a lane, after at most one move of a guess."""
        self._is_wanted = True
        self._guard.acquire()
        self._is_wanted = False

    def _is_worth_splitting(self) -> bool:
        """Says whether the last part of a record takes longer to read than it takes to wake a thread for the first."""
        if self.options.splits is not None:
            return self.options.splits
        layers = self.experts_store.manifest.layers
        last = min(layer.components[2].expert_bytes for layer in layers)
        rate = self.options.rates.record if self.options.rates is not None else USUAL_RATE
        return last / rate > HAND_OFF_S

    def _value(self, key: Key) -> float:
        """Returns the wait that one use of a record of this layer avoids by byte, as measured so far."""
        total, count = self.counts.by_layer_ns.get(key[0], (1, 1))
        return total / count / max(1, self.experts_store.layer(key[0]).record_bytes)


def _early(ticket: Ticket) -> int:
    """Returns how many leading parts may be used before the record is verified: all but the last, which makes it ready."""
    return min(ticket.arrived_parts, len(ticket.request.parts) - 1)
