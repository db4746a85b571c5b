"""`assay.diff/1`: where two captures first differ, what is equal up to there, and what could not be compared."""

from typing import Literal

from pydantic import Field

from assay.spec.documents.base import Document

Number = float | int | str
"""A value of an array; a value that is not finite stands as text."""


class Tolerance(Document):
    """The tolerance that was used, and why it is what it is."""

    rtol: float
    atol: float
    reason: str


class Margin(Document):
    """How near a discrete choice was: the gap between what was chosen last and what was left out first."""

    of: str
    a: float | None
    b: float | None
    judged: Literal["tie", "rounding", "disagreement", "unknown"]


class FirstDifference(Document):
    """The first place of the first rung that differs; `token` counts in the sequence, `index` inside the token's row."""

    rung: str
    stage: str
    layer: int | None
    part: str
    kind: Literal["value", "shape", "type"]
    token: int | None
    index: list[int]
    a: Number | None
    b: Number | None
    absolute: float | str | None
    ulp: int | None
    ulp_of: str
    tolerance: Tolerance | None
    margin: Margin | None
    note: str = ""


class RungRecord(Document):
    """What one rung came to.

    `downstream` rungs follow the first difference and were not compared. `non-finite` rungs hold the same NaN or
    infinity on both sides, which is no agreement. `compared` are the token ranges [first, end) that both captures
    have, `tokens` their number; `total` counts the tokens that at least one has. The others are unknown.
    """

    rung: str
    state: Literal["equal", "within", "differs", "unknown", "downstream", "non-finite"]
    tokens: int = 0
    total: int = 0
    compared: tuple[tuple[int, int], ...] = ()
    max_absolute: float | str | None = None
    max_ulp: int | None = None
    reason: str = ""


class Diff(Document):
    """The result of `assay diff A B`; `partial` names the agreeing rungs that were compared at some tokens only."""

    schema_: Literal["assay.diff/1"] = Field("assay.diff/1", alias="schema")
    a: str
    b: str
    verdict: Literal["equal", "diverges", "inconclusive"]
    first: FirstDifference | None
    last_equal: str | None
    unknown_between: list[str]
    partial: list[str]
    non_finite: list[str]
    counts: dict[str, int]
    rungs: list[RungRecord]
    reason: str
