"""What everyone who streams stands on: the service's face, and its plainest form, which reads when it is asked.

The plain reader has no thread, no queue and no lane. It is what the real one is compared with: the same requests must
give the same bytes, the same errors and the same ends of tickets.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Protocol, Self

from assay.impl.runtime.clauses import CLOSED, DIGEST, RELEASE, STAGE, STALE, STORE, damaged, refuse
from assay.impl.runtime.tickets import LIVE, Priority, ReadRequest, State, Ticket
from assay.impl.stores.extents import StoreFile
from assay.spec.errors import AdmissionError, Finding

OnDone = Callable[[Ticket], None]
"""Told of each ticket that became ready, failed or was dropped; runs in the thread that read, and must be short."""


class Reader(Protocol):
    """Reads for several owners at once; every method may be called from any thread."""

    def submit(self, requests: Sequence[ReadRequest]) -> list[Ticket]:
        """Takes requests and returns at once, with one ticket each, in order.

        A request for bytes that are being read, or that still lie in a slot, joins that read and may make it more
        urgent. A prediction that finds its queue full is returned as DROPPED; it is no error.

        Raises:
            ContractError: runtime.store, runtime.slot-size, runtime.queue-full or runtime.closed; then none is taken.
        """
        ...

    def wait(self, ticket: Ticket, part: int | None = None) -> memoryview:
        """Returns the bytes of a ticket, all pieces one after another; the view is good until `release`.

        Args:
            ticket: what to wait for, and nothing else.
            part: number of a part: returns the bytes of all parts up to it as soon as they arrived, *not verified*;
                what is computed from them must not become public before `wait(ticket)` returned.

        Raises:
            AdmissionError: runtime.read.*, when an exact ticket failed.
            ContractError: runtime.stale, when it was cancelled, dropped or has a stale generation; runtime.release.
        """
        ...

    def promote(self, ticket: Ticket, priority: Priority, deadline_ns: int) -> None:
        """Makes a live ticket more urgent; less urgent it never becomes. An EXACT one is exact from now on."""
        ...

    def cancel(self, ticket: Ticket) -> bool:
        """Withdraws a ticket that is queued, being read or ready; says whether it was still live."""
        ...

    def release(self, ticket: Ticket) -> None:
        """Gives the bytes of a ready ticket back.

        Raises:
            ContractError: runtime.release, the second time.
        """
        ...

    def advance(self, owner: str, generation: int) -> None:
        """Makes all older generations of an owner stale: what they asked for is never published."""
        ...

    def close(self) -> None:
        """Cancels what is live, waits for reads in flight, frees every slot and ends every thread."""
        ...


class PlainReader:
    """Reads each request at once, in the caller's thread."""

    def __init__(self, files: dict[str, StoreFile], on_done: OnDone | None = None) -> None:
        """Reads from `files`: store digest -> open file."""
        self._files = files
        self._on_done = on_done
        self._data: dict[int, bytes] = {}
        self._generations: dict[str, int] = {}
        self._count = 0
        self._is_closed = False

    def submit(self, requests: Sequence[ReadRequest]) -> list[Ticket]:
        """Reads all requests and returns their tickets."""
        if self._is_closed:
            raise refuse(CLOSED, "submit", expected="an open reader", got="a closed one")
        for request in requests:
            if request.store not in self._files:
                raise refuse(STORE, str(request.target), expected="a store of this reader", got=request.store)
        return [self._read(request) for request in requests]

    def wait(self, ticket: Ticket, part: int | None = None) -> memoryview:
        """Returns the bytes of a ticket, or of its parts up to `part`."""
        if ticket.state is State.RELEASED:
            raise refuse(
                RELEASE, f"ticket {ticket.id}", expected="a ticket that is held", got="one given back"
            )
        if ticket.finding is not None and ticket.state is State.FAILED:
            raise damaged(ticket.finding)
        if ticket.state is not State.READY:
            raise refuse(STALE, f"ticket {ticket.id}", expected="a live ticket", got=ticket.state.value)
        view = memoryview(self._data[ticket.id])
        if part is None:
            return view
        return view[: sum(piece.size for some in ticket.request.parts[: part + 1] for piece in some)]

    def promote(self, ticket: Ticket, priority: Priority, deadline_ns: int) -> None:
        """Notes the urgency; everything was read already."""
        ticket.priority = min(ticket.priority, priority)
        ticket.deadline_ns = min(ticket.deadline_ns, deadline_ns)

    def cancel(self, ticket: Ticket) -> bool:
        """Withdraws a ticket."""
        if ticket.state not in LIVE:
            return False
        self._end(ticket, State.CANCELLED)
        return True

    def release(self, ticket: Ticket) -> None:
        """Gives the bytes back."""
        if ticket.state is not State.READY:
            raise refuse(RELEASE, f"ticket {ticket.id}", expected="a ready ticket", got=ticket.state.value)
        self._end(ticket, State.RELEASED)

    def advance(self, owner: str, generation: int) -> None:
        """Makes older generations of an owner stale."""
        self._generations[owner] = max(generation, self._generations.get(owner, generation))

    def close(self) -> None:
        """Forgets everything."""
        self._is_closed = True
        self._data.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, request: ReadRequest) -> Ticket:
        now = time.monotonic_ns()
        ticket = Ticket(
            self._count, request, State.QUEUED, request.priority, request.deadline_ns,
            slot=self._count, slot_generation=0, fetch=self._count, issued_ns=now, started_ns=now,
        )  # fmt: skip
        self._count += 1
        if request.generation < self._generations.get(request.owner, request.generation):
            ticket.state, ticket.reason = State.CANCELLED, "stale"
            return ticket
        extent = self._files[request.store].extent()
        try:
            data = b"".join(self._piece(extent.read(one.offset, one.size), one.sha256, request)
                            for part in request.parts for one in part)  # fmt: skip
            self._piece(data, request.sha256, request)
        except AdmissionError as error:
            ticket.finding = error.finding
            ticket.state = State.FAILED if request.is_exact else State.DROPPED
            ticket.reason = error.finding.code
        else:
            self._data[ticket.id] = data
            ticket.state, ticket.arrived_parts = State.READY, len(request.parts)
        ticket.completed_ns, ticket.completion = time.monotonic_ns(), ticket.id
        if self._on_done is not None:
            self._on_done(ticket)
        return ticket

    def _piece(self, data: bytes, sha256: bytes | None, request: ReadRequest) -> bytes:
        if sha256 is not None and hashlib.sha256(data).digest() != sha256:
            got = hashlib.sha256(data).hexdigest()
            raise damaged(Finding.of(DIGEST, STAGE, str(request.target), expected=sha256.hex(), got=got))
        return data

    def _end(self, ticket: Ticket, state: State) -> None:
        ticket.state = state
        self._data.pop(ticket.id, None)
