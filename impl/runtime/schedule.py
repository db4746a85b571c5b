"""Decides what is read next, and who gets the bytes. Pure: no thread, no file and no clock of its own.

Order. Exact before near predictions before speculation before warming; in a class the earliest deadline first, then
leading parts before later ones. Speculation starts only while nothing exact or near is queued or being read in any
lane, one read a lane at a time; warming only while nothing else is. So an exact request waits for at most one read that
is under way in its lane, and for exact requests that are more urgent; rows have slots and readers that no expert uses.

Ownership. A *fetch* is one use of one slot: it is made when the first ticket asks, shared by later tickets for the same
bytes, and over when no ticket holds it and no read fills it. Only then is the slot free, with its generation counted
up. A ticket ends once, as released, cancelled, failed or dropped; what has ended is never published again.
"""

import heapq
from collections.abc import Sequence
from typing import Any, Final

from assay.impl.runtime.clauses import QUEUE_FULL, RELEASE, SLOT_SIZE, refuse
from assay.impl.runtime.fetches import Change, Fetch, Key, LaneState, Read
from assay.impl.runtime.limits import Limits, check_limits
from assay.impl.runtime.tickets import Lane, Priority, ReadRequest, State, Ticket
from assay.spec.errors import ContractError, Finding

LATE: Final = "late"
STALE: Final = "stale"
FULL: Final = "queue-full"
EVICTED: Final = "evicted"
WITHDRAWN: Final = "withdrawn"
CLOSED: Final = "closed"

__all__ = ["Change", "Fetch", "Read", "Scheduler"]


class Scheduler:
    """The one place where tickets change; its callers hold a lock around every call.

    Attributes:
        changes: what happened since they were last taken.
        ignored_completions: completions of reads that are not under way.
    """

    def __init__(self, limits: Limits) -> None:
        check_limits(limits)
        self._lanes = {lane: LaneState(limits[lane]) for lane in Lane}
        self._fetches: dict[Key, Fetch] = {}
        self._by_id: dict[int, Fetch] = {}
        self._reads: dict[int, tuple[Read, Fetch]] = {}
        self._owners: dict[str, dict[int, Ticket]] = {}
        self._generations: dict[str, int] = {}
        self._pinned: set[int] = set()
        self._numbers = dict.fromkeys(("ticket", "fetch", "read", "entry", "completion"), 0)
        self.changes: list[Change] = []
        self.ignored_completions = 0

    def submit(self, requests: Sequence[ReadRequest], now_ns: int) -> list[Ticket]:
        """Takes requests, all or none; a prediction that has no room comes back as DROPPED.

        Raises:
            ContractError: runtime.slot-size or runtime.queue-full; nothing has changed then.
        """
        self._check_room(requests)
        taken: dict[int, Ticket] = {}
        for number in sorted(range(len(requests)), key=lambda one: not requests[one].is_exact):
            taken[number] = self._take(requests[number], now_ns)
        return [taken[number] for number in range(len(requests))]

    def next_read(self, lane: Lane, now_ns: int) -> Read | None:
        """Returns what a free reader of a lane should read now, or None; the caller must `complete` it."""
        state = self._lanes[lane]
        while state.heap and len(state.reading) < state.limits.readers:
            entry, fetch = state.heap[0][4], state.heap[0][5]
            if fetch.entry != entry:
                heapq.heappop(state.heap)
                continue
            if fetch.slot < 0 and fetch.priority is not Priority.EXACT and fetch.deadline_ns < now_ns:
                for ticket in [one for one in fetch.tickets if one.deadline_ns < now_ns]:
                    self._end(ticket, State.DROPPED, LATE, now_ns)
                continue
            if not self._may_start(lane, fetch):
                return None
            if self._give_slot(state, fetch, now_ns):
                return self._start(lane, state, fetch, now_ns)
            begun = self._most_urgent_begun(lane)  # it must end for its slot to become free
            return None if begun is None else self._start(lane, state, begun, now_ns)
        return None

    def has_entries(self, lane: Lane) -> bool:
        """Says whether a reader of a lane may find something; where this is false, `next_read` is None and changes nothing."""
        state = self._lanes[lane]
        return bool(state.heap) and len(state.reading) < state.limits.readers

    def complete(self, read: Read, finding: Finding | None, now_ns: int) -> Fetch | None:
        """Takes what a device made of a read.

        Returns:
            The fetch, when all its bytes have arrived and somebody still wants them: the caller judges them and calls
            `judged`. None otherwise.
        """
        held = self._reads.pop(read.id, None)
        if held is None or self._lanes[read.lane].generations[read.slot] != read.slot_generation:
            self.ignored_completions += 1
            return None
        fetch = held[1]
        state = self._lanes[read.lane]
        del state.reading[read.id]
        if finding is not None and not fetch.is_over:
            self._fail(fetch, finding, now_ns)
        elif not fetch.is_over:
            fetch.arrived.add(read.part)
            prefix = next(
                (n for n in range(len(fetch.request.parts)) if n not in fetch.arrived), len(fetch.arrived)
            )
            for ticket in fetch.tickets:
                if ticket.arrived_parts != prefix:
                    ticket.arrived_parts = prefix
                    self._changed(ticket, "part", now_ns)
            if len(fetch.arrived) == len(fetch.request.parts):
                return fetch  # stays counted as under way until it was judged
        self._settle(fetch)
        return None

    def judged(self, fetch: Fetch, finding: Finding | None, now_ns: int) -> None:
        """Takes the judgement of bytes that arrived, and publishes them if they are right and still wanted."""
        if fetch.is_over:
            self._settle(fetch)
            return
        if finding is not None:
            self._fail(fetch, finding, now_ns)
            self._settle(fetch)
            return
        fetch.is_ready = True
        fetch.reads -= 1
        for ticket in fetch.tickets:
            self._publish(ticket, now_ns)

    def pin(self, ticket: Ticket) -> None:
        """Notes that somebody uses the bytes of a live ticket, so that a prediction is not evicted."""
        self._pinned.add(ticket.id)

    def promote(self, ticket: Ticket, priority: Priority, deadline_ns: int, now_ns: int) -> None:
        """Makes a live ticket more urgent, never less."""
        wanted = min(ticket.priority, priority), min(ticket.deadline_ns, deadline_ns)
        if not ticket.is_live or wanted == (ticket.priority, ticket.deadline_ns):
            return
        ticket.priority, ticket.deadline_ns = wanted
        self._reconsider(self._by_id[ticket.fetch])
        self._changed(ticket, "promoted", now_ns)

    def cancel(self, ticket: Ticket, now_ns: int) -> bool:
        """Withdraws a live ticket; says whether it was live."""
        if not ticket.is_live:
            return False
        self._end(ticket, State.CANCELLED, WITHDRAWN, now_ns)
        return True

    def release(self, ticket: Ticket, now_ns: int) -> None:
        """Gives the bytes of a ready ticket back.

        Raises:
            ContractError: runtime.release, when it is not ready: it never was, or it was released before.
        """
        if ticket.state is not State.READY:
            raise refuse(RELEASE, f"ticket {ticket.id}", expected="a ready ticket", got=ticket.state.value)
        self._end(ticket, State.RELEASED, "", now_ns)

    def advance(self, owner: str, generation: int, now_ns: int) -> None:
        """Makes older generations of an owner stale; what its owner is using is left to its `release`."""
        if generation <= self._generations.get(owner, generation - 1):
            return
        self._generations[owner] = generation
        for ticket in list(self._owners.get(owner, {}).values()):
            if ticket.request.generation < generation and not (
                ticket.state is State.READY and ticket.id in self._pinned
            ):
                self._end(ticket, State.CANCELLED, STALE, now_ns)

    def close(self, now_ns: int) -> None:
        """Withdraws everything; reads under way still have to be completed."""
        for tickets in list(self._owners.values()):
            for ticket in list(tickets.values()):
                self._end(ticket, State.CANCELLED, CLOSED, now_ns)

    def take_changes(self) -> list[Change]:
        """Returns what happened since the last call."""
        changes, self.changes = self.changes, []
        return changes

    def free_slots(self, lane: Lane) -> int:
        """Returns how many slots of a lane nobody uses."""
        return len(self._lanes[lane].free)

    def queued(self, lane: Lane) -> int:
        """Returns how many fetches of a lane wait for their first read."""
        return sum(self._lanes[lane].waiting)

    def reading(self, lane: Lane) -> int:
        """Returns how many reads of a lane are under way."""
        return len(self._lanes[lane].reading)

    def live_tickets(self, lane: Lane) -> int:
        """Returns how many tickets of a lane hold a claim."""
        return self._lanes[lane].tickets

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held: no ticket, no fetch and no slot."""
        return not self._by_id and all(len(one.free) == one.limits.slots for one in self._lanes.values())

    def _check_room(self, requests: Sequence[ReadRequest]) -> None:
        asked: dict[Lane, tuple[set[Key], int]] = {}
        for request in requests:
            most = self._lanes[request.lane].limits.slot_bytes
            if request.size_bytes > most:
                raise refuse(
                    SLOT_SIZE, str(request.target), expected=f"at most {most} bytes", got=request.size_bytes
                )
            if request.is_exact:
                keys, count = asked.setdefault(request.lane, (set(), 0))
                keys.add(_key(request))
                asked[request.lane] = (keys, count + 1)
        for lane, (keys, count) in asked.items():
            state = self._lanes[lane]
            new = sum(1 for key in keys if self._needs_room(key))
            queue = state.waiting[Priority.EXACT] + new
            if queue > state.limits.queue:
                raise _full(lane, "queue", state.limits.queue, queue)
            if state.tickets + count > state.limits.tickets:
                kept = sum(
                    len(one.tickets) for one in self._of(lane) if one.key in keys or not self._is_spare(one)
                )
                if kept + count > state.limits.tickets:
                    raise _full(lane, "tickets", state.limits.tickets, kept + count)

    def _needs_room(self, key: Key) -> bool:
        """Says whether an exact request for these bytes makes one more exact fetch wait."""
        held = self._fetches.get(key)
        return held is None or (held.slot < 0 and held.priority is not Priority.EXACT)

    def _take(self, request: ReadRequest, now_ns: int) -> Ticket:
        ticket = Ticket(
            self._count("ticket"),
            request,
            State.QUEUED,
            request.priority,
            request.deadline_ns,
            issued_ns=now_ns,
        )
        state = self._lanes[request.lane]
        if request.generation < self._generations.get(request.owner, request.generation):
            return self._refused(ticket, State.CANCELLED, STALE, now_ns)
        if request.priority is not Priority.EXACT and request.deadline_ns < now_ns:
            return self._refused(ticket, State.DROPPED, LATE, now_ns)
        key = _key(request)
        fetch = self._fetches.get(key)
        if not self._make_room(state, ticket, fetch, now_ns):
            return self._refused(ticket, State.DROPPED, FULL, now_ns)
        if fetch is None:
            fetch = Fetch(self._count("fetch"), key, request, [], request.priority, request.deadline_ns)
            self._fetches[key] = self._by_id[fetch.id] = fetch
        else:
            ticket.was_joined = True
            ticket.slot, ticket.slot_generation = fetch.slot, fetch.slot_generation
            if fetch.slot >= 0:
                ticket.state, ticket.started_ns = State.READING, now_ns
        ticket.fetch = fetch.id
        fetch.tickets.append(ticket)
        state.tickets += 1
        self._owners.setdefault(request.owner, {})[ticket.id] = ticket
        self._reconsider(fetch)
        self._changed(ticket, "issued", now_ns)
        if ticket.was_joined:
            ticket.arrived_parts = max(one.arrived_parts for one in fetch.tickets)
            self._changed(ticket, "joined", now_ns)
        if fetch.is_ready:
            self._publish(ticket, now_ns)
        return ticket

    def _make_room(self, state: LaneState, ticket: Ticket, joined: Fetch | None, now_ns: int) -> bool:
        """Drops less urgent predictions until a ticket has room; says whether it has. An exact one always has."""
        asked = (ticket.priority, ticket.deadline_ns, 1 << 62)
        while True:
            is_crowded = state.tickets >= state.limits.tickets
            if not is_crowded and (joined is not None or sum(state.waiting) < state.limits.queue):
                return True
            candidates = [
                one
                for one in self._of(ticket.request.lane)
                if one is not joined
                and self._is_spare(one)
                and (is_crowded or one.slot < 0)
                and (ticket.priority is Priority.EXACT or _urgency(one) > asked)
            ]
            if not candidates:
                return False
            self._drop(max(candidates, key=_urgency), FULL, now_ns)

    def _is_spare(self, fetch: Fetch) -> bool:
        """Says whether nobody needs a fetch: only predictions hold it, and nobody uses its bytes."""
        return fetch.priority is not Priority.EXACT and not any(
            ticket.id in self._pinned for ticket in fetch.tickets
        )

    def _drop(self, fetch: Fetch, reason: str, now_ns: int) -> None:
        for ticket in list(fetch.tickets):
            self._end(ticket, State.DROPPED, reason, now_ns)

    def _may_start(self, lane: Lane, fetch: Fetch) -> bool:
        """Says whether a class may read now, given what the others need."""
        if fetch.priority <= Priority.NEAR:
            return True
        urgent = Priority.NEAR if fetch.priority is Priority.SPECULATIVE else Priority.SPECULATIVE
        for other, state in self._lanes.items():
            if any(state.unread[: urgent + 1]):
                return False
            for one in state.reading.values():
                if one.priority <= urgent or other is lane:
                    return False
        return True

    def _give_slot(self, state: LaneState, fetch: Fetch, now_ns: int) -> bool:
        """Makes sure that a fetch has a slot; takes one from less urgent predictions if it must."""
        if fetch.slot >= 0:
            return True
        spare = 0 if fetch.priority is Priority.EXACT else state.limits.reserved_slots
        while len(state.free) <= spare:
            candidates = [
                one
                for one in self._of(fetch.request.lane)
                if one.slot >= 0 and one.reads == 0 and one.priority > fetch.priority and self._is_spare(one)
            ]
            if not candidates:
                return False
            self._drop(max(candidates, key=_urgency), EVICTED, now_ns)
        return True

    def _most_urgent_begun(self, lane: Lane) -> Fetch | None:
        """Returns the fetch that has a slot and parts still to be read, or None."""
        begun = [one for one in self._of(lane) if one.slot >= 0 and one.counted is not None]
        return min(begun, key=_urgency, default=None)

    def _start(self, lane: Lane, state: LaneState, fetch: Fetch, now_ns: int) -> Read:
        if fetch.slot < 0:
            fetch.slot = state.free.pop()
            fetch.slot_generation = state.generations[fetch.slot]
            for ticket in fetch.tickets:
                ticket.state, ticket.started_ns = State.READING, now_ns
                ticket.slot, ticket.slot_generation = fetch.slot, fetch.slot_generation
                self._changed(ticket, "reading", now_ns)
        part = fetch.next_part
        before = sum(piece.size for some in fetch.request.parts[:part] for piece in some)
        read = Read(
            self._count("read"), fetch.id, lane, part, fetch.slot, fetch.slot_generation, before,
            fetch.request.parts[part], fetch.priority, fetch.request.store, fetch.request.target,
        )  # fmt: skip
        fetch.next_part += 1
        fetch.reads += 1
        fetch.entry = -1
        state.reading[read.id] = fetch
        self._reads[read.id] = (read, fetch)
        self._reconsider(fetch)
        return read

    def _publish(self, ticket: Ticket, now_ns: int) -> None:
        ticket.state = State.READY
        ticket.completed_ns, ticket.completion = now_ns, self._count("completion")
        self._changed(ticket, "ready", now_ns, ticket.completion)

    def _fail(self, fetch: Fetch, finding: Finding, now_ns: int) -> None:
        for ticket in list(fetch.tickets):
            if ticket.priority is Priority.EXACT:
                ticket.finding = finding
                self._end(ticket, State.FAILED, finding.code, now_ns)
            else:
                self._end(ticket, State.DROPPED, finding.code, now_ns)

    def _end(self, ticket: Ticket, state: State, reason: str, now_ns: int) -> None:
        """Ends a live ticket: the only way out, taken once."""
        completion = -1
        if ticket.state is not State.READY and state is not State.CANCELLED:
            completion = self._count("completion")
            ticket.completed_ns, ticket.completion = now_ns, completion
        ticket.state, ticket.reason = state, reason
        self._pinned.discard(ticket.id)
        owned = self._owners[ticket.request.owner]
        del owned[ticket.id]
        if not owned:
            del self._owners[ticket.request.owner]
        fetch = self._by_id[ticket.fetch]
        fetch.tickets.remove(ticket)
        self._lanes[ticket.request.lane].tickets -= 1
        self._changed(ticket, state.value, now_ns, completion)
        if fetch.tickets:
            self._reconsider(fetch)
            return
        fetch.is_over = True
        fetch.entry = -1
        self._recount(fetch)
        del self._fetches[fetch.key]
        if fetch.slot < 0:
            del self._by_id[fetch.id]
        elif fetch.reads == 0:
            self._free(fetch)

    def _settle(self, fetch: Fetch) -> None:
        """Ends one read or judgement of a fetch, and frees its slot if it was the last that anybody needed."""
        fetch.reads -= 1
        if fetch.is_over and fetch.reads == 0:
            self._free(fetch)

    def _free(self, fetch: Fetch) -> None:
        state = self._lanes[fetch.request.lane]
        state.generations[fetch.slot] += 1
        state.free.append(fetch.slot)
        del self._by_id[fetch.id]

    def _reconsider(self, fetch: Fetch) -> None:
        """Puts a fetch at its place in the queue, after its tickets or its next part changed."""
        if fetch.tickets:
            fetch.priority = min(one.priority for one in fetch.tickets)
            fetch.deadline_ns = min(
                one.deadline_ns for one in fetch.tickets if one.priority == fetch.priority
            )
        self._recount(fetch)
        if fetch.counted is None:
            return
        fetch.entry = self._count("entry")
        state = self._lanes[fetch.request.lane]
        heapq.heappush(state.heap, (*self._place(fetch), fetch.id, fetch.entry, fetch))
        if len(state.heap) > 64 + 4 * len(self._by_id):  # forget entries that are no longer valid
            state.heap = [one for one in state.heap if one[5].entry == one[4]]
            heapq.heapify(state.heap)

    def _place(self, fetch: Fetch) -> tuple[int, int, int]:
        """Returns what decides who goes first; of equals the older one does."""
        return fetch.priority, fetch.deadline_ns, fetch.next_part

    def _recount(self, fetch: Fetch) -> None:
        state = self._lanes[fetch.request.lane]
        if fetch.counted is not None:
            state.unread[fetch.counted] -= 1
            state.waiting[fetch.counted] -= fetch.is_waiting
        is_open = not fetch.is_over and fetch.next_part < len(fetch.request.parts)
        fetch.counted = fetch.priority if is_open else None
        fetch.is_waiting = is_open and fetch.slot < 0
        if fetch.counted is not None:
            state.unread[fetch.counted] += 1
            state.waiting[fetch.counted] += fetch.is_waiting

    def _refused(self, ticket: Ticket, state: State, reason: str, now_ns: int) -> Ticket:
        self._changed(ticket, "issued", now_ns)
        ticket.state, ticket.reason = state, reason
        self._changed(ticket, state.value, now_ns)
        return ticket

    def _changed(self, ticket: Ticket, what: str, now_ns: int, completion: int = -1) -> None:
        fetch = self._by_id.get(ticket.fetch)
        leases = 0 if fetch is None else len(fetch.tickets)
        self.changes.append(Change(ticket, what, now_ns, leases, ticket.arrived_parts, completion))

    def _of(self, lane: Lane) -> list[Fetch]:
        return [one for one in self._fetches.values() if one.request.lane is lane]

    def _count(self, what: str) -> int:
        number = self._numbers[what]
        self._numbers[what] = number + 1
        return number


def _key(request: ReadRequest) -> Key:
    return request.store, request.target, request.parts


def _urgency(fetch: Fetch) -> tuple[Any, ...]:
    return fetch.priority, fetch.deadline_ns, fetch.id


def _full(lane: Lane, what: str, most: int, got: int) -> ContractError:
    return refuse(QUEUE_FULL, f"{lane.value}.{what}", expected=f"at most {most} for exact requests", got=got)
