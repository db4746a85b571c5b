"""`assay report RUN`: render a run again; `assay report A B`: what changed, what regressed, which labels moved.

The exit code is that of the run, or 1 when B regressed against A. A run that was cut off is 3 at best.
"""

import argparse
from pathlib import Path

from assay.provenance.output import emit, output_format, say
from assay.provenance.paths import runs_directory
from assay.provenance.runs import LoadedRun, load_run
from assay.spec.documents.run import Run
from assay.spec.documents.run_comparison import RunComparison
from assay.spec.verdicts import ExitCode, worst_exit

_EXITS = {
    "pass": ExitCode.OK,
    "fail": ExitCode.FAILED,
    "inconclusive": ExitCode.INCONCLUSIVE,
    "not-run": ExitCode.INCONCLUSIVE,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("run", metavar="RUN", help="a run folder, its run.json, or the name of a run")
    parser.add_argument("other", metavar="RUN2", nargs="?", help="a later run, judged against the first")


def run(arguments: argparse.Namespace) -> int:
    """Renders one run or compares two; writes the files and prints the asked format."""
    runs = runs_directory()
    first = load_run(arguments.run, runs)
    second = load_run(arguments.other, runs) if arguments.other else None
    for loaded in (first, second):
        if loaded and loaded.truncated:
            say(f"assay: {loaded.truncated.line}")
    if second is None:
        return _render(first, arguments)
    return _compare(first, second, arguments)


def _render(loaded: LoadedRun, arguments: argparse.Namespace) -> int:
    # A run that was cut off may still be going on: its folder is left alone.
    folder: Path | None = arguments.out or (None if loaded.truncated else loaded.folder)
    # In its own folder run.json is the source of the others and is not written again.
    is_own = folder is not None and loaded.folder is not None and folder.resolve() == loaded.folder.resolve()
    _finish(loaded.run, folder, arguments, keeps_json=is_own and not loaded.truncated)
    codes = [_EXITS[loaded.run.outcome], *([ExitCode.INCONCLUSIVE] if loaded.truncated else [])]
    return worst_exit(codes)


def _compare(first: LoadedRun, second: LoadedRun, arguments: argparse.Namespace) -> int:
    from assay.reports.compare import compare
    from assay.reports.text import anchor

    unfinished = first.unfinished | second.unfinished
    was_cut_off = bool(first.truncated or second.truncated)
    comparison = compare(first.run, second.run, unfinished=unfinished, was_cut_off=was_cut_off)
    beside = second.folder / f"against-{anchor(first.run.run)}" if second.folder else None
    _finish(comparison, arguments.out or beside, arguments)
    verdicts = {
        "regressed": ExitCode.FAILED,
        "inconclusive": ExitCode.INCONCLUSIVE,
        "not-regressed": ExitCode.OK,
    }
    return verdicts[comparison.verdict]


def _finish(
    document: Run | RunComparison,
    folder: Path | None,
    arguments: argparse.Namespace,
    *,
    keeps_json: bool = False,
) -> None:
    """Writes into `folder`, if there is one, and prints the asked format."""
    from assay.reports.pretty import pretty
    from assay.reports.render import Format, render, write_reports

    without: tuple[Format, ...] = ("json",) if keeps_json else ()
    written = write_reports(document, folder, without=without) if folder else {}
    shape = output_format(arguments)
    if shape == "pretty":
        emit(pretty(document))
    elif shape == "json":
        emit(render(document, "json"))
    else:
        emit(render(document, "junit" if shape == "junit" else "markdown"))
    if written and not arguments.quiet:
        say(f"report: {written['html']}")
    elif not written and not arguments.quiet:
        say("no file was written: name a folder with --out DIR")
