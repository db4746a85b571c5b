"""`assay trace`: what a streaming run came to, two runs side by side, and a picture of when what happened."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from assay.provenance.output import emit, emit_json, output_format, say
from assay.spec.errors import EvidenceError, usage_error
from assay.spec.verdicts import ExitCode, Verdict

if TYPE_CHECKING:
    from assay.spec.documents.trace import RouteLine
    from assay.spec.documents.trace_summary import Spread, TraceComparison, TraceSummary


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument(
        "action",
        choices=("summarise", "compare", "timeline"),
        help="tickets, bytes, waits and routes of one trace; two side by side, with the first other route; a picture",
    )
    parser.add_argument(
        "traces",
        nargs="+",
        type=Path,
        metavar="TRACE",
        help="written by `assay generate --stream --trace TRACE`",
    )
    parser.add_argument(
        "--from",
        dest="start_ms",
        type=float,
        metavar="MS",
        help="timeline: its start (default: the first that happened)",
    )
    parser.add_argument("--for", dest="span_ms", type=float, metavar="MS", help="timeline: its length")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="timeline: write an HTML page, not the SVG alone"
    )


def run(arguments: argparse.Namespace) -> int:
    """Reads valid traces only: a rejected one is exit 1, one without its end exit 3."""
    wanted = 2 if arguments.action == "compare" else 1
    if len(arguments.traces) != wanted:
        raise usage_error("TRACE", expected=f"{wanted} for {arguments.action}", got=len(arguments.traces))
    if arguments.action == "summarise":
        summary = _summary(arguments.traces[0])
        if output_format(arguments) == "json":
            emit_json(summary.model_dump(mode="json", by_alias=True))
        else:
            emit("\n".join(_lines(summary)))
        return _ending(summary)
    if arguments.action == "compare":
        return _compare(arguments)
    return _timeline(arguments)


def _compare(arguments: argparse.Namespace) -> int:
    from assay.impl.runtime.trace_summary import compare

    first, second = arguments.traces
    a, b = _summary(first), _summary(second)
    found = compare(a, b, _routes(first), _routes(second))
    if output_format(arguments) == "json":
        emit_json(found.model_dump(mode="json", by_alias=True))
    else:
        emit("\n".join(_compared(found)))
    if found.first_other_route:
        return ExitCode.FAILED
    return max(_ending(a), _ending(b))


def _timeline(arguments: argparse.Namespace) -> int:
    from assay.impl.runtime.targets import PAGE_HEAD, obstacle
    from assay.impl.runtime.trace_judge import read_trace
    from assay.impl.runtime.trace_timeline import first_time, timeline
    from assay.reports.timeline import timeline_file, timeline_page

    for name, value in (("--from", arguments.start_ms), ("--for", arguments.span_ms)):
        if value is not None and not 0 <= value < 1e12:
            raise usage_error(name, expected="milliseconds from 0 up", got=value)
    if arguments.page is not None and (got := obstacle(arguments.page, PAGE_HEAD)) is not None:
        raise usage_error("--page", expected="a new file, or an earlier page to replace", got=got)
    path = arguments.traces[0]
    verdict = _judged(path)
    if arguments.start_ms is None:
        start = first_time(read_trace(path))
    else:
        start = int(arguments.start_ms * 1e6)
    end = 1 << 62 if arguments.span_ms is None else start + int(arguments.span_ms * 1e6)
    found = timeline(read_trace(path), path.name, start=start, end=end)
    if not found.rows:
        where = "TRACE" if arguments.start_ms is None and arguments.span_ms is None else "--from and --for"
        raise usage_error(where, expected="a time in which something happened", got="nothing to draw")
    if arguments.page is not None:
        arguments.page.write_text(timeline_page(found), encoding="utf-8")
        if not arguments.quiet:
            say(
                f"wrote {arguments.page}: {sum(len(row.bars) for row in found.rows)} bars, {found.omitted} omitted"
            )
    else:
        emit(timeline_file(found))
    return ExitCode.OK if verdict is Verdict.ACCEPTED else ExitCode.INCONCLUSIVE


def _summary(path: Path) -> "TraceSummary":
    from assay.impl.runtime.trace_judge import read_trace
    from assay.impl.runtime.trace_summary import summarise

    return summarise(read_trace(path), str(path), _judged(path))


def _judged(path: Path) -> Verdict:
    """Returns the verdict on a trace; raises its first fault, since nothing of such a run can be believed."""
    from assay.impl.runtime.trace_judge import judge_trace
    from assay.spec.judgement import JudgeOptions

    judgement = judge_trace(path, JudgeOptions())
    if judgement.verdict is Verdict.REJECTED:
        raise _TraceError(judgement.faults[0])
    return judgement.verdict


class _TraceError(EvidenceError):
    """A trace of a run that can't have been."""

    exit_code = 1


def _routes(path: Path) -> Iterator["RouteLine"]:
    from assay.impl.runtime.trace_judge import read_trace
    from assay.spec.documents.trace import RouteLine

    return (line for line in read_trace(path) if isinstance(line, RouteLine))


def _ending(summary: "TraceSummary") -> ExitCode:
    return ExitCode.OK if summary.verdict == "accepted" else ExitCode.INCONCLUSIVE


def _lines(one: "TraceSummary") -> list[str]:
    seam = ", private seam" if one.seam else ""
    hidden = "hidden share unknown" if one.hidden_share is None else f"{100 * one.hidden_share:.1f}% hidden"
    cached = "unknown" if one.bytes.cached is None else _size(one.bytes.cached)
    physical = "unknown" if one.bytes.physical is None else _size(one.bytes.physical)
    lines = [
        f"{one.path}: {one.verdict}, {one.start}{seam}, {one.wall_us / 1e3:.1f} ms",
        f"  exact I/O {one.exact_io_us / 1e3:.1f} ms, waits {_spread(one.waits)}: {hidden}",
        (
            f"  bytes: exact {_size(one.bytes.exact)}, predicted {_size(one.bytes.predicted)} "
            f"({_size(one.bytes.useful)} useful, {_size(one.bytes.unused)} unused)"
        ),
        f"  of {_size(one.bytes.logical)}: direct {_size(one.bytes.direct)}, page cache {cached}; physical {physical}",
    ]
    for key, tickets in one.tickets.items():
        fates = ", ".join(
            f"{getattr(tickets, name)} {name}"
            for name in ("ready", "shared", "dropped", "cancelled", "failed", "late")
            if getattr(tickets, name)
        )
        lines.append(f"  {key}: {tickets.issued} tickets: {fates or 'none ended'}")
        if tickets.ready:
            lines.append(f"    issue to ready: {_spread(tickets.issue_to_ready)}")
    routes = one.routes
    if routes.routes:
        lines.append(
            f"  routes: {routes.routes}, experts {routes.chosen}: {routes.resident} resident, {routes.repeated} as before"
        )
    lines += [f"  {name}: {time / 1e3:.1f} ms" for name, time in one.stages_us.items()]
    return lines


def _compared(found: "TraceComparison") -> list[str]:
    lines = [
        f"A {found.a.path}: {found.a.verdict}, {found.a.start}",
        f"B {found.b.path}: {found.b.verdict}, {found.b.start}",
    ]
    for one in found.figures:
        ratio = "" if one.ratio is None else f"  B/A {one.ratio:.2f}"
        lines.append(f"  {one.name:<28} {one.a:>14,.0f} {one.b:>14,.0f}{ratio}")
    same = f"the same over {found.routes_compared} of them"
    lines.append(f"  routes: {found.first_other_route or same}")
    return lines


def _spread(one: "Spread") -> str:
    if not one.count:
        return "none"
    return (
        f"{one.count}, p50 {one.p50_us:.0f} us, p95 {one.p95_us:.0f} us, p99 {one.p99_us:.0f} us, "
        f"most {one.most_us:.0f} us, {one.total_us / 1e3:.1f} ms in all"
    )


def _size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
