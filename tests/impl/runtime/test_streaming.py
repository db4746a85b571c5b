"""A streamed model is the resident one, bit for bit, whatever the cache holds and whatever the disk does."""

from typing import Any

import numpy as np
import pytest

from assay.impl.runtime.faulty_device import Faults, FaultyDevice
from assay.spec.errors import AssayError, ContractError

EXPERTS, LAYERS, USED = 16, 8, 4
"""Of the miniature."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from stream_toys import miniature_source

    return miniature_source(tmp_path_factory.mktemp("streamed"))


@pytest.fixture(scope="module")
def resident(source: Any) -> Any:
    from assay.provenance.captures.mlx_stream import run_resident

    found = run_resident(source)
    assert len(set(found.digests)) == 5
    return found


def run(
    source: Any, records: int, *, policy: str = "lru", faults: str = "none", seed: int = 0, **ways: bool
) -> Any:
    from assay.provenance.captures.mlx_stream import Condition, run_streamed

    return run_streamed(source, Condition(records, policy, faults, seed, **ways))


@pytest.mark.parametrize("records", [USED, USED + 1, EXPERTS, EXPERTS * LAYERS // 2, EXPERTS * LAYERS])
def test_every_cache_size_gives_the_resident_states(source: Any, resident: Any, records: int) -> None:
    outcome, opened, _ = run(source, records)
    assert outcome.same_as(resident)
    assert opened.stream.cache.counts.misses > 0


@pytest.mark.parametrize("policy", ["lru", "lfu", "s3-fifo", "greedy-dual", "layer-lru"])
def test_every_policy_gives_the_resident_states(source: Any, resident: Any, policy: str) -> None:
    outcome, opened, _ = run(source, 24, policy=policy, faults="delays", seed=7)
    assert outcome.same_as(resident)
    assert opened.stream.cache.counts.evicted > 0


@pytest.mark.parametrize("seed", range(3))
def test_every_order_of_arrival_gives_the_resident_states(source: Any, resident: Any, seed: int) -> None:
    """Bug report A25 above a running model: short and interrupted reads, and reads that overtake each other."""
    outcome, _, injected = run(source, EXPERTS, faults="short and interrupted", seed=seed)
    assert outcome.same_as(resident)
    assert injected["short"] > 20
    assert injected["interrupt"] > 20
    assert not outcome.failures


def test_records_read_whole_give_the_resident_states(source: Any, resident: Any) -> None:
    outcome, opened, _ = run(source, EXPERTS, faults="delays", splits=False)
    assert outcome.same_as(resident)
    assert opened.stream.counts.early == 0


def test_a_barrier_without_guesses_gives_the_resident_states(source: Any, resident: Any) -> None:
    outcome, opened, _ = run(source, EXPERTS, is_barrier=True, has_guesses=False)
    assert outcome.same_as(resident)
    assert opened.stream.cache.counts.predicted == 0


@pytest.mark.parametrize(("records", "seed"), [(USED, 3), (EXPERTS, 4)])
def test_a_failing_disk_ends_chunks_and_changes_nothing(
    source: Any, resident: Any, records: int, seed: int
) -> None:
    outcome, _, _ = run(source, records, faults="failing", seed=seed)
    assert outcome.failures.keys() <= {"runtime.read.io", "runtime.read.digest", "runtime.read.short"}
    assert sum(outcome.failures.values()) > 0
    assert outcome.broken == 0
    assert outcome.same_as(resident)


@pytest.mark.parametrize(
    ("fault", "code"),
    [("error", "runtime.read.io"), ("corrupt", "runtime.read.digest"), ("end", "runtime.read.short")],
)
def test_a_record_that_cannot_be_had_is_named_and_nothing_is_published(
    source: Any, fault: str, code: str
) -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import streamed

    device = FaultyDevice()
    options = Options(0, has_guesses=False, row_slot_bytes=1 << 14)
    with streamed(source, Wish(records=EXPERTS, context=64), options, device) as opened:
        bank = Bank(opened.loaded.model)
        bank.advance({0: [5, 6, 7]})
        before, into = bank.digest(), np.full((1, bank.geometry.physical_rows), 7.0, np.float32)
        device.faults = Faults(**{fault: 1.0})
        with pytest.raises(AssayError) as caught:
            bank.advance({0: [8]}, into=into)
        assert caught.value.finding.code == code
        assert bank.digest() == before
        assert (into == 7.0).all()
        assert opened.stream.cache.leased == 0
        device.faults = Faults()
        bank.advance({0: [8]})
        retried = bank.digest()
    with streamed(source, Wish(records=EXPERTS, context=64), options) as opened:
        bank = Bank(opened.loaded.model)
        bank.advance({0: [5, 6, 7]})
        bank.advance({0: [8]})
        assert bank.digest() == retried


def test_rows_are_asked_for_before_the_embedding_and_waited_for_at_their_layer(source: Any) -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.model.trace import Trace
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.stream_types import Options
    from assay.impl.runtime.tickets import RowPages
    from assay.provenance.captures.mlx_stream import streamed

    told: list[str] = []

    class Stages(Trace):
        def stage(self, stage: str, layer: int | None, value: Any) -> Any:
            told.append(stage if layer is None else f"{stage} {layer}")
            return super().stage(stage, layer, value)

    with streamed(source, Wish(records=EXPERTS, context=64), Options(0, row_slot_bytes=1 << 14)) as opened:
        reader = opened.stream.reader
        submit, wait = reader.submit, reader.wait

        def submitted(requests: Any) -> Any:
            told.extend("rows asked for" for one in requests if isinstance(one.target, RowPages))
            return submit(requests)

        def waited(ticket: Any, part: int | None = None) -> Any:
            if isinstance(ticket.request.target, RowPages):
                told.append("rows waited for")
            return wait(ticket, part)

        reader.submit, reader.wait = submitted, waited  # type: ignore[method-assign]
        Bank(opened.loaded.model).advance({0: [5]}, Stages())
    first = opened.loaded.model.geometry.ple_layers[0]
    assert told.index("rows asked for") < told.index("embedding")
    last_asked = max(place for place, one in enumerate(told) if one == "rows asked for")
    assert last_asked < told.index("embedding")
    assert (
        told.index(f"moe_gr_apply {first - 1}") < told.index("rows waited for") < told.index(f"ple {first}")
    )


@pytest.mark.parametrize("records", [1, USED - 1])
def test_a_cache_smaller_than_one_layer_of_a_token_is_refused_before_any_work(
    source: Any, records: int
) -> None:
    """Bug report A24, in a running model: an error with the numbers, not a wrong answer."""
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import streamed

    with pytest.raises(ContractError) as caught, streamed(source, Wish(records=records), Options(0)):
        pass
    found = caught.value.finding
    assert (found.code, found.where) == ("runtime.cache.working-set", "--expert-cache")
    assert (found.expected, found.got) == (f"at least {USED} records", str(records))


def test_a_budget_too_small_is_refused_with_every_owner_before_any_work(source: Any) -> None:
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import streamed

    with pytest.raises(ContractError) as caught, streamed(source, Wish(budget_bytes=10_000_000), Options(0)):
        pass
    found = caught.value.finding
    assert (found.code, found.where, found.got) == ("runtime.budget", "--memory-budget", "10000000 bytes")
    for owner in (
        "process",
        "dense weights",
        "expert cache of 4 records",
        "read buffers",
        "state of 4096 tokens",
    ):
        assert owner in found.hint


class HeldReader:
    """A reader whose tickets stay under way until the test says what became of them; bytes are the store's."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.tickets: list[Any] = []
        self.spoilt: set[int] = set()
        self.generations: list[tuple[str, int]] = []

    def submit(self, requests: Any) -> list[Any]:
        from assay.impl.runtime.tickets import State, Ticket

        made = [
            Ticket(len(self.tickets) + n, one, State.READING, one.priority, 0)
            for n, one in enumerate(requests)
        ]
        self.tickets += made
        return made

    def wait(self, ticket: Any, part: int | None = None) -> memoryview:
        from assay.impl.runtime.clauses import damaged
        from assay.impl.runtime.tickets import State

        del part
        if ticket.state is State.FAILED:
            raise damaged(ticket.finding)
        data = bytearray(self.store.read_record(ticket.request.layer, ticket.request.target.expert).data)
        if ticket.id in self.spoilt:
            data[5] ^= 1
        return memoryview(data)

    def promote(self, ticket: Any, priority: Any, deadline_ns: int) -> None:
        del deadline_ns
        ticket.priority = priority

    def cancel(self, ticket: Any) -> bool:
        from assay.impl.runtime.tickets import State

        ticket.state = State.CANCELLED
        return True

    def release(self, ticket: Any) -> None:
        from assay.impl.runtime.tickets import State

        ticket.state = State.RELEASED

    def advance(self, owner: str, generation: int) -> None:
        """Notes the generation, and leaves tickets as they are."""
        self.generations.append((owner, generation))

    def close(self) -> None:
        """Has nothing to end."""


@pytest.fixture
def held(source: Any) -> Any:
    """A stream over a held reader, in the turn of its lane."""
    from assay.impl.model.geometry import read_geometry
    from assay.impl.runtime.opening import codec_of
    from assay.impl.runtime.stream_types import Options
    from assay.impl.runtime.streaming import Stream
    from assay.impl.stores.artifact.opened import Artifact

    with Artifact.open(source.path, is_private=True) as artifact:
        store = artifact.experts.with_digests(source.digests)
        reader = HeldReader(store)
        stream = Stream(
            store,
            artifact.rows,
            read_geometry(artifact.config),
            codec_of(artifact),
            Options(8, splits=True),
            lambda _ring: reader,
        )
        with stream:
            stream.begin_chunk(1)
            yield stream, reader


def test_a_record_is_not_ready_before_it_was_verified_though_all_of_it_has_arrived(held: Any) -> None:
    """Both parts are in the slot and the digest is still being computed; it will be wrong."""
    from assay.impl.runtime.tickets import State
    from assay.spec.errors import AdmissionError, Finding

    stream, reader = held
    lease = stream.lease(stream.lane, 2, [5])
    (ticket,) = reader.tickets
    reader.spoilt.add(0)
    ticket.arrived_parts = 2
    assert stream.collect(stream.lane, [(2, 5)])
    assert stream.cache.part(lease, (2, 5), "gate_up") is not None
    assert stream.cache.part(lease, (2, 5), "down") is None
    assert not stream.has_news([(2, 5)])
    ticket.state, ticket.finding = (
        State.FAILED,
        Finding.of("runtime.read.digest", "runtime", "x", expected=1, got=2),
    )
    with pytest.raises(AdmissionError) as caught:
        stream.collect(stream.lane, [(2, 5)])
    assert (caught.value.finding.code, caught.value.finding.where) == ("runtime.read.digest", "x")
    assert (2, 5) not in stream.cache


def test_every_chunk_is_a_generation_of_its_lane(held: Any) -> None:
    """What an attempt asked for and did not use is stale for the next one."""
    stream, reader = held
    stream.begin_chunk(1)
    assert reader.generations == [("main", 1), ("main", 2)]


def test_bytes_of_an_earlier_generation_reach_no_recycled_slot(held: Any) -> None:
    """A read that was begun for one record finishes after its slot went to another."""
    import mlx.core as mx

    from assay.impl.model.experts import from_records
    from assay.impl.runtime.tickets import State
    from assay.impl.runtime.wave import StreamedExperts

    stream, reader = held
    stream.guess(2, [5], 0.5)
    stream.cache.abandon(stream.cache.place((2, 5)))
    lease = stream.lease(stream.lane, 2, [6])
    reader.tickets[1].state = State.READY
    assert stream.collect(stream.lane, [(2, 6)])
    reader.tickets[0].state = State.READY
    stream.drain(stream.lane)
    assert stream.cache.counts.stale == 2
    stream.cache.release(lease)
    x = mx.random.normal((1, 1, stream.geometry.hidden))
    found = StreamedExperts(stream, 2).outputs(x, mx.array([6]), lambda gate, up: gate * up)
    record = reader.store.read_record(2, 6)
    alone = from_records([[record.component(role) for role in range(3)]], 1, "bf16", stream.geometry)
    assert np.array_equal(
        np.asarray(found), np.asarray(alone.outputs(x, mx.array([0]), lambda gate, up: gate * up))
    )


def test_what_was_computed_from_a_guess_that_was_dropped_is_computed_again(held: Any) -> None:
    """A guess came true, its first part was used, and then its digest was wrong: no error, and no wrong value."""
    import threading
    import time

    import mlx.core as mx

    from assay.impl.model.experts import from_records
    from assay.impl.runtime.tickets import State
    from assay.impl.runtime.wave import StreamedExperts

    stream, reader = held
    stream.guess(2, [5], 0.5)
    reader.spoilt.add(0)
    guess = reader.tickets[0]
    guess.arrived_parts = 1

    def disk() -> None:
        while not stream.counts.early:  # the wave has the first part
            time.sleep(0.001)
        guess.state = State.DROPPED
        stream.bell.ring()
        while len(reader.tickets) < 2:
            time.sleep(0.001)
        reader.tickets[1].state = State.READY
        stream.bell.ring()

    thread = threading.Thread(target=disk)
    thread.start()
    x = mx.random.normal((1, 1, stream.geometry.hidden))
    found = StreamedExperts(stream, 2).outputs(x, mx.array([5]), lambda gate, up: gate * up)
    thread.join()
    record = reader.store.read_record(2, 5)
    alone = from_records([[record.component(role) for role in range(3)]], 1, "bf16", stream.geometry)
    wanted = alone.outputs(x, mx.array([0]), lambda gate, up: gate * up)
    assert np.array_equal(np.asarray(found), np.asarray(wanted))
    assert reader.tickets[1].request.is_exact


@pytest.mark.parametrize(
    ("record_rate", "parts"),
    [(20e6, 2), (1e9, 1)],  # down of the miniature has 8192 bytes: 410 and 8 microseconds
)
def test_down_is_read_apart_where_it_takes_longer_than_waking_a_thread(
    source: Any, record_rate: float, parts: int
) -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.prefill import Rates
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import streamed

    options = Options(0, row_slot_bytes=1 << 14, rates=Rates(record_rate, record_rate))
    seen: set[int] = set()
    with streamed(source, Wish(records=EXPERTS, context=64), options) as opened:
        submit = opened.stream.reader.submit

        def submitted(requests: Any) -> Any:
            seen.update(len(one.parts) for one in requests if hasattr(one.target, "expert"))
            return submit(requests)

        opened.stream.reader.submit = submitted  # type: ignore[method-assign]
        Bank(opened.loaded.model).advance({0: [5]})
    assert seen == {parts}
