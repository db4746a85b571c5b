"""Several requests over one stream: each in a thread and a bank of its own, one computing at a time.

A lane is admitted while the budget holds its state and its arrays, and the cache one token's experts of a layer more
for it; otherwise it is refused, and those that run go on. What fails in a lane ends that lane.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from assay.impl.model.bank import Bank
from assay.impl.runtime.budget import BUDGET, Owner, Plan
from assay.impl.runtime.cache import WORKING_SET
from assay.impl.runtime.clauses import LANE, refuse
from assay.impl.runtime.lanes import MAIN, Lane
from assay.impl.runtime.opening import Opened, lane_bytes
from assay.impl.runtime.streaming import GUESSES

Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)
class Served(Generic[Answer]):
    """A lane, and what came of its work: an answer, or what ended it."""

    lane: Lane
    answer: Answer | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class Server:
    """Admits lanes to a stream and runs them.

    Attributes:
        opened: the streamed model, in the turn of this thread.
        plan: memory, with every lane that was admitted; the first one has what the plan of the opening holds for one.
        lanes: admitted.
    """

    opened: Opened
    plan: Plan = field(init=False)
    lanes: list[Lane] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begins with the plan of the opening."""
        self.plan = self.opened.plan

    def admit(self, name: str, context: int, chunk: int) -> Lane:
        """Returns a lane for a sequence of at most `context` tokens in chunks of at most `chunk`.

        Raises:
            ContractError: runtime.lane, runtime.budget or runtime.cache.working-set; nothing has changed then.
        """
        stream = self.opened.stream
        if name in {MAIN, GUESSES, *(one.name for one in self.lanes)}:
            raise refuse(LANE, f"lane {name}", expected="a name that is nobody's yet", got=name)
        used, capacity = stream.geometry.experts_used, stream.cache.capacity
        if used * (len(self.lanes) + 1) > capacity:
            raise refuse(
                WORKING_SET,
                f"lane {name}",
                expected=f"at least {used * (len(self.lanes) + 1)} records",
                got=capacity,
            )
        needed = lane_bytes(stream.geometry, context, chunk)
        if not self.lanes:
            needed = max(0, needed - self.opened.lane_bytes)  # the rest is in the plan of the opening
        if needed:
            left = self.plan.left_bytes
            if left is not None and needed > left:
                raise refuse(BUDGET, f"lane {name}", expected=f"{needed} bytes that are free", got=left)
            self.plan = self.plan.with_owners([Owner(f"lane {name}", needed)])
        lane = Lane(name)
        self.lanes.append(lane)
        stream.lanes = len(self.lanes)
        return lane

    def run(self, work: Sequence[Callable[[Bank, Lane], Answer]]) -> list[Served[Answer]]:
        """Runs one piece of work in each admitted lane, all at the same time, and returns when all have ended.

        Each piece gets a bank of its own and hands the turn on between chunks with `Stream.pass_on`.
        """
        stream = self.opened.stream
        served: list[Served[Answer]] = [Served(lane) for lane in self.lanes]
        threads = [
            threading.Thread(target=self._serve, args=(one, task), name=f"lane {one.lane.name}")
            for one, task in zip(served, work, strict=True)
        ]
        stream.give_turn()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stream.take_turn(stream.lane)
        return served

    def _serve(self, served: Served[Answer], task: Callable[[Bank, Lane], Answer]) -> None:
        with self.opened.stream.running(served.lane):
            try:
                served.answer = task(Bank(self.opened.loaded.model), served.lane)
            except BaseException as error:  # noqa: BLE001 - handed to whoever asked for the lane
                served.error = error
            finally:
                self.opened.stream.end_chunk(served.lane)
