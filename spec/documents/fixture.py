"""`assay.fixture/1`: where every array of a shipped capture comes from, and what it may claim.

An origin belongs to an array, never to a file: `upstream-capture` is reserved for values that the pinned upstream
code held while it ran.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from assay.spec.documents.base import Document, Sha256
from assay.spec.documents.capture import Count, Dtype, StageName, Word

ORIGINS = ("upstream-capture", "independent-cross-check", "contract-control", "derived-metadata")


class SourceFile(Document):
    """One source file of a producer, and its digest."""

    path: str
    sha256: Sha256


class ProducerPin(Document):
    """A package that produced arrays; `distribution_sha256` is over the sorted, hashed lines of its RECORD."""

    package: str
    version: str
    wheel_sha256: Sha256 | None = None
    distribution_sha256: Sha256 | None = None
    sources: list[SourceFile] = Field(default_factory=list)


class ArrayProvenance(Document):
    """One array. `origin` is free text here, so that a wrong word breaks its own clause and not the form."""

    stage: StageName
    layer: Annotated[int, Field(ge=0)] | None
    part: Word
    origin: str
    producer: str
    qualified_name: str
    inputs: list[Sha256]
    dtype: Dtype
    shape: list[Count]
    sha256: Sha256


class RunRecord(Document):
    """How the producer was driven."""

    rows: list[list[Count]]
    partition: list[Annotated[int, Field(ge=1)]]
    left_padding: Count
    row: Count
    pad_id: Count
    eos_id: Count
    cache: bool
    attention: str
    experts: str
    threads: Annotated[int, Field(ge=1)]


class CutStatistics(Document):
    """Discrete cuts of one kind: how many there were, and how many were too near to ask parity of."""

    cuts: Count
    near: Count
    ties: Count
    smallest_gap: Annotated[float, Field(ge=0)] | None
    near_places: list[list[int]]


class Weights(Document):
    """The rule that made the weights, and the digest of all of them in name order."""

    rule: Literal["counter-by-name", "counter-by-role"]
    sha256: Sha256


class Fixture(Document):
    """The provenance of one shipped capture."""

    schema_: Literal["assay.fixture/1"] = Field("assay.fixture/1", alias="schema")
    id: str
    title: str
    catches: list[str]
    geometry: str
    configuration: dict[str, Any]
    weights: Weights
    run: RunRecord
    producers: dict[str, ProducerPin]
    arrays: list[ArrayProvenance]
    counts: dict[str, Count]
    cuts: dict[str, CutStatistics]
    files: dict[str, Sha256]
