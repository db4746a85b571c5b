"""Every order in which a few requests can meet a small scheduler: all of them, not a sample.

A state is what a witness and its scheduler look like, with numbers that don't matter taken out. From each state every
step is tried: the next request, a reader that asks for work, a read or a judgement that ends well or badly, a ticket
withdrawn, used or given back, a generation that goes by, a deadline that passes. States that were seen are not
continued, so that the search ends.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from assay.impl.runtime.limits import LaneLimits, Limits
from assay.impl.runtime.schedule import Scheduler
from assay.impl.runtime.tickets import (
    LIVE,
    NEVER,
    ExpertRecord,
    Lane,
    Phase,
    Piece,
    Priority,
    ReadRequest,
    RowPages,
    State,
)
from assay.mutations.scheduler_model import Witness
from assay.spec.errors import Finding

BAD: Final = Finding("runtime.read.io", "runtime", "store from 0", "10 bytes", "0 bytes, then EIO")
DEADLINE_NS: Final = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """A small world.

    Attributes:
        name: what it is about, in a word.
        limits: of the scheduler.
        requests: submitted one after another, at any moment.
        steps: kinds of steps that are tried beside submitting, starting, completing and judging.
        faults: how many reads or judgements may end badly.
    """

    name: str
    limits: Limits
    requests: tuple[ReadRequest, ...]
    steps: frozenset[str] = frozenset({"cancel", "release", "pin", "advance", "time"})
    faults: int = 1


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search came to; one that was cut short is not whole, and proves nothing."""

    states: int
    steps: int
    findings: tuple[Finding, ...]
    is_whole: bool = True


@dataclass(slots=True)
class _Node:
    witness: Witness
    submitted: int = 0
    faults: int = 0
    advanced: bool = False


Step = Callable[[_Node], object]


def request(
    what: int,
    priority: Priority,
    *,
    owner: str = "a",
    lane: Lane = Lane.EXPERT,
    deadline_ns: int = NEVER,
    parts: int = 1,
) -> ReadRequest:
    """Returns a request of a small world: one expert or one page, of one or two parts."""
    target = ExpertRecord(0, what) if lane is Lane.EXPERT else RowPages((what,))
    return ReadRequest(
        "0" * 64, owner, 0, Phase.DECODE, 0, 1, target, tuple((Piece(10 * part, 5),) for part in range(parts)),
        is_exact=priority is Priority.EXACT, confidence=1.0, priority=priority, deadline_ns=deadline_ns,
    )  # fmt: skip


def small_plans() -> tuple[Plan, ...]:
    """Returns the small worlds, the smallest first: deadlines, two lanes, a shared read, and one slot for all."""
    exact, near, far, warm = Priority.EXACT, Priority.NEAR, Priority.SPECULATIVE, Priority.BACKGROUND
    one = {Lane.EXPERT: LaneLimits(1, 1, 20, 2, 3, 0), Lane.PLE: LaneLimits(1, 1, 20, 1, 2, 0)}
    two = {Lane.EXPERT: LaneLimits(2, 2, 20, 2, 4, 1), Lane.PLE: LaneLimits(1, 1, 20, 1, 2, 0)}
    lanes = (
        request(0, exact),
        request(7, exact, lane=Lane.PLE, owner="b"),
        request(1, far),
        request(2, warm),
    )
    shared = (request(0, near, parts=2), request(0, exact, owner="b", parts=2), request(1, far))
    wanted = (request(0, far, deadline_ns=DEADLINE_NS), request(1, exact), request(2, near, owner="b"))
    dates = (
        request(0, near, deadline_ns=90), request(1, near, deadline_ns=80),
        request(2, exact, parts=2), request(3, exact, owner="b", deadline_ns=50),
    )  # fmt: skip
    return (
        Plan("deadlines", one, dates, frozenset({"release"}), faults=0),
        Plan("two lanes", two, lanes, frozenset({"cancel", "release"}), faults=0),
        Plan("shared", two, shared, frozenset({"cancel", "release", "advance"})),
        Plan("one slot", one, wanted),
    )


def search(
    plan: Plan, make: Callable[[Limits], Scheduler] = Scheduler, most_states: int = 200_000
) -> Searched:
    """Tries every order; stops at the first states that are wrong.

    Args:
        plan: the world.
        make: makes the scheduler that is judged.
        most_states: bound of the search, which is not whole when it is reached.
    """
    first = _Node(Witness(make(plan.limits), plan.limits))
    seen = {_signature(first)}
    todo = deque([first])
    tried = 0
    while todo:
        node = todo.popleft()
        for step in _steps(node, plan):
            child = _copied(node)
            step(child)
            tried += 1
            if child.witness.findings:
                return Searched(len(seen), tried, tuple(child.witness.findings))
            signature = _signature(child)
            if signature in seen:
                continue
            seen.add(signature)
            todo.append(child)
            if len(seen) >= most_states:
                return Searched(len(seen), tried, (), is_whole=False)
        last = _copied(node)
        last.witness.finish()
        if last.witness.findings:
            return Searched(len(seen), tried, tuple(last.witness.findings))
    return Searched(len(seen), tried, ())


def _steps(node: _Node, plan: Plan) -> Iterator[Step]:
    """Yields what may happen next; each step is given a copy of the node."""
    witness = node.witness
    if node.submitted < len(plan.requests):
        yield partial(_submit, plan.requests[node.submitted])
    for lane in Lane:
        yield lambda one, lane=lane: one.witness.start(lane)  # type: ignore[misc]
    findings = (None, BAD) if node.faults < plan.faults else (None,)
    for finding in findings:
        for place in range(len(witness.reads)):
            yield partial(_complete, place, finding)
        for place in range(len(witness.judging)):
            yield partial(_judge, place, finding)
    for place, ticket in enumerate(witness.tickets):
        if "cancel" in plan.steps and ticket.state in LIVE:
            yield partial(_act, "cancel", place)
        if "release" in plan.steps and ticket.state in {State.READY, State.RELEASED, State.READING}:
            yield partial(_act, "release", place)
        if "pin" in plan.steps and ticket.state is State.READY:
            yield partial(_act, "pin", place)
    if "advance" in plan.steps and not node.advanced:
        yield _advance
    if "time" in plan.steps and witness.now_ns <= DEADLINE_NS:
        yield lambda one: setattr(one.witness, "now_ns", DEADLINE_NS + 1)


def _submit(request: ReadRequest, node: _Node) -> None:
    node.submitted += 1
    node.witness.submit([request])


def _complete(place: int, finding: Finding | None, node: _Node) -> None:
    node.faults += finding is not None
    node.witness.complete(node.witness.reads[place], finding)


def _judge(place: int, finding: Finding | None, node: _Node) -> None:
    node.faults += finding is not None
    node.witness.judge(node.witness.judging[place][0], finding)


def _act(what: str, place: int, node: _Node) -> None:
    getattr(node.witness, what)(node.witness.tickets[place])


def _advance(node: _Node) -> None:
    node.advanced = True
    node.witness.advance("a", 1)


def _copied(node: _Node) -> _Node:
    """Returns a copy that shares only what never changes: requests, limits and findings."""
    witness = node.witness
    memo: dict[int, Any] = {id(witness.limits): witness.limits}
    for one in witness.limits.values():
        memo[id(one)] = one
    for ticket in witness.tickets:
        request = ticket.request
        for shared in (request, request.target, request.parts, request.store):
            memo[id(shared)] = shared
    for read in witness.reads:
        memo[id(read)] = read
    for seen in witness.seen:
        memo[id(seen)] = seen
    return copy.deepcopy(node, memo)


def _signature(node: _Node) -> tuple[Any, ...]:
    witness = node.witness
    fetches = sorted(
        {one.fetch for one in witness.tickets if one.is_live} | {one.fetch for one in witness.reads}
    )
    order = {fetch: place for place, fetch in enumerate(fetches)}
    tickets = tuple(
        (
            one.state,
            one.slot,
            one.arrived_parts,
            one.priority,
            order.get(one.fetch),
            one.finding is None,
            one.request,
        )
        for one in witness.tickets
    )
    reads = tuple((one.lane, one.slot, one.part, order[one.fetch]) for one in witness.reads)
    judging = tuple((read.lane, read.slot, order.get(read.fetch)) for _, read in witness.judging)
    return (
        node.submitted, node.faults, node.advanced, witness.now_ns, tickets, reads, judging, witness.held,
    )  # fmt: skip
