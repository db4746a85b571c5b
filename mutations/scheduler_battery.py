"""Battery `scheduler`: mistakes that schedulers make, each of which the exhaustive search must meet.

The control is the whole search of the right scheduler: every order of every small world.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Final

from assay.impl.runtime.fetches import LaneState
from assay.impl.runtime.limits import Limits
from assay.impl.runtime.schedule import Fetch, Read, Scheduler
from assay.impl.runtime.tickets import LIVE, Lane, ReadRequest, State, Ticket
from assay.mutations.battery import Battery, BatteryContext, Mutation
from assay.mutations.scheduler_search import search, small_plans
from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding

WHOLE: Final = declare(
    "scheduler.whole", Authority.PROCESS, "A search that is to prove something sees every state.",
    source="assay: runtime", cause="a world that has grown too large to search",
)  # fmt: skip


class _FreesWhileReading(Scheduler):
    def _end(self, ticket: Ticket, state: State, reason: str, now_ns: int) -> None:
        fetch = self._by_id[ticket.fetch]
        super()._end(ticket, state, reason, now_ns)
        if fetch.is_over and fetch.slot >= 0 and fetch.reads:
            self._lanes[fetch.request.lane].free.append(fetch.slot)

    def _free(self, fetch: Fetch) -> None:
        free = self._lanes[fetch.request.lane].free
        if fetch.slot in free:
            free.remove(fetch.slot)
        super()._free(fetch)


class _PublishesWithdrawn(Scheduler):
    def cancel(self, ticket: Ticket, now_ns: int) -> bool:
        if ticket.state is State.READING:
            ticket.state = State.CANCELLED
            return True
        return super().cancel(ticket, now_ns)


class _ReleasesTwice(Scheduler):
    def release(self, ticket: Ticket, now_ns: int) -> None:
        if ticket.state is not State.RELEASED:
            super().release(ticket, now_ns)


class _FirstComeFirstServed(Scheduler):
    def _place(self, fetch: Fetch) -> tuple[int, int, int]:
        return fetch.priority, 0, fetch.next_part


class _OneQueueForAll(Scheduler):
    def _place(self, fetch: Fetch) -> tuple[int, int, int]:
        return 0, 0, fetch.next_part


class _SpeculatesBeside(Scheduler):
    def _may_start(self, lane: Lane, fetch: Fetch) -> bool:
        del lane, fetch
        return True


class _OneLaneForAll(Scheduler):
    def next_read(self, lane: Lane, now_ns: int) -> Read | None:
        other = Lane.PLE if lane is Lane.EXPERT else Lane.EXPERT
        return None if self.reading(other) else super().next_read(lane, now_ns)


class _PredictionsKeepSlots(Scheduler):
    def _is_spare(self, fetch: Fetch) -> bool:
        return fetch.slot < 0 and super()._is_spare(fetch)


class _ForgetsGenerations(Scheduler):
    def advance(self, owner: str, generation: int, now_ns: int) -> None:
        del now_ns
        self._generations[owner] = generation


class _DropsExactSilently(Scheduler):
    def _fail(self, fetch: Fetch, finding: Finding, now_ns: int) -> None:
        self._drop(fetch, finding.code, now_ns)


class _KeepsSlotAfterFault(Scheduler):
    def _fail(self, fetch: Fetch, finding: Finding, now_ns: int) -> None:
        super()._fail(fetch, finding, now_ns)
        fetch.reads += 1


class _FreesOnUsualWayOnly(Scheduler):
    def _settle(self, fetch: Fetch) -> None:
        fetch.reads -= 1


class _QueuesWithoutEnd(Scheduler):
    def _make_room(self, *_: object, **__: object) -> bool:
        return True


class _PublishesUnjudged(Scheduler):
    def complete(self, read: Read, finding: Finding | None, now_ns: int) -> Fetch | None:
        fetch = super().complete(read, finding, now_ns)
        if fetch is not None:
            self.judged(fetch, None, now_ns)
        return None


class _IgnoresReserve(Scheduler):
    def _give_slot(self, state: LaneState, fetch: Fetch, now_ns: int) -> bool:
        return fetch.slot >= 0 or bool(state.free) or super()._give_slot(state, fetch, now_ns)


class _ReadsTheLate(Scheduler):
    def next_read(self, lane: Lane, now_ns: int) -> Read | None:
        return super().next_read(lane, min(now_ns, 0))


class _DemotesOnJoin(Scheduler):
    def _reconsider(self, fetch: Fetch) -> None:
        if len(fetch.tickets) > 1:
            fetch.tickets[-1].priority = fetch.tickets[0].priority
        super()._reconsider(fetch)


class _WaitsForSlotForEver(Scheduler):
    def _most_urgent_begun(self, lane: Lane) -> Fetch | None:
        del lane
        return None


class _RefusesExact(Scheduler):
    def submit(self, requests: Sequence[ReadRequest], now_ns: int) -> list[Ticket]:
        tickets = super().submit(requests, now_ns)
        for ticket in tickets:
            if ticket.request.is_exact and ticket.was_joined and ticket.state in LIVE:
                self._end(ticket, State.DROPPED, "queue-full", now_ns)
        return tickets


class _EvictsWhatIsUsed(Scheduler):
    def pin(self, ticket: Ticket) -> None:
        del ticket


class _ForgetsTheQueue(Scheduler):
    def _reconsider(self, fetch: Fetch) -> None:
        super()._reconsider(fetch)
        lane = self._lanes[fetch.request.lane]
        if fetch.next_part and lane.heap:
            lane.heap = [one for one in lane.heap if one[5] is not fetch]
            heapq.heapify(lane.heap)


_SOON: Final = 600
_ALL: Final = 200_000

MISTAKES: Final[dict[str, tuple[type[Scheduler], str, str]]] = {
    "frees-while-reading": (_FreesWhileReading, "scheduler.bytes scheduler.leak", "a withdrawn read's slot is free at once"),
    "publishes-withdrawn": (_PublishesWithdrawn, "scheduler.once", "a withdrawn ticket stays with its read"),
    "releases-twice": (_ReleasesTwice, "scheduler.refused", "a second release is accepted"),
    "first-come-first-served": (_FirstComeFirstServed, "scheduler.edf", "deadlines are not looked at"),
    "one-queue-for-all": (_OneQueueForAll, "scheduler.exact-first scheduler.idle scheduler.edf", "classes are not looked at"),
    "speculates-beside": (_SpeculatesBeside, "scheduler.leavings", "speculation fills every idle reader"),
    "one-lane-for-all": (_OneLaneForAll, "scheduler.idle", "rows wait for experts"),
    "predictions-keep-slots": (_PredictionsKeepSlots, "scheduler.idle", "an exact request waits for a prediction's slot"),
    "forgets-generations": (_ForgetsGenerations, "scheduler.stale", "what a generation asked for outlives it"),
    "drops-exact-silently": (_DropsExactSilently, "scheduler.fault", "a fault drops exact tickets as well"),
    "keeps-slot-after-fault": (_KeepsSlotAfterFault, "scheduler.leak", "a slot is not freed after a fault"),
    "frees-on-usual-way-only": (_FreesOnUsualWayOnly, "scheduler.leak", "a withdrawn read's slot is never free again"),
    "queues-without-end": (_QueuesWithoutEnd, "scheduler.bound", "predictions are queued without end"),
    "publishes-unjudged": (_PublishesUnjudged, "scheduler.judged", "bytes are published before they are judged"),
    "ignores-reserve": (_IgnoresReserve, "scheduler.leavings", "a prediction takes the last slot"),
    "reads-the-late": (_ReadsTheLate, "scheduler.late", "a prediction is read after its deadline"),
    "demotes-on-join": (_DemotesOnJoin, "scheduler.fault", "an exact request joins as a prediction"),
    "waits-for-slot-for-ever": (_WaitsForSlotForEver, "scheduler.idle", "a read that was begun waits behind one without a slot"),
    "refuses-exact": (_RefusesExact, "scheduler.refused", "an exact request that joins is dropped"),
    "evicts-what-is-used": (_EvictsWhatIsUsed, "scheduler.bytes", "a prediction that somebody reads from is evicted"),
    "forgets-the-queue": (_ForgetsTheQueue, "scheduler.idle", "second parts are never read"),
}  # fmt: skip
"""Name -> (scheduler, clauses of which one must catch it, what it does)."""


def search_all(make: Callable[[Limits], Scheduler]) -> list[Finding]:
    """Searches every small world until something is wrong; first a little of each, since most mistakes show soon."""
    for most_states in (_SOON, _ALL):
        for plan in small_plans():
            found = search(plan, make, most_states)
            if found.findings:
                return list(found.findings)
            if not found.is_whole and most_states == _ALL:
                got = f"more than {_ALL}"
                return [Finding.of(WHOLE, "scheduler", plan.name, expected="every state seen", got=got)]
    return []


def mutations(context: BatteryContext) -> list[Mutation]:
    """Lists the mistakes."""
    del context
    return [
        Mutation(name, code.split()[0].removeprefix("scheduler."), "scheduler", change, tuple(code.split()))
        for name, (_, code, change) in MISTAKES.items()
    ]


def judge(mutation: Mutation, context: BatteryContext) -> list[Finding]:
    """Searches with a scheduler that makes one mistake."""
    del context
    return search_all(MISTAKES[mutation.id][0])


BATTERY: Final = Battery(
    name="scheduler",
    title="No order of steps shows anything wrong with the scheduler of reads, and every listed mistake shows in one.",
    mutations=mutations,
    judge=judge,
    control=lambda _context: search_all(Scheduler),
    forced=lambda context: mutations(context)[0],
)
