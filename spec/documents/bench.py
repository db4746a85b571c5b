"""`assay.bench/1`: speeds of one run on one machine, each beside what it is compared with in the same run."""

from typing import Literal

from pydantic import Field

from assay.spec.documents.base import Document


class Target(Document):
    """What a measurement aims at: `value` of the ratio or of the figure itself, at least or at most."""

    of: Literal["ratio", "value"]
    bound: Literal["at-least", "at-most"]
    value: float
    met: bool


class Measurement(Document):
    """One figure.

    `ratio` is this figure divided by the reference of the same run; without a reference it is None.
    """

    name: str
    value: float
    unit: str
    conditions: str
    reference: str | None = None
    reference_value: float | None = None
    ratio: float | None = None
    target: Target | None = None


class BenchResult(Document):
    """The figures of one benchmark, or why it could not be run.

    `not_measured` names peers that the benchmark should be compared with and was not.
    """

    name: str
    title: str
    seconds: float
    measurements: list[Measurement]
    not_run: str = ""
    not_measured: list[str] = Field(default_factory=list)


class Bench(Document):
    """The result of `assay bench`; `targets_missed` has one line a target that was not met."""

    schema_: Literal["assay.bench/1"] = Field("assay.bench/1", alias="schema")
    environment: dict[str, str]
    benchmarks: list[BenchResult]
    targets_missed: list[str] = Field(default_factory=list)
