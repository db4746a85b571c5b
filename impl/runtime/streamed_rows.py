"""Rows of the per-layer embedding from disk: asked for when the tokens are known, waited for where they are used."""

from collections import deque
from functools import partial

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.runtime.lanes import Lane
from assay.impl.runtime.plans import Asker, row_requests
from assay.impl.runtime.streaming import Stream
from assay.impl.runtime.tickets import LIVE, Phase, ReadRequest, RowPages, Ticket
from assay.impl.stores.ple_rows.layout import PAGE_HEADER_BYTES
from assay.impl.stores.ple_rows.store import PleStore

_KINDS = {"assay-raw-f32-v1": "<f4", "assay-raw-f16-v1": "<f2", "assay-raw-bf16-v1": "<u2"}


class StreamedRows:
    """A table in the row store of an artifact."""

    def __init__(self, stream: Stream, layer: int) -> None:
        self._stream = stream
        self._layer = layer

    def ask(self, ids: NDArray[np.int64]) -> "AskedPages":
        """Begins a chunk of this thread's lane and its reads, each page once; returns before any has come.

        Raises:
            ContractError: ple-store.row.
        """
        tokens = max(1, ids.size // self._stream.geometry.ple_heads)
        lane = self._stream.begin_chunk(tokens)
        return AskedPages(self._stream, lane, self._layer, ids)


class AskedPages:
    """Pages on their way; at most a window of requests is out at once."""

    def __init__(self, stream: Stream, lane: Lane, layer: int, ids: NDArray[np.int64]) -> None:
        self._stream, self._lane, self._ids = stream, lane, ids
        phase = Phase.DECODE if lane.phase_tokens == 1 else Phase.PREFILL
        asker = Asker(lane.name, lane.generation, phase, layer, (1 << min(lane.phase_tokens, 64)) - 1)
        distinct = np.unique(ids)
        self._queue: deque[ReadRequest] = deque(
            row_requests(
                stream.rows_store, asker, [int(row) for row in distinct],
                slot_bytes=stream.options.row_slot_bytes, deadline_ns=stream.clock(),
            )
        )  # fmt: skip
        self._tickets: deque[Ticket] = deque()
        self._submit()

    def rows(self) -> mx.array:
        """Waits for the pages and returns float32 [row, width].

        Raises:
            AdmissionError: runtime.read.* or ple-store.page.*, for a page that can't be had.
        """
        store = self._stream.rows_store
        per_page = store.geometry.rows_per_page
        pages, places = np.divmod(self._ids, per_page)
        found = np.empty((self._ids.size, store.geometry.codec.row_bytes), np.uint8)
        while self._tickets:
            ticket = self._tickets.popleft()
            if ticket.state in LIVE and not _is_done(ticket):
                started = self._stream.clock()
                self._lane.counts.row_wait_ns += self._stream.pause(self._lane, partial(_is_done, ticket))
                self._stream.note_wait(ticket, started)
            target = ticket.request.target
            if not isinstance(target, RowPages):
                raise TypeError(target)
            with self._stream.reader.wait(ticket) as view:
                _take(found, view, np.array(target.pages), pages, places, store)
            self._stream.reader.release(ticket)
            self._submit()
        return _values(found, store)

    def close(self) -> None:
        """Withdraws what was not read and ends the chunk: nothing of it is left that reads a slot."""
        self._queue.clear()
        while self._tickets:
            self._stream.reader.cancel(self._tickets.popleft())
        self._stream.end_chunk(self._lane)

    def _submit(self) -> None:
        room = self._stream.options.row_window - len(self._tickets)
        now = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
        self._stream.counts.row_bytes += sum(one.size_bytes for one in now)
        self._tickets.extend(self._stream.reader.submit(now))


def _is_done(ticket: Ticket) -> bool:
    return ticket.completion >= 0 or ticket.state not in LIVE


def _take(
    found: NDArray[np.uint8],
    view: memoryview,
    held: NDArray[np.int64],
    pages: NDArray[np.int64],
    places: NDArray[np.int64],
    store: PleStore,
) -> None:
    """Copies the rows that lie in the pages of one ticket, whose digests were compared; a wrong header is refused."""
    stride, width = store.geometry.page_stride, store.geometry.codec.row_bytes
    whole = np.frombuffer(view, np.uint8).reshape(held.size, stride)
    for number, page in enumerate(held.tolist()):
        if whole[number, :PAGE_HEADER_BYTES].tobytes() != store.geometry.page_header(page):
            store.check_page(page, view[number * stride : (number + 1) * stride])
    own = np.flatnonzero(np.isin(pages, held))
    at = np.searchsorted(held, pages[own])
    body = whole[:, PAGE_HEADER_BYTES : PAGE_HEADER_BYTES + store.geometry.rows_per_page * width]
    found[own] = body.reshape(held.size, -1, width)[at, places[own]]


def _values(data: NDArray[np.uint8], store: PleStore) -> mx.array:
    kind = _KINDS[store.geometry.codec.id]
    values = data.view(kind)
    if kind == "<u2":
        values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return mx.array(values.astype(np.float32))
