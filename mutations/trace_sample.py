"""One small trace in which everything that can happen to a ticket happens once, made by the real scheduler and recorder.

The clock is a counter, so that the same lines come out every time.
"""

import functools
import itertools
import re
import tempfile
from pathlib import Path
from typing import Final

from assay.impl.runtime.device import Transfer
from assay.impl.runtime.limits import LaneLimits
from assay.impl.runtime.recorder import Recorder, trace_header
from assay.impl.runtime.schedule import Fetch, Read, Scheduler
from assay.impl.runtime.tickets import (
    NEVER,
    ExpertRecord,
    Lane,
    Phase,
    Piece,
    Priority,
    ReadRequest,
    RowPages,
    Target,
    Ticket,
)
from assay.spec.errors import Finding

EXPERTS: Final = "e" * 64
ROWS: Final = "a" * 64
_LIMITS: Final = {Lane.EXPERT: LaneLimits(1, 2, 15, queue=4), Lane.PLE: LaneLimits(1, 2, 10, queue=4)}
_BAD: Final = Finding("runtime.read.io", "runtime", "store from 0", "10 bytes", "0 bytes, then EIO")


@functools.cache
def sample_lines() -> tuple[bytes, ...]:
    """Returns the lines of the sample trace, line ends included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        _Script(path).play()
        *lines, footer = path.read_bytes().splitlines(keepends=True)
    # What the process fetched meanwhile is the machine's business.
    physical = re.sub(rb'"physical_bytes":[^}]*', b'"physical_bytes":70', footer)
    return (*lines, physical)


class _Script:
    """Plays a run: the scheduler decides, a counter is the clock, and reads end when the script says so."""

    def __init__(self, path: Path) -> None:
        ticks = itertools.count(5000, 1000)
        self._tick = ticks.__next__
        header = trace_header(
            _LIMITS,
            {EXPERTS: "experts", ROWS: "rows"},
            producer="assay sample",
            start="cold-process",
            is_private=True,
        ).model_copy(update={"started": "2026-01-01T00:00:00+00:00"})
        self._recorder = Recorder(path, header, clock=self._tick)
        self._scheduler = Scheduler(_LIMITS)

    def play(self) -> None:
        """Plays every fate of a ticket."""
        exact, near, far, rows = self.ask(
            self.expert("lane 0", 0), self.expert("lane 0", 1, Priority.NEAR, 0.9),
            self.expert("lane 0", 2, Priority.SPECULATIVE, 0.5), self.rows("lane 0", (3, 4)),
        )  # fmt: skip
        read = self.start(Lane.PLE)
        self.finish(self.start(Lane.EXPERT))
        self.publish(self.finish(read))
        self._recorder.waited(rows, None, self._tick(), self._tick())
        self.give_back(rows)
        self.publish(self.finish(self.start(Lane.EXPERT)))
        self._recorder.waited(exact, 0, self._tick(), self._tick())
        self._recorder.routed("lane 0", 0, 0, (0, 1), (0.75, 0.25), (True, False))
        self._recorder.staged("lane 0", 0, "moe", self._tick(), self._tick())
        self.give_back(exact)
        (joined,) = self.ask(self.expert("lane 1", 1))  # what was predicted is needed
        self.finish(self.start(Lane.EXPERT))
        self.publish(self.finish(self.start(Lane.EXPERT)))
        self.give_back(joined)
        self.cancel(near)
        read = self.start(Lane.EXPERT)  # speculation, withdrawn while it is read
        self.cancel(far)
        self.finish(read)
        (stale,) = self.ask(self.expert("lane 1", 0))
        read = self.start(Lane.EXPERT)
        self.advance("lane 1", 1)
        self.finish(read)
        self.ask(self.expert("lane 1", 3, generation=1), self.expert("lane 0", 2, Priority.NEAR, 0.4))
        self.finish(self.start(Lane.EXPERT), _BAD)
        self.finish(self.start(Lane.EXPERT), _BAD)
        self.ask(self.expert("lane 0", 1, Priority.BACKGROUND, 0.1, deadline_ns=1))
        (promoted,) = self.ask(self.expert("lane 0", 1, Priority.BACKGROUND, 0.1))
        self._scheduler.promote(promoted, Priority.NEAR, NEVER, self._tick())
        self.note()
        self._scheduler.close(self._tick())
        self.note()
        self._recorder.close()
        if stale.reason != "stale" or not self._scheduler.is_idle:
            raise AssertionError("the script no longer plays what it says")

    def expert(
        self,
        owner: str,
        expert: int,
        priority: Priority = Priority.EXACT,
        confidence: float = 1.0,
        *,
        generation: int = 0,
        deadline_ns: int = NEVER,
    ) -> ReadRequest:
        """Returns a request of two parts."""
        start = 100 * expert
        parts = ((Piece(start, 10),), (Piece(start + 10, 5),))
        return _request(
            EXPERTS, owner, generation, ExpertRecord(0, expert), parts, priority, confidence, deadline_ns
        )

    def rows(self, owner: str, pages: tuple[int, ...]) -> ReadRequest:
        """Returns a request for pages of 5 bytes."""
        parts = (tuple(Piece(5 * page, 5) for page in pages),)
        return _request(ROWS, owner, 0, RowPages(pages), parts, Priority.EXACT, 1.0, NEVER)

    def ask(self, *requests: ReadRequest) -> list[Ticket]:
        """Submits requests."""
        tickets = self._scheduler.submit(requests, self._tick())
        self.note()
        return tickets

    def start(self, lane: Lane) -> Read:
        """Starts the next read of a lane."""
        read = self._scheduler.next_read(lane, self._tick())
        self.note()
        if read is None:
            raise AssertionError("the script expects a read here")
        return read

    def finish(self, read: Read, finding: Finding | None = None) -> Fetch | None:
        """Ends a read, and returns what then has all its bytes."""
        size = sum(piece.size for piece in read.pieces)
        now = self._tick()
        done = None if finding is not None else Transfer(size, size if read.lane is Lane.PLE else 0, 0, 1)
        self._recorder.read(read, done, now - 700, now)
        fetch = self._scheduler.complete(read, finding, now)
        self.note()
        return fetch

    def publish(self, fetch: Fetch | None) -> None:
        """Judges a fetch as right."""
        if fetch is None:
            raise AssertionError("the script expects a whole fetch here")
        self._scheduler.judged(fetch, None, self._tick())
        self.note()

    def give_back(self, ticket: Ticket) -> None:
        """Releases a ticket."""
        self._scheduler.release(ticket, self._tick())
        self.note()

    def cancel(self, ticket: Ticket) -> None:
        """Withdraws a ticket."""
        self._scheduler.cancel(ticket, self._tick())
        self.note()

    def advance(self, owner: str, generation: int) -> None:
        """Makes older generations of an owner stale."""
        now = self._tick()
        self._recorder.advanced(owner, generation, now)
        self._scheduler.advance(owner, generation, now)
        self.note()

    def note(self) -> None:
        """Records what changed."""
        for change in self._scheduler.take_changes():
            self._recorder.changed(change)


def _request(
    store: str,
    owner: str,
    generation: int,
    target: Target,
    parts: tuple[tuple[Piece, ...], ...],
    priority: Priority,
    confidence: float,
    deadline_ns: int,
) -> ReadRequest:
    return ReadRequest(
        store, owner, generation, Phase.DECODE, 0, 1, target, parts,
        is_exact=priority is Priority.EXACT, confidence=confidence, priority=priority, deadline_ns=deadline_ns,
    )  # fmt: skip
