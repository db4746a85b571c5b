"""`assay.vectors/1`: literal vectors of one operation: what to ask `assay oracle`, and what the answer must be.

The numbers come from outside this project's code: public bug reports, published facts, hand computation. Integers
may stand as decimal strings. A long list may stand as a rule: `{"fill": x, "length": n, "set": {"i": y}}`,
`{"repeat": [..], "times": n, "then": [..]}` or `{"range": [first, end]}`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from assay.spec.documents.base import Document


class Refusal(Document):
    """The finding that an operation must refuse with."""

    code: str
    where: str


class Vector(Document):
    """One question and its answer, or its refusal; nothing between.

    Attributes:
        id: `operation/name`.
        reports: public bug reports that it comes from.
        catches: the mistakes that it tells apart, with what they give instead.
        source: who computed the expected values.
        origin: as for arrays of a capture; never `upstream-capture`.
        arguments: what the operation is asked.
        expected: results by name; those that are not named are not judged.
        atol: how far a real result may lie apart; integers must be equal.
        refused: how it is refused instead.
    """

    id: str
    reports: list[str]
    catches: str
    source: str
    origin: Literal["independent-cross-check", "contract-control"]
    arguments: dict[str, Any]
    expected: dict[str, Any] | None = None
    atol: Annotated[float, Field(ge=0)] = 0.0
    refused: Refusal | None = None

    @model_validator(mode="after")
    def _answer_or_refusal(self) -> "Vector":
        if (self.expected is None) == (self.refused is None):
            raise ValueError("a vector has either expected results or a refusal")
        return self


class Vectors(Document):
    """The vectors of one operation."""

    schema_: Literal["assay.vectors/1"] = Field("assay.vectors/1", alias="schema")
    operation: str
    vectors: list[Vector]
