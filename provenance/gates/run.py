"""One run of gates: each leaves an evidence record and a line in the log; labels and reports follow at the end."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from assay import __version__
from assay.provenance.evidence.durable import remove_abandoned, write_durably, writing
from assay.provenance.evidence.environment import environment
from assay.provenance.evidence.heads import read_against_runs
from assay.provenance.evidence.ledger import Chain, Ledger
from assay.provenance.evidence.run_log import FILE_NAME, RunLogWriter, document_digest
from assay.provenance.evidence.status import (
    Present,
    Registry,
    compute_status,
    gate_code_digest,
    present_checkpoint,
    present_state,
)
from assay.provenance.evidence.subjects import SourceTree, bench
from assay.provenance.gates.base import Gate, GateContext, GateResult
from assay.provenance.gates.execution import Finished, end_all, watch
from assay.provenance.gates.inputs import missing_inputs
from assay.provenance.gates.selection import Selection
from assay.spec.clauses import Authority, declare
from assay.spec.documents.base import FindingRecord
from assay.spec.documents.evidence import Evidence
from assay.spec.documents.run import GateRecord, OutcomeText, Run
from assay.spec.documents.run_log import Footer, Header
from assay.spec.errors import EvidenceError, Finding
from assay.spec.verdicts import Outcome

SUBJECT_MOVED: Final = declare(
    "gate.subject-moved",
    Authority.PROCESS,
    "The code, contract and fixtures that a gate is about stay the same while it runs.",
    source="design: status is computed",
    cause="a file was edited during the run",
    fix="run the gate again",
)
SUBJECT_INCOMPLETE: Final = declare(
    "gate.subject-incomplete",
    Authority.PROCESS,
    "Every module of assay that a gate loads belongs to the code that its evidence is about.",
    source="design: status is computed",
    cause="a module was reached by a computed name, which the import closure can't follow",
    fix="import it in the gate's module, or name it in the component's modules",
)
LEFT_OUT: Final = declare(
    "gate.left-out",
    Authority.PROCESS,
    "A required gate is part of the run.",
    source="design: status is computed",
    cause="--only narrowed the run to other gates",
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run is given.

    Attributes:
        ledger: where the evidence goes.
        runs: the folder under which the run gets a folder of its own.
        checkpoint: description of the real checkpoint, or None.
        jobs: gates at the same time.
        seed: seed of all randomness.
        private: the private seam of AFN-013; stamped into everything that the run writes.
        registry: components and gates.
        tree: the source that the evidence is about.
    """

    ledger: Ledger
    runs: Path
    checkpoint: Path | None = None
    jobs: int = 1
    seed: int = 0
    private: bool = False
    registry: Registry = field(default_factory=Registry.default)
    tree: SourceTree = field(default_factory=SourceTree)


Listener = Callable[[str, GateRecord | None], None]
"""Called with a gate's id when it starts (None) and when it ends (its record)."""


def run_gates(
    selection: Selection,
    options: RunOptions,
    *,
    listen: Listener | None = None,
    executor: Executor | None = None,
) -> tuple[Run, Path]:
    """Runs the selected gates and returns the run and its folder.

    Args:
        selection: which gates, and which must decide.
        options: see there.
        listen: told of every start and end.
        executor: runs the watchers; by default a pool of `options.jobs` threads, each watching one process.

    Raises:
        EvidenceError: a damaged ledger, before anything runs; evidence.subject.*.
        IncompleteError: evidence.unwritable.
    """
    chain = read_against_runs(options.ledger, options.runs)
    if chain.findings:
        raise EvidenceError(chain.findings[0])
    with writing(options.runs):
        folder = _new_folder(options.runs)
    return _Session(selection, options, folder, listen or (lambda _id, _record: None)).run(chain, executor)


class _Session:
    def __init__(self, selection: Selection, options: RunOptions, folder: Path, listen: Listener) -> None:
        self._selection = selection
        self._options = options
        self._folder = folder
        self._listen = listen
        self._seam: Literal["private"] | None = "private" if options.private else None
        self._started = datetime.now(UTC)
        self._clock = time.monotonic()
        self._head: str | None = None
        self._root: str | None = None

    def run(self, chain: Chain, executor: Executor | None) -> tuple[Run, Path]:
        from assay.reports.render import RUN_FILES, render, write_reports

        options, gates = self._options, self._selection.gates
        self._head = chain.head
        before = present_state(options.registry, options.tree, options.checkpoint)
        packages = {name for gate in gates for name in gate.packages}
        here = environment(packages, before.checkpoint)
        header = Header(
            run=self._folder.name,
            started=_timestamp(self._started),
            seed=options.seed,
            seam=self._seam,
            gates=[gate.id for gate in gates],
            required=sorted(self._selection.required),
            head=chain.head,
            root=chain.root,
            environment=here,
        )
        path = self._folder / FILE_NAME
        with writing(path):
            log = RunLogWriter(self._folder, header)
        with log:
            records = dict(self._measure(gates, before, executor, log))
            run = self._document(header, [records[gate.id] for gate in gates])
            with writing(self._folder):
                # First the document, then the footer that binds it: a kill between reads as a run that did not end.
                write_durably(self._folder / RUN_FILES["json"], render(run, "json").encode("utf-8"))
            with writing(path):
                log.footer(
                    Footer(
                        run=run.run,
                        outcome=run.outcome,
                        gates=len(run.gates),
                        duration_s=run.duration_s,
                        head=run.head,
                        root=self._root,
                        document=document_digest(run),
                    )
                )
        with writing(self._folder):
            write_reports(run, self._folder, without=("json",))
        return run, self._folder

    def _document(self, header: Header, gates: list[GateRecord]) -> Run:
        """Returns the run with the labels that follow from all evidence now."""
        options = self._options
        chain = read_against_runs(options.ledger, options.runs)
        self._root = chain.root
        present = present_state(options.registry, options.tree, options.checkpoint)
        status = compute_status(chain, present, options.registry)
        return Run(
            run=header.run,
            outcome=run_outcome(gates),
            gates=gates,
            report=_shown_path(self._folder / "index.html"),
            started=header.started,
            duration_s=round(time.monotonic() - self._clock, 3),
            seed=options.seed,
            seam=self._seam,
            environment=header.environment,
            labels=status.labels,
            support=status.support,
            not_claimed=status.not_claimed,
            next_steps=status.next_steps,
            head=self._head,
        )

    def _measure(
        self, gates: tuple[Gate, ...], before: Present, executor: Executor | None, log: RunLogWriter
    ) -> Iterator[tuple[str, GateRecord]]:
        """Runs all gates; yields the record of each after its evidence and its line in the log are on disk."""
        pool = executor or ThreadPoolExecutor(max_workers=self._options.jobs, thread_name_prefix="gate")
        waiting: dict[Future[Finished], Gate] = {}
        try:
            for gate in gates:
                if gate.id in self._selection.left_out:
                    finding = Finding.of(
                        LEFT_OUT, "gate", gate.id, expected="to run", got="left out by --only"
                    )
                    result = GateResult(
                        Outcome.NOT_RUN, findings=(finding,), reason="required, but left out by --only"
                    )
                    yield gate.id, self._keep(gate, Finished(result, 0.0), before, log)
                else:
                    self._listen(gate.id, None)
                    waiting[pool.submit(watch, gate, self._context(gate))] = gate
            for future in as_completed(waiting):
                gate = waiting[future]
                yield gate.id, self._keep(gate, future.result(), before, log)
        except BaseException:
            end_all()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            if executor is None:
                pool.shutdown()

    def _keep(self, gate: Gate, finished: Finished, before: Present, log: RunLogWriter) -> GateRecord:
        result = self._if_covered(gate, finished, self._if_unmoved(gate, finished.result, before))
        findings = [FindingRecord(**finding.as_json()) for finding in result.findings]
        components = self._options.registry.components_of(gate)
        record = Evidence(
            gate=gate.id,
            outcome=result.outcome.value,
            subjects={name: before.subjects[name] for name in components},
            gate_code=before.gate_code[gate.id],
            bench=bench(gate.packages),
            seam="private" if result.is_private else self._seam,
            measurements=result.measurements,
            findings=findings,
            reason=result.reason,
            run=self._folder.name,
            seed=self._options.seed,
            started=_timestamp(self._started),
            duration_s=round(finished.duration_s, 3),
            assay=__version__,
            predecessor=None,
            checkpoint=before.checkpoint if gate.takes("checkpoint") else None,
        )
        with writing(self._options.ledger.directory):
            entry = self._options.ledger.append(record)
        self._head = entry.digest
        is_decidable = not gate.blocked and not missing_inputs(gate.needs, self._options.checkpoint)
        line = GateRecord(
            id=gate.id,
            outcome=result.outcome.value,
            components=list(components),
            measurements=result.measurements,
            reason=result.reason,
            title=gate.title,
            findings=findings,
            duration_s=round(finished.duration_s, 3),
            required=gate.id in self._selection.required or is_decidable,
            needs=list(gate.needs),
            evidence=entry.digest,
            seam=entry.record.seam,
        )
        with writing(self._folder / FILE_NAME):
            log.gate(line)
        self._listen(gate.id, line)
        return line

    def _if_unmoved(self, gate: Gate, result: GateResult, before: Present) -> GateResult:
        """Returns `result`, or an undecided one when what it is about was edited while it ran."""
        registry, tree = self._options.registry, self._options.tree
        moved = [
            one.id
            for one in registry.components
            if one.id in registry.components_of(gate) and tree.subject(one) != before.subjects[one.id]
        ]
        if gate_code_digest(gate, tree) != before.gate_code[gate.id]:
            moved.append("the gate itself")
        if gate.takes("checkpoint") and present_checkpoint(self._options.checkpoint) != before.checkpoint:
            moved.append("the checkpoint's description")
        if not moved:
            return result
        finding = Finding.of(
            SUBJECT_MOVED,
            "gate",
            gate.id,
            expected="the files of the start of the run",
            got=f"changed: {', '.join(moved)}",
        )
        return GateResult(
            Outcome.INCONCLUSIVE,
            result.measurements,
            (finding, *result.findings),
            finding.line,
            result.is_private,
        )

    def _if_covered(self, gate: Gate, finished: Finished, result: GateResult) -> GateResult:
        """Returns `result`, or an undecided one when the gate stood on code that its evidence would not be about."""
        registry, tree = self._options.registry, self._options.tree
        module = gate.function.partition(":")[0]
        own = tree.closure([module]) if module.startswith("assay.") else set()
        findings = []
        for one in registry.components:
            if one.id in registry.components_of(gate) and finished.modules:
                outside = sorted(set(finished.modules) - own - tree.closure(one.modules))
                if outside:
                    findings.append(
                        Finding.of(
                            SUBJECT_INCOMPLETE,
                            "gate",
                            gate.id,
                            expected=f"only modules in the closure of {one.id} or of the gate",
                            got=", ".join(outside),
                        )
                    )
        if not findings:
            return result
        return replace(
            result,
            outcome=Outcome.FAIL if result.outcome is Outcome.FAIL else Outcome.INCONCLUSIVE,
            findings=(*findings, *result.findings),
            reason=findings[0].line,
        )

    def _context(self, gate: Gate) -> GateContext:
        options = self._options
        return GateContext(
            checkpoint=options.checkpoint if gate.takes("checkpoint") else None,
            out=self._folder / "gates" / gate.id,
            jobs=max(1, options.jobs),
            seed=options.seed,
            private=options.private,
        )


def run_outcome(records: list[GateRecord]) -> OutcomeText:
    """Returns what a run came to: one failure fails it, one undecided or missing required gate leaves it open.

    A run in which no gate passed is `not-run`, which is no pass either.
    """
    outcomes = {record.outcome for record in records}
    if "fail" in outcomes:
        return "fail"
    if "inconclusive" in outcomes or any(one.required and one.outcome == "not-run" for one in records):
        return "inconclusive"
    return "pass" if "pass" in outcomes else "not-run"


def _new_folder(runs: Path) -> Path:
    """Makes the folder of a run under a name of its own, and removes what killed runs left half written."""
    runs.mkdir(parents=True, exist_ok=True)
    for log in runs.glob(f"*/{FILE_NAME}"):
        remove_abandoned(log.parent)
    stem = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    while True:
        folder = runs / f"{stem}-{os.urandom(3).hex()}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder


def _timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _shown_path(path: Path) -> str:
    """Returns `path` relative to the current folder when it lies below it, so that reports name no machine."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)
