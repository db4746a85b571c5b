"""The scheduler under chance: a witness with a fake clock and a fake device finds nothing wrong, whatever happens."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from assay.impl.runtime.limits import LaneLimits
from assay.impl.runtime.schedule import Scheduler
from assay.impl.runtime.tickets import (
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
from assay.spec.errors import ContractError, Finding

BAD = Finding("runtime.read.io", "runtime", "store from 0", "10 bytes", "0 bytes, then EIO")
SMALL = st.builds(
    LaneLimits,
    st.integers(1, 2),
    st.integers(1, 3),
    st.just(100),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 1),
)
SUBMITTED = st.tuples(
    st.sampled_from(Lane), st.integers(0, 3), st.sampled_from(Priority), st.sampled_from("ab"), st.integers(0, 1),
    st.sampled_from((0, 1, 6, NEVER)),
)  # fmt: skip
LIMITS = {lane: LaneLimits(1, 2, 100) for lane in Lane}


def request(
    lane: Lane, what: int, priority: Priority, owner: str = "a", generation: int = 0, deadline_ns: int = NEVER
) -> ReadRequest:
    parts = ((Piece(0, 10),), (Piece(10, 5),)) if lane is Lane.EXPERT else ((Piece(0, 10),),)
    return ReadRequest(
        "0" * 64, owner, generation, Phase.DECODE, 0, 1,
        ExpertRecord(0, what) if lane is Lane.EXPERT else RowPages((what,)), parts,
        is_exact=priority is Priority.EXACT, confidence=1.0, priority=priority, deadline_ns=deadline_ns,
    )  # fmt: skip


class Machine(RuleBasedStateMachine):
    """Everything that callers, devices and clocks can do."""

    @initialize(expert=SMALL, ple=SMALL)
    def begin(self, expert: LaneLimits, ple: LaneLimits) -> None:
        limits = {Lane.EXPERT: expert, Lane.PLE: ple}
        self.world = Witness(Scheduler(limits), limits)
        self.generations = {"a": 0, "b": 0}

    @rule(asked=st.lists(SUBMITTED, min_size=1, max_size=3))
    def submit(self, asked: list[Any]) -> None:
        requests = []
        for lane, what, priority, owner, older, ahead in asked:
            generation = max(0, self.generations[owner] - older)
            deadline = NEVER if ahead == NEVER else self.world.now_ns + ahead
            requests.append(request(lane, what, priority, owner, generation, deadline))
        self.world.submit(requests)

    @rule(lane=st.sampled_from(Lane))
    def start(self, lane: Lane) -> None:
        sleeps = not self.world.scheduler.has_entries(lane)
        before = len(self.world.reads)
        self.world.start(lane)
        assert not (sleeps and len(self.world.reads) > before), (
            "a reader that sleeps would have found something"
        )

    @precondition(lambda self: self.world.reads)
    @rule(data=st.data(), is_bad=st.sampled_from((False, False, False, True)))
    def complete(self, data: Any, is_bad: bool) -> None:
        self.world.complete(data.draw(st.sampled_from(self.world.reads)), BAD if is_bad else None)

    @precondition(lambda self: self.world.judging)
    @rule(data=st.data(), is_bad=st.sampled_from((False, False, False, True)))
    def judge(self, data: Any, is_bad: bool) -> None:
        self.world.judge(data.draw(st.sampled_from(self.world.judging))[0], BAD if is_bad else None)

    @precondition(lambda self: self.world.tickets)
    @rule(data=st.data(), what=st.sampled_from(("cancel", "release", "release", "pin")))
    def act(self, data: Any, what: str) -> None:
        ticket = data.draw(st.sampled_from(self.world.tickets))
        if what != "pin" or ticket.state is State.READY:
            getattr(self.world, what)(ticket)

    @precondition(lambda self: self.world.tickets)
    @rule(data=st.data(), priority=st.sampled_from(Priority))
    def promote(self, data: Any, priority: Priority) -> None:
        self.world.promote(data.draw(st.sampled_from(self.world.tickets)), priority, self.world.now_ns + 3)

    @rule(owner=st.sampled_from("ab"))
    def advance(self, owner: str) -> None:
        self.generations[owner] += 1
        self.world.advance(owner, self.generations[owner])

    @rule(by=st.integers(1, 4))
    def pass_time(self, by: int) -> None:
        self.world.now_ns += by

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "world"):
            assert [one.line for one in self.world.findings] == []

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()
            assert [one.line for one in self.world.findings] == []


TestScheduler = Machine.TestCase
TestScheduler.settings = settings(max_examples=150, stateful_step_count=50)


def test_a_completion_that_comes_twice_is_ignored() -> None:
    scheduler = Scheduler(LIMITS)
    (ticket,) = scheduler.submit([request(Lane.PLE, 0, Priority.EXACT)], 0)
    read = scheduler.next_read(Lane.PLE, 0)
    assert read is not None
    fetch = scheduler.complete(read, None, 1)
    assert fetch is not None
    assert scheduler.complete(read, None, 2) is None
    scheduler.judged(fetch, None, 3)
    assert (ticket.state, scheduler.ignored_completions) == (State.READY, 1)


def test_an_exact_request_that_joins_makes_a_prediction_urgent() -> None:
    scheduler = Scheduler(LIMITS)
    scheduler.submit(
        [request(Lane.EXPERT, 1, Priority.NEAR), request(Lane.EXPERT, 2, Priority.SPECULATIVE)], 0
    )
    (exact,) = scheduler.submit([request(Lane.EXPERT, 2, Priority.EXACT, "b")], 0)
    read = scheduler.next_read(Lane.EXPERT, 0)
    assert read is not None
    assert (read.target, read.priority, exact.was_joined) == (ExpertRecord(0, 2), Priority.EXACT, True)


def test_a_prediction_whose_exact_sharer_has_left_is_a_prediction_again() -> None:
    scheduler = Scheduler(LIMITS)
    scheduler.submit([request(Lane.EXPERT, 2, Priority.SPECULATIVE)], 0)
    (exact,) = scheduler.submit([request(Lane.EXPERT, 2, Priority.EXACT, "b")], 0)
    scheduler.submit([request(Lane.EXPERT, 1, Priority.NEAR)], 0)
    scheduler.cancel(exact, 0)
    read = scheduler.next_read(Lane.EXPERT, 0)
    assert read is not None
    assert (read.target, read.priority) == (ExpertRecord(0, 1), Priority.NEAR)


def test_a_full_queue_refuses_exact_requests_and_takes_none_of_them() -> None:
    scheduler = Scheduler({**LIMITS, Lane.EXPERT: LaneLimits(1, 2, 100, queue=2)})
    with pytest.raises(ContractError) as caught:
        scheduler.submit([request(Lane.EXPERT, what, Priority.EXACT) for what in range(3)], 0)
    finding = caught.value.finding
    assert (finding.code, finding.where, finding.got) == ("runtime.queue-full", "expert.queue", "3")
    assert scheduler.is_idle


def test_an_exact_request_pushes_the_least_urgent_prediction_out_of_a_full_queue() -> None:
    scheduler = Scheduler({**LIMITS, Lane.EXPERT: LaneLimits(1, 2, 100, queue=2)})
    near, far = scheduler.submit(
        [request(Lane.EXPERT, 1, Priority.NEAR), request(Lane.EXPERT, 2, Priority.SPECULATIVE)], 0
    )
    scheduler.submit([request(Lane.EXPERT, 3, Priority.EXACT)], 0)
    assert (near.state, far.state, far.reason) == (State.QUEUED, State.DROPPED, "queue-full")


def test_a_request_larger_than_a_slot_is_refused() -> None:
    with pytest.raises(ContractError) as caught:
        Scheduler({lane: LaneLimits(1, 1, 14) for lane in Lane}).submit(
            [request(Lane.EXPERT, 1, Priority.EXACT)], 0
        )
    finding = caught.value.finding
    assert (finding.code, finding.where, finding.got) == ("runtime.slot-size", "layer 0 expert 1", "15")


@pytest.mark.parametrize("name", ["readers", "slots", "slot_bytes", "queue", "tickets"])
def test_limits_with_which_nothing_can_be_read_are_refused(name: str) -> None:
    fields = {"readers": 1, "slots": 1, "slot_bytes": 1, name: 0}
    with pytest.raises(ContractError) as caught:
        Scheduler({Lane.EXPERT: LaneLimits(**fields), Lane.PLE: LaneLimits(1, 1, 1)})
    assert (caught.value.finding.code, caught.value.finding.where) == ("runtime.limits", f"expert.{name}")


def test_a_lane_without_limits_is_refused() -> None:
    with pytest.raises(ContractError) as caught:
        Scheduler({Lane.EXPERT: LaneLimits(1, 1, 1)})
    assert (caught.value.finding.code, caught.value.finding.where) == ("runtime.limits", "ple")
