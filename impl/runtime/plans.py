"""Requests for records and rows, planned from the two stores: where the bytes lie and what digest they must have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from assay.impl.runtime.tickets import NEVER, ExpertRecord, Phase, Piece, Priority, ReadRequest, RowPages
from assay.impl.stores.expert_major.store import ExpertStore
from assay.impl.stores.ple_rows.store import PleStore

WAVE_PARTS: Final = ((0, 1), (2,))
"""Gate and up are used together; down is needed only after them."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and what for; the fields are those of a request."""

    owner: str
    generation: int
    phase: Phase
    layer: int
    tokens: int = 1


def store_digest(store: ExpertStore | PleStore) -> str:
    """Returns the digest that names a store in requests: its manifest's, which covers that of the payload."""
    header = store.manifest.header if isinstance(store, ExpertStore) else store.header
    return header.manifest_sha256.hex()


def expert_request(
    store: ExpertStore,
    asker: Asker,
    expert: int,
    *,
    parts: Sequence[Sequence[int]] = WAVE_PARTS,
    priority: Priority = Priority.EXACT,
    confidence: float = 1.0,
    deadline_ns: int = NEVER,
) -> ReadRequest:
    """Returns the request for one record of the asker's layer.

    Args:
        store: where it lies. Without record digests what is read stays unverified.
        asker: who asks; `asker.layer` is the record's layer.
        expert: expert id.
        parts: roles that are read together, in the order in which they are wanted; roles not named are not read, and
            then nothing is verified, since a digest covers the whole record.
        priority: class of urgency; anything but EXACT is a prediction.
        confidence: of a prediction.
        deadline_ns: when it is consumed.

    Raises:
        ContractError: expert-store.place or runtime.request.
    """
    roles = tuple(role for part in parts for role in part)
    whole = roles == (0, 1, 2)
    pieces = tuple(
        tuple(_joined(Piece(*store.locate(asker.layer, expert, role)) for role in part)) for part in parts
    )
    return ReadRequest(
        store=store_digest(store),
        owner=asker.owner,
        generation=asker.generation,
        phase=asker.phase,
        layer=asker.layer,
        tokens=asker.tokens,
        target=ExpertRecord(asker.layer, expert, roles),
        parts=pieces,
        is_exact=priority is Priority.EXACT,
        confidence=confidence,
        priority=priority,
        deadline_ns=deadline_ns,
        sha256=store.record_digest(asker.layer, expert) if whole else None,
    )


def row_requests(
    store: PleStore,
    asker: Asker,
    rows: Sequence[int],
    *,
    slot_bytes: int,
    priority: Priority = Priority.EXACT,
    confidence: float = 1.0,
    deadline_ns: int = NEVER,
) -> list[ReadRequest]:
    """Returns requests for the pages of some rows: each page once, in ascending order, split by slots.

    Args:
        store: where the rows lie; every page has a digest there.
        asker: who asks.
        rows: row numbers, in any order.
        slot_bytes: bytes of one slot of the row lane; a request is no larger.
        priority: class of urgency.
        confidence: of a prediction.
        deadline_ns: when they are consumed.

    Raises:
        ContractError: ple-store.row or runtime.request.
        AdmissionError: ple-store.table-changed or store.file.*, where the digest table is not kept in memory.
    """
    pages = sorted({store.locate_row(row)[0] for row in rows})
    stride = store.geometry.page_stride
    step = max(1, slot_bytes // stride)
    name = store_digest(store)
    return [
        ReadRequest(
            store=name,
            owner=asker.owner,
            generation=asker.generation,
            phase=asker.phase,
            layer=asker.layer,
            tokens=asker.tokens,
            target=RowPages(tuple(some)),
            parts=(tuple(Piece(*store.locate_page(page), store.page_digest(page)) for page in some),),
            is_exact=priority is Priority.EXACT,
            confidence=confidence,
            priority=priority,
            deadline_ns=deadline_ns,
        )
        for some in (pages[first : first + step] for first in range(0, len(pages), step))
    ]


def row_bytes(store: PleStore, row: int, request: ReadRequest, data: memoryview) -> memoryview:
    """Returns one encoded row out of the pages that a ticket brought.

    Raises:
        ContractError: ple-store.row.
        ValueError: when the row's page is not among them.
    """
    target = request.target
    if not isinstance(target, RowPages):
        raise TypeError(target)
    page, start, size = store.locate_in_page(row)
    start += target.pages.index(page) * store.geometry.page_stride
    return data[start : start + size]


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yields neighbours as one piece: gate and up lie side by side."""
    held: Piece | None = None
    for piece in pieces:
        if held is not None and held.offset + held.size == piece.offset:
            held = Piece(held.offset, held.size + piece.size)
            continue
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held
