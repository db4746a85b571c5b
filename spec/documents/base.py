"""The common base of all documents and contracts: strict, frozen, closed."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in 64 lower-case hexadecimal digits."""


class Document(BaseModel):
    """A frozen record: no coercion, no extra field, no change after it was made."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", validate_default=True, populate_by_name=True
    )


class FindingRecord(Document):
    """A finding as it stands in a document; the fields are those of `assay.spec.errors.Finding`."""

    code: str
    stage: str
    where: str
    expected: str
    got: str
    hint: str = ""
