"""What is asked of the disk and what became of it: requests, and one ticket for each.

A request says everything that a scheduler may decide by; nothing else is consulted. A ticket is one owner's claim to
the bytes of one request. Tickets for the same bytes share one read and one slot; each is released once, by itself.
"""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

from assay.impl.runtime.clauses import REQUEST, refuse
from assay.spec.errors import Finding

NEVER: Final = (1 << 63) - 1
"""Deadline of what nobody waits for, in nanoseconds."""


class Priority(IntEnum):
    """Who goes first; a lower number always does."""

    EXACT = 0  # the router or the token history requires it now
    NEAR = 1  # predicted for the layer that comes next
    SPECULATIVE = 2  # predicted for a later layer or token
    BACKGROUND = 3  # warms the cache when nobody else reads


class Lane(StrEnum):
    """Queues with readers of their own: large expert records never stand before small rows."""

    EXPERT = "expert"
    PLE = "ple"


class Phase(StrEnum):
    """What the owner is doing."""

    PREFILL = "prefill"
    DECODE = "decode"
    VERIFY = "verify"
    WARM = "warm"


class State(StrEnum):
    """Where a ticket stands. READY may become DROPPED while it is speculative and nobody took it."""

    QUEUED = "queued"
    READING = "reading"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DROPPED = "dropped"
    RELEASED = "released"


LIVE: Final = frozenset({State.QUEUED, State.READING, State.READY})
"""States in which a ticket holds a claim to bytes."""


@dataclass(frozen=True, slots=True)
class ExpertRecord:
    """One routed expert, or some roles of it: 0 gate, 1 up, 2 down."""

    layer: int
    expert: int
    components: tuple[int, ...] = (0, 1, 2)

    lane = Lane.EXPERT

    def __str__(self) -> str:
        roles = "" if self.components == (0, 1, 2) else f" roles {self.components}"
        return f"layer {self.layer} expert {self.expert}{roles}"


@dataclass(frozen=True, slots=True)
class RowPages:
    """Pages of the row store, each once, in the order in which they lie in the slot."""

    pages: tuple[int, ...]

    lane = Lane.PLE

    def __str__(self) -> str:
        return f"pages {', '.join(map(str, self.pages[:4]))}{', ...' if len(self.pages) > 4 else ''}"


Target = ExpertRecord | RowPages

_MOST_TOKENS: Final = 1 << (1 << 18)
"""Masks name up to 262,144 rows of a chunk."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of the file; `sha256` is its digest where the store has one for it."""

    offset: int
    size: int
    sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One thing to read.

    Attributes:
        store: immutable digest of the store, hexadecimal; names one file of the reader.
        owner: who asks, such as a lane of execution.
        generation: the owner's attempt; older ones are stale as soon as `advance` names a newer one.
        phase: what the owner does with it.
        layer: layer that consumes it.
        tokens: mask of the rows of the chunk that need it; bit 0 is the first.
        target: what it is.
        parts: pieces that are read together and become available together, in the order in which they are wanted;
            in the slot all pieces lie one after another.
        is_exact: required, not predicted. Exact requests have priority EXACT, and no others have.
        confidence: of a prediction, 0 to 1.
        priority: class of urgency.
        deadline_ns: when it is consumed, on the reader's clock; a prediction that is not being read by then is dropped.
        sha256: digest of all pieces together, if the store has one.
    """

    store: str
    owner: str
    generation: int
    phase: Phase
    layer: int
    tokens: int
    target: Target
    parts: tuple[tuple[Piece, ...], ...]
    is_exact: bool
    confidence: float
    priority: Priority
    deadline_ns: int = NEVER
    sha256: bytes | None = None
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Refuses what can't be scheduled.

        Raises:
            ContractError: runtime.request.
        """
        sizes = [piece.size for part in self.parts for piece in part]
        if not sizes or min(sizes) < 1 or not all(self.parts):
            raise refuse(REQUEST, f"{self.target}: parts", expected="at least a byte in each", got=self.parts)
        if not (1 <= len(self.owner) <= 64 and self.owner.isprintable()):
            raise refuse(
                REQUEST, f"{self.target}: owner", expected="1 to 64 printable characters", got=self.owner
            )
        for name, most in (("generation", 1 << 53), ("layer", 1 << 53), ("tokens", _MOST_TOKENS)):
            if not 0 <= getattr(self, name) < most:
                got = getattr(self, name)
                raise refuse(REQUEST, f"{self.target}: {name}", expected="a number in its range", got=got)
        if self.is_exact != (self.priority is Priority.EXACT):
            raise refuse(
                REQUEST,
                f"{self.target}: priority",
                expected="EXACT for exact requests only",
                got=self.priority.name,
            )
        if not 0.0 <= self.confidence <= 1.0:
            raise refuse(REQUEST, f"{self.target}: confidence", expected="0 to 1", got=self.confidence)
        object.__setattr__(self, "size_bytes", sum(sizes))

    @property
    def lane(self) -> Lane:
        """The queue that it belongs to."""
        return self.target.lane


@dataclass(slots=True, eq=False)
class Ticket:
    """A claim to the bytes of one request; only the scheduler writes its fields.

    Attributes:
        id: number in order of submission.
        request: what was asked; `priority` and `deadline_ns` below may have become more urgent since.
        state: where it stands.
        priority: current class.
        deadline_ns: current deadline.
        slot: number of the slot that holds or receives the bytes, or -1.
        slot_generation: which use of that slot is meant.
        fetch: number of the read that it shares with tickets for the same bytes.
        was_joined: whether the read was already under way for another ticket.
        arrived_parts: leading parts whose bytes are in the slot, not yet verified.
        issued_ns: when it was submitted.
        started_ns: when its read started, or -1.
        completed_ns: when it became ready, failed or was dropped, or -1.
        completion: number in order of completion, or -1.
        reason: why it was dropped, cancelled or failed, in a word.
        finding: what went wrong, for a failed ticket.
    """

    id: int
    request: ReadRequest
    state: State
    priority: Priority
    deadline_ns: int
    slot: int = -1
    slot_generation: int = -1
    fetch: int = -1
    was_joined: bool = False
    arrived_parts: int = 0
    issued_ns: int = -1
    started_ns: int = -1
    completed_ns: int = -1
    completion: int = -1
    reason: str = ""
    finding: Finding | None = None

    @property
    def is_live(self) -> bool:
        """Whether it still holds a claim."""
        return self.state in LIVE
