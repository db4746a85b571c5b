"""Replacement policies against plain models of them, and the bound that none of them passes."""

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.runtime.policies import POLICIES, Key, Policy, make_policy
from assay.impl.runtime.replay_cache import rank, replay, replay_best

STEPS = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True), max_size=25)


def steps_of(numbers: list[list[int]]) -> list[list[Key]]:
    """Keys of two layers out of plain numbers."""
    return [[(number % 2, number) for number in step] for step in numbers]


def plain_lru(residents: dict[Key, list[int]], now: int) -> Key:
    return min(residents, key=lambda key: residents[key][-1])


def plain_lfu(residents: dict[Key, list[int]], now: int) -> Key:
    return min(residents, key=lambda key: (len(residents[key]), residents[key][-1]))


def plain_layer_lru(residents: dict[Key, list[int]], now: int) -> Key:
    sizes = {layer: sum(key[0] == layer for key in residents) for layer in (0, 1)}
    layers = sorted(sizes, key=lambda layer: (-sizes[layer], layer))
    own = [key for key in residents if key[0] == layers[0]]
    return min(own, key=lambda key: residents[key][-1])


@pytest.mark.parametrize(
    ("name", "plain"), [("lru", plain_lru), ("lfu", plain_lfu), ("layer-lru", plain_layer_lru)]
)
@settings(max_examples=80, deadline=None)
@given(numbers=st.lists(st.integers(0, 7), max_size=60), capacity=st.integers(1, 5))
def test_a_policy_chooses_what_its_definition_chooses(
    name: str, plain: Callable[[dict[Key, list[int]], int], Key], numbers: list[int], capacity: int
) -> None:
    policy: Policy = make_policy(name, capacity)
    residents: dict[Key, list[int]] = {}
    for now, number in enumerate(numbers):
        key = (number % 2, number)
        if key in residents:
            policy.use(key)
            residents[key].append(now)
            continue
        if len(residents) == capacity:
            expected = plain(residents, now)
            assert policy.victim(lambda _key: False) == expected
            policy.remove(expected)
            del residents[expected]
        policy.admit(key)
        residents[key] = [now]


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=60, deadline=None)
@given(numbers=st.lists(st.integers(0, 9), max_size=60), pinned=st.sets(st.integers(0, 9), max_size=6))
def test_a_victim_is_a_resident_that_is_not_pinned(name: str, numbers: list[int], pinned: set[int]) -> None:
    policy = make_policy(name, 5)
    residents: set[Key] = set()
    for number in numbers:
        key = (number % 2, number)
        if key in residents:
            policy.use(key)
            continue
        if len(residents) == 5:
            victim = policy.victim(lambda one: one[1] in pinned)
            assert (victim is None) == all(one[1] in pinned for one in residents)
            if victim is None:
                continue
            assert victim in residents
            assert victim[1] not in pinned
            policy.remove(victim)
            residents.remove(victim)
        policy.admit(key)
        residents.add(key)


def test_s3_fifo_lets_one_time_records_go_before_those_used_again() -> None:
    policy = make_policy("s3-fifo", 10)
    for expert in range(9):
        policy.admit((0, expert))
    for expert in range(3):
        policy.use((0, expert))
    order = []
    for _ in range(6):
        victim = policy.victim(lambda _key: False)
        assert victim is not None
        order.append(victim[1])
        policy.remove(victim)
    assert order == [3, 4, 5, 6, 7, 8]


def test_s3_fifo_takes_a_remembered_name_into_the_main_queue() -> None:
    policy = make_policy("s3-fifo", 2)
    policy.admit((0, 0))
    policy.remove((0, 0))  # its name is remembered
    policy.admit((0, 0))
    policy.admit((0, 1))
    assert policy.victim(lambda _key: False) == (0, 1)


def test_greedy_dual_gives_up_the_least_stall_removed_by_byte() -> None:
    stall = {0: 900.0, 1: 100.0}  # layer 0 hides nothing of a read, layer 1 nearly all of it
    policy = make_policy("greedy-dual", 4, lambda key: stall[key[0]])
    for key in ((0, 0), (1, 0), (1, 1), (0, 1)):
        policy.admit(key)
    assert policy.victim(lambda _key: False) == (1, 0)
    policy.remove((1, 0))
    policy.admit((1, 2))  # 100 above the clock, which stands at 100 now
    assert policy.victim(lambda _key: False) == (1, 1)


def test_greedy_dual_lets_the_costly_age_as_well() -> None:
    policy = make_policy("greedy-dual", 2, lambda key: 10.0 if key == (0, 0) else 4.0)
    policy.admit((0, 0))
    victims = []
    for expert in range(1, 5):
        policy.admit((0, expert))
        victim = policy.victim(lambda _key: False)
        assert victim is not None
        victims.append(victim)
        policy.remove(victim)
    assert victims == [(0, 1), (0, 2), (0, 0), (0, 3)]


def fewest_misses(steps: list[list[Key]], capacity: int) -> int:
    """Every possible choice of victims, tried out."""
    costs: dict[frozenset[Key], int] = {frozenset(): 0}
    for step in steps:
        wanted = frozenset(step)
        after: dict[frozenset[Key], int] = {}
        for held, cost in costs.items():
            others = sorted(held - wanted)
            room = min(len(others), capacity - len(wanted))
            for kept in combinations(others, room):
                now = wanted | frozenset(kept)
                price = cost + len(wanted - held)
                after[now] = min(price, after.get(now, price))
        costs = after
    return min(costs.values())


@settings(max_examples=60, deadline=None)
@given(numbers=STEPS, capacity=st.integers(3, 5))
def test_the_bound_is_the_fewest_misses_of_every_possible_choice(
    numbers: list[list[int]], capacity: int
) -> None:
    steps = steps_of(numbers)
    assert replay_best(steps, capacity).misses == fewest_misses(steps, capacity)


@settings(max_examples=60, deadline=None)
@given(numbers=STEPS, capacity=st.integers(3, 6))
def test_no_policy_passes_the_bound(numbers: list[list[int]], capacity: int) -> None:
    steps = steps_of(numbers)
    best = replay_best(steps, capacity)
    for name in POLICIES:
        found = replay(steps, capacity, name)
        assert found.uses == best.uses
        assert found.misses >= best.misses


def test_policies_are_ranked_by_the_wait_that_they_remove() -> None:
    loop = [[(0, expert)] for expert in [0, 1, 2] * 10]
    found = rank(loop, 2)
    removed = [one.stall_removed for one in found[:-1]]
    assert removed == sorted(removed, reverse=True)
    assert (found[-1].policy, found[-1].misses) == (
        "belady",
        16,
    )  # uses 0, 1 and every second one from 2 to 28
    assert {one.policy: one.misses for one in found}["lru"] == 30
