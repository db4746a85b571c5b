"""Lanes: several requests that take turns at computing, each giving its turn away while it waits for the disk.

One lane computes at a time. A lane that must wait for a read hands its turn to the lane that has waited longest for
one; the read's completion makes the first runnable again, and it queues behind those. So no lane is passed over: between
two turns of a lane every other runnable lane has had one. What belongs to a lane stays with it: its generation, its
lease, its waits.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from assay.impl.runtime.cache import Lease

MAIN: Final = "main"
"""Name of the only lane of a run that has one."""


@dataclass(slots=True)
class LaneCounts:
    """What a lane has done and waited for.

    Attributes:
        chunks: begun.
        expert_wait_ns: time in which it had nothing to compute until a record came.
        row_wait_ns: the same for embedding rows.
        slot_wait_ns: the same until another lane gave slots back.
        move_wait_ns: time in which it could compute and guesses were moved to their places instead.
        turn_wait_ns: time in which it could run and another lane did.
        turns: how often it was given the turn.
    """

    chunks: int = 0
    expert_wait_ns: int = 0
    row_wait_ns: int = 0
    slot_wait_ns: int = 0
    move_wait_ns: int = 0
    turn_wait_ns: int = 0
    turns: int = 0

    @property
    def exposed_ns(self) -> int:
        """Time in which the disk, or what came from it, was all that it waited for."""
        return self.expert_wait_ns + self.row_wait_ns + self.move_wait_ns


@dataclass(slots=True, eq=False)
class Lane:
    """One request's side of a stream.

    Attributes:
        name: owner of its tickets.
        generation: its attempt; a chunk is one.
        phase_tokens: rows of the chunk that it runs.
        lease: records that arrays in `pending` still read.
        pending: outputs that may not be evaluated yet.
        hints: layer -> guessed experts that may not be evaluated yet.
        resident: layer -> experts of its last step that were there when it began.
    """

    name: str = MAIN
    generation: int = 0
    phase_tokens: int = 0
    lease: Lease | None = None
    pending: list[Any] = field(default_factory=list)
    hints: dict[int, Any] = field(default_factory=dict)
    resident: dict[int, frozenset[int]] = field(default_factory=dict)
    counts: LaneCounts = field(default_factory=LaneCounts)


class Turns:
    """Whose turn it is; first come, first served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[threading.Event] = deque()
        self._is_taken = False

    def take(self) -> None:
        """Waits for the turn, behind all who wait already."""
        with self._lock:
            if not self._is_taken and not self._queue:
                self._is_taken = True
                return
            mine = threading.Event()
            self._queue.append(mine)
        mine.wait()

    def give(self) -> None:
        """Hands the turn to who has waited longest, if anybody does."""
        with self._lock:
            if self._queue:
                self._queue.popleft().set()  # it stays taken: theirs now
            else:
                self._is_taken = False

    @property
    def waiting(self) -> int:
        """Lanes that could run."""
        return len(self._queue)


class Bell:
    """Wakes whoever waits for something that another thread brings."""

    def __init__(self) -> None:
        self._condition = threading.Condition()

    def ring(self) -> None:
        """Lets all who wait look again."""
        with self._condition:
            self._condition.notify_all()

    def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until `is_so`; whoever makes it so rings afterwards."""
        with self._condition:
            self._condition.wait_for(is_so)
