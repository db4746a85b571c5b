"""Lays a piece of a trace out in rows: the readers of each lane, then compute and waits of each owner."""

from collections.abc import Iterable
from typing import Final

from assay.spec.documents.measurements import BarKind, TimelineBar, TimelineMeasurement, TimelineRow
from assay.spec.documents.trace import AnyLine, ReadLine, StageLine, WaitLine

_KINDS: Final[tuple[BarKind, ...]] = ("exact", "near", "speculative", "background")


def timeline(
    lines: Iterable[AnyLine], title: str, *, start: int = 0, end: int = 1 << 62, most_bars: int = 1500
) -> TimelineMeasurement:
    """Returns what went on between two times, in nanoseconds since the start of the run.

    Reads of one lane are spread over as few rows as keep them apart: a trace doesn't say which thread read.
    """
    found: list[tuple[str, TimelineBar, bool]] = []
    omitted = 0
    for line in lines:
        bar = _bar(line)
        if bar is None or bar[1].end < start or bar[1].start > end:
            continue
        if len(found) < most_bars:
            found.append((*bar, isinstance(line, ReadLine)))
        else:
            omitted += 1
    rows: dict[str, list[TimelineBar]] = {}
    ends: dict[str, list[int]] = {}
    for name, one, is_read in sorted(found, key=lambda item: item[1].start):
        place = ""
        if is_read:
            busy = ends.setdefault(name, [])
            number = next((number for number, until in enumerate(busy) if until <= one.start), len(busy))
            busy[number : number + 1] = [one.end]
            place = f" reader {number}"
        rows.setdefault(f"{name}{place}", []).append(one)
    order = sorted(rows, key=lambda name: (not name.startswith("expert "), not name.startswith("ple "), name))
    latest = max((one.end for _, one, _ in found), default=start)
    return TimelineMeasurement(
        title=title,
        start=start,
        end=max(min(end, latest), start + 1),
        rows=[TimelineRow(name=name, bars=rows[name]) for name in order],
        omitted=omitted,
    )


def first_time(lines: Iterable[AnyLine]) -> int:
    """Returns when the first bar of a trace starts, in nanoseconds; 0 without one."""
    return min((bar[1].start for bar in map(_bar, lines) if bar is not None), default=0)


def _bar(line: AnyLine) -> tuple[str, TimelineBar] | None:
    if isinstance(line, ReadLine):
        kind: BarKind = _KINDS[line.priority] if line.ok else "failed"
        cached = "unknown" if line.cached is None else f"{line.cached} B"
        text = f"{kind} read {line.fetch} part {line.part}, {line.bytes} B, cached {cached}, direct {line.direct} B"
        return line.lane, TimelineBar(start=line.start, end=line.t, kind=kind, text=text)
    if isinstance(line, StageLine):
        layer = "" if line.layer is None else f" of layer {line.layer}"
        return f"{line.owner} compute", TimelineBar(
            start=line.start, end=line.end, kind="compute", text=f"{line.stage}{layer}"
        )
    if isinstance(line, WaitLine):
        part = "" if line.part is None else f" part {line.part}"
        return f"{line.owner} waits", TimelineBar(
            start=line.start, end=line.end, kind="wait", text=f"for ticket {line.ticket}{part}"
        )
    return None
