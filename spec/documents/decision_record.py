"""`assay.decision-record/1`: one decision that a later reader would otherwise have to find again."""

from datetime import date as calendar_date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from assay.spec.documents.base import Document

RecordId = Annotated[str, StringConstraints(pattern=r"^ADR-[0-9]{4}$")]
Sentence = Annotated[str, StringConstraints(min_length=1, max_length=2000)]


def _calendar_date(text: str) -> str:
    calendar_date.fromisoformat(text)
    return text


Date = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(_calendar_date)]


class DecisionRecord(Document):
    """A recovery capsule: enough to keep the decision, to notice that it is being broken, and to doubt it fairly.

    Attributes:
        id: `ADR-0001`; never reused.
        status: `superseded` exactly when another record supersedes this one.
        invariant: what later work may not violate.
        failure_signature: what breaking it looks like.
        minimal_safe_implementation: the smallest thing that keeps the invariant.
        rejected_shortcut: what looks easier and was refused.
        evidence: tests, files and gates that exist and would fail without the decision.
        claim_boundary: what the evidence does not show.
        prerequisites: records that must hold first.
        supersedes: records that this one replaces.
    """

    schema_: Literal["assay.decision-record/1"] = Field("assay.decision-record/1", alias="schema")
    id: RecordId
    title: Sentence
    status: Literal["proposed", "accepted", "superseded"]
    date: Date
    decision: Sentence
    invariant: Sentence
    failure_signature: Sentence
    minimal_safe_implementation: Sentence
    rejected_shortcut: Sentence
    evidence: Annotated[list[Sentence], Field(min_length=1)]
    claim_boundary: Sentence
    prerequisites: list[RecordId]
    supersedes: list[RecordId]
