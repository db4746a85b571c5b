"""`assay.trace-summary/1` and `assay.trace-comparison/1`: what a streaming run came to, and two of them side by side."""

from typing import Literal

from pydantic import Field

from assay.spec.documents.base import Document, FindingRecord
from assay.spec.documents.trace import StartLabel


class Spread(Document):
    """Times of many events, in microseconds; quantiles are exact to 2%."""

    count: int = Field(ge=0)
    p50_us: float
    p95_us: float
    p99_us: float
    most_us: float
    total_us: float


class TicketSummary(Document):
    """Tickets of one class in one lane.

    `shared` counts those that joined a read which was asked for before; `late` those that were ready after their deadline.
    """

    issued: int = 0
    ready: int = 0
    failed: int = 0
    dropped: int = 0
    cancelled: int = 0
    shared: int = 0
    late: int = 0
    issue_to_ready: Spread


class ByteSummary(Document):
    """Bytes by who asked for them, and where they came from.

    Attributes:
        exact: read for exact tickets.
        predicted: read for predictions.
        useful: of the predicted, what an exact ticket shared, or a later route found resident.
        unused: of the predicted, the rest, up to the end of the trace.
        logical: all reads.
        direct: of these, read past the page cache.
        cached: of these, had by the page cache; null when it is unknown.
        physical: fetched from storage by the system's account; null without one.
    """

    exact: int
    predicted: int
    useful: int
    unused: int
    logical: int
    direct: int
    cached: int | None
    physical: int | None


class RouteSummary(Document):
    """What the router chose.

    Attributes:
        routes: tokens times layers.
        chosen: experts chosen, over all of them.
        resident: of these, resident when they were chosen.
        repeated: of these, chosen by the token before in the same layer as well.
    """

    routes: int
    chosen: int
    resident: int
    repeated: int


class TraceSummary(Document):
    """One run.

    Attributes:
        path: the trace.
        verdict: of `assay validate`; a rejected trace is not summarised.
        seam: whether the private seam was used.
        start: what was warm when the run began.
        wall_us: from the header to the last line.
        tickets: by `lane.class`.
        bytes: by who asked, and where they came from.
        waits: of compute, for exact tickets.
        exact_io_us: time in which at least one exact ticket had been issued, or become exact, and was not yet ready.
        hidden_share: 1 less waits over exact_io_us; null without exact tickets, and without stages of compute: a trace that
            has none may not have said when it waited.
        routes: what the router chose.
        stages_us: time by stage of compute.
    """

    schema_: Literal["assay.trace-summary/1"] = Field("assay.trace-summary/1", alias="schema")
    path: str
    verdict: Literal["accepted", "inconclusive"]
    seam: Literal["private"] | None
    start: StartLabel
    wall_us: float
    tickets: dict[str, TicketSummary]
    bytes: ByteSummary
    waits: Spread
    exact_io_us: float
    hidden_share: float | None
    routes: RouteSummary
    stages_us: dict[str, float]
    findings: list[FindingRecord] = Field(default_factory=list)


class ComparedFigure(Document):
    """One figure of both runs; the ratio is the second over the first."""

    name: str
    a: float
    b: float
    ratio: float | None


class TraceComparison(Document):
    """Two runs side by side; `first_other_route` says where the router chose otherwise, and is empty if nowhere."""

    schema_: Literal["assay.trace-comparison/1"] = Field("assay.trace-comparison/1", alias="schema")
    a: TraceSummary
    b: TraceSummary
    figures: list[ComparedFigure]
    routes_compared: int
    first_other_route: str
