"""The threaded reader gives what the plain one gives, under every fault, and leaves nothing behind."""

import threading
import time
from typing import Any

import pytest
from runtime_toys import Stores

from assay.impl.runtime.device import Device
from assay.impl.runtime.faulty_device import Faults, FaultyDevice
from assay.impl.runtime.limits import LaneLimits
from assay.impl.runtime.plans import Asker, expert_request, row_requests
from assay.impl.runtime.service import StreamReader
from assay.impl.runtime.tickets import Lane, Phase, Piece, Priority, ReadRequest, State
from assay.spec.errors import AdmissionError, ContractError

RECORD = 3 * 128 * 64 * 36 // 64
PAGE = 4096
LIMITS = {Lane.EXPERT: LaneLimits(2, 4, RECORD), Lane.PLE: LaneLimits(1, 2, 16 * PAGE)}
ASKER = Asker("lane 0", 0, Phase.DECODE, 1)


def reader(stores: Stores, **options: Any) -> StreamReader:
    return StreamReader(stores.files, LIMITS, **options)


def one_at_a_time(stores: Stores, device: Device) -> StreamReader:
    """A reader with one thread for records, so that a script of faults meets the calls in order."""
    limits = {**LIMITS, Lane.EXPERT: LaneLimits(1, 8, RECORD)}
    return StreamReader(stores.files, limits, device=device, judges=0)


def every_record(stores: Stores) -> list[tuple[int, int]]:
    return [(layer, expert) for layer in range(3) for expert in range(4)]


class Gate(FaultyDevice):
    """A device whose reads wait until they are let through, and say in which order they came."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.order: list[int] = []

    def read_some(self, descriptor: int, target: memoryview, offset: int) -> int:
        self.order.append(offset)
        self.entered.release()
        assert self.open.wait(20)
        return Device.read_some(self, descriptor, target, offset)


@pytest.mark.parametrize("wants_direct", [False, True])
def test_every_record_arrives_as_it_lies_in_the_store(stores: Stores, wants_direct: bool) -> None:
    with reader(stores, wants_direct=wants_direct) as ours:
        for layer, expert in every_record(stores):
            (ticket,) = ours.submit(
                [expert_request(stores.experts, Asker("a", 0, Phase.DECODE, layer), expert)]
            )
            assert bytes(ours.wait(ticket)) == stores.experts.read_record(layer, expert).data
            ours.release(ticket)


def test_rows_arrive_as_they_lie_in_the_store(stores: Stores) -> None:
    with reader(stores) as ours:
        (ticket,) = ours.submit(row_requests(stores.rows, ASKER, range(100), slot_bytes=16 * PAGE))
        pages = [stores.rows.locate_page(page) for page in range(13)]
        expected = b"".join(stores.rows.extent.file.extent().read(*place) for place in pages)
        assert bytes(ours.wait(ticket)) == expected


def test_more_requests_than_slots_all_arrive(stores: Stores) -> None:
    """Slots are handed on: twelve records of one owner, four slots."""
    with reader(stores) as ours:
        asked = [
            expert_request(stores.experts, Asker("a", 0, Phase.PREFILL, layer), expert)
            for layer, expert in every_record(stores)
        ]
        tickets = ours.submit(asked)
        for (layer, expert), ticket in zip(every_record(stores), tickets, strict=True):
            assert bytes(ours.wait(ticket)) == stores.experts.read_record(layer, expert).data
            ours.release(ticket)
        assert ours.live_tickets == 0


@pytest.mark.parametrize("seed", range(6))
def test_short_interrupted_and_delayed_reads_change_no_byte(stores: Stores, seed: int) -> None:
    device = FaultyDevice(Faults(short=0.4, interrupt=0.2, delay=0.1), seed)
    with reader(stores, device=device) as ours:
        tickets = ours.submit([expert_request(stores.experts, ASKER, expert) for expert in range(4)])
        got = [bytes(ours.wait(ticket)) for ticket in tickets]
    assert got == [stores.experts.read_record(1, expert).data for expert in range(4)]
    assert device.injected.keys() >= {"short", "interrupt"}


def test_a_short_read_is_continued_over_an_interrupt(stores: Stores) -> None:
    """Bug report A25: 4,096, EINTR, 4,096, then the rest of the first part; nothing of the old content is left."""
    device = FaultyDevice(script=[4096, "interrupt", 4096])
    with one_at_a_time(stores, device) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 0)])
        assert bytes(ours.wait(ticket)) == stores.experts.read_record(1, 0).data


@pytest.mark.parametrize(
    ("script", "code", "got"),
    [
        ([4096, "end"], "runtime.read.short", "4096 bytes"),
        ([4096, "error"], "runtime.read.io", "4096 bytes, then input/output error"),
    ],
)
def test_a_read_that_cannot_be_finished_fails_an_exact_ticket(
    stores: Stores, script: list[str | int], code: str, got: str
) -> None:
    with one_at_a_time(stores, FaultyDevice(script=script)) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 0)])
        with pytest.raises(AdmissionError) as caught:
            ours.wait(ticket)
        finding = caught.value.finding
        offset = stores.experts.locate(1, 0, 0)[0]
        assert (finding.code, finding.where, finding.got) == (
            code,
            f"{stores.folder / 'experts'} from {offset}",
            got,
        )
        assert ticket.state is State.FAILED


def test_a_changed_bit_fails_an_exact_ticket(stores: Stores) -> None:
    with reader(stores, device=FaultyDevice(script=["corrupt"])) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 2)])
        with pytest.raises(AdmissionError) as caught:
            ours.wait(ticket)
        assert (caught.value.finding.code, caught.value.finding.where) == (
            "runtime.read.digest",
            "layer 1 expert 2",
        )


def test_a_changed_bit_of_a_page_names_the_page(stores: Stores) -> None:
    with reader(stores, device=FaultyDevice(script=["ok", "corrupt"])) as ours:
        (ticket,) = ours.submit(row_requests(stores.rows, ASKER, [0, 40, 99], slot_bytes=16 * PAGE))
        with pytest.raises(AdmissionError) as caught:
            ours.wait(ticket)
        assert (caught.value.finding.code, caught.value.finding.where) == ("runtime.read.digest", "page 5")


@pytest.mark.parametrize("fault", ["corrupt", "end", "error"])
def test_a_fault_only_drops_a_prediction(stores: Stores, fault: str) -> None:
    done = threading.Event()
    with reader(stores, device=FaultyDevice(script=[fault]), on_done=lambda _: done.set()) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 2, priority=Priority.NEAR)])
        assert done.wait(20)
        assert (ticket.state, ticket.finding) == (State.DROPPED, None)
        assert ticket.reason in {"runtime.read.digest", "runtime.read.short", "runtime.read.io"}


def test_after_a_fault_the_same_request_is_read_anew(stores: Stores) -> None:
    with reader(stores, device=FaultyDevice(script=["error"])) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 2)])
        with pytest.raises(AdmissionError):
            ours.wait(ticket)
        (again,) = ours.submit([expert_request(stores.experts, ASKER, 2)])
        assert bytes(ours.wait(again)) == stores.experts.read_record(1, 2).data


def test_gate_and_up_are_there_before_down(stores: Stores) -> None:
    class DownWaits(Gate):
        def read_some(self, descriptor: int, target: memoryview, offset: int) -> int:
            if offset == down:
                return Gate.read_some(self, descriptor, target, offset)
            return Device.read_some(self, descriptor, target, offset)

    down = stores.experts.locate(1, 3, 2)[0]
    device = DownWaits()
    with reader(stores, device=device) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 3)])
        first = bytes(ours.wait(ticket, 0))
        state = ticket.state
        device.open.set()
        record = stores.experts.read_record(1, 3)
        assert first == bytes(record.component(0)) + bytes(record.component(1))
        assert state is State.READING
        assert bytes(ours.wait(ticket)) == record.data


def test_rows_do_not_wait_for_experts(stores: Stores) -> None:
    class ExpertsWait(Gate):
        def read_some(self, descriptor: int, target: memoryview, offset: int) -> int:
            if len(target) > PAGE:
                return Gate.read_some(self, descriptor, target, offset)
            return Device.read_some(self, descriptor, target, offset)

    device = ExpertsWait()
    with reader(stores, device=device) as ours:
        experts = ours.submit([expert_request(stores.experts, ASKER, expert) for expert in range(4)])
        (rows,) = ours.submit(row_requests(stores.rows, ASKER, [7], slot_bytes=PAGE))
        ours.wait(rows)
        assert {one.state for one in experts} <= {State.QUEUED, State.READING}
        device.open.set()


def test_two_requests_for_the_same_bytes_are_one_read(stores: Stores) -> None:
    device = Gate()
    with reader(stores, device=device) as ours:
        first = ours.submit([expert_request(stores.experts, Asker("a", 0, Phase.DECODE, 1), 0)])[0]
        second = ours.submit([expert_request(stores.experts, Asker("b", 0, Phase.DECODE, 1), 0)])[0]
        device.open.set()
        assert bytes(ours.wait(first)) == bytes(ours.wait(second))
        ours.release(first)
        assert bytes(ours.wait(second)) == stores.experts.read_record(1, 0).data
        assert (len(device.order), second.was_joined) == (2, True)  # gate and up, down


def test_an_exact_request_passes_waiting_predictions(stores: Stores) -> None:
    device = Gate()
    with one_at_a_time(stores, device) as ours:
        ours.submit([expert_request(stores.experts, ASKER, one, priority=Priority.NEAR) for one in range(4)])
        assert device.entered.acquire(timeout=20)
        exact = ours.submit([expert_request(stores.experts, Asker("b", 0, Phase.DECODE, 2), 3)])[0]
        device.open.set()
        ours.wait(exact)
        places = [stores.experts.locate(2, 3, role)[0] for role in (0, 2)]
        assert device.order[1:3] == places


def test_a_withdrawn_read_is_never_published_and_its_slot_comes_back(stores: Stores) -> None:
    device = Gate()
    with reader(stores, device=device) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 0)])
        assert device.entered.acquire(timeout=20)
        assert ours.cancel(ticket)
        free_while_reading = ours.free_slots(Lane.EXPERT)
        device.open.set()
        (other,) = ours.submit([expert_request(stores.experts, ASKER, 1)])
        assert bytes(ours.wait(other)) == stores.experts.read_record(1, 1).data
        with pytest.raises(ContractError) as caught:
            ours.wait(ticket)
        assert (caught.value.finding.code, caught.value.finding.where) == (
            "runtime.stale",
            f"ticket {ticket.id}",
        )
        assert free_while_reading == 3
        assert not ours.cancel(ticket)


def test_a_stale_generation_is_never_published(stores: Stores) -> None:
    device = Gate()
    with reader(stores, device=device) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 0)])
        assert device.entered.acquire(timeout=20)
        ours.advance(ASKER.owner, 1)
        device.open.set()
        with pytest.raises(ContractError) as caught:
            ours.wait(ticket)
        assert (caught.value.finding.code, caught.value.finding.got) == ("runtime.stale", "cancelled (stale)")


def test_a_waiter_wakes_when_its_ticket_is_withdrawn(stores: Stores) -> None:
    device = Gate()
    errors: list[str] = []

    def wait() -> None:
        try:
            ours.wait(ticket)
        except ContractError as error:
            errors.append(error.finding.code)

    with reader(stores, device=device) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 0)])
        waiter = threading.Thread(target=wait)
        waiter.start()
        assert device.entered.acquire(timeout=20)
        ours.cancel(ticket)
        waiter.join(20)
        device.open.set()
        assert errors == ["runtime.stale"]


def test_two_waiters_of_one_ticket_both_wake(stores: Stores) -> None:
    device = Gate()
    got: list[bytes] = []
    with reader(stores, device=device) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 0)])
        waiters = [
            threading.Thread(target=lambda part=part: got.append(bytes(ours.wait(ticket, part))))  # type: ignore[misc]
            for part in (0, None, None)
        ]
        for waiter in waiters:
            waiter.start()
        device.open.set()
        for waiter in waiters:
            waiter.join(20)
        assert len(got) == 3


def test_close_ends_every_thread_and_frees_every_slot(stores: Stores) -> None:
    before = threading.active_count()
    ours = reader(stores)
    ours.submit([expert_request(stores.experts, ASKER, expert) for expert in range(4)])
    assert threading.active_count() == before + 5
    ours.close()
    assert threading.active_count() == before
    assert ours.live_tickets == 0
    with pytest.raises(ContractError) as caught:
        ours.submit([expert_request(stores.experts, ASKER, 0)])
    assert (caught.value.finding.code, caught.value.finding.where) == ("runtime.closed", "submit")


@pytest.mark.parametrize(
    ("store", "piece", "got"),
    [("0" * 64, Piece(0, 1), "0" * 64), (None, Piece(1 << 40, 1), f"1 bytes from {1 << 40}")],
)
def test_a_request_for_another_store_is_refused(
    stores: Stores, store: str | None, piece: Piece, got: str
) -> None:
    good = expert_request(stores.experts, ASKER, 0)
    wrong = ReadRequest(
        store or good.store, "a", 0, Phase.DECODE, 0, 1, good.target, ((piece,),),
        is_exact=True, confidence=1.0, priority=Priority.EXACT,
    )  # fmt: skip
    with reader(stores) as ours:
        with pytest.raises(ContractError) as caught:
            ours.submit([wrong])
        finding = caught.value.finding
        assert (finding.code, finding.where, finding.got) == ("runtime.store", "layer 1 expert 0", got)


def test_a_mistake_in_a_thread_reaches_who_waits(stores: Stores) -> None:
    class Wrong(Device):
        def read_cached(self, descriptor: int, target: memoryview, offset: int) -> int | None:
            raise KeyError(descriptor, len(target), offset)  # a mistake of this device

    with reader(stores, device=Wrong()) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 0)])
        with pytest.raises(RuntimeError, match="a thread of the reader died"):
            ours.wait(ticket)


def test_a_view_is_read_only(stores: Stores) -> None:
    with reader(stores) as ours:
        (ticket,) = ours.submit([expert_request(stores.experts, ASKER, 0)])
        assert ours.wait(ticket).readonly


def test_a_busy_reader_of_many_owners_mixes_nothing_up(stores: Stores) -> None:
    """Four threads, delays that reorder, slots fewer than requests: every byte is the owner's own."""
    device = FaultyDevice(Faults(delay=0.3, short=0.2, interrupt=0.1, delay_s=0.0005), 3)
    wrong: list[object] = []

    def own(name: str) -> None:
        for turn in range(12):
            layer, expert = turn % 3, (turn + len(name)) % 4
            asker = Asker(name, turn, Phase.DECODE, layer)
            ours.advance(name, turn)
            predicted = ours.submit(
                [expert_request(stores.experts, asker, (expert + 1) % 4, priority=Priority.NEAR)]
            )
            (ticket,) = ours.submit([expert_request(stores.experts, asker, expert)])
            if bytes(ours.wait(ticket)) != stores.experts.read_record(layer, expert).data:
                wrong.append((name, layer, expert))
            ours.release(ticket)
            ours.cancel(predicted[0])

    with reader(stores, device=device) as ours:
        threads = [threading.Thread(target=own, args=("x" * n,)) for n in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert wrong == []
        for _ in range(200):  # reads that were withdrawn may still be under way
            if ours.free_slots(Lane.EXPERT) == LIMITS[Lane.EXPERT].slots:
                break
            time.sleep(0.01)
        assert (ours.live_tickets, ours.free_slots(Lane.EXPERT)) == (0, LIMITS[Lane.EXPERT].slots)
