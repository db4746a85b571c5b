"""Measurements of a gate that the report understands; every other key is shown as it is.

A gate that runs a battery puts a whole `assay.mutation-run/1` document under `BATTERY`. A gate that compares two
captures puts a `LadderMeasurement` under `LADDER`.
"""

from typing import Final, Literal

from pydantic import Field

from assay.spec.documents.base import Document

BATTERY: Final = "battery"
LADDER: Final = "ladder"

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
