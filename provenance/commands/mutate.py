"""`assay mutate [BATTERY...]`: run batteries; killed, killed elsewhere and survived, by area."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from assay.mutations import code
from assay.mutations.battery import BatteryContext
from assay.mutations.catalogue import BATTERIES, battery
from assay.mutations.runner import run_batteries
from assay.provenance.catalogue import load_all_clauses
from assay.provenance.output import emit, emit_json, output_format
from assay.provenance.paths import checkpoint_directory
from assay.provenance.progress import progress_bar
from assay.spec.documents.mutation_run import MutationRecord, MutationRun
from assay.spec.errors import usage_error
from assay.spec.verdicts import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument(
        "battery",
        nargs="*",
        help=f"one or more of {', '.join(BATTERIES)}; all of these when none is named; or {code.NAME}, which needs a"
        " checkout and the extra `dev`",
    )
    parser.add_argument("--list", action="store_true", help="list the batteries")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--checkpoint", type=Path, help="directory that describes the real checkpoint")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness")
    parser.add_argument(
        "--sample", type=int, help=f"battery {code.NAME}: draw so many mutants instead of running all"
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the batteries; a survivor, or a mutation that could not be applied, is exit 1."""
    if arguments.list:
        lines = [f"{name:<14}{battery(name).title}" for name in BATTERIES]
        emit("\n".join([*lines, f"{code.NAME:<14}{code.TITLE}"]))
        return ExitCode.OK
    load_all_clauses()
    context = BatteryContext(checkpoint_directory(arguments.checkpoint), arguments.seed)
    named = arguments.battery or list(BATTERIES)
    if arguments.sample is not None and (code.NAME not in named or arguments.sample < 1):
        raise usage_error(
            "--sample", expected=f"a number above 0, with battery {code.NAME}", got=arguments.sample
        )
    jobs = max(1, arguments.jobs)
    with progress_bar(quiet=arguments.quiet) as progress:
        result = run_batteries(
            [one for one in named if one != code.NAME], context, jobs=jobs, progress=progress
        )
        if code.NAME in named:
            reason = code.unavailable()
            ran = (
                code.not_run(reason)
                if reason
                else code.run_code(arguments.sample, arguments.seed, jobs, progress=progress)
            )
            result = code.merged(result, ran)
    _RENDER.get(output_format(arguments), _pretty)(result)
    if result.survivors:
        return ExitCode.FAILED
    if code.no_verdict(result) or not all(counts.total for counts in result.batteries.values()):
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK


def _json(result: MutationRun) -> None:
    emit_json(result.model_dump(mode="json", by_alias=True))


def _pretty(result: MutationRun) -> None:
    lines: list[str] = []
    for name, counts in result.batteries.items():
        lines.append(
            f"{name}: {counts.killed + counts.killed_elsewhere} of {counts.total} killed"
            f" ({counts.killed_elsewhere} elsewhere), {counts.survived} survived, {counts.equivalent} equivalent,"
            f" {counts.invalid} invalid"
        )
        detail = result.details[name]
        width = max((len(area) for area in detail.areas), default=0)
        lines.append(f"  {'area':<{width}}  total killed   rule upstream   form    pin")
        lines += [
            f"  {area:<{width}}  {row.total:5} {row.killed:6} {row.by_rule:6} {row.by_upstream:8}"
            f" {row.by_form:6} {row.by_pin:6}"
            for area, row in detail.areas.items()
        ]
        lines += [
            f"  only the pin stands for {len(pin.leaves)} leaves: {pin.reason}" for pin in detail.pin_only
        ]
        lines += [f"  {id_}: caught by {', '.join(names)}" for id_, names in detail.caught_by.items()]
        lines += [f"  excused: {len(one.mutations)}: {one.reason}" for one in detail.excused]
        lines += [f"  {detail.timed_out} of the killed ran out of time"] * bool(detail.timed_out)
        lines += [f"  not run: {text}" for text in detail.not_run]
    lines += [code.no_verdict(result)] * bool(code.no_verdict(result))
    lines += _records("survived", result.survivors) + _records("killed elsewhere", result.killed_elsewhere)
    emit("\n".join(lines))


def _markdown(result: MutationRun) -> None:
    lines = [
        "| battery | area | total | killed | rule | upstream | form | pin |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, detail in result.details.items():
        lines += [
            f"| {name} | {area} | {row.total} | {row.killed} | {row.by_rule} | {row.by_upstream} | {row.by_form}"
            f" | {row.by_pin} |"
            for area, row in detail.areas.items()
        ]
    for detail in result.details.values():
        if detail.caught_by:
            lines += ["", "| mutation | caught by |", "|---|---|"]
            lines += [f"| {id_} | {', '.join(names)} |" for id_, names in detail.caught_by.items()]
    lines += [
        "",
        *_records("survived", result.survivors),
        *_records("killed elsewhere", result.killed_elsewhere),
    ]
    emit("\n".join(lines))


def _junit(result: MutationRun) -> None:
    from xml.sax.saxutils import quoteattr  # a command that prints no XML must not pay for it

    failed = {(record.battery, record.area): record for record in result.survivors}
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<testsuites name="assay mutate">']
    for name, detail in result.details.items():
        lines.append(f"<testsuite name={quoteattr(name)} tests={quoteattr(str(len(detail.areas)))}>")
        for area in detail.areas:
            record = failed.get((name, area))
            inner = f"<failure message={quoteattr(f'{record.id}: {record.change}')}/>" if record else ""
            lines.append(f"<testcase classname={quoteattr(name)} name={quoteattr(area)}>{inner}</testcase>")
        lines.append("</testsuite>")
    emit("\n".join([*lines, "</testsuites>"]))


_RENDER: dict[str, Callable[[MutationRun], None]] = {
    "json": _json,
    "pretty": _pretty,
    "markdown": _markdown,
    "junit": _junit,
}


def _records(heading: str, records: list[MutationRecord]) -> list[str]:
    return [
        f"{heading}: {one.battery} {one.id}: {one.change}; expected {one.expected_code or 'any clause'},"
        f" got {', '.join(one.got_codes) or one.reason}"
        for one in records
    ]
