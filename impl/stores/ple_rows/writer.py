"""Writer of PLE rows v1: streams pages, hashes on the way, signs at the end; memory is one run of pages."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from assay.impl.stores.arguments import integer, readable
from assay.impl.stores.background_hash import BackgroundHash
from assay.impl.stores.extents import SYSTEM, Extent, Filesystem
from assay.impl.stores.overlap import in_order
from assay.impl.stores.ple_rows.layout import (
    DIGEST_BYTES,
    HEADER_BYTES,
    NO_DIGEST,
    STAGE,
    PleGeometry,
    PleHeader,
    check_geometry,
    expected_header,
    pack_ple_header,
)
from assay.impl.stores.ple_rows.rules import ROW, manifest_hash
from assay.impl.stores.ple_rows.store import PleStore
from assay.impl.stores.publication import Draft, publish
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, ContractError, Finding

SUPPLY: Final = declare(
    "ple-store.supply",
    Authority.FORM,
    "The source of rows hands over exactly the rows asked for.",
    source="PLE rows v1, writer",
    cause="a source table of another width or type than planned",
)

EncodeRows = Callable[[int, int], bytes | bytearray | memoryview]
"""(first row, number of rows) -> their encoded bytes; asked for in ascending order, one page at a time."""

_RUN_BYTES: Final = 1 << 20


def fill_ple_store(
    draft: Draft,
    start: int,
    geometry: PleGeometry,
    encode: EncodeRows | None,
    only_pages: Collection[int] | None = None,
) -> PleHeader:
    """Writes a store into a file being published.

    Args:
        draft: the file.
        start: absolute offset of the store in it, a multiple of the page alignment.
        geometry: rows, codec and pages.
        encode: where rows come from; None writes a structural store with holes for pages and zero digests.
        only_pages: pages to write, the others stay holes: a stand-in at true size. It opens and its written pages
            can be read, but its payload digest is zero, so that no verifier accepts it.

    Returns:
        The header that was written.

    Raises:
        ContractError: ple-store.*, for an unusable geometry or a row source that hands over too little or too much.
        PublicationError: publish.write.
    """
    check_geometry(geometry)
    payload_sha256 = hashlib.sha256().digest()
    if encode is not None:
        chosen = range(geometry.page_count) if only_pages is None else _pages(geometry, only_pages)
        threads = 2 if len(chosen) * geometry.page_stride > 8 * _RUN_BYTES else 1
        with BackgroundHash() as payload:
            runs = _write_runs(draft, start, geometry, chosen, encode, payload)
            for first, digests in in_order(_page_digests, runs, threads):
                draft.write(start + HEADER_BYTES + DIGEST_BYTES * first, digests)
            payload_sha256 = payload.digest()
    is_whole = encode is not None and only_pages is None
    header = replace(expected_header(geometry), payload_sha256=payload_sha256 if is_whole else NO_DIGEST)
    manifest = manifest_hash(pack_ple_header(header))
    for piece in draft.pieces(start + HEADER_BYTES, geometry.payload_offset - HEADER_BYTES):
        manifest.update(piece)
    header = replace(header, manifest_sha256=manifest.digest())
    draft.write(start, pack_ple_header(header))
    return header


def write_ple_store(
    target: Path,
    geometry: PleGeometry,
    encode: EncodeRows | None,
    *,
    only_pages: Collection[int] | None = None,
    system: Filesystem = SYSTEM,
) -> PleHeader:
    """Publishes a store as a file of its own; the reopened file is verified whole before the commit.

    Args:
        target: where it shall be.
        geometry: rows, codec and pages.
        encode: where rows come from; None writes a structural store.
        only_pages: as in `fill_ple_store`.
        system: the seam for injected faults.

    Returns:
        The header that was written.

    Raises:
        ContractError: ple-store.*, before anything is created.
        PublicationError: publish.<step>.
        AdmissionError: what the verifier finds in the reopened file.
    """
    check_geometry(geometry)
    written: list[PleHeader] = []

    def fill(draft: Draft) -> None:
        written.append(fill_ple_store(draft, 0, geometry, encode, only_pages))

    def verify(extent: Extent) -> None:
        check_written_ple(
            extent, geometry, written[0], () if encode is None else only_pages, is_structural=encode is None
        )

    publish(target, geometry.store_bytes, fill, verify, system)
    return written[0]


def check_written_ple(
    extent: Extent,
    geometry: PleGeometry,
    header: PleHeader,
    only_pages: Collection[int] | None = None,
    *,
    is_structural: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Raises unless the store is the one that was written.

    A whole store is verified whole, then its first two and last pages once more as a reader would; a stand-in only
    in the pages that were written.

    Raises:
        AdmissionError: the first disagreement.
    """
    store = PleStore.open(extent, geometry, table_budget=0)
    if store.header != header:
        raise AdmissionError(
            Finding.of("publish.verify", STAGE, "header", expected="the written header", got="another one")
        )
    if is_structural:
        return
    if only_pages is None:
        found = store.verify_all(progress=progress)
        if found.findings:
            raise AdmissionError(found.findings[0])
        only_pages = {0, min(1, geometry.page_count - 1), geometry.page_count - 1}
    for page in sorted(only_pages):
        store.verify_page(page)


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive pages as they were written."""

    first: int
    stride: int
    data: bytes


def _pages(geometry: PleGeometry, only_pages: Collection[int]) -> list[int]:
    """Returns the pages of a stand-in in order.

    Raises:
        ContractError: ple-store.row, for a page outside the store.
    """
    for page in only_pages:
        number = integer(page)
        if number is None or not 0 <= number < geometry.page_count:
            raise ContractError(
                Finding.of(ROW, STAGE, "only_pages", expected=f"0..{geometry.page_count - 1}", got=page)
            )
    return sorted(only_pages)


def _write_runs(
    draft: Draft,
    start: int,
    geometry: PleGeometry,
    chosen: Sequence[int],
    encode: EncodeRows,
    payload: BackgroundHash,
) -> Iterator[_Run]:
    """Writes pages, up to 1 MiB of neighbours at once, feeds the payload digest, and yields them in order."""
    stride, place = geometry.page_stride, 0
    most = max(1, _RUN_BYTES // stride)
    while place < len(chosen):
        first = chosen[place]
        parts: list[bytes | bytearray | memoryview] = []
        count = 0
        while count < most and place < len(chosen) and chosen[place] == first + count:
            parts += _page(geometry, chosen[place], encode)
            place, count = place + 1, count + 1
        data = b"".join(parts)  # the one copy: a run is hashed and written as it lies
        draft.write(start + geometry.payload_offset + first * stride, data)
        payload.update(data)
        yield _Run(first, stride, data)


def _page_digests(run: _Run) -> tuple[int, bytes]:
    view = memoryview(run.data)
    places = range(0, len(view), run.stride)
    return run.first, b"".join(hashlib.sha256(view[one : one + run.stride]).digest() for one in places)


def _page(geometry: PleGeometry, page: int, encode: EncodeRows) -> tuple[bytes | bytearray | memoryview, ...]:
    """Returns header, rows and padding of one page."""
    first, count = page * geometry.rows_per_page, geometry.valid_rows(page)
    rows = encode(first, count)
    wanted = count * geometry.codec.row_bytes
    rows = readable(rows, wanted, f"rows {first}..{first + count - 1}", SUPPLY)
    header = geometry.page_header(page)
    return header, rows, bytes(geometry.page_stride - len(header) - wanted)
