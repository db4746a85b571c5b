"""Every order of the small worlds is searched, and the search meets every listed mistake."""

import pytest

from assay.impl.runtime.schedule import Scheduler
from assay.mutations.battery import BatteryContext
from assay.mutations.runner import run_batteries
from assay.mutations.scheduler_battery import MISTAKES
from assay.mutations.scheduler_search import search, small_plans

QUICK = {one.name: one for one in small_plans() if one.name in {"deadlines", "two lanes"}}
FOUND_SOON = (
    "first-come-first-served",
    "queues-without-end",
    "one-queue-for-all",
    "publishes-unjudged",
    "forgets-the-queue",
)


@pytest.mark.parametrize(("name", "least"), [("deadlines", 100), ("two lanes", 2500)])
def test_no_order_of_a_small_world_shows_anything_wrong(name: str, least: int) -> None:
    found = search(QUICK[name])
    assert (found.findings, found.is_whole) == ((), True)
    assert found.states > least


@pytest.mark.parametrize("name", FOUND_SOON)
def test_a_mistake_shows_in_some_order(name: str) -> None:
    make, codes, _ = MISTAKES[name]
    found = next((some for plan in QUICK.values() if (some := search(plan, make).findings)), ())
    assert {one.code for one in found} & set(codes.split())


def test_a_search_that_was_cut_short_is_not_whole() -> None:
    found = search(QUICK["two lanes"], Scheduler, most_states=50)
    assert (found.findings, found.states, found.is_whole) == ((), 50, False)


@pytest.mark.slow
def test_no_order_of_any_world_is_wrong_and_every_mistake_shows() -> None:
    run = run_batteries(["scheduler"], BatteryContext())
    assert (run.survivors, run.killed_elsewhere) == ([], [])
    assert run.batteries["scheduler"].killed == len(MISTAKES) >= 20
