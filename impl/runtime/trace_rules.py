"""Judges the lines of a trace in their order, holding no more than what is live: tickets, slots and counters."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from assay.impl.runtime.trace_clauses import (
    AFTER_END,
    BOUND,
    BYTES,
    COUNTS,
    EXACT_FIRST,
    FORM,
    GENERATION,
    LAYER,
    LEAK,
    LEASES,
    ORDER,
    PRIORITY,
    RELEASE,
    ROUTE,
    SLOT,
    STATE,
    UNKNOWN,
)
from assay.spec.documents.trace import (
    AnyLine,
    EventLine,
    ExpertOfTrace,
    GenerationLine,
    ReadLine,
    RouteLine,
    StageLine,
    TicketLine,
    TraceFooter,
    TraceHeader,
    WaitLine,
)
from assay.spec.errors import Finding

STAGE: Final = "trace"
MOST: Final = 1000
"""Findings after which a trace is not read on."""
_OWNERS: Final = 1 << 16

_ALLOWED: Final[dict[str, frozenset[str]]] = {
    "queued": frozenset({"joined", "promoted", "reading", "dropped", "cancelled"}),
    "reading": frozenset({"part", "promoted", "ready", "failed", "dropped", "cancelled"}),
    "ready": frozenset({"promoted", "released", "dropped", "cancelled"}),
}
_ENDS: Final = frozenset({"failed", "dropped", "cancelled", "released"})


@dataclass(slots=True)
class _Live:
    line: TicketLine
    lane: str
    priority: int
    fetch: int | None
    state: str = "queued"
    slot: int | None = None
    slot_generation: int | None = None
    arrived: int = 0
    is_promoted: bool = False


@dataclass(slots=True)
class _Use:
    """One use of a slot."""

    fetch: int
    generation: int
    parts: list[int]
    begun: int
    priority: int
    read: set[int] = field(default_factory=set)
    tickets: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Shared:
    """What tickets of one read have in common."""

    what: tuple[str, str, tuple[int, ...]]
    live: int = 0


class TraceRules:
    """Takes one line after another; `findings` grows, and `footer` is set when the trace has ended.

    Attributes:
        findings: what is wrong so far.
        header: the first line, once it was seen.
        footer: the last line, once it was seen.
        counts: lines by kind.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.header: TraceHeader | None = None
        self.footer: TraceFooter | None = None
        self.counts: Counter[str] = Counter()
        self._number = 0
        self._live: dict[int, _Live] = {}
        self._ends: dict[int, str] = {}  # how recent tickets ended; older ones are only known to have ended
        self._shared: dict[int, _Shared] = {}
        self._slots: dict[tuple[str, int], _Use] = {}
        self._waiting: dict[str, set[int]] = {"expert": set(), "ple": set()}
        self._counted: Counter[str] = Counter()
        self._generations: dict[str, int] = {}
        self._now = 0
        self._latest = 0
        self._completion = -1
        self._logical = self._direct = self._cached = 0
        self._knows_cached = True

    def take(self, line: AnyLine) -> None:
        """Judges the next line."""
        self._number += 1
        if isinstance(line, TraceHeader):
            if self._number > 1:
                self._wrong(FORM, "header", "one header, in line 1", "a second one")
            self.header = line
            return
        if self._number == 1:
            self._wrong(FORM, "header", "a header in line 1", line.line)
        if self.footer is not None:
            self._wrong(FORM, line.line, "nothing after the footer", "a line")
            return
        if isinstance(line, TraceFooter):
            self._end(line)
            return
        self.counts[line.line] += 1
        _JUDGES[type(line)](self, line)

    def malformed(self, expected: str, got: str) -> None:
        """Takes a line that is none of the schema's."""
        self._number += 1
        self._wrong(FORM, "line", expected, got)

    def _ticket(self, line: TicketLine) -> None:
        where = f"ticket {line.id}"
        self._tick(line.t, where)
        if line.id != self.counts["ticket"] - 1:
            self._wrong(ORDER, where, f"number {self.counts['ticket'] - 1}", line.id)
        if line.id in self._live:
            return
        header = self.header
        lane = "expert" if isinstance(line.target, ExpertOfTrace) else "ple"
        if header is not None and line.store not in {one.sha256 for one in header.stores}:
            self._wrong(UNKNOWN, f"{where}.store", "a store of the header", line.store)
        if line.exact != (line.priority == 0):
            self._wrong(PRIORITY, f"{where}.priority", "0 for exact requests only", line.priority)
        if isinstance(line.target, ExpertOfTrace) and line.target.layer != line.layer:
            self._wrong(LAYER, f"{where}.layer", line.target.layer, line.layer)
        if sum(line.parts) != line.bytes:
            self._wrong(BYTES, f"{where}.bytes", sum(line.parts), line.bytes)
        limits = None if header is None else header.lanes.get(lane)  # type: ignore[call-overload]
        if limits is None:
            self._wrong(UNKNOWN, f"{where}.target", "a lane of the header", lane)
        elif line.bytes > limits.slot_bytes:
            self._wrong(BYTES, f"{where}.bytes", f"at most {limits.slot_bytes}", line.bytes)
        elif self._counted[lane] >= limits.tickets:
            self._wrong(BOUND, where, f"at most {limits.tickets} live tickets", "one more")
            return
        self._counted[lane] += 1
        self._live[line.id] = _Live(line, lane, line.priority, line.fetch)
        if line.fetch is not None:
            what = (line.store, line.target.model_dump_json(), tuple(line.parts))
            shared = self._shared.setdefault(line.fetch, _Shared(what))
            shared.live += 1
            if shared.what != what:
                self._wrong(
                    BYTES, f"{where}.fetch", "a read of the same bytes", f"fetch {line.fetch} of others"
                )
        if line.priority == 0:
            self._waiting[lane].add(line.id)

    def _event(self, line: EventLine) -> None:
        where = f"ticket {line.ticket}"
        self._tick(line.t, where)
        live = self._live.get(line.ticket)
        if live is None:
            self._of_nobody(line, where)
            return
        if line.what not in _ALLOWED[live.state]:
            code = RELEASE if line.what == "released" else STATE
            self._wrong(
                code, where, f"{' or '.join(sorted(_ALLOWED[live.state]))}", f"{line.what} while {live.state}"
            )
            if line.what not in _ENDS:
                return
        self._judge_completion(line, live, where)
        self._judge_priority(line, live, where)
        if (line.what in {"failed", "dropped", "cancelled"}) != bool(line.reason):
            self._wrong(
                STATE,
                f"{where}.reason",
                f"a reason only for an end, and for {line.what} as it should be",
                line.reason,
            )
        if (
            line.reason == "late"
            and not live.is_promoted
            and (live.line.deadline is None or live.line.deadline >= line.t)
        ):
            self._wrong(STATE, f"{where}.reason", f"a deadline before {line.t}", live.line.deadline)
        if line.fetch != live.fetch:
            self._wrong(GENERATION, where, f"fetch {live.fetch}", line.fetch)
        if line.what == "reading" or (line.what == "joined" and line.slot is not None):
            self._begin(line, live, where)
        elif (line.slot, line.slot_generation) != (live.slot, live.slot_generation):
            expected = f"slot {live.slot}, use {live.slot_generation}"
            self._wrong(GENERATION, where, expected, f"slot {line.slot}, use {line.slot_generation}")
        self._judge_arrived(line, live, where)
        if line.what == "ready":
            self._ready(live, where)
        elif line.what in _ENDS:
            self._ended(line, live, where)
        shared = None if live.fetch is None else self._shared.get(live.fetch)
        leases = 0 if shared is None else shared.live
        if line.leases != leases:
            self._wrong(LEASES, f"{where}.leases", leases, line.leases)
        if shared is not None and shared.live == 0 and live.fetch is not None:
            del self._shared[live.fetch]
        waits = line.ticket in self._live and live.state == "queued" and live.priority == 0
        (self._waiting[live.lane].add if waits else self._waiting[live.lane].discard)(line.ticket)

    def _of_nobody(self, line: EventLine, where: str) -> None:
        if line.ticket >= self.counts["ticket"]:
            self._wrong(UNKNOWN, where, "a ticket that was issued", line.what)
            return
        how = self._ends.get(line.ticket, "ended")
        code = RELEASE if line.what == "released" else AFTER_END
        self._wrong(code, where, f"nothing after it was {how}", line.what)

    def _begin(self, line: EventLine, live: _Live, where: str) -> None:
        live.state = "reading"
        if line.fetch is None or line.slot is None or line.slot_generation is None:
            self._wrong(STATE, where, "a fetch and a slot", f"fetch {line.fetch}, slot {line.slot}")
            return
        live.slot, live.slot_generation = line.slot, line.slot_generation
        key = (live.lane, line.slot)
        use = self._slots.get(key)
        limits = None if self.header is None else self.header.lanes.get(live.lane)  # type: ignore[call-overload]
        if limits is not None and line.slot >= limits.slots:
            self._wrong(SLOT, where, f"a slot below {limits.slots}", line.slot)
        is_first = use is None or use.fetch != line.fetch
        if use is None or is_first:
            if use is not None and (use.tickets or line.slot_generation <= use.generation):
                got = f"fetch {line.fetch}, use {line.slot_generation}"
                held = ", ".join(f"ticket {one}" for one in sorted(use.tickets)[:3]) or "nobody"
                expected = f"a use after {use.generation}, once {held} has ended"
                self._wrong(SLOT, f"{where}: {live.lane} slot {line.slot}", expected, got)
            if limits is not None and line.slot >= limits.slots:
                return
            use = self._slots[key] = _Use(
                line.fetch, line.slot_generation, live.line.parts, line.t, live.priority
            )
        elif use.generation != line.slot_generation:
            self._wrong(GENERATION, where, f"use {use.generation} of the slot", line.slot_generation)
        elif line.what == "reading":
            use.priority = min(use.priority, live.priority)
        use.tickets.add(line.ticket)
        if live.line.generation < self._generations.get(live.line.owner, 0):
            self._wrong(
                GENERATION, where, f"at least {self._generations[live.line.owner]}", live.line.generation
            )
        if is_first and live.priority > 0:
            fetches = [self._live[one].fetch for one in self._waiting[live.lane]]
            if fetches and line.fetch not in fetches:  # else an exact ticket shares this very read
                first = min(self._waiting[live.lane])
                self._wrong(EXACT_FIRST, where, f"ticket {first} first", f"priority {live.priority}")

    def _ready(self, live: _Live, where: str) -> None:
        if live.state != "reading":
            return
        live.state = "ready"
        if live.line.generation < self._generations.get(live.line.owner, 0):
            expected = f"generation {self._generations[live.line.owner]} of {live.line.owner}"
            self._wrong(GENERATION, where, expected, live.line.generation)
        use = None if live.slot is None else self._slots.get((live.lane, live.slot))
        if use is not None and len(use.read) != len(live.line.parts):
            self._wrong(BYTES, where, f"{len(live.line.parts)} parts read", f"{len(use.read)}")

    def _ended(self, line: EventLine, live: _Live, where: str) -> None:
        if line.what == "dropped" and live.priority == 0:
            self._wrong(PRIORITY, where, "a prediction", "an exact ticket that was dropped")
        if line.what == "failed" and live.priority > 0:
            self._wrong(PRIORITY, where, "an exact ticket", "a prediction that failed")
        del self._live[line.ticket]
        self._counted[live.lane] -= 1
        if live.fetch is not None and live.fetch in self._shared:
            self._shared[live.fetch].live -= 1
        self._ends[line.ticket] = line.what
        if len(self._ends) > 4096:
            del self._ends[next(iter(self._ends))]
        if live.slot is not None:
            use = self._slots.get((live.lane, live.slot))
            if use is not None:
                use.tickets.discard(line.ticket)

    def _judge_completion(self, line: EventLine, live: _Live, where: str) -> None:
        """Completions are counted one by one: of what became ready, failed, or was dropped before it was ready."""
        counts = line.what in {"ready", "failed"} or (
            line.what == "dropped" and live.state != "ready" and live.fetch is not None
        )
        expected = self._completion + 1 if counts else None
        if line.completion != expected:
            self._wrong(ORDER, f"{where}.completion", expected, line.completion)
        if counts:
            self._completion += 1

    def _judge_priority(self, line: EventLine, live: _Live, where: str) -> None:
        if line.priority > live.priority or (line.what != "promoted" and line.priority != live.priority):
            self._wrong(PRIORITY, where, f"class {live.priority}", line.priority)
        live.priority = min(live.priority, line.priority)
        live.is_promoted = live.is_promoted or line.what == "promoted"

    def _judge_arrived(self, line: EventLine, live: _Live, where: str) -> None:
        """Leading parts arrive with their reads, and are told by `part`, or to who joins later."""
        expected = live.arrived
        if line.what in {"part", "joined"}:
            use = None if live.slot is None else self._slots.get((live.lane, live.slot))
            read = set() if use is None else use.read
            expected = next(part for part in range(len(read) + 1) if part not in read)
            if line.what == "part" and expected == live.arrived:
                self._wrong(BYTES, where, "a part more", f"{line.arrived} parts")
            live.arrived = expected
        if line.arrived != expected:
            self._wrong(BYTES, f"{where}.arrived", expected, line.arrived)

    def _read(self, line: ReadLine) -> None:
        where = f"read of fetch {line.fetch} part {line.part}"
        self._tick(line.t, where)
        self._span(line.start, line.t, where)
        if (
            line.direct > line.bytes
            or (line.cached or 0) > line.bytes
            or line.direct + (line.cached or 0) > line.bytes
        ):
            got = f"{line.direct} direct, {line.cached} cached"
            self._wrong(BYTES, where, f"at most {line.bytes} bytes", got)
        if line.ok:
            self._logical += line.bytes
            self._direct += line.direct
            self._cached += line.cached or 0
            self._knows_cached = self._knows_cached and line.cached is not None
        use = self._slots.get((line.lane, line.slot))
        if use is None or (use.fetch, use.generation) != (line.fetch, line.slot_generation):
            got = f"use {line.slot_generation} by fetch {line.fetch}"
            expected = "a slot in use" if use is None else f"use {use.generation} by fetch {use.fetch}"
            self._wrong(SLOT, f"{where}: {line.lane} slot {line.slot}", expected, got)
            return
        if line.part >= len(use.parts) or line.bytes != use.parts[line.part]:
            expected = f"{use.parts[line.part]} bytes" if line.part < len(use.parts) else "no such part"
            self._wrong(BYTES, where, expected, line.bytes)
        if line.start < use.begun:
            self._wrong(ORDER, f"{where}.start", f"at least {use.begun}", line.start)
        if line.part == 0 and line.priority != use.priority:
            self._wrong(PRIORITY, f"{where}.priority", use.priority, line.priority)
        if line.ok != (line.calls > 0) or (not line.ok and (line.direct or line.cached is not None)):
            got = f"ok {line.ok} after {line.calls} calls, {line.cached} cached, {line.direct} direct"
            self._wrong(BYTES, where, "calls for what was read, and nothing of what was not", got)
        if line.part in use.read:
            self._wrong(BYTES, where, "each part once", "a second read")
        if line.ok:
            use.read.add(line.part)

    def _generation(self, line: GenerationLine) -> None:
        self._tick(line.t, f"generation {line.generation} of {line.owner}")
        if line.owner not in self._generations and len(self._generations) >= _OWNERS:
            self._wrong(BOUND, f"generation of {line.owner}", f"at most {_OWNERS} owners", "one more")
            return
        self._generations[line.owner] = max(line.generation, self._generations.get(line.owner, 0))

    def _route(self, line: RouteLine) -> None:
        where = f"route of {line.owner} layer {line.layer} token {line.token}"
        self._latest = max(self._latest, line.t)
        counts = (len(line.experts), len(line.weights), len(line.resident))
        if len(set(counts)) > 1 or len(set(line.experts)) != len(line.experts):
            self._wrong(
                ROUTE, where, "each expert once, with weight and residency", f"{counts}: {line.experts}"
            )

    def _stage(self, line: StageLine) -> None:
        self._span(line.start, line.end, f"stage {line.stage} of {line.owner}")

    def _wait(self, line: WaitLine) -> None:
        where = f"wait of {line.owner} for ticket {line.ticket}"
        self._span(line.start, line.end, where)
        if line.ticket >= self.counts["ticket"]:
            self._wrong(UNKNOWN, where, "a ticket that was issued", line.ticket)
        live = self._live.get(line.ticket)
        if live is None:
            return
        has_part = line.part is None or line.part < len(live.line.parts)
        # A prediction may have become exact since; an exact ticket is never anything else.
        if line.owner != live.line.owner or not has_part or (live.line.exact and not line.exact):
            expected = f"{live.line.owner}, class {live.priority}, {len(live.line.parts)} parts"
            self._wrong(STATE, where, expected, f"{line.owner}, exact {line.exact}, part {line.part}")

    def _end(self, line: TraceFooter) -> None:
        self.footer = line
        named = line.counts.model_dump()
        for kind, count in named.items():
            if count != self.counts[kind]:
                self._wrong(COUNTS, f"footer.counts.{kind}", self.counts[kind], count)
        cached = self._cached if self._knows_cached else None
        for name, counted, stated in (
            ("logical_bytes", self._logical, line.logical_bytes),
            ("direct_bytes", self._direct, line.direct_bytes),
            ("cached_bytes", cached, line.cached_bytes),
        ):
            if counted != stated:
                self._wrong(COUNTS, f"footer.{name}", counted, stated)
        if line.t < max(self._now, self._latest):
            self._wrong(ORDER, "footer.t", f"at least {max(self._now, self._latest)}", line.t)
        for ticket in list(self._live)[:10]:
            self._wrong(LEAK, f"ticket {ticket}", "an end", self._live[ticket].state)

    def _tick(self, now: int, where: str) -> None:
        if now < self._now:
            self._wrong(ORDER, f"{where}.t", f"at least {self._now}", now)
        self._now = max(now, self._now)

    def _span(self, start: int, end: int, where: str) -> None:
        if end < start:
            self._wrong(ORDER, where, f"an end from {start}", end)
        self._latest = max(self._latest, end)

    def _wrong(self, code: str, where: str, expected: object, got: object) -> None:
        if len(self.findings) < MOST:
            place = f"line {self._number}: {where}"
            self.findings.append(Finding.of(code, STAGE, place, expected=expected, got=got))


_JUDGES: Final[dict[type, Callable[..., None]]] = {
    TicketLine: TraceRules._ticket,  # noqa: SLF001 - a table of its own methods
    EventLine: TraceRules._event,  # noqa: SLF001
    ReadLine: TraceRules._read,  # noqa: SLF001
    GenerationLine: TraceRules._generation,  # noqa: SLF001
    RouteLine: TraceRules._route,  # noqa: SLF001
    StageLine: TraceRules._stage,  # noqa: SLF001
    WaitLine: TraceRules._wait,  # noqa: SLF001
}
