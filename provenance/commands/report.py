"""`assay report RUN`: render a run again; `assay report A B`: what changed, what regressed, which labels moved.

The exit code is that of the run, or 1 when B regressed against A. A run that was cut off or lost its log is 3 at
best; one whose run.json is not what its log binds, or whose head its ledger lost, is 4.
"""

import argparse
from pathlib import Path

from assay.provenance.evidence.durable import write_durably, writing
from assay.provenance.evidence.heads import belongs, head_of, unreachable
from assay.provenance.evidence.ledger import Ledger
from assay.provenance.evidence.run_log import FILE_NAME as LOG
from assay.provenance.output import emit, output_format, say
from assay.provenance.paths import evidence_directory, runs_directory
from assay.provenance.runs import LoadedRun, load_run
from assay.spec.documents.run import Run
from assay.spec.documents.run_comparison import RunComparison
from assay.spec.errors import EvidenceError, usage_error
from assay.spec.verdicts import ExitCode, worst_exit

_EXITS = {
    "pass": ExitCode.OK,
    "fail": ExitCode.FAILED,
    "inconclusive": ExitCode.INCONCLUSIVE,
    "not-run": ExitCode.INCONCLUSIVE,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument(
        "run",
        metavar="RUN",
        help="a run folder, its run.json, or the name of a run; rendered again in its own folder from the log and "
        "run.json that lie there, which are not touched, or with --out elsewhere, with a copy of both",
    )
    parser.add_argument("other", metavar="RUN2", nargs="?", help="a later run, judged against the first")
    parser.add_argument("--evidence", type=Path, metavar="DIR", help="the evidence folder (default: .assay)")


def run(arguments: argparse.Namespace) -> int:
    """Renders one run or compares two; writes the files and prints the asked format."""
    runs = runs_directory()
    first = load_run(arguments.run, runs)
    second = load_run(arguments.other, runs) if arguments.other else None
    for loaded in (first, second):
        if loaded and loaded.truncated:
            say(f"assay: {loaded.truncated.line}")
    _demand_heads([first, *([second] if second else [])], arguments)
    if second is None:
        return _render(first, arguments)
    return _compare(first, second, arguments)


def _demand_heads(loaded: list[LoadedRun], arguments: argparse.Namespace) -> None:
    """Holds the head that each run names against the ledger, if the run was written over it.

    Raises:
        EvidenceError: evidence.run.head, or the damage of the ledger.
    """
    named = [found for one in loaded if one.folder and (found := head_of(one.folder)) is not None]
    chain = Ledger(evidence_directory(arguments.evidence)).read()
    findings = [*chain.findings, *unreachable(chain, named)]
    for one in findings[1:]:
        say(f"assay: {one.line}")
    if findings:
        raise EvidenceError(findings[0])
    for head in named:
        if not belongs(chain, head) and not arguments.quiet:
            say(f"assay: {head.run}: its evidence folder is not at hand, so its head was not looked for")


def _render(loaded: LoadedRun, arguments: argparse.Namespace) -> int:
    # A run that was cut off may still be going on: its folder is left alone.
    folder: Path | None = arguments.out or (None if loaded.truncated else loaded.folder)
    # In its own folder run.json is the source of the others and is not written again.
    is_own = folder is not None and loaded.folder is not None and folder.resolve() == loaded.folder.resolve()
    log = _log_to_copy(loaded, folder) if folder and not is_own else None
    _finish(loaded.run, folder, arguments, keeps_json=is_own and not loaded.truncated)
    if log is not None and folder is not None:
        with writing(folder / LOG):
            write_durably(folder / LOG, log)
    codes = [_EXITS[loaded.run.outcome], *([ExitCode.INCONCLUSIVE] if loaded.truncated else [])]
    return worst_exit(codes)


def _log_to_copy(loaded: LoadedRun, folder: Path) -> bytes | None:
    """Returns the log that a copy of a report needs to be believed; a folder that holds another run is refused."""
    own = None if loaded.folder is None or loaded.truncated else (loaded.folder / LOG).read_bytes()
    if (folder / LOG).exists() and (own is None or (folder / LOG).read_bytes() != own):
        got, hint = f"{folder}, which holds another run", "name another folder, or remove that one first"
        raise usage_error("--out", expected="a folder without a run, or with this one", got=got, hint=hint)
    return own


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
    with writing(folder or Path()):
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
