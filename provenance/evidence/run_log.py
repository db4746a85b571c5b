"""The run log `run.jsonl`: a header, one line a gate, a footer. A log without its footer is truncated.

Each line is on the device before the next one is written, so a kill loses at most the line being written. A line that
is cut short, or a missing footer, means that the run did not end; what stands before it is still read.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from pydantic import ValidationError

from assay.provenance.evidence.durable import flush_folder
from assay.spec.canonical import canonical_digest, canonical_json
from assay.spec.clauses import Authority, declare
from assay.spec.documents.base import Document
from assay.spec.documents.evidence import MAX_RECORD_BYTES
from assay.spec.documents.run import GateRecord, Run
from assay.spec.documents.run_log import Footer, GateLine, Header, RunLogLine
from assay.spec.errors import EvidenceError, Finding

FILE_NAME: Final = "run.jsonl"
_STAGE: Final = "run-log"
_SOURCE: Final = "design: status is computed"

TRUNCATED = declare(
    "evidence.run.truncated",
    Authority.PROCESS,
    "A run log ends with a footer.",
    source=_SOURCE,
    cause="the run was killed, or is still going on",
    fix="run the gates again; the evidence of those that had ended is kept",
)
FORM = declare(
    "evidence.run.form",
    Authority.PROCESS,
    "A run log is a header, one line a gate and a footer, each one line of JSON of its schema.",
    source=_SOURCE,
    cause="the log was edited, or it is the log of something else",
)


@dataclass(frozen=True, slots=True)
class RunLog:
    """What a log holds; `footer` is None when it is truncated."""

    header: Header
    gates: tuple[GateRecord, ...]
    footer: Footer | None
    findings: tuple[Finding, ...]

    @property
    def is_truncated(self) -> bool:
        """Whether the run did not end."""
        return self.footer is None


class RunLogWriter:
    """Writes one log, line by line; a context manager that closes the file."""

    def __init__(self, folder: Path, header: Header) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(folder / FILE_NAME, flags, 0o644)
        self._write(header)
        flush_folder(folder)

    def gate(self, record: GateRecord) -> None:
        """Writes what one gate came to."""
        self._write(GateLine(gate=record))

    def footer(self, footer: Footer) -> None:
        """Writes the last line."""
        self._write(footer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _write(self, line: Document) -> None:
        left = memoryview(canonical_json(line.model_dump(mode="json", by_alias=True)) + b"\n")
        while left:
            left = left[os.write(self._descriptor, left) :]
        os.fsync(self._descriptor)


def document_digest(run: Run) -> str:
    """Returns the digest of a run's document that the footer holds: of what it says, however it is spelled."""
    return canonical_digest(run.model_dump(mode="json", by_alias=True))


def read_run_log(path: Path) -> RunLog:
    """Returns what a log holds, with a finding when it is truncated or a line is not of its form.

    Args:
        path: the log, or the folder of its run.

    Raises:
        EvidenceError: evidence.run.form, when there is no header; evidence.run.truncated, when it is empty.
    """
    if path.is_dir():
        path = path / FILE_NAME
    header: Header | None = None
    footer: Footer | None = None
    gates: list[GateRecord] = []
    findings: list[Finding] = []
    number = 0
    with path.open("rb") as file:
        while data := file.readline(2 * MAX_RECORD_BYTES):
            number += 1
            where = f"{path.name}:{number}"
            if not data.endswith(b"\n"):
                break  # the write was cut short: truncated, said below
            if footer is not None:
                findings.append(
                    Finding.of(FORM, _STAGE, where, expected="nothing after the footer", got="a line")
                )
                break
            try:
                line = RunLogLine.model_validate_json(data).root
            except ValidationError:
                findings.append(
                    Finding.of(FORM, _STAGE, where, expected="schema assay.run-log/1", got=repr(data[:80]))
                )
                continue
            if isinstance(line, Header) != (number == 1):
                findings.append(
                    Finding.of(FORM, _STAGE, where, expected="one header, in line 1", got=line.line)
                )
            elif isinstance(line, Header):
                header = line
            elif isinstance(line, GateLine):
                gates.append(line.gate)
            else:
                footer = line
    if header is None:
        first = findings[0] if findings else _truncated(path, "no header")
        raise EvidenceError(first)
    if footer is None:
        findings.append(_truncated(path, f"{len(gates)} of {len(header.gates)} gates and no footer"))
    elif footer.run != header.run or footer.gates != len(gates):
        expected, got = f"{len(gates)} gates of {header.run}", f"{footer.gates} gates of {footer.run}"
        findings.append(Finding.of(FORM, _STAGE, f"{path.name}: footer", expected=expected, got=got))
    return RunLog(header, tuple(gates), footer, tuple(findings))


def _truncated(path: Path, got: str) -> Finding:
    return Finding.of(TRUNCATED, _STAGE, path.name, expected="a footer", got=got)
