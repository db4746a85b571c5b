"""Work on several things at once: answers in order, few in flight, each announced before it is worked on."""

import threading

import pytest

from assay.impl.stores.overlap import in_order


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_answers_come_in_the_order_of_the_items(threads: int) -> None:
    assert list(in_order(lambda one: one * one, range(50), threads)) == [one * one for one in range(50)]
    assert list(in_order(lambda one: one * one, range(50), threads, lambda _: None)) == [
        one * one for one in range(50)
    ]


@pytest.mark.parametrize("threads", [1, 3])
def test_each_item_is_announced_once_in_order_before_it_is_worked_on(threads: int) -> None:
    told: list[int] = []
    worked = list(in_order(lambda one: one in told, range(20), threads, told.append))
    assert told == list(range(20))
    assert all(worked)


@pytest.mark.parametrize(("threads", "ahead"), [(1, 3), (2, 4), (3, 6)])
def test_no_more_are_announced_than_can_be_in_flight(threads: int, ahead: int) -> None:
    told: list[int] = []
    answers = in_order(lambda one: one, range(100), threads, told.append)
    for number in range(10):
        assert next(answers) == number
        assert len(told) <= number + 1 + ahead
    answers.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_failure_ends_the_run_in_its_turn(threads: int) -> None:
    def work(one: int) -> int:
        if one == 5:
            raise RuntimeError("five")
        return one

    answers = in_order(work, range(100), threads, lambda _: None)
    assert [next(answers) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="five"):
        next(answers)


def test_a_run_that_is_left_early_ends_its_threads() -> None:
    before = threading.active_count()
    answers = in_order(lambda one: one, range(1000), 3)
    next(answers)
    answers.close()
    assert threading.active_count() == before
