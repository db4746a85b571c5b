"""Lanes: fair turns, states of their own, and no lane that memory can't hold."""

import threading
import time
from typing import Any

import pytest

from assay.impl.runtime.faulty_device import FaultyDevice
from assay.impl.runtime.lanes import Bell, Turns
from assay.spec.errors import AdmissionError, ContractError

PROMPTS = {"a": (5, 6, 7, 8, 9, 10), "b": (40, 41, 42), "c": (99, 7, 99, 7)}


def test_turns_go_to_whoever_has_waited_longest() -> None:
    turns, log = Turns(), []
    turns.take()

    def lane(name: str) -> None:
        for _ in range(3):
            turns.take()
            log.append(name)
            turns.give()

    threads = []
    for name in "abc":
        threads.append(threading.Thread(target=lane, args=(name,)))
        threads[-1].start()
        while turns.waiting < len(threads):
            time.sleep(0.001)
    turns.give()
    for thread in threads:
        thread.join()
    first = "".join(log[:3])
    assert first == "abc"
    assert sorted(log) == list("aaabbbccc")
    assert all(log.index(name, 3) < 6 for name in "ab")  # nobody had a third turn before these had a second


def test_a_bell_is_heard_by_who_waits_and_by_nobody_too_early() -> None:
    bell, is_so, heard = Bell(), threading.Event(), threading.Event()

    def wait() -> None:
        bell.until(is_so.is_set)
        heard.set()

    thread = threading.Thread(target=wait)
    thread.start()
    bell.ring()
    assert not heard.wait(0.05)
    is_so.set()
    bell.ring()
    assert heard.wait(20)
    thread.join()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from stream_toys import miniature_source

    return miniature_source(tmp_path_factory.mktemp("lanes"))


def alone(source: Any, prompt: tuple[int, ...]) -> Any:
    from dataclasses import replace

    from assay.provenance.captures.mlx_stream import run_resident

    return run_resident(replace(source, prompt=prompt))


def run_lanes(
    source: Any, records: int, names: str, faults: str = "delays", budget: int | None = None
) -> Any:
    from dataclasses import replace

    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.serving import Server
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import FAULTS, run_bank, streamed

    device = FaultyDevice(FAULTS[faults], 5)
    options = Options(0, row_slot_bytes=1 << 14, row_window=8)
    with streamed(source, Wish(budget, records, context=64, chunk=8), options, device) as opened:
        server = Server(opened)
        for name in names:
            server.admit(name, 64, 8)

        def work(name: str) -> Any:
            mine = replace(source, prompt=PROMPTS[name])
            return lambda bank, _lane: run_bank(bank, mine, after=opened.stream.pass_on)

        served = server.run([work(name) for name in names])
        assert opened.stream.cache.leased == 0
        return served


@pytest.mark.parametrize("records", [12, 40])
def test_lanes_give_what_each_gives_alone(source: Any, records: int) -> None:
    """Records are shared, states are not: a cache of just one working set a lane, and a roomy one."""
    served = run_lanes(source, records, "abc")
    for one in served:
        assert one.error is None
        assert one.answer.same_as(alone(source, PROMPTS[one.lane.name]))
    assert all(one.lane.counts.turns > one.lane.counts.chunks for one in served)


def test_a_failing_disk_ends_chunks_of_the_lane_that_needs_the_record_and_no_other_state(source: Any) -> None:
    served = run_lanes(source, 12, "ab", faults="failing")
    for one in served:
        assert one.error is None
        assert one.answer.broken == 0
        assert one.answer.same_as(alone(source, PROMPTS[one.lane.name]))


def test_a_lane_that_the_cache_cannot_hold_is_refused_and_the_others_run(source: Any) -> None:
    with pytest.raises(ContractError) as caught:
        run_lanes(source, 11, "abc")
    found = caught.value.finding
    assert (found.code, found.where) == ("runtime.cache.working-set", "lane c")
    assert (found.expected, found.got) == ("at least 12 records", "11")


def test_a_lane_that_the_budget_cannot_hold_is_refused_with_the_bytes_that_it_needs(source: Any) -> None:
    from dataclasses import replace

    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.serving import Server
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import streamed

    with streamed(
        source, Wish(1 << 40, 16, context=64, chunk=8), Options(0, row_slot_bytes=1 << 14)
    ) as opened:
        tight = replace(opened, plan=replace(opened.plan, budget_bytes=opened.plan.total_bytes + 1000))
        server = Server(tight)
        server.admit("a", 64, 8)  # is in the plan of the opening
        with pytest.raises(ContractError) as caught:
            server.admit("b", 64, 8)
        found = caught.value.finding
        assert (found.code, found.where, found.got) == ("runtime.budget", "lane b", "1000")
        assert len(server.lanes) == 1


def test_the_first_lane_is_held_to_what_the_opening_planned_for_one(source: Any) -> None:
    from dataclasses import replace

    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.serving import Server
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import streamed

    with streamed(
        source, Wish(1 << 40, 16, context=64, chunk=8), Options(0, row_slot_bytes=1 << 14)
    ) as opened:
        tight = replace(opened, plan=replace(opened.plan, budget_bytes=opened.plan.total_bytes + 1000))
        server = Server(tight)
        with pytest.raises(ContractError) as caught:
            server.admit("a", 4096, 512)
        found = caught.value.finding
        assert (found.code, found.where, found.got) == ("runtime.budget", "lane a", "1000")
        assert not server.lanes
        server.admit("a", 64, 8)
        assert server.plan.total_bytes == opened.plan.total_bytes


@pytest.mark.parametrize("name", ["a", "main", "guesses"])
def test_a_lane_with_a_name_that_somebody_has_is_refused(source: Any, name: str) -> None:
    """It owns tickets and generations: with one name, each lane would make the other's reads stale."""
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.serving import Server
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import streamed

    with streamed(source, Wish(None, 16, context=64, chunk=8), Options(0, row_slot_bytes=1 << 14)) as opened:
        server = Server(opened)
        server.admit("a", 64, 8)
        with pytest.raises(ContractError) as caught:
            server.admit(name, 64, 8)
        found = caught.value.finding
        assert (found.code, found.where, found.got) == ("runtime.lane", f"lane {name}", name)
        assert len(server.lanes) == 1


def test_what_ends_a_lane_ends_it_alone(source: Any) -> None:
    from dataclasses import replace

    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.serving import Server
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import run_bank, streamed
    from assay.spec.errors import Finding

    def broken(_bank: Any, _lane: Any) -> Any:
        raise AdmissionError(Finding.of("runtime.read.io", "runtime", "x", expected=1, got=2))

    with streamed(source, Wish(None, 8, context=64, chunk=8), Options(0, row_slot_bytes=1 << 14)) as opened:
        server = Server(opened)
        for name in "ab":
            server.admit(name, 64, 8)
        mine = replace(source, prompt=PROMPTS["b"])
        first, second = server.run([broken, lambda bank, _lane: run_bank(bank, mine)])
    assert isinstance(first.error, AdmissionError)
    assert second.error is None
    assert second.answer.same_as(alone(source, PROMPTS["b"]))
