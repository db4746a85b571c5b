"""What a stream is told and what it tells: options, counts, records on their way, and who takes notes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from assay.impl.runtime.cache import Place
from assay.impl.runtime.prefill import Mode, Rates
from assay.impl.runtime.reading import Reader
from assay.impl.runtime.tickets import Ticket

MakeReader = Callable[[Callable[[], None]], Reader]
"""Makes a reader, given what to call whenever a part or a ticket has arrived or ended."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a stream runs.

    Attributes:
        capacity: records of the cache over all layers.
        policy: who leaves a full cache.
        is_barrier: waits for all records of a layer before any is used; what a wavefront is compared with.
        has_guesses: asks early for what the next layer probably needs.
        most_guesses: predicted reads under way at once.
        row_slot_bytes: bytes of one row request; a page at least.
        row_window: row requests under way at once.
        readers: reads of records in flight; large ones saturate a disk with one or two.
        row_readers: reads of pages in flight.
        rates: measured bandwidths, without which a whole layer is never read ahead.
        splits: whether down is read apart from gate and up, so that these can be used before; None decides by the time
            that a part takes to read.
    """

    capacity: int
    policy: str = "lru"
    is_barrier: bool = False
    has_guesses: bool = True
    most_guesses: int = 8
    row_slot_bytes: int = 1 << 16
    row_window: int = 16
    readers: int = 2
    row_readers: int = 4
    rates: Rates | None = None
    splits: bool | None = None


@dataclass(slots=True)
class StreamCounts:
    """Reads of a stream.

    Attributes:
        exact_bytes: record bytes that a router required and that were read for it.
        guessed_bytes: record bytes that were asked for on a guess.
        row_bytes: page bytes read for rows.
        records: records that arrived whole.
        early: records whose first part was used before the last had come.
        modes: how often the experts of a layer were read ahead in each way.
        retried: exact reads that were asked for again, since a guess that they had joined was dropped.
        by_layer_ns: layer -> wait for its records, and how many were waited for.
    """

    exact_bytes: int = 0
    guessed_bytes: int = 0
    row_bytes: int = 0
    records: int = 0
    early: int = 0
    modes: dict[Mode, int] = field(default_factory=dict)
    retried: int = 0
    by_layer_ns: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Flight:
    """A record on its way to its place; `taken` parts of it are there."""

    place: Place
    ticket: Ticket
    taken: int = 0


class Notes(Protocol):
    """Takes what a lane computed and what it waited for, such as a recorder; times of the stream's clock."""

    def waited(self, ticket: Ticket, part: int | None, started_ns: int, ended_ns: int) -> None:
        """A lane stood still until a ticket was there."""

    def staged(self, owner: str, layer: int | None, stage: str, started_ns: int, ended_ns: int) -> None:
        """A lane computed."""
