"""A witness of the scheduler: a fake device and memory, and what must hold whatever happens in whatever order.

It watches through what everyone sees, tickets and reads, and keeps its own account of slots, so that a scheduler that
deceives itself is still caught. Time is a number that only the caller moves.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from assay.impl.runtime.limits import LaneLimits
from assay.impl.runtime.schedule import Fetch, Read, Scheduler
from assay.impl.runtime.tickets import LIVE, Lane, Priority, ReadRequest, State, Target, Ticket
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

_SOURCE: Final = "field note AFN-019"

ONCE: Final = declare(
    "scheduler.once", Authority.RULE, "A ticket ends once, and after that it changes no more.",
    source=_SOURCE, cause="a second release, or a completion that finds its ticket gone",
)  # fmt: skip
BYTES: Final = declare(
    "scheduler.bytes", Authority.RULE, "The slot of a ready ticket holds the bytes of its request until it is given back.",
    source=f"{_SOURCE}; bug report A23", cause="a slot that was handed on while somebody read from it or into it",
)  # fmt: skip
STALE: Final = declare(
    "scheduler.stale", Authority.RULE, "What was withdrawn, or belongs to an older generation, is never published.",
    source=_SOURCE, cause="a completion that doesn't ask whether it is still wanted",
)  # fmt: skip
BOUND: Final = declare(
    "scheduler.bound", Authority.RULE, "Slots, queues, tickets and reads in flight stay within their limits.",
    source="assay: bounded memory", cause="a limit that is checked for some callers only",
)  # fmt: skip
EXACT_FIRST: Final = declare(
    "scheduler.exact-first", Authority.RULE,
    "Once an exact request waits, nothing less urgent is started in its lane: it waits for reads in flight alone.",
    source=_SOURCE, cause="one queue for all, or predictions that take the slots",
)  # fmt: skip
EDF: Final = declare(
    "scheduler.edf", Authority.RULE, "Inside a class the earliest deadline is started first.",
    source=_SOURCE, cause="first come, first served",
)  # fmt: skip
LEAVINGS: Final = declare(
    "scheduler.leavings", Authority.RULE,
    "Speculation starts only while nothing exact or near waits or is read, one read a lane at a time.",
    source=_SOURCE, cause="speculation that fills the idle reader while the disk is busy",
)  # fmt: skip
IDLE: Final = declare(
    "scheduler.idle", Authority.RULE,
    "A reader is given what waits for it whenever there is a slot: no lane starves, and no work is left lying.",
    source=_SOURCE, cause="a lane that waits for another one, or a slot that nobody frees",
)  # fmt: skip
LEAK: Final = declare(
    "scheduler.leak", Authority.RULE, "When every ticket has ended and every read is over, every slot is free.",
    source=_SOURCE, cause="a slot that is freed only on the usual way out",
)  # fmt: skip
JUDGED: Final = declare(
    "scheduler.judged", Authority.RULE, "Only bytes that were judged as right are published.",
    source="field note AFN-003", cause="a ticket that is ready as soon as its last byte is there",
)  # fmt: skip
FAULT: Final = declare(
    "scheduler.fault", Authority.RULE, "A fault fails exact tickets, with what was wrong, and drops predictions.",
    source=_SOURCE, cause="one way out for both",
)  # fmt: skip
LATE: Final = declare(
    "scheduler.late", Authority.RULE, "A prediction whose deadline has gone by is not begun.",
    source=_SOURCE, cause="a queue that is never looked through",
)  # fmt: skip
REFUSED: Final = declare(
    "scheduler.refused", Authority.RULE, "A second release is refused, and an exact request is refused only for want of room.",
    source=_SOURCE, cause="a release that believes its caller",
)  # fmt: skip

_ENDED: Final = frozenset(set(State) - LIVE)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a ticket looked like after the last step."""

    state: State
    slot: int
    slot_generation: int


@dataclass(slots=True)
class Witness:
    """Runs a scheduler against a fake device, and collects what is wrong.

    Attributes:
        scheduler: what is judged.
        limits: what it was made with.
        now_ns: the time.
        tickets: every ticket ever issued.
        reads: reads under way.
        judging: fetches whose bytes arrived and wait for their judgement, with the slot.
        findings: what was wrong so far.
    """

    scheduler: Scheduler
    limits: Mapping[Lane, LaneLimits]
    now_ns: int = 0
    tickets: list[Ticket] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    judging: list[tuple[Fetch, Read]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    _memory: dict[tuple[Lane, int, int], Target] = field(default_factory=dict)
    _seen: dict[int, Seen] = field(default_factory=dict)
    _started: dict[int, int] = field(default_factory=dict)
    _pinned: set[int] = field(default_factory=set)
    _judged: set[int] = field(default_factory=set)
    _generations: dict[str, int] = field(default_factory=dict)

    @property
    def held(self) -> tuple[object, ...]:
        """What the fake memory holds, and who uses it: for telling states apart."""
        return tuple(sorted((str(key), str(value)) for key, value in self._memory.items())), tuple(
            sorted(self._pinned)
        )

    @property
    def seen(self) -> Iterable[Seen]:
        """What tickets looked like after the last step."""
        return self._seen.values()

    def submit(self, requests: Sequence[ReadRequest]) -> list[Ticket]:
        """Submits requests; a refusal must be for want of room."""
        try:
            taken = self.scheduler.submit(requests, self.now_ns)
        except ContractError as error:
            if error.finding.code != "runtime.queue-full" or not any(one.is_exact for one in requests):
                self._wrong(REFUSED, "submit", "tickets", error.finding.code)
            taken = []
        else:
            for ticket in taken:
                is_stale = ticket.request.generation < self._generations.get(ticket.request.owner, 0)
                if is_stale != (ticket.reason == "stale"):
                    self._wrong(
                        STALE,
                        f"ticket {ticket.id}",
                        "stale at once" if is_stale else "not stale",
                        ticket.reason,
                    )
                if ticket.request.is_exact and not is_stale and not ticket.is_live:
                    self._wrong(REFUSED, f"ticket {ticket.id}", "an exact ticket is live", ticket.state.value)
        self.tickets += taken
        if [one.request for one in taken] != list(requests)[: len(taken)]:
            self._wrong(ONCE, "submit", "a ticket for each request, in order", [one.id for one in taken])
        self.check()
        return taken

    def start(self, lane: Lane) -> Read | None:
        """Lets a free reader of a lane ask for work."""
        waiting = self._waiting(lane)
        unread = {one: self._unread(one) for one in Lane}
        in_use = self._slots_in_use(lane)
        reading = self._of(lane)
        read = self.scheduler.next_read(lane, self.now_ns)
        if read is None:
            self._judge_idle(lane, waiting, in_use, reading)
        else:
            self._judge_start(lane, read, waiting, unread)
            self.reads.append(read)
            self._started[read.fetch] = self._started.get(read.fetch, 0) + 1
        self.check()
        return read

    def complete(self, read: Read, finding: Finding | None = None) -> None:
        """Lets a read end, well or badly; its bytes are in the slot from now on."""
        self.reads.remove(read)
        sharers = self._sharers(read.fetch)
        if finding is None:
            self._memory[read.lane, read.slot, read.part] = read.target
        fetch = self.scheduler.complete(read, finding, self.now_ns)
        if fetch is not None:
            self.judging.append((fetch, read))
        if finding is not None:
            self._judge_fault(sharers, finding)
        self.check()

    def judge(self, fetch: Fetch, finding: Finding | None = None) -> None:
        """Lets the judgement of a fetch end."""
        sharers = self._sharers(fetch.id)
        self.judging = [one for one in self.judging if one[0] is not fetch]
        if finding is None:
            self._judged.add(fetch.id)
        self.scheduler.judged(fetch, finding, self.now_ns)
        if finding is not None:
            self._judge_fault(sharers, finding)
        self.check()

    def cancel(self, ticket: Ticket) -> None:
        """Withdraws a ticket."""
        was_live = self._seen[ticket.id].state in LIVE
        if self.scheduler.cancel(ticket, self.now_ns) != was_live:
            self._wrong(ONCE, f"ticket {ticket.id}", f"live: {was_live}", f"live: {not was_live}")
        self.check()

    def pin(self, ticket: Ticket) -> None:
        """Uses the bytes of a ready ticket from now on."""
        self.scheduler.pin(ticket)
        self._pinned.add(ticket.id)
        self.check()

    def release(self, ticket: Ticket) -> None:
        """Gives a ticket back; only a ready one may be."""
        was_ready = self._seen[ticket.id].state is State.READY
        try:
            self.scheduler.release(ticket, self.now_ns)
        except ContractError as error:
            if was_ready or error.finding.code != "runtime.release":
                self._wrong(REFUSED, f"ticket {ticket.id}", "a release", error.finding.code)
        else:
            if not was_ready:
                self._wrong(REFUSED, f"ticket {ticket.id}", "runtime.release", "a release")
        self.check()

    def promote(self, ticket: Ticket, priority: Priority, deadline_ns: int) -> None:
        """Makes a ticket more urgent."""
        self.scheduler.promote(ticket, priority, deadline_ns, self.now_ns)
        self.check()

    def advance(self, owner: str, generation: int) -> None:
        """Makes older generations of an owner stale."""
        kept = {one.id for one in self.tickets if one.state is State.READY and one.id in self._pinned}
        self.scheduler.advance(owner, generation, self.now_ns)
        self._generations[owner] = max(generation, self._generations.get(owner, 0))
        for ticket in self.tickets:
            if (
                ticket.request.owner == owner
                and ticket.request.generation < self._generations[owner]
                and ticket.is_live
                and ticket.id not in kept
            ):
                self._wrong(STALE, f"ticket {ticket.id}", "ended", ticket.state.value)
        self.check()

    def finish(self) -> None:
        """Closes, lets everything under way end, and looks for what was left behind."""
        self.scheduler.close(self.now_ns)
        self.check()
        while self.reads:
            self.complete(self.reads[-1])
        while self.judging:
            self.judge(self.judging[-1][0])
        if not self.scheduler.is_idle:
            self._wrong(LEAK, "close", "every slot free", "slots or fetches that are held")

    def check(self) -> None:
        """Judges what can be seen now."""
        self.scheduler.take_changes()
        for ticket in self.tickets:
            self._judge_ticket(ticket)
        for lane, limits in self.limits.items():
            for name, got, most in (
                ("slots", len(self._slots_in_use(lane)), limits.slots),
                ("readers", len(self._of(lane)), limits.readers),
                ("queue", len({one.fetch for one in self._waiting(lane)}), limits.queue),
                (
                    "tickets",
                    sum(one.is_live for one in self.tickets if one.request.lane is lane),
                    limits.tickets,
                ),
            ):
                if got > most:
                    self._wrong(BOUND, f"{lane.value}.{name}", f"at most {most}", got)

    def _judge_ticket(self, ticket: Ticket) -> None:
        before = self._seen.get(ticket.id)
        now = Seen(ticket.state, ticket.slot, ticket.slot_generation)
        self._seen[ticket.id] = now
        if before is not None and before.state in _ENDED and now != before:
            self._wrong(ONCE, f"ticket {ticket.id}", before.state.value, now.state.value)
        if ticket.state is State.DROPPED and ticket.id in self._pinned:
            self._wrong(BYTES, f"ticket {ticket.id}", "kept while its bytes are used", "dropped")
        if ticket.state is not State.READY:
            return
        if (before is None or before.state is not State.READY) and (
            ticket.request.generation < self._generations.get(ticket.request.owner, 0)
        ):
            self._wrong(STALE, f"ticket {ticket.id}", "never ready", "ready")
        if ticket.fetch not in self._judged:
            self._wrong(JUDGED, f"ticket {ticket.id}", "a judgement first", "ready")
        lane = ticket.request.lane
        for part in range(len(ticket.request.parts)):
            held = self._memory.get((lane, ticket.slot, part))
            if held != ticket.request.target:
                self._wrong(BYTES, f"ticket {ticket.id} part {part}", ticket.request.target, held)
        for read in self._of(lane):
            if read.slot == ticket.slot:
                self._wrong(
                    BYTES, f"ticket {ticket.id}", "a slot that nobody reads into", f"a read of {read.target}"
                )

    def _judge_start(
        self, lane: Lane, read: Read, waiting: list[Ticket], unread: dict[Lane, list[Ticket]]
    ) -> None:
        for other in self._of(lane):
            if other.slot == read.slot and (other.target != read.target or other.fetch != read.fetch):
                self._wrong(
                    BYTES, f"slot {read.slot}", f"one reader of {other.target}", f"a read of {read.target}"
                )
        for ticket in self.tickets:
            if ticket.state is State.READY and ticket.request.lane is lane and ticket.slot == read.slot:
                self._wrong(
                    BYTES, f"slot {read.slot}", f"kept for ticket {ticket.id}", f"a read of {read.target}"
                )
        began = [one for one in waiting if one.state is State.READING and one.fetch == read.fetch]
        if began:
            first = min((one.priority, one.deadline_ns) for one in began)
            for one in waiting:
                if not one.is_live or one in began:
                    continue
                if one.priority is Priority.EXACT and first[0] is not Priority.EXACT:
                    self._wrong(EXACT_FIRST, f"ticket {one.id}", "the next read", f"a read of {read.target}")
                elif (one.priority, one.deadline_ns) < first:
                    self._wrong(EDF, f"ticket {one.id}", "the next read", f"a read of {read.target}")
            first_ticket = began[0]
            is_late = all(one.deadline_ns < self.now_ns for one in began)
            if first[0] is not Priority.EXACT and is_late:
                self._wrong(LATE, f"ticket {first_ticket.id}", "no read", f"a read of {read.target}")
            left = self.limits[lane].slots - len(self._slots_in_use(lane) | {read.slot})
            if first[0] is not Priority.EXACT and left < self.limits[lane].reserved_slots:
                self._wrong(
                    LEAVINGS, f"ticket {first_ticket.id}", "the reserved slots left", f"{left} slots left"
                )
        if read.priority >= Priority.SPECULATIVE:
            self._judge_leavings(lane, read, unread)

    def _judge_leavings(self, lane: Lane, read: Read, unread: dict[Lane, list[Ticket]]) -> None:
        urgent = Priority.NEAR if read.priority is Priority.SPECULATIVE else Priority.SPECULATIVE
        # A read that was begun may be taken to its end when that is what frees the slot for somebody urgent.
        if read.part > 0:
            return
        for tickets in unread.values():
            for one in tickets:
                if one.is_live and one.fetch != read.fetch and one.priority <= urgent:
                    self._wrong(LEAVINGS, f"ticket {one.id}", f"before {read.target}", one.priority.name)
        if self._of(lane):
            self._wrong(
                LEAVINGS, lane.value, "one speculative read at a time", f"{len(self._of(lane)) + 1} reads"
            )
        for other in self.reads:
            if any(
                one.fetch == other.fetch and one.is_live and one.priority <= urgent for one in self.tickets
            ):
                self._wrong(
                    LEAVINGS, f"read {other.id}", "no speculation beside it", f"a read of {read.target}"
                )

    def _judge_fault(self, sharers: list[Ticket], finding: Finding) -> None:
        for ticket in sharers:
            is_exact = ticket.request.is_exact or ticket.priority is Priority.EXACT
            wanted = (State.FAILED, finding) if is_exact else (State.DROPPED, None)
            if (ticket.state, ticket.finding) != wanted:
                self._wrong(FAULT, f"ticket {ticket.id}", wanted[0].value, ticket.state.value)

    def _sharers(self, fetch: int) -> list[Ticket]:
        return [one for one in self.tickets if one.is_live and one.fetch == fetch]

    def _spare_slots(self, lane: Lane, priority: Priority) -> int:
        """Returns how many slots only hold what is less urgent, with nobody reading into or from them."""
        busy = {one.slot for one in self._of(lane)} | {
            read.slot for _, read in self.judging if read.lane is lane
        }
        users: dict[int, list[Ticket]] = {}
        for one in self.tickets:
            if one.request.lane is lane and one.state in {State.READING, State.READY}:
                users.setdefault(one.slot, []).append(one)
        return sum(
            slot not in busy and all(one.priority > priority and one.id not in self._pinned for one in some)
            for slot, some in users.items()
        )

    def _judge_idle(self, lane: Lane, waiting: list[Ticket], in_use: set[int], reading: list[Read]) -> None:
        limits = self.limits[lane]
        if len(reading) >= limits.readers:
            return
        free = limits.slots - len(in_use)
        for ticket in waiting:
            reserved = 0 if ticket.priority is Priority.EXACT else limits.reserved_slots
            room = free + self._spare_slots(lane, ticket.priority) > reserved
            if ticket.is_live and ticket.priority <= Priority.NEAR and room:
                self._wrong(IDLE, f"ticket {ticket.id}", "a read", "none, with a free reader and a free slot")
        begun = [one for one in self.tickets if one.request.lane is lane and self._has_unread_part(one)]
        if any(one.state is State.READING and one.priority <= Priority.NEAR for one in begun):
            self._wrong(
                IDLE, lane.value, "the next part of a read that was begun", "none, with a free reader"
            )

    def _has_unread_part(self, ticket: Ticket) -> bool:
        if ticket.state is not State.READING:
            return False
        return self._started.get(ticket.fetch, 0) < len(ticket.request.parts)

    def _unread(self, lane: Lane) -> list[Ticket]:
        return [
            one for one in self.tickets
            if one.request.lane is lane and (one.state is State.QUEUED or self._has_unread_part(one))
        ]  # fmt: skip

    def _waiting(self, lane: Lane) -> list[Ticket]:
        return [one for one in self.tickets if one.state is State.QUEUED and one.request.lane is lane]

    def _of(self, lane: Lane) -> list[Read]:
        return [one for one in self.reads if one.lane is lane]

    def _slots_in_use(self, lane: Lane) -> set[int]:
        return set(self._users(lane))

    def _users(self, lane: Lane) -> Iterator[int]:
        for ticket in self.tickets:
            if ticket.request.lane is lane and ticket.state in {State.READING, State.READY}:
                yield ticket.slot
        for read in self._of(lane):
            yield read.slot
        for _, read in self.judging:
            if read.lane is lane:
                yield read.slot

    def _wrong(self, code: str, where: str, expected: object, got: object) -> None:
        if len(self.findings) < 20:
            self.findings.append(Finding.of(code, "scheduler", where, expected=expected, got=got))
