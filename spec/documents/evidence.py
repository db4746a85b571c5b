"""`assay.evidence/1`: one evidence record; its file is named by the SHA-256 of its canonical JSON.

A chain of records detects damage: a lost or altered file breaks it. It does not detect forgery, because whoever can
write files can compute a new chain; for that a record is handed over signed.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from assay.spec.documents.base import Document, FindingRecord, Sha256
from assay.spec.documents.run import OutcomeText

MAX_RECORD_BYTES = 4 << 20
"""No record is larger; a gate with more to say writes a by-product and records its digest."""


class Subject(Document):
    """What the evidence is about, of one component: three digests that must equal those on disk."""

    code: Sha256
    contract: Sha256
    fixtures: Sha256


class Bench(Document):
    """Where it was measured; a label holds only where these are the same."""

    python: str
    platform: str
    device: str
    packages: dict[str, str]


class CheckpointInput(Document):
    """Which checkpoint a gate was given: what lies there, by digest.

    Attributes:
        files: name -> SHA-256 of each small file that gates judge.
        headers: SHA-256 over the names and digests of all safetensors headers; None without one.
        inventory: digest of the tensor inventory by its published rule; None when the headers can't be read.
    """

    files: dict[str, Sha256]
    headers: Sha256 | None
    inventory: Sha256 | None


class Evidence(Document):
    """What one gate came to, about which subjects, where, and after which other record."""

    schema_: Literal["assay.evidence/1"] = Field("assay.evidence/1", alias="schema")
    gate: str
    outcome: OutcomeText
    subjects: dict[str, Subject]
    gate_code: Sha256 | None
    bench: Bench
    seam: Literal["private"] | None
    measurements: dict[str, Any]
    findings: list[FindingRecord]
    reason: str
    run: str
    seed: int
    started: str
    duration_s: Annotated[float, Field(ge=0)]
    assay: str
    predecessor: Sha256 | None
    checkpoint: CheckpointInput | None = None
