"""The expert cache: leases, generations, whole records, and the published reports about such caches."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from assay.impl.runtime.cache import ExpertCache, Lease, Place
from assay.impl.runtime.policies import POLICIES, make_policy
from assay.spec.errors import ContractError


def cache_of(capacity: int, policy: str = "lru", parts: tuple[str, ...] = ("weight", "scale")) -> ExpertCache:
    return ExpertCache(capacity, parts, make_policy(policy, capacity))


def step(cache: ExpertCache, experts: list[int], layer: int = 0) -> Lease:
    """Leases and fills a step, every part the content of its expert."""
    found = cache.acquire([(layer, expert) for expert in experts])
    assert found is not None
    for key in found[0].missing:
        fill(cache, found[0].places[key])
    return found[0]


def fill(cache: ExpertCache, place: Place) -> None:
    assert cache.publish(place, "weight", place.key[1])
    assert cache.publish(place, "scale", place.key[1] + 1)


def assert_refused(caught: Any, code: str, where: str) -> None:
    assert (caught.value.finding.code, caught.value.finding.where) == (code, where)


@pytest.mark.parametrize("policy", POLICIES)
def test_two_misses_in_a_full_cache_keep_each_other(policy: str) -> None:
    """Bug report A24: what was just loaded was the next victim in the same call."""
    cache = cache_of(4, policy)
    for expert in (1, 2, 5, 6, 5, 6, 1, 2):
        cache.release(step(cache, [expert]))
    lease = step(cache, [1, 2, 3, 9])
    assert cache.residents >= {(0, 1), (0, 2), (0, 3), (0, 9)}
    assert {expert: cache.part(lease, (0, expert), "scale") for expert in (1, 2, 3, 9)} == {
        1: 2,
        2: 3,
        3: 4,
        9: 10,
    }
    assert cache.part(lease, (0, 9), "weight") == 9


def test_a_step_larger_than_the_cache_is_refused_with_both_numbers() -> None:
    """Bug report A24: an error, not a wrong answer."""
    with pytest.raises(ContractError) as caught:
        cache_of(3).acquire([(0, expert) for expert in (1, 2, 3, 9)])
    assert_refused(caught, "runtime.cache.working-set", "step")
    assert (caught.value.finding.expected, caught.value.finding.got) == ("at most 3 records", "4")


@pytest.mark.parametrize("capacity", [10, 11, 12, 20, 512])
def test_a_device_two_submissions_late_reads_its_own_experts(capacity: int) -> None:
    """Bug report A23: a slot was handed on while submitted work still pointed at it."""
    cache = cache_of(capacity, parts=("weight",))
    submitted: list[tuple[Lease, int]] = []
    sums: list[int] = []

    def complete() -> None:
        lease, layer = submitted.pop(0)
        sums.append(sum(cache.part(lease, (layer, expert), "weight") for expert in experts(layer)))
        cache.release(lease)

    def experts(layer: int) -> range:
        return range(10 * layer, 10 * layer + 10)

    for layer in (0, 1):
        wanted = [(layer, expert) for expert in experts(layer)]
        found = cache.acquire(wanted)
        while found is None:  # a small cache waits for the device, and never mixes
            complete()
            found = cache.acquire(wanted)
        for key in found[0].missing:
            cache.publish(found[0].places[key], "weight", key[1])
        submitted.append((found[0], layer))
    while submitted:
        complete()
    assert sums == [45, 145]


def test_a_read_of_an_earlier_generation_is_dropped() -> None:
    cache = cache_of(1)
    old = cache.predict((0, 1))
    assert old is not None
    found = cache.acquire([(0, 2)])
    assert found is not None
    lease, dropped = found
    assert dropped == (old,)
    assert not cache.publish(old, "weight", 1)
    fill(cache, lease.places[0, 2])
    assert cache.part(lease, (0, 2), "weight") == 2
    assert (cache.counts.reclaimed, cache.counts.stale) == (1, 1)


def test_a_lease_ends_once() -> None:
    cache = cache_of(2)
    lease = step(cache, [1])
    cache.release(lease)
    with pytest.raises(ContractError) as caught:
        cache.release(lease)
    assert_refused(caught, "runtime.cache.lease", "release")


def test_nothing_is_read_through_a_lease_that_has_ended() -> None:
    cache = cache_of(2)
    lease = step(cache, [1])
    cache.release(lease)
    with pytest.raises(ContractError) as caught:
        cache.part(lease, (0, 1), "weight")
    assert_refused(caught, "runtime.cache.lease", "layer 0 expert 1")


def test_a_prediction_never_takes_a_leased_slot() -> None:
    cache = cache_of(2)
    step(cache, [1, 2])
    assert cache.predict((0, 3)) is None


def test_guesses_push_out_what_was_used_and_not_each_other() -> None:
    cache = cache_of(2)
    cache.release(step(cache, [1]))
    for expert in (2, 3):  # the second takes the place of expert 1
        place = cache.predict((0, expert))
        assert place is not None
        fill(cache, place)
    assert cache.residents == {(0, 2), (0, 3)}
    assert cache.predict((0, 4)) is None
    lease = step(cache, [4])  # what is required pushes a guess out
    assert (0, 4) in cache.residents
    assert len(cache.residents) == 2
    cache.release(lease)


def test_a_record_that_two_lanes_need_is_read_once() -> None:
    cache = cache_of(2)
    first, second = cache.acquire([(0, 1)]), cache.acquire([(0, 1)])
    assert first is not None
    assert second is not None
    assert (first[0].missing, second[0].missing, second[0].joined) == (((0, 1),), (), ((0, 1),))


def test_a_record_that_was_given_up_is_a_miss_again() -> None:
    cache = cache_of(2)
    found = cache.acquire([(0, 1)])
    assert found is not None
    cache.abandon(found[0].places[0, 1])
    cache.release(found[0])
    again = cache.acquire([(0, 1)])
    assert again is not None
    assert again[0].missing == ((0, 1),)


class CacheMachine(RuleBasedStateMachine):
    """Steps, predictions, completions in any order, and failures, beside a plain model of who holds what."""

    @initialize(capacity=st.integers(2, 5), policy=st.sampled_from(POLICIES))
    def begin(self, capacity: int, policy: str) -> None:
        self.cache = cache_of(capacity, policy)
        self.leases: list[Lease] = []
        self.reads: list[Place] = []  # begun, in any state

    @rule(experts=st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True))
    def acquire(self, experts: list[int]) -> None:
        keys = [(0, expert) for expert in experts]
        before = self.cache.residents
        pinned = {key for lease in self.leases for key in lease.places}
        if len(keys) > self.cache.capacity:
            with pytest.raises(ContractError):
                self.cache.acquire(keys)
            return
        found = self.cache.acquire(keys)
        if found is None:
            assert len(pinned | set(keys)) > self.cache.capacity
            return
        lease, dropped = found
        assert set(lease.resident) == before & set(keys)
        assert all(key in self.cache for key in keys)
        assert all(key in self.cache for key in pinned)
        assert not {place.key for place in dropped} & pinned
        self.leases.append(lease)
        self.reads += [lease.places[key] for key in lease.missing]

    @rule(expert=st.integers(0, 7))
    def predict(self, expert: int) -> None:
        place = self.cache.predict((0, expert))
        if place is not None:
            self.reads.append(place)

    @precondition(lambda self: self.reads)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        place = self.reads.pop(data.draw(st.integers(0, len(self.reads) - 1)))
        is_current = place.key in self.cache and self.cache.place(place.key) == place
        for part, content in (("weight", place.key[1]), ("scale", place.key[1] + 1)):
            assert self.cache.publish(place, part, content) == is_current

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        for key in lease.places:
            weight, scale = (self.cache.part(lease, key, part) for part in ("weight", "scale"))
            assert weight in {None, key[1]}
            assert scale in {None, key[1] + 1}
        self.cache.release(lease)

    @invariant()
    def no_slot_is_lost_or_shared(self) -> None:
        if not hasattr(self, "cache"):
            return
        held = {key for lease in self.leases for key in lease.places}
        places = [self.cache.place((0, expert)) for expert in range(8) if (0, expert) in self.cache]
        assert len({place.slot for place in places}) == len(places) <= self.cache.capacity
        assert self.cache.leased == len(held)


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
