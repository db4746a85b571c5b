"""`assay.run-log/1`: one line of `run.jsonl`: a header, one line a gate, and a footer without which it is truncated."""

from typing import Literal

from pydantic import Field, RootModel

from assay.spec.documents.base import Document, Sha256
from assay.spec.documents.run import Environment, GateRecord, OutcomeText


class Header(Document):
    """The first line: what was asked, before anything ran."""

    schema_: Literal["assay.run-log/1"] = Field("assay.run-log/1", alias="schema")
    line: Literal["header"] = "header"
    run: str
    started: str
    seed: int
    seam: Literal["private"] | None
    gates: list[str]
    required: list[str]
    head: Sha256 | None
    root: Sha256 | None = None
    environment: Environment


class GateLine(Document):
    """What one gate came to, written as soon as its evidence is on disk."""

    line: Literal["gate"] = "gate"
    gate: GateRecord


class Footer(Document):
    """The last line; it binds the rest of the run.

    Attributes:
        head: the newest evidence record of the run.
        root: the first record of the ledger, which tells one ledger from another.
        document: SHA-256 of the canonical JSON of run.json, so that no label, environment or finding in it can be
            edited unseen.
    """

    line: Literal["footer"] = "footer"
    run: str
    outcome: OutcomeText
    gates: int = Field(ge=0)
    duration_s: float = Field(ge=0)
    head: Sha256 | None
    root: Sha256 | None
    document: Sha256


class RunLogLine(RootModel[Header | GateLine | Footer]):
    """Any line of the log."""
