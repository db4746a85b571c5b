"""`assay.status/1`: the labels that follow from the evidence on disk; the JSON output of `assay status`."""

from typing import Literal

from pydantic import Field

from assay.spec.documents.base import Document, FindingRecord, Sha256
from assay.spec.documents.run import LabelRecord, LabelText, SupportRecord


class LedgerState(Document):
    """The evidence that was read: how many records, the newest one, and what is damaged."""

    records: int = Field(ge=0)
    head: Sha256 | None
    findings: list[FindingRecord]
    boundary: str = "The chain detects damage, not forgery."


class ClaimRecord(Document):
    """A label claimed in a document, beside the computed one."""

    component: str
    claimed: str
    computed: LabelText | None
    verdict: Literal["holds", "modest", "overclaimed"]


class Status(Document):
    """Every component's label with its reasons, every profile's support state, and what to run next."""

    schema_: Literal["assay.status/1"] = Field("assay.status/1", alias="schema")
    labels: list[LabelRecord]
    support: list[SupportRecord]
    ledger: LedgerState
    not_claimed: list[str]
    next_steps: list[str]
    claims: list[ClaimRecord] = Field(default_factory=list)
