"""What a scheduler keeps: fetches, the reads they are made of, what happened to tickets, and the state of a lane."""

from dataclasses import dataclass, field

from assay.impl.runtime.limits import LaneLimits
from assay.impl.runtime.tickets import Lane, Piece, Priority, ReadRequest, Target, Ticket

Key = tuple[str, object, object]
"""What two requests must have in common to share a read: store, target and parts."""


@dataclass(frozen=True, slots=True)
class Read:
    """One read for a device: pieces that go into a slot one after another, from `slot_offset` on."""

    id: int
    fetch: int
    lane: Lane
    part: int
    slot: int
    slot_generation: int
    slot_offset: int
    pieces: tuple[Piece, ...]
    priority: Priority
    store: str
    target: Target


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to a ticket, for whoever waits for it or records it.

    Attributes:
        ticket: the ticket, as it is now.
        what: `issued`, `joined`, `promoted`, `reading`, `part`, or the state that it has reached.
        now_ns: when.
        leases: live tickets that share its fetch now, this one included if it is live.
        arrived_parts: leading parts that have arrived.
        completion: number of the completion that this is, or -1.
    """

    ticket: Ticket
    what: str
    now_ns: int
    leases: int
    arrived_parts: int
    completion: int = -1


@dataclass(slots=True, eq=False)
class Fetch:
    """One use of one slot.

    Attributes:
        id: number in order of creation.
        request: the request that made it.
        tickets: live tickets that share it.
        priority: most urgent class of its tickets.
        deadline_ns: earliest deadline of the tickets of that class.
        slot: slot that it holds, or -1.
        slot_generation: which use of the slot it is.
        next_part: next part to be read.
        arrived: parts whose bytes are in the slot.
        reads: reads and judgements under way.
        is_ready: whether its bytes were judged and are right.
        is_over: whether nothing of it may be published any more.
        entry: number of its valid entry in the queue; older entries are ignored.
        counted: class under which the lane counts it as not read to its end, or None.
        is_waiting: whether the lane counts it as waiting for a slot.
    """

    id: int
    key: Key
    request: ReadRequest
    tickets: list[Ticket]
    priority: Priority
    deadline_ns: int
    slot: int = -1
    slot_generation: int = -1
    next_part: int = 0
    arrived: set[int] = field(default_factory=set)
    reads: int = 0
    is_ready: bool = False
    is_over: bool = False
    entry: int = -1
    counted: Priority | None = None
    is_waiting: bool = False


class LaneState:
    """Queue and slots of one lane."""

    def __init__(self, limits: LaneLimits) -> None:
        self.limits = limits
        self.heap: list[tuple[int, int, int, int, int, Fetch]] = []
        self.free = list(range(limits.slots - 1, -1, -1))
        self.generations = [0] * limits.slots
        self.unread = [0] * len(Priority)  # fetches by class with parts that were not asked of the device yet
        self.waiting = [0] * len(Priority)  # those of them that have no slot
        self.tickets = 0
        self.reading: dict[int, Fetch] = {}
