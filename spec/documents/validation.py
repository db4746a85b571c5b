"""`assay.validation/1`: what `assay validate` says of one path."""

from typing import Any, Literal

from pydantic import Field

from assay.spec.documents.base import Document, FindingRecord


class Report(Document):
    """What was judged, what could not be judged, and what was not asked for."""

    areas: dict[str, Literal["accepted", "inconclusive", "rejected"]] = Field(default_factory=dict)
    notChecked: list[str] = Field(default_factory=list)  # noqa: N815 - the published field name
    facts: dict[str, Any] = Field(default_factory=dict)


class Validation(Document):
    """The verdict on one path, with every finding of every stage that could be judged."""

    schema_: Literal["assay.validation/1"] = Field("assay.validation/1", alias="schema")
    path: str
    kind: str
    verdict: Literal["accepted", "inconclusive", "rejected"]
    stage: str
    findings: list[FindingRecord]
    report: Report | None
    seam: Literal["private"] | None = None
