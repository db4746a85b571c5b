"""Finds and reads the run that a user names: a run folder, its run.json, or its name under the runs folder.

The log decides whether a run ended: without its footer the run was cut off, whatever else lies in the folder. Such
a run is still read, as far as it came, and can't count as more than inconclusive.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from assay.impl.stores.strict_json import read_json_object
from assay.provenance.evidence.run_log import FILE_NAME as LOG
from assay.provenance.evidence.run_log import RunLog, read_run_log
from assay.spec.clauses import Authority, declare
from assay.spec.documents.run import GateRecord, Run
from assay.spec.errors import AdmissionError, EvidenceError, Finding, usage_error

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
    "A run's run.json and run.jsonl tell of the same run, outcome, gates and ledger head.",
    source=_SOURCE, cause="files of two runs in one folder, or a run.json that was edited",
    fix="run the gates again; the ledger keeps what was proved",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run and what its folder says of it.

    Attributes:
        run: the run; made from the log alone when it was cut off.
        folder: the run's folder, or None when only a file was named.
        truncated: the finding that says so when the run was cut off, else None.
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
    """
    path = _find(named, runs)
    if path.is_file() and path.name not in {RUN, LOG}:
        return LoadedRun(_document(path), None)
    folder = path if path.is_dir() else path.parent
    if not (folder / LOG).is_file():
        return LoadedRun(_document(folder / RUN), folder)
    log = read_run_log(folder)
    damage = [finding for finding in log.findings if finding.code != "evidence.run.truncated"]
    if damage:
        raise EvidenceError(damage[0])
    if log.footer is None:
        return _cut_off(log, folder)
    run = _document(folder / RUN)
    _demand_agreement(run, log)
    return LoadedRun(run, folder)


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


def _demand_agreement(run: Run, log: RunLog) -> None:
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
    }
    for name, (expected, got) in said.items():
        if expected != got:
            raise EvidenceError(Finding.of(DISAGREES, _STAGE, f"{RUN}: {name}", expected=expected, got=got))


def _cut_off(log: RunLog, folder: Path) -> LoadedRun:
    """Makes the run as far as it came; it has no labels, since labels follow from a whole ledger and not from it."""
    header = log.header
    ended = {gate.id for gate in log.gates}
    unfinished = [id_ for id_ in header.gates if id_ not in ended]
    missing = [
        GateRecord(id=id_, outcome="not-run", components=[], reason=CUT_OFF, required=id_ in header.required)
        for id_ in unfinished
    ]
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
            f"`assay gate {' '.join(unfinished[:6])}` runs what had not ended.",
            "`assay status` says what the evidence that was kept allows.",
        ],
        head=header.head,
    )
    truncated = next(one for one in log.findings if one.code == "evidence.run.truncated")
    return LoadedRun(run, folder, truncated, frozenset(unfinished))
