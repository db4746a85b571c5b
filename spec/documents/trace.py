"""`assay.trace/1`: what a streaming run asked of the disk and waited for, as JSON lines.

The first line is the header, the last one the footer; a trace without a footer is that of a run that did not end. Times
are nanoseconds since the header's. Ticket lines are numbered from 0 in their order. Events, reads and generations stand
in the order of time; the lines of compute (routes, stages, waits) come when they are over.
"""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, RootModel, StringConstraints

from assay.spec.documents.base import Document, Sha256

Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Time = Count
Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Mask = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,65536}$")]
LaneName = Literal["expert", "ple"]
StartLabel = Literal["cold-process", "cold-store", "warm-store", "hot-cache", "unknown"]


class StoreOfTrace(Document):
    """A store that requests name: what it is, and how its file was read."""

    sha256: Sha256
    kind: Literal["experts", "rows", "other"]
    wants_direct: bool
    direct_refusal: str


class LaneOfTrace(Document):
    """Bounds of one lane."""

    readers: int = Field(ge=1, le=1 << 10)
    slots: int = Field(ge=1, le=1 << 20)
    slot_bytes: int = Field(ge=1)
    queue: int = Field(ge=1, le=1 << 20)
    tickets: int = Field(ge=1, le=1 << 20)


class TraceHeader(Document):
    """The first line.

    Attributes:
        started: local date and time, ISO 8601.
        producer: who wrote the trace, with its version.
        seam: whether the private seam was used.
        start: what was warm when the run began: nothing of the process, nothing of the store, the store's pages, or
            the application's own cache as well.
        stores: the stores by digest.
        lanes: bounds by lane.
    """

    schema_: Literal["assay.trace/1"] = Field(alias="schema")
    line: Literal["header"]
    started: Name
    producer: Name
    seam: Literal["private"] | None
    start: StartLabel
    stores: list[StoreOfTrace]
    lanes: dict[LaneName, LaneOfTrace]


class ExpertOfTrace(Document):
    """One routed expert, or some roles of it."""

    kind: Literal["expert"]
    layer: Count
    expert: Count
    components: list[Literal[0, 1, 2]]


class RowsOfTrace(Document):
    """Pages of the row store."""

    kind: Literal["rows"]
    pages: list[Count]


class TicketLine(Document):
    """A ticket was issued.

    Attributes:
        id: number of the ticket.
        t: when.
        fetch: number of the read that it shares with tickets for the same bytes; null for one that was refused at once.
        store: digest of the store.
        owner: who asked.
        generation: the owner's attempt.
        phase: what the owner does with it.
        layer: layer that consumes it.
        tokens: mask of the rows that need it, hexadecimal.
        target: what it is.
        exact: required, not predicted.
        confidence: of a prediction.
        priority: 0 exact, 1 near, 2 speculative, 3 background.
        deadline: when it is consumed, if somebody said.
        bytes: bytes of all its parts.
        parts: bytes of each part.
    """

    line: Literal["ticket"]
    id: Count
    t: Time
    fetch: Count | None
    store: Sha256
    owner: Name
    generation: Count
    phase: Literal["prefill", "decode", "verify", "warm"]
    layer: Count
    tokens: Mask
    target: Annotated[ExpertOfTrace | RowsOfTrace, Field(discriminator="kind")]
    exact: bool
    confidence: float = Field(ge=0, le=1)
    priority: int = Field(ge=0, le=3)
    deadline: Count | None
    bytes: int = Field(ge=1)
    parts: list[Annotated[int, Field(ge=1)]]


EventName = Literal[
    "joined", "promoted", "reading", "part", "ready", "failed", "dropped", "cancelled", "released"
]


class EventLine(Document):
    """Something happened to a ticket.

    Attributes:
        t: when.
        ticket: which.
        what: what. `joined`: it shares a read that was asked for before; `part`: leading parts arrived.
        fetch: number of the read that it shares with others, if it has one.
        slot: slot of its lane, if it has one.
        slot_generation: which use of the slot.
        leases: live tickets that share the read, after the event.
        arrived: leading parts that have arrived.
        priority: its class now.
        completion: number in order of completion, for `ready`, `failed` and `dropped` of a read.
        reason: why it was dropped, cancelled or failed.
    """

    line: Literal["event"]
    t: Time
    ticket: Count
    what: EventName
    fetch: Count | None
    slot: Count | None
    slot_generation: Count | None
    leases: Count
    arrived: Count
    priority: int = Field(ge=0, le=3)
    completion: Count | None
    reason: Annotated[str, StringConstraints(max_length=64)]


class ReadLine(Document):
    """A read of one part ended.

    Attributes:
        t: when it ended.
        start: when it began.
        lane: its lane.
        fetch: which use of a slot it belongs to.
        part: which part.
        slot: slot that it went into.
        slot_generation: which use of the slot.
        bytes: bytes that were asked for.
        cached: of these, what the page cache had; null when the system didn't say.
        direct: of these, what was read past the page cache.
        calls: system calls that read.
        ok: whether it was whole.
        priority: class when it began.
    """

    line: Literal["read"]
    t: Time
    start: Time
    lane: LaneName
    fetch: Count
    part: Count
    slot: Count
    slot_generation: Count
    bytes: Count
    cached: Count | None
    direct: Count
    calls: Count
    ok: bool
    priority: int = Field(ge=0, le=3)


class GenerationLine(Document):
    """An owner made its older generations stale."""

    line: Literal["generation"]
    t: Time
    owner: Name
    generation: Count


class RouteLine(Document):
    """What the router chose for one token in one layer, by rank, and what of it was resident then."""

    line: Literal["route"]
    t: Time
    owner: Name
    layer: Count
    token: Count
    experts: list[Count] = Field(min_length=1)
    weights: list[FiniteFloat]
    resident: list[bool]


class StageLine(Document):
    """A stage of compute, from its start to its end."""

    line: Literal["stage"]
    owner: Name
    layer: Count | None
    stage: Name
    start: Time
    end: Time


class WaitLine(Document):
    """Compute stood still until a ticket, or a part of it, was there."""

    line: Literal["wait"]
    owner: Name
    ticket: Count
    part: Count | None
    start: Time
    end: Time
    exact: bool


class LineCounts(Document):
    """How many lines of each kind a trace has."""

    ticket: Count
    event: Count
    read: Count
    generation: Count
    route: Count
    stage: Count
    wait: Count


class TraceFooter(Document):
    """The last line.

    Attributes:
        t: when the run ended.
        counts: lines before this one, by kind.
        logical_bytes: bytes that whole reads asked for.
        direct_bytes: of these, what was read past the page cache.
        cached_bytes: of these, what the page cache had; null when a read did not know.
        physical_bytes: what the process fetched from storage, by the system's own account; null without one.
    """

    line: Literal["footer"]
    t: Time
    counts: LineCounts
    logical_bytes: Count
    direct_bytes: Count
    cached_bytes: Count | None
    physical_bytes: Count | None


AnyLine = Annotated[
    TraceHeader
    | TicketLine
    | EventLine
    | ReadLine
    | GenerationLine
    | RouteLine
    | StageLine
    | WaitLine
    | TraceFooter,
    Field(discriminator="line"),
]


class TraceLine(RootModel[AnyLine]):
    """Any line of a trace."""
