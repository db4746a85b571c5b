"""Heads that runs name, held against the chain: a ledger that was rolled back still checks by itself.

The footer of a run names the head that the run left, and the chain only ever grows, so a head that the chain does not
hold was taken out of it. A run that belongs to another ledger (one with another first record) is not compared. This
sees a rollback as long as one run folder from after it is at hand; it can't see one that takes the run folders too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from assay.provenance.evidence.ledger import Chain, Ledger
from assay.provenance.evidence.run_log import FILE_NAME, read_run_log
from assay.spec.clauses import Authority, declare
from assay.spec.documents.run_log import Footer
from assay.spec.errors import EvidenceError, Finding

_STAGE: Final = "ledger"
_TAIL_BYTES: Final = 1 << 13

ROLLED_BACK = declare(
    "evidence.run.head",
    Authority.PROCESS,
    "The head that a run's footer names is part of the chain of its ledger.",
    source="design: status is computed; AFN-013",
    cause="the newest records were removed, or an old copy of the evidence folder was put back",
    fix="restore the newest copy of the evidence folder; to start anew, move evidence and run folders away together",
)


@dataclass(frozen=True, slots=True)
class RunHead:
    """What the log of one run says of the ledger: its newest record then, and its first one."""

    run: str
    head: str | None
    root: str | None


def read_against_runs(ledger: Ledger, runs: Path, *, also: Iterable[RunHead] = ()) -> Chain:
    """Returns the chain of `ledger`; a head that a run under `runs` names and the chain lacks is damage.

    Raises:
        UsageError: evidence.folder.
    """
    named = [*_heads_under(runs), *also]  # before the chain: a run that ends meanwhile appends to both
    chain = ledger.read()
    lost = unreachable(chain, named)
    return replace(chain, findings=(*chain.findings, *lost)) if lost else chain


def unreachable(chain: Chain, named: Iterable[RunHead]) -> list[Finding]:
    """Returns a finding for each run of this chain whose head the chain lacks; none for a chain that is damaged."""
    if chain.findings or not chain.is_begun:
        return []
    known = {entry.digest for entry in chain.entries}
    return [
        Finding.of(
            ROLLED_BACK, _STAGE, f"{one.run}: {FILE_NAME}",
            expected=f"a head among the {len(known)} records of the ledger", got=one.head,
        )
        for one in named
        if one.head is not None and one.head not in known and (chain.root is None or one.root == chain.root)
    ]  # fmt: skip


def belongs(chain: Chain, one: RunHead) -> bool:
    """Says whether the run was written over this ledger, so that its head can be compared."""
    return chain.root is not None and one.root == chain.root


def head_of(folder: Path) -> RunHead | None:
    """Returns what the log in a run's folder names; of a run that was cut off, its newest gate; None without a log."""
    path = folder / FILE_NAME
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().splitlines(keepends=True)
        if lines and lines[-1].endswith(b"\n"):
            footer = Footer.model_validate_json(lines[-1])
            return RunHead(footer.run, footer.head, footer.root)
    except (OSError, ValidationError):
        pass
    try:
        log = read_run_log(path)
    except (OSError, EvidenceError):
        return None
    newest = next((gate.evidence for gate in reversed(log.gates) if gate.evidence), log.header.head)
    return RunHead(log.header.run, newest, log.header.root)


def _heads_under(runs: Path) -> list[RunHead]:
    found = (head_of(path.parent) for path in sorted(runs.glob(f"*/{FILE_NAME}")))
    return [one for one in found if one is not None]
