"""`assay gate [NAME...]`: run gates, leave evidence, and write a run with its report."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.provenance.evidence.ledger import Ledger
from assay.provenance.evidence.status import Registry
from assay.provenance.gates.run import Listener, RunOptions, run_gates
from assay.provenance.gates.selection import select
from assay.provenance.output import emit, emit_json, output_format
from assay.provenance.paths import checkpoint_directory, evidence_directory, runs_directory
from assay.spec.documents.run import GateRecord, Run
from assay.spec.errors import usage_error
from assay.spec.verdicts import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument(
        "name", nargs="*", help="gate ids or their beginnings; these must decide (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="list the gates and stop")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="run only these")
    parser.add_argument("--require", action="append", default=[], metavar="NAME", help="these must decide")
    parser.add_argument(
        "--jobs",
        type=int,
        default=min(os.cpu_count() or 1, 256),
        help="gates at the same time, and worker processes of each (default: processors)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness (default 0)")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="description of the real checkpoint")
    parser.add_argument("--evidence", type=Path, metavar="DIR", help="the evidence folder (default: .assay)")
    parser.add_argument(
        "--private",
        action="store_true",
        help="the private seam: stamped into every output; its evidence can't reach `qualified`",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the gates; 0 when all that decided passed, 1 failed, 3 inconclusive or nothing ran, 4 damaged evidence."""
    registry = Registry.default()
    if arguments.list:
        _print_list(registry, output_format(arguments))
        return ExitCode.OK
    if not 1 <= arguments.jobs <= 256:
        raise usage_error("--jobs", expected="1 to 256", got=arguments.jobs)
    selection = select(registry.every_gate(), arguments.name, arguments.only, arguments.require)
    options = RunOptions(
        ledger=Ledger(evidence_directory(arguments.evidence)),
        runs=runs_directory(arguments.out),
        checkpoint=checkpoint_directory(arguments.checkpoint),
        jobs=arguments.jobs,
        seed=arguments.seed,
        private=arguments.private,
        registry=registry,
    )
    is_shown = sys.stderr.isatty() and not arguments.quiet
    with _progress(len(selection.gates)) if is_shown else contextlib.nullcontext(None) as listen:
        done, folder = run_gates(selection, options, listen=listen)
    _print(done, folder, output_format(arguments))
    return exit_code(done)


def exit_code(run: Run) -> ExitCode:
    """Returns the exit code of a run."""
    return {"pass": ExitCode.OK, "fail": ExitCode.FAILED}.get(run.outcome, ExitCode.INCONCLUSIVE)


def as_text(run: Run) -> str:
    """Returns a run for a terminal: gates, labels, what is not claimed, what to run next."""
    width = max((len(one.id) for one in run.gates), default=0)
    lines = []
    for one in run.gates:
        lines.append(f"{one.outcome:<12}  {one.id:<{width}}  {one.duration_s:6.1f} s  {one.reason}".rstrip())
        shown = [
            f"    {item.code}: {item.where}: expected {item.expected}, got {item.got}"
            for item in one.findings
        ]
        lines += shown[:5]
        if len(shown) > 5:
            lines.append(f"    and {len(shown) - 5} more in the report")
    wide = max((len(one.component) for one in run.labels), default=0)
    for title, texts in (
        ("labels", [f"{one.component:<{wide}}  {one.label}" for one in run.labels]),
        ("not claimed", run.not_claimed),
        ("next", run.next_steps),
    ):
        if texts:
            lines += ["", f"{title}:", *(f"  {text}" for text in texts)]
    seam = " (private seam)" if run.seam else ""
    return "\n".join([*lines, "", f"run {run.run}{seam}: {run.outcome}", f"report: {run.report}"])


def _print(run: Run, folder: Path, style: str) -> None:
    if style == "json":
        emit_json(run.model_dump(mode="json", by_alias=True))
    elif style == "pretty":
        emit(as_text(run))
    else:
        name = {"junit": "junit.xml", "markdown": "summary.md"}[style]
        emit((folder / name).read_text(encoding="utf-8"))


def _print_list(registry: Registry, style: str) -> None:
    gates = registry.every_gate()
    if style == "json":
        rows = [
            {"id": one.id, "title": one.title, "components": list(registry.components_of(one)),
             "rung": one.rung.value, "needs": list(one.needs), "blocked": one.blocked}
            for one in gates
        ]  # fmt: skip
        emit_json(rows)
        return
    width = max(len(one.id) for one in gates)
    emit("\n".join(f"{one.id:<{width}}  {one.rung:<19}  {one.title}" for one in gates))


@contextmanager
def _progress(total: int) -> Iterator[Listener]:
    """Shows a bar and the running gates on stderr, and nothing of it afterwards."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        running: dict[str, None] = {}

        def listen(id_: str, record: GateRecord | None) -> None:
            if record is None:
                running[id_] = None
            else:
                running.pop(id_, None)
                bar.advance(task)
            bar.update(task, description=next(iter(running), ""))

        yield listen
