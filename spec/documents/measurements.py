"""Measurements of a gate that the report understands; every other key is shown as it is.

A gate that runs a battery puts a whole `assay.mutation-run/1` document under `BATTERY`. A gate that compares two
captures puts a `LadderMeasurement` under `LADDER`. A gate that streams puts a `TimelineMeasurement` under `TIMELINE`.
"""

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from assay.spec.documents.base import Document

BATTERY: Final = "battery"
LADDER: Final = "ladder"
TIMELINE: Final = "timeline"

RungState = Literal["equal", "differs", "unknown"]


class LadderMeasurement(Document):
    """What a comparison of two captures says of each rung.

    Attributes:
        rungs: state by rung id (`assay.spec.ladder.RUNGS`); a rung that is not named is unknown, not equal.
        where: layer, stage, token and index of the first difference; empty without one.
        detail: both values and their distance, or why a rung is unknown.
    """

    rungs: dict[str, RungState] = Field(default_factory=dict)
    where: str = ""
    detail: str = ""


BarKind = Literal["exact", "near", "speculative", "background", "failed", "compute", "wait"]


class TimelineBar(Document):
    """Something that went on for a while, in nanoseconds since the start of the run."""

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    kind: BarKind
    text: str


class TimelineRow(Document):
    """A reader of a lane, the compute of an owner, or its waits."""

    name: str
    bars: list[TimelineBar]


class TimelineMeasurement(Document):
    """What a streaming run did when; `omitted` counts bars beyond the bound."""

    title: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    rows: list[TimelineRow]
    omitted: int = Field(ge=0)

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        """Refuses a timeline of no time: it can't be drawn to scale."""
        if self.end <= self.start:
            raise ValueError("a timeline ends after it starts")
        return self
