"""Finds and reads the run that a user names: a run folder, its run.json, or its name under the runs folder.

The log decides whether a run ended: without its footer, or without a log, the run was cut off, whatever else lies in
the folder. Such a run is still read, as far as its log came, and can't count as more than inconclusive. With its
footer, run.json must be what the footer binds, to the last label.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from assay.impl.stores.strict_json import read_json_object
from assay.provenance.evidence.run_log import FILE_NAME as LOG
from assay.provenance.evidence.run_log import TRUNCATED, RunLog, document_digest, read_run_log
from assay.provenance.gates.inputs import gate_command
from assay.provenance.gates.registry import all_gates
from assay.spec.clauses import Authority, declare
from assay.spec.documents.run import GateRecord, Run
from assay.spec.errors import AdmissionError, EvidenceError, Finding, IncompleteError, usage_error

RUN: Final = "run.json"
CUT_OFF: Final = "the run was cut off before this gate ended"
_STAGE: Final = "run"
_SOURCE: Final = "design: status is computed; command line"

FORM = declare(
    "report.run.form", Authority.PROCESS, "A run.json is a document of the schema assay.run/1.",
    source=_SOURCE, cause="a file of another schema, or one that was edited by hand",
    fix="name the folder of a run that `assay gate` wrote",
)  # fmt: skip
DISAGREES = declare(
    "report.run.disagrees", Authority.PROCESS,
    "A run's run.json is the document that the footer of its run.jsonl binds: run, outcome, gates, labels and all else.",
    source=_SOURCE, cause="files of two runs in one folder, or a run.json that was edited",
    fix="run the gates again; the ledger keeps what was proved",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run and what its folder says of it.

    Attributes:
        run: the run; made from the log alone when it was cut off.
        folder: the run's folder, or None when only a file was named.
        truncated: the finding that says so when the run was cut off or has no log, else None.
        unfinished: ids of gates that were asked for and had not ended.
    """

    run: Run
    folder: Path | None
    truncated: Finding | None = None
    unfinished: frozenset[str] = frozenset()


def load_run(named: str, runs: Path) -> LoadedRun:
    """Returns the run that `named` stands for.

    Args:
        named: a run folder, a run.json or run.jsonl, or the name of a run.
        runs: where runs lie by name.

    Raises:
        UsageError: `usage.argument`, when there is nothing of this name.
        EvidenceError: `report.run.form`, `report.run.disagrees` or `evidence.run.*`.
        IncompleteError: `evidence.run.truncated`, when the run was cut off before anything of it was written.
    """
    path = _find(named, runs)
    if path.is_file() and path.name not in {RUN, LOG}:
        return _unbound(_document(path), None)
    folder = path if path.is_dir() else path.parent
    try:
        log = read_run_log(folder)
    except FileNotFoundError:
        return _without_log(folder, "no such file")
    except EvidenceError as error:
        if error.finding.code != TRUNCATED:
            raise
        return _without_log(folder, error.finding.got)
    if log.footer is None:
        if damage := _damage(log):
            raise EvidenceError(damage[0])
        return _cut_off(log, folder)
    findings, run = judge_bound(log, folder)
    if findings or run is None:
        raise EvidenceError(findings[0])
    return LoadedRun(run, folder)


def judge_bound(log: RunLog, folder: Path) -> tuple[list[Finding], Run | None]:
    """Returns what is wrong with a log that has its footer and the run.json that it binds, and the run if nothing is."""
    if damage := _damage(log):
        return damage, None
    try:
        run = _document(folder / RUN)
    except EvidenceError as error:
        return [error.finding], None
    findings = _disagreements(run, log)
    return findings, None if findings else run


def _damage(log: RunLog) -> list[Finding]:
    return [finding for finding in log.findings if finding.code != TRUNCATED]


def _without_log(folder: Path, got: str) -> LoadedRun:
    """Returns what a folder without a readable log is worth: nothing, in the form of the run.json if there is one.

    Raises:
        IncompleteError: evidence.run.truncated, when there is no run.json either.
    """
    if (folder / RUN).exists():
        return _unbound(_document(folder / RUN), folder, got)
    raise IncompleteError(_no_log(got))


def _no_log(got: str) -> Finding:
    return Finding.of(TRUNCATED, _STAGE, LOG, expected="a log with a header and a footer", got=got)


def _find(named: str, runs: Path) -> Path:
    for path in (Path(named), runs / named):
        try:
            if path.exists():
                return path
        except (OSError, ValueError):
            continue
    known = (
        sorted((one.name for one in runs.iterdir() if one.is_dir()), reverse=True) if runs.is_dir() else []
    )
    hint = f"runs under {runs}: {', '.join(known[:5])}" if known else f"`assay gate` writes runs under {runs}"
    raise usage_error("RUN", expected="a run folder, a run.json or the name of a run", got=named, hint=hint)


def _document(path: Path) -> Run:
    try:
        value = read_json_object(path, stage=_STAGE)
    except AdmissionError as error:
        raise EvidenceError(error.finding) from error
    try:
        return Run.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{path.name}: {'.'.join(map(str, first['loc'])) or 'top level'}"
        expected = f"schema assay.run/1 ({error.error_count()} faults): {first['msg']}"
        finding = Finding.of(FORM, _STAGE, where, expected=expected, got=_got(first.get("input")))
        raise EvidenceError(finding) from error


def _got(value: object) -> str:
    return "an object" if isinstance(value, dict) else repr(value)


def _disagreements(run: Run, log: RunLog) -> list[Finding]:
    """Names what the log also says; whatever else differs is found by the digest of the whole document."""
    footer = log.footer
    assert footer is not None  # noqa: S101 - the caller has just looked
    said = {
        "run": (footer.run, run.run),
        "outcome": (footer.outcome, run.outcome),
        "head": (footer.head, run.head),
        "gates": (
            sorted((gate.id, gate.outcome) for gate in log.gates),
            sorted((gate.id, gate.outcome) for gate in run.gates),
        ),
        "digest": (footer.document, document_digest(run)),
    }
    return [
        Finding.of(DISAGREES, _STAGE, f"{RUN}: {name}", expected=expected, got=got)
        for name, (expected, got) in said.items()
        if expected != got
    ][:1]


def _unbound(run: Run, folder: Path | None, got: str = "no such file") -> LoadedRun:
    """Makes of a run.json without its log a run that claims nothing: any of it may have been written by hand."""
    reason = "run.jsonl is missing: nothing shows what this gate came to"
    gates = [
        GateRecord(id=one.id, outcome="not-run", components=[], reason=reason, required=one.required)
        for one in run.gates
    ]
    bare = Run(
        run=run.run,
        outcome="inconclusive",
        gates=gates,
        report="",
        started=run.started,
        seed=run.seed,
        seam=run.seam,
        not_claimed=["Anything: without its run.jsonl nothing binds what the run.json of this run says."],
        next_steps=["`assay status` says what the evidence allows."],
        cut_off=True,
    )
    return LoadedRun(bare, folder, _no_log(got), frozenset(one.id for one in gates))


def _cut_off(log: RunLog, folder: Path) -> LoadedRun:
    """Makes the run as far as it came; it has no labels, since labels follow from a whole ledger and not from it."""
    header = log.header
    ended = {gate.id for gate in log.gates}
    unfinished = [id_ for id_ in header.gates if id_ not in ended]
    missing = [
        GateRecord(id=id_, outcome="not-run", components=[], reason=CUT_OFF, required=id_ in header.required)
        for id_ in unfinished
    ]
    needs = {need for gate in all_gates() if gate.id in unfinished for need in gate.needs}
    failed = any(gate.outcome == "fail" for gate in log.gates)
    run = Run(
        run=header.run,
        outcome="fail" if failed else "inconclusive",
        gates=[*log.gates, *missing],
        report="",
        started=header.started,
        seed=header.seed,
        seam=header.seam,
        environment=header.environment,
        not_claimed=[
            f"Anything of the whole: this run was cut off after {len(ended)} of {len(header.gates)} gates."
        ],
        next_steps=[
            f"`{gate_command(unfinished, needs)}` runs what had not ended.",
            "`assay status` says what the evidence that was kept allows.",
        ],
        head=header.head,
        cut_off=True,
    )
    truncated = next(one for one in log.findings if one.code == TRUNCATED)
    return LoadedRun(run, folder, truncated, frozenset(unfinished))
