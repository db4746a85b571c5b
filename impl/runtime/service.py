"""The reader: threads that do what the scheduler decides, judge what arrived, and wake who waits for exactly that."""

import contextlib
import hashlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, Self

from assay.impl.runtime.clauses import CLOSED, DIGEST, RELEASE, STAGE, STALE, STORE, damaged, refuse
from assay.impl.runtime.device import Device, DeviceFile, Transfer, transfer
from assay.impl.runtime.limits import Limits
from assay.impl.runtime.reading import OnDone
from assay.impl.runtime.schedule import Change, Fetch, Read, Scheduler
from assay.impl.runtime.slots import SlotMemory
from assay.impl.runtime.tickets import Lane, Priority, ReadRequest, State, Ticket
from assay.impl.stores.extents import StoreFile
from assay.spec.errors import AdmissionError, Finding

_INLINE_BYTES: Final = 1 << 17
"""Requests up to this size are judged by their reader: handing them over would take as long."""
_JUDGE_NICENESS: Final = 10
_DONE: Final = frozenset({"ready", "failed", "dropped"})


class Observer(Protocol):
    """Who is told of everything, such as a recorder; called in the order of events, under the reader's lock."""

    def changed(self, change: Change) -> None:
        """A ticket changed."""
        ...

    def read(self, read: Read, done: Transfer | None, started_ns: int, ended_ns: int) -> None:
        """A read ended; `done` is None when it failed."""
        ...

    def advanced(self, owner: str, generation: int, now_ns: int) -> None:
        """An owner made its older generations stale."""
        ...

    def waited(self, ticket: Ticket, part: int | None, started_ns: int, ended_ns: int) -> None:
        """Somebody waited for a ticket."""
        ...


class StreamReader:
    """Reads for several owners with threads of its own; see `reading.Reader` for what its methods promise."""

    def __init__(
        self,
        files: Mapping[str, StoreFile],
        limits: Limits,
        *,
        device: Device | None = None,
        wants_direct: bool = False,
        judges: int = 2,
        on_done: OnDone | None = None,
        observer: Observer | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Opens the files again and starts the threads.

        Args:
            files: store digest -> open file, which may be the same file for both stores.
            limits: bounds of each lane.
            device: the system calls.
            wants_direct: whether records are to be read past the page cache; `files_read_directly` says what became
                of it.
            judges: threads that hash large requests, so that their reader goes on reading; they give way to it.
            on_done: told of each ticket that became ready, failed or was dropped.
            observer: told of everything.
            clock: monotonic nanoseconds.

        Raises:
            ContractError: runtime.limits.
        """
        self._scheduler = Scheduler(limits)
        self._memory = {lane: SlotMemory(limits[lane]) for lane in Lane}
        self._device = device or Device()
        self._files: dict[str, DeviceFile] = {}
        self._on_done, self._observer, self._clock = on_done, observer, clock
        self._lock = threading.Lock()
        self._work = {lane: threading.Condition(self._lock) for lane in Lane}
        self._events: dict[int, list[threading.Event]] = {}
        self._ended: list[Ticket] = []
        self._is_closed = self._has_ended = False
        self._fault: Exception | None = None
        self._arrived: queue.SimpleQueue[Fetch | None] = queue.SimpleQueue()
        try:
            for store, file in files.items():
                self._files[store] = DeviceFile(file, wants_direct=wants_direct)
        except BaseException:
            self._free()
            raise
        self._readers = [
            self._thread(f"{lane.value} reader {number}", partial(self._run, lane))
            for lane in Lane
            for number in range(limits[lane].readers)
        ]
        self._judges = [self._thread(f"judge {number}", self._run_judge) for number in range(judges)]
        for thread in (*self._readers, *self._judges):
            thread.start()

    @property
    def memory_bytes(self) -> int:
        """Bytes of all slots."""
        return sum(one.memory_bytes for one in self._memory.values())

    @property
    def direct_refusals(self) -> dict[str, str]:
        """Store digest -> why its file is not read directly; empty text where it is, or was not asked to be."""
        return {store: file.refusal for store, file in self._files.items()}

    @property
    def live_tickets(self) -> int:
        """How many tickets hold a claim."""
        with self._lock:
            return sum(self._scheduler.live_tickets(lane) for lane in Lane)

    def free_slots(self, lane: Lane) -> int:
        """Returns how many slots of a lane nobody uses now."""
        with self._lock:
            return self._scheduler.free_slots(lane)

    def submit(self, requests: Sequence[ReadRequest]) -> list[Ticket]:
        """Takes requests and returns at once, with one ticket each, in order."""
        for request in requests:
            self._check(request)
        with self._lock:
            if self._is_closed:
                raise refuse(CLOSED, "submit", expected="an open reader", got="a closed one")
            tickets = self._scheduler.submit(requests, self._clock())
            self._told()
        self._call_back()
        return tickets

    def wait(self, ticket: Ticket, part: int | None = None) -> memoryview:
        """Returns the bytes of a ticket, or of its parts up to `part`, unverified."""
        event, started = threading.Event(), -1
        while True:
            with self._lock:
                event.clear()
                has_part = part is not None and ticket.state is State.READING and ticket.arrived_parts > part
                if ticket.state is State.READY or has_part or not ticket.is_live:
                    if started >= 0:
                        self._forget(ticket, event)
                        if self._observer is not None:
                            self._observer.waited(ticket, part, started, self._clock())
                    if self._fault is not None:
                        raise RuntimeError("a thread of the reader died") from self._fault
                    if not ticket.is_live:
                        raise _ended(ticket)
                    self._scheduler.pin(ticket)
                    return self._view(ticket, part)
                if started < 0:
                    started = self._clock()
                    self._events.setdefault(ticket.id, []).append(event)
            event.wait()

    def promote(self, ticket: Ticket, priority: Priority, deadline_ns: int) -> None:
        """Makes a live ticket more urgent; less urgent it never becomes."""
        with self._lock:
            self._scheduler.promote(ticket, priority, deadline_ns, self._clock())
            self._told()

    def cancel(self, ticket: Ticket) -> bool:
        """Withdraws a ticket that is queued, being read or ready; says whether it was still live."""
        with self._lock:
            was_live = self._scheduler.cancel(ticket, self._clock())
            self._told()
        return was_live

    def release(self, ticket: Ticket) -> None:
        """Gives the bytes of a ready ticket back."""
        with self._lock:
            self._scheduler.release(ticket, self._clock())
            self._told()

    def advance(self, owner: str, generation: int) -> None:
        """Makes all older generations of an owner stale."""
        with self._lock:
            now = self._clock()
            if self._observer is not None:
                self._observer.advanced(owner, generation, now)
            self._scheduler.advance(owner, generation, now)
            self._told()

    def close(self) -> None:
        """Cancels what is live, waits for reads in flight, and ends every thread; a second call does nothing."""
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = self._is_closed = True
            self._scheduler.close(self._clock())
            self._told()
        for thread in self._readers:
            thread.join()
        for _ in self._judges:
            self._arrived.put(None)
        for thread in self._judges:
            thread.join()
        self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, request: ReadRequest) -> None:
        file = self._files.get(request.store)
        if file is None:
            raise refuse(STORE, str(request.target), expected="a store of this reader", got=request.store)
        for part in request.parts:
            for piece in part:
                if piece.offset < 0 or piece.size > file.size - piece.offset:
                    got = f"{piece.size} bytes from {piece.offset}"
                    raise refuse(
                        STORE, str(request.target), expected=f"a range inside {file.size} bytes", got=got
                    )

    def _free(self) -> None:
        for file in self._files.values():
            file.close()
        for memory in self._memory.values():
            memory.close()

    def _thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """Makes a thread that can't die unseen: what it raises reaches everyone who waits."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - a bug here must not leave the others waiting for ever
                with self._lock:
                    self._fault = self._fault or error
                    self._is_closed = True
                    self._scheduler.close(self._clock())
                    self._told()

        return threading.Thread(target=guarded, name=name, daemon=True)

    def _run(self, lane: Lane) -> None:
        while True:
            with self._lock:
                while (read := self._next(lane)) is None:
                    if self._is_closed:
                        return
                    self._work[lane].wait()
                started = self._clock()
            self._serve(read, self._files[read.store], started)

    def _next(self, lane: Lane) -> Read | None:
        read = None if self._is_closed else self._scheduler.next_read(lane, self._clock())
        self._told(wakes_readers=False)
        return read

    def _serve(self, read: Read, file: DeviceFile, started: int) -> None:
        size = sum(piece.size for piece in read.pieces)
        into = self._memory[read.lane].view(read.slot, read.slot_offset, size)
        done, finding = None, None
        try:
            done = transfer(self._device, file, read.pieces, into)
        except AdmissionError as error:
            finding = error.finding
        finally:
            into.release()
        with self._lock:
            now = self._clock()
            if self._observer is not None:
                self._observer.read(read, done, started, now)
            fetch = self._scheduler.complete(read, finding, now)
            self._told()
        if fetch is not None:
            if self._judges and fetch.request.size_bytes > _INLINE_BYTES:
                self._arrived.put(fetch)
            else:
                self._publish(fetch)
        self._call_back()

    def _run_judge(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            # Who hashes for milliseconds on end must not keep a reader from asking for the next record.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _JUDGE_NICENESS)
        while (fetch := self._arrived.get()) is not None:
            self._publish(fetch)
            self._call_back()

    def _publish(self, fetch: Fetch) -> None:
        finding = self._judge(fetch)
        with self._lock:
            self._scheduler.judged(fetch, finding, self._clock())
            self._told()

    def _judge(self, fetch: Fetch) -> Finding | None:
        """Compares what arrived with the digests that its request has, in the very bytes that are published."""
        request = fetch.request
        with self._memory[request.lane].view(fetch.slot, 0, request.size_bytes) as data:
            if request.sha256 is not None:
                return _compared(data, request.sha256, str(request.target))
            start = 0
            for number, piece in enumerate(piece for part in request.parts for piece in part):
                with data[start : start + piece.size] as some:
                    finding = (
                        None
                        if piece.sha256 is None
                        else _compared(some, piece.sha256, _name(request, number))
                    )
                if finding is not None:
                    return finding
                start += piece.size
        return None

    def _forget(self, ticket: Ticket, event: threading.Event) -> None:
        waiting = self._events[ticket.id]
        waiting.remove(event)
        if not waiting:
            del self._events[ticket.id]

    def _told(self, *, wakes_readers: bool = True) -> None:
        """Hands on what changed; the lock is held."""
        for change in self._scheduler.take_changes():
            wakes_readers = wakes_readers or change.what == "dropped"  # what stood before others is gone
            for event in self._events.get(change.ticket.id, ()):
                event.set()
            if self._observer is not None:
                self._observer.changed(change)
            if self._on_done is not None and change.what in _DONE:
                self._ended.append(change.ticket)
        if wakes_readers:
            for lane, work in self._work.items():
                if self._is_closed or self._scheduler.has_entries(lane):
                    work.notify_all()  # who would find nothing sleeps on: waking takes as long as a small read

    def _call_back(self) -> None:
        """Tells `on_done`, without the lock."""
        if self._on_done is None:
            return
        with self._lock:
            ended, self._ended = self._ended, []
        for ticket in ended:
            self._on_done(ticket)

    def _view(self, ticket: Ticket, part: int | None) -> memoryview:
        request = ticket.request
        size = request.size_bytes
        if part is not None:
            size = sum(piece.size for some in request.parts[: part + 1] for piece in some)
        return self._memory[request.lane].view(ticket.slot, 0, size).toreadonly()


def _compared(data: memoryview, wanted: bytes, where: str) -> Finding | None:
    digest = hashlib.sha256(data)
    if digest.digest() == wanted:
        return None
    return Finding.of(DIGEST, STAGE, where, expected=wanted.hex(), got=digest.hexdigest())


def _name(request: ReadRequest, number: int) -> str:
    pages = getattr(request.target, "pages", None)
    return f"page {pages[number]}" if pages is not None else f"{request.target} piece {number}"


def _ended(ticket: Ticket) -> Exception:
    if ticket.finding is not None:
        return damaged(ticket.finding)
    code = RELEASE if ticket.state is State.RELEASED else STALE
    got = ticket.state.value + (f" ({ticket.reason})" if ticket.reason else "")
    return refuse(code, f"ticket {ticket.id}", expected="a live ticket", got=got)
