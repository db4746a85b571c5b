"""`assay validate PATH...`: judge each path and print one result a path, with every finding."""

import argparse
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.impl.stores.checkpoint.payload_state import UNSAVED
from assay.provenance.kinds import judge_path, kind_names
from assay.provenance.output import emit, emit_json_line, output_format
from assay.provenance.paths import checkpoint_directory, evidence_directory
from assay.provenance.progress import progress_bar
from assay.spec.errors import printable, usage_error
from assay.spec.judgement import OMITTED, JudgeOptions
from assay.spec.verdicts import ExitCode, worst_exit

_SHOWN_FINDINGS = 50
_MOST_JOBS = 256


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="what to judge")
    parser.add_argument(
        "--kind", help=f"what the paths are: {', '.join(kind_names())}; told by itself if left out"
    )
    parser.add_argument(
        "--private", action="store_true", help="accept private profiles, such as the miniature"
    )
    parser.add_argument(
        "--payload", action="store_true", help="check the digests of whole shards too; resumable"
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="with --payload: hash every shard anew, whatever an unfinished run left",
    )
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="the real checkpoint's description")
    parser.add_argument("--jobs", type=int, metavar="N", help="workers, 1 to 256 (default: one a processor)")


def run(arguments: argparse.Namespace) -> int:
    """Judges all paths; the exit code is that of the worst verdict."""
    if arguments.jobs is not None and not 1 <= arguments.jobs <= _MOST_JOBS:
        raise usage_error("--jobs", expected=f"1 to {_MOST_JOBS}", got=arguments.jobs)
    if arguments.fresh and not arguments.payload:
        raise usage_error("--fresh", expected="--payload beside it", got="no --payload")
    options = JudgeOptions(
        is_private=arguments.private,
        with_payload=arguments.payload,
        checkpoint=checkpoint_directory(arguments.checkpoint),
        is_fresh=arguments.fresh,
        jobs=arguments.jobs or os.cpu_count() or 1,
        state=arguments.out or evidence_directory() / "state",
        evidence=evidence_directory(),
        progress=_byte_progress if not arguments.quiet and sys.stderr.isatty() else None,
    )
    shape = output_format(arguments)
    documents: list[dict[str, Any]] = []
    codes: list[ExitCode] = []
    for path in arguments.paths:
        judgement = judge_path(path, options, arguments.kind)
        codes.append(judgement.exit_code)
        document = judgement.document(printable(str(path)))
        if shape == "json":
            emit_json_line(document)
        elif shape == "pretty":
            emit(pretty(document))
        else:
            documents.append(document)
    if shape == "junit":
        emit(junit(documents))
    elif shape == "markdown":
        emit("\n".join(map(markdown, documents)))
    return worst_exit(codes)


def pretty(document: dict[str, Any]) -> str:
    """Returns the result as lines for a terminal, without colour."""
    seam = " [seam: private]" if document["seam"] else ""
    lines = [f"{document['path']}: {document['kind']}: {document['verdict']}{seam}"]
    report = document["report"] or {"areas": {}, "notChecked": [], "facts": {}}
    width = max(map(len, report["areas"]), default=0)
    lines += [f"  {area:<{width}}  {verdict}" for area, verdict in report["areas"].items()]
    for finding in document["findings"][:_SHOWN_FINDINGS]:
        lines.append(f"  {_line(finding)}")
        lines += [f"    hint: {finding['hint']}"] if finding["hint"] else []
    more = len(document["findings"]) - _SHOWN_FINDINGS
    lines += [f"  and {more} more findings in --format json"] if more > 0 else []
    omitted = report["facts"].get(OMITTED, {})
    lines += [f"  and {number} more of {code}, counted and not kept" for code, number in omitted.items()]
    if (payload := report["facts"].get("payload")) is not None:
        lines += [f"  payload: {_payload_line(payload)}"]
    lines += [f"  not checked: {text}" for text in report["notChecked"]]
    return "\n".join(lines)


def markdown(document: dict[str, Any]) -> str:
    """Returns the result as a Markdown section."""
    seam = " (seam: private)" if document["seam"] else ""
    lines = [
        f"### `{document['path']}`: {document['verdict']}{seam}",
        "",
        f"Kind: {document['kind']}.",
        "",
    ]
    report = document["report"] or {"areas": {}, "notChecked": [], "facts": {}}
    if report["areas"]:
        lines += ["| Area | Verdict |", "|---|---|"]
        lines += [f"| {area} | {verdict} |" for area, verdict in report["areas"].items()]
        lines.append("")
    if document["findings"]:
        lines += ["| Code | Where | Expected | Got |", "|---|---|---|---|"]
        lines += [
            "| " + " | ".join(_cell(finding[key]) for key in ("code", "where", "expected", "got")) + " |"
            for finding in document["findings"]
        ]
        lines.append("")
    lines += [f"- Not checked: {text}" for text in report["notChecked"]]
    return "\n".join(lines)


def junit(documents: list[dict[str, Any]]) -> str:
    """Returns the results as JUnit XML: a suite a path, a case an area; a gap is `skipped`."""
    from xml.sax.saxutils import escape, quoteattr

    suites: list[str] = []
    for document in documents:
        areas = dict((document["report"] or {}).get("areas", {})) or (
            {} if document["findings"] else {document["kind"]: document["verdict"]}
        )
        by_area: dict[str, list[str]] = {area: [] for area in areas}
        for finding in document[
            "findings"
        ]:  # a stage that is no area, such as identity, is a case of its own
            by_area.setdefault(finding["stage"], []).append(_line(finding))
        areas |= {area: document["verdict"] for area in by_area if area not in areas}
        cases: list[str] = []
        for area, verdict in areas.items():
            body = ""
            told = escape("\n".join(by_area[area]))
            if verdict == "rejected":
                body = f"<failure message={quoteattr(f'{area} rejected')}>{told}</failure>"
            elif verdict == "inconclusive":
                body = f"<skipped message={quoteattr(f'{area} inconclusive')}>{told}</skipped>"
            cases.append(
                f"<testcase classname={quoteattr(document['kind'])} name={quoteattr(area)}>{body}</testcase>"
            )
        name, verdicts = quoteattr(document["path"]), list(areas.values())
        counts = f'failures="{verdicts.count("rejected")}" skipped="{verdicts.count("inconclusive")}"'
        suites.append(f'<testsuite name={name} tests="{len(areas)}" {counts}>{"".join(cases)}</testsuite>')
    return f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="assay validate">{"".join(suites)}</testsuites>'


@contextmanager
def _byte_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows progress over bytes; workers on several threads may advance it."""
    lock, done = threading.Lock(), 0
    with progress_bar(bytes_=True) as show:

        def advance(more: int) -> None:
            nonlocal done
            with lock:
                done += more
                show(title, done, total)

        yield advance


def _payload_line(payload: dict[str, Any]) -> str:
    line = f"{payload['shards_hashed']} shards hashed, {payload['shards_resumed']} digests taken from an unfinished run"
    return (
        line
        if payload["state"] != UNSAVED
        else f"{line}; the state can't be saved, so a stop would lose the work"
    )


def _line(finding: dict[str, str]) -> str:
    return f"{finding['code']}: {finding['where']}: expected {finding['expected']}, got {finding['got']}"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("`", "\\`").replace("<", "&lt;")
