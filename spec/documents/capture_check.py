"""`assay.capture-check/1`: what `assay capture --check` or `--offline` came to."""

from typing import Any, Literal

from pydantic import Field

from assay.spec.documents.base import Document, FindingRecord


class CaptureCheck(Document):
    """The outcome, what was compared, and every finding."""

    schema_: Literal["assay.capture-check/1"] = Field("assay.capture-check/1", alias="schema")
    outcome: Literal["pass", "fail"]
    facts: dict[str, Any]
    findings: list[FindingRecord]
