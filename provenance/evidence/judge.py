"""`assay validate` on evidence: a ledger folder, one record, a run folder or its log."""

import hashlib
from pathlib import Path

from assay.provenance.evidence.ledger import ALTERED, FORM, STAGE, Ledger, parse_record, read_bounded
from assay.provenance.evidence.run_log import FILE_NAME, TRUNCATED, RunLog, read_run_log
from assay.provenance.runs import RUN, judge_bound
from assay.spec.documents.evidence import MAX_RECORD_BYTES
from assay.spec.errors import EvidenceError, Finding
from assay.spec.judgement import Judgement, JudgeOptions

_BOUNDARY = "forgery: a chain of digests detects damage; only a signature can tell who wrote it"


def judge_evidence(path: Path, _options: JudgeOptions) -> Judgement:
    """Returns the judgement of one piece of evidence.

    A damaged file is a fault with exit code 4; a run without its footer is a gap.
    """
    judgement = Judgement("evidence", is_evidence=True, not_checked=[_BOUNDARY])
    if path.is_dir():
        if (path / FILE_NAME).exists() or (path / RUN).exists():
            _judge_run(path / FILE_NAME, judgement)
        else:
            _judge_ledger(path, judgement)
    elif path.name.endswith(".jsonl"):
        _judge_run(path, judgement)
    elif path.name == RUN:
        _judge_run(path.with_name(FILE_NAME), judgement)
    else:
        _judge_record(path, judgement)
    return judgement


def _judge_ledger(folder: Path, judgement: Judgement) -> None:
    chain = Ledger(folder).read()
    judgement.facts |= {"records": len(chain.entries), "head": chain.head}
    judgement.judged("chain", chain.findings)
    if not chain.record_files and not chain.findings:
        empty = Finding.of(FORM, STAGE, str(folder), expected="at least one record", got="none")
        judgement.judged("chain", gaps=[empty])


def _judge_record(path: Path, judgement: Judgement) -> None:
    try:
        data = read_bounded(path, MAX_RECORD_BYTES + 1)
    except OSError as error:
        judgement.judged(
            "record",
            [Finding.of(ALTERED, STAGE, path.name, expected="a readable file", got=error.strerror or error)],
        )
        return
    digest = hashlib.sha256(data).hexdigest()
    faults = []
    if path.name != f"{digest}.json":
        faults.append(
            Finding.of(ALTERED, STAGE, path.name, expected=f"the name {digest}.json", got=path.name)
        )
    entry, finding = parse_record(digest, data)
    if finding is not None:
        faults.append(finding)
    judgement.judged("record", faults)
    if entry is not None:
        record = entry.record
        judgement.is_private = record.seam == "private"
        judgement.facts |= {"gate": record.gate, "outcome": record.outcome, "predecessor": record.predecessor}
    judgement.not_checked.append("the chain: judge the folder of the record")


def _judge_run(path: Path, judgement: Judgement) -> None:
    try:
        log = read_run_log(path)
    except FileNotFoundError:
        gone = Finding.of(TRUNCATED, STAGE, path.name, expected="a log with a footer", got="no such file")
        judgement.judged("log", gaps=[gone])
        return
    except EvidenceError as error:
        is_cut = error.finding.code == TRUNCATED
        judgement.judged("log", [] if is_cut else [error.finding], [error.finding] if is_cut else [])
        return
    judgement.is_private = log.header.seam == "private"
    judgement.facts |= _facts(log)
    judgement.judged(
        "log",
        [one for one in log.findings if one.code != TRUNCATED],
        [one for one in log.findings if one.code == TRUNCATED],
    )
    if log.footer is not None and not log.findings:
        judgement.judged("document", judge_bound(log, path.parent)[0])
    judgement.not_checked.append("the evidence records of the run: judge the evidence folder")


def _facts(log: RunLog) -> dict[str, str | int | None]:
    return {
        "run": log.header.run,
        "outcome": log.footer.outcome if log.footer else None,
        "gates": len(log.gates),
        "head": log.footer.head if log.footer else log.header.head,
    }
