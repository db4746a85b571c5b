"""Sums a trace up in one pass: nothing is kept of it but counters, histograms and what is live."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from assay.spec.documents.trace import (
    AnyLine,
    EventLine,
    ExpertOfTrace,
    ReadLine,
    RouteLine,
    StageLine,
    TicketLine,
    TraceFooter,
    TraceHeader,
    WaitLine,
)
from assay.spec.documents.trace_summary import (
    ByteSummary,
    ComparedFigure,
    RouteSummary,
    Spread,
    TicketSummary,
    TraceComparison,
    TraceSummary,
)
from assay.spec.verdicts import Verdict

CLASSES: Final = ("exact", "near", "speculative", "background")
_STEP: Final = 1.02
_ENDS: Final = frozenset({"failed", "dropped", "cancelled", "released"})


@dataclass(slots=True)
class _Times:
    """A histogram whose buckets are 2% wide."""

    buckets: Counter[int] = field(default_factory=Counter)
    total: int = 0
    most: int = 0

    def add(self, nanoseconds: int) -> None:
        """Adds one time."""
        self.buckets[0 if nanoseconds < 1 else 1 + int(math.log(nanoseconds) / math.log(_STEP))] += 1
        self.total += nanoseconds
        self.most = max(self.most, nanoseconds)

    def spread(self) -> Spread:
        """Returns the quantiles."""
        count = sum(self.buckets.values())
        wanted = [math.ceil(share * count) for share in (0.5, 0.95, 0.99)]
        found = [0.0, 0.0, 0.0]
        seen = 0
        for bucket in sorted(self.buckets):
            before, seen = seen, seen + self.buckets[bucket]
            for place, rank in enumerate(wanted):
                if before < rank <= seen:
                    found[place] = min(self.most, _STEP ** (bucket - 0.5)) / 1e3 if bucket else 0.0
        p50, p95, p99 = found
        return Spread(
            count=count,
            p50_us=p50,
            p95_us=p95,
            p99_us=p99,
            most_us=self.most / 1e3,
            total_us=self.total / 1e3,
        )


@dataclass(slots=True)
class _Busy:
    """Time that a set of spans covers; spans come in the order of their ends."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    done: int = 0

    def add(self, start: int, end: int) -> None:
        """Adds a span."""
        while self.spans and self.spans[-1][1] >= start:
            start = min(start, self.spans.pop()[0])
        self.spans.append((start, end))
        if len(self.spans) > 4096:  # what is so long ago is met by no span to come
            first = self.spans.pop(0)
            self.done += first[1] - first[0]

    @property
    def total(self) -> int:
        """Time that is covered."""
        return self.done + sum(end - start for start, end in self.spans)


@dataclass(slots=True)
class _Tickets:
    counts: Counter[str] = field(default_factory=Counter)
    times: _Times = field(default_factory=_Times)


@dataclass(slots=True)
class _Live:
    line: TicketLine
    key: str
    exact_since: int | None
    fetch: int | None = None


@dataclass(slots=True)
class _Fetch:
    predicted_bytes: int = 0
    tickets: int = 0
    place: tuple[int, int] | None = None
    is_used: bool = False
    is_ready: bool = False


class TraceSums:
    """Takes the lines of one valid trace."""

    def __init__(self) -> None:
        self._header: TraceHeader | None = None
        self._footer: TraceFooter | None = None
        self._live: dict[int, _Live] = {}
        self._fetches: dict[int, _Fetch] = {}
        self._tickets: dict[str, _Tickets] = {}
        self._bytes: Counter[str] = Counter()
        self._knows_cached = True
        self._waits = _Times()
        self._busy = _Busy()
        self._routes: Counter[str] = Counter()
        self._kept: dict[tuple[int, int], int] = {}
        self._before: dict[tuple[str, int], frozenset[int]] = {}
        self._stages: Counter[str] = Counter()
        self._last = 0

    def take(self, line: AnyLine) -> None:
        """Adds one line."""
        if isinstance(line, TraceHeader):
            self._header = line
        elif isinstance(line, TicketLine):
            lane = "expert" if isinstance(line.target, ExpertOfTrace) else "ple"
            key = f"{lane}.{CLASSES[line.priority]}"
            self._live[line.id] = _Live(line, key, line.t if line.priority == 0 else None)
            self._tickets.setdefault(key, _Tickets()).counts["issued"] += 1
        elif isinstance(line, EventLine):
            self._event(line)
        elif isinstance(line, ReadLine):
            self._read(line)
        elif isinstance(line, WaitLine):
            self._last = max(self._last, line.end)
            if line.exact:
                self._waits.add(line.end - line.start)
        elif isinstance(line, StageLine):
            self._last = max(self._last, line.end)
            self._stages[line.stage] += line.end - line.start
        elif isinstance(line, RouteLine):
            self._route(line)
        elif isinstance(line, TraceFooter):
            self._footer = line
            self._last = line.t

    def summary(self, path: str, verdict: Verdict) -> TraceSummary:
        """Returns the sums."""
        for fetch in self._fetches.values():
            self._settle(fetch)
        self._fetches.clear()
        exact_io = self._busy.total
        # Without a line of compute nobody says whether it would have said when it waited.
        hidden = None if not exact_io or not self._stages else 1 - self._waits.total / exact_io
        footer = self._footer
        return TraceSummary(
            path=path,
            verdict="accepted" if verdict is Verdict.ACCEPTED else "inconclusive",
            seam=None if self._header is None else self._header.seam,
            start="unknown" if self._header is None else self._header.start,
            wall_us=self._last / 1e3,
            tickets={
                key: TicketSummary(
                    issue_to_ready=one.times.spread(), **{name: one.counts[name] for name in _COUNTED}
                )
                for key, one in sorted(self._tickets.items())
            },
            bytes=ByteSummary(
                exact=self._bytes["exact"],
                predicted=self._bytes["predicted"],
                useful=self._bytes["useful"],
                unused=self._bytes["predicted"] - self._bytes["useful"],
                logical=self._bytes["exact"] + self._bytes["predicted"],
                direct=self._bytes["direct"],
                cached=self._bytes["cached"] if self._knows_cached else None,
                physical=None if footer is None else footer.physical_bytes,
            ),
            waits=self._waits.spread(),
            exact_io_us=exact_io / 1e3,
            hidden_share=hidden,
            routes=RouteSummary(
                **{name: self._routes[name] for name in ("routes", "chosen", "resident", "repeated")}
            ),
            stages_us={name: time / 1e3 for name, time in sorted(self._stages.items())},
        )

    def _event(self, line: EventLine) -> None:
        self._last = max(self._last, line.t)
        live = self._live.get(line.ticket)
        if live is None:
            return
        sums = self._tickets[live.key]
        if line.fetch is not None and live.fetch is None:
            live.fetch = line.fetch
            fetch = self._fetches.setdefault(line.fetch, _Fetch())
            fetch.tickets += 1
            target = live.line.target
            if isinstance(target, ExpertOfTrace):
                fetch.place = target.layer, target.expert
        if line.priority == 0 and live.exact_since is None:
            live.exact_since = line.t  # promoted
        if line.what in {"ready", "failed"} and live.exact_since is not None:
            self._busy.add(live.exact_since, line.t)
        if line.what == "joined":
            sums.counts["shared"] += 1
        if line.what == "ready":
            sums.counts["ready"] += 1
            sums.times.add(line.t - live.line.t)
            sums.counts["late"] += live.line.deadline is not None and line.t > live.line.deadline
            if live.fetch is not None:
                fetch = self._fetches[live.fetch]
                fetch.is_ready = True
                fetch.is_used = fetch.is_used or line.priority == 0
        elif line.what in _ENDS:
            sums.counts[line.what] += line.what != "released"
            del self._live[line.ticket]
            if live.fetch is not None:
                self._left(live.fetch)

    def _left(self, number: int) -> None:
        fetch = self._fetches[number]
        fetch.tickets -= 1
        if fetch.tickets == 0:
            self._settle(self._fetches.pop(number))

    def _settle(self, fetch: _Fetch) -> None:
        if fetch.is_used:
            self._bytes["useful"] += fetch.predicted_bytes
        elif fetch.is_ready and fetch.place is not None:
            self._kept[fetch.place] = fetch.predicted_bytes  # perhaps in a cache, where a route may find it

    def _read(self, line: ReadLine) -> None:
        self._last = max(self._last, line.t)
        if not line.ok:
            return
        self._bytes["exact" if line.priority == 0 else "predicted"] += line.bytes
        self._bytes["direct"] += line.direct
        self._bytes["cached"] += line.cached or 0
        self._knows_cached = self._knows_cached and line.cached is not None
        fetch = self._fetches.get(line.fetch)
        if fetch is not None and line.priority > 0:
            fetch.predicted_bytes += line.bytes

    def _route(self, line: RouteLine) -> None:
        self._last = max(self._last, line.t)
        key = (line.owner, line.layer)
        chosen = frozenset(line.experts)
        self._routes["routes"] += 1
        self._routes["chosen"] += len(chosen)
        self._routes["resident"] += sum(line.resident)
        for expert, is_resident in zip(line.experts, line.resident, strict=True):
            if is_resident:
                self._bytes["useful"] += self._kept.pop((line.layer, expert), 0)
        self._routes["repeated"] += len(chosen & self._before.get(key, frozenset()))
        self._before[key] = chosen


_COUNTED: Final = ("issued", "ready", "failed", "dropped", "cancelled", "shared", "late")


def summarise(lines: Iterable[AnyLine], path: str, verdict: Verdict) -> TraceSummary:
    """Returns what a trace came to; its lines must be those of a trace that was not rejected."""
    sums = TraceSums()
    for line in lines:
        sums.take(line)
    return sums.summary(path, verdict)


def compare(
    a: TraceSummary, b: TraceSummary, routes_a: Iterable[RouteLine], routes_b: Iterable[RouteLine]
) -> TraceComparison:
    """Returns two runs side by side, and the first place where their routers chose otherwise."""
    compared, other = _first_other(iter(routes_a), iter(routes_b))
    pairs = [(name, one, two) for (name, one), (_, two) in zip(_figures(a), _figures(b), strict=True)]
    figures = [
        ComparedFigure(name=name, a=one, b=two, ratio=two / one if one else None) for name, one, two in pairs
    ]
    return TraceComparison(a=a, b=b, figures=figures, routes_compared=compared, first_other_route=other)


def _figures(one: TraceSummary) -> list[tuple[str, float]]:
    return [
        ("wall, us", one.wall_us),
        ("exact bytes", one.bytes.exact),
        ("predicted bytes", one.bytes.predicted),
        ("useful predicted bytes", one.bytes.useful),
        ("exact tickets outstanding, us", one.exact_io_us),
        ("waits, us", one.waits.total_us),
        ("longest wait, us", one.waits.most_us),
        ("resident when chosen", one.routes.resident),
    ]


def _first_other(a: Iterator[RouteLine], b: Iterator[RouteLine]) -> tuple[int, str]:
    compared = 0
    while True:
        one, two = next(a, None), next(b, None)
        if one is None and two is None:
            return compared, ""
        if one is None or two is None:
            return compared, f"after {compared} routes only {'B' if one is None else 'A'} goes on"
        place = f"{one.owner} layer {one.layer} token {one.token}"
        if (one.owner, one.layer, one.token) != (two.owner, two.layer, two.token):
            return compared, f"{place} against {two.owner} layer {two.layer} token {two.token}"
        if one.experts != two.experts or one.weights != two.weights:
            return compared, f"{place}: {one.experts} against {two.experts}"
        compared += 1
