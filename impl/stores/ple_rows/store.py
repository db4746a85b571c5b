"""Reader and verifier of PLE rows v1: rows come from pages that were verified in the very bytes they are copied from.

Opening streams the digest table once, for the manifest digest. A table within the budget stays in memory; of a
larger one only a digest of each 4 KiB remains, and the part that a read needs is read again and checked against it,
so that memory is 1/128 of the table and still no entry is trusted that wasn't covered by the manifest digest.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

from assay.impl.stores.arguments import bound, integer, numbers, readable, writable
from assay.impl.stores.extents import Extent
from assay.impl.stores.ple_rows.digests import DigestTable, ResidentDigests, SealedDigests
from assay.impl.stores.ple_rows.layout import (
    HEADER_BYTES,
    MAGIC,
    PAGE_HEADER_BYTES,
    STAGE,
    PageHeaders,
    PleGeometry,
    PleHeader,
    check_geometry,
    unpack_ple_header,
)
from assay.impl.stores.ple_rows.rules import (
    MANIFEST_DIGEST_CLAUSE,
    PADDING,
    ROW,
    SIZE,
    judge_page,
    judge_ple_header,
    manifest_hash,
)
from assay.impl.stores.ple_rows.verify import (
    PageVerifier,
    PleVerification,
    Progress,
    check_page_size,
    neighbours,
)
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, ContractError, Finding

BUFFER: Final = declare(
    "ple-store.buffer",
    Authority.FORM,
    "A buffer for rows is exactly as large as the rows.",
    source="PLE rows v1, read_row",
    cause="a caller with another row size",
)
DEFAULT_TABLE_BUDGET: Final = 1 << 26
_RUN_BYTES: Final = 1 << 18


class PleStore:
    """A store whose manifest holds."""

    def __init__(
        self, extent: Extent, geometry: PleGeometry, header: PleHeader, table: "DigestTable", cache_bytes: int
    ) -> None:
        self.extent = extent
        self.geometry = geometry
        self.header = header
        self._digests = table
        self._row_bytes = geometry.codec.row_bytes
        self._rows = geometry.table.rows
        self._rows_per_page = geometry.rows_per_page
        self._stride = geometry.page_stride
        self._payload = geometry.payload_offset
        self._headers = PageHeaders(geometry)
        self._verifier = PageVerifier(extent, geometry, table, header.payload_sha256)
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cache_pages = cache_bytes // self._stride
        self._lock = Lock()

    @classmethod
    def open(
        cls,
        extent: Extent,
        geometry: PleGeometry,
        *,
        table_budget: int = DEFAULT_TABLE_BUDGET,
        cache_bytes: int = 0,
    ) -> "PleStore":
        """Opens a store of one geometry; payload is not read.

        Args:
            extent: exactly the store.
            geometry: what the caller expects, codec included.
            table_budget: largest digest table, in bytes, that is kept in memory.
            cache_bytes: bound of the cache of verified pages; 0 keeps none.

        Raises:
            ContractError: ple-store.*, when the geometry itself is unusable, or store.bound.
            AdmissionError: the first of `judge_ple_store`.
        """
        table_budget = bound(table_budget, 0, "table_budget")
        cache_bytes = bound(cache_bytes, 0, "cache_bytes")
        header, table, findings = _judge(extent, geometry, table_budget)
        if findings or header is None or table is None:
            raise AdmissionError(findings[0])
        return cls(extent, geometry, header, table, cache_bytes)

    @property
    def table_memory_bytes(self) -> int:
        """Bytes that the digest table takes in memory."""
        return self._digests.memory_bytes

    def locate_row(self, row: int) -> tuple[int, int, int]:
        """Returns page, slot and absolute file offset of the page that holds a row.

        Raises:
            ContractError: ple-store.row.
        """
        page, slot = divmod(_number(row, self._rows), self._rows_per_page)
        return page, slot, self.extent.start + self._payload + page * self._stride

    def locate_page(self, page: int) -> tuple[int, int]:
        """Returns absolute file offset and bytes of one whole page, header and tail included.

        Raises:
            ContractError: ple-store.row, for a page outside the store.
        """
        number = _number(page, self.geometry.page_count, "page")
        return self.extent.start + self._payload + number * self._stride, self._stride

    def locate_in_page(self, row: int) -> tuple[int, int, int]:
        """Returns the page that holds a row, and the row's first byte in that page and its bytes.

        Raises:
            ContractError: ple-store.row.
        """
        page, slot, _ = self.locate_row(row)
        return page, PAGE_HEADER_BYTES + slot * self._row_bytes, self._row_bytes

    def page_digest(self, page: int) -> bytes:
        """Returns the SHA-256 that the digest table states for one whole page; read again when it isn't in memory.

        Raises:
            ContractError: ple-store.row, for a page outside the store.
            AdmissionError: ple-store.table-changed or store.file.*.
        """
        return self._digests.entry(_number(page, self.geometry.page_count, "page"))

    def check_page(self, page: int, data: bytes | bytearray | memoryview) -> None:
        """Judges a page in memory, wherever its bytes were read, in these very bytes and without a copy.

        It asks for what a row read asks for: page header and page digest. Rows may then be taken from the buffer at the
        places that `locate_in_page` says, as long as nobody writes to it.

        Raises:
            ContractError: ple-store.row or store.buffer.
            AdmissionError: ple-store.page.*, ple-store.table-changed or store.file.*.
        """
        number = _number(page, self.geometry.page_count, "page")
        view = readable(data, self._stride, "data")
        digest = self._digests.entry(number)
        if not self._headers.match(view, number) or hashlib.sha256(view).digest() != digest:
            raise AdmissionError(judge_page(bytes(view), number, self.geometry, digest)[0])

    def read_rows(self, rows: Sequence[int], into: bytearray | memoryview | None = None) -> bytes:
        """Returns encoded rows in the order asked for; duplicates and neighbours cost one page read.

        Args:
            rows: row numbers.
            into: filled as well, whole or not at all; exactly `len(rows) * row_bytes` bytes.

        Raises:
            ContractError: ple-store.row or ple-store.buffer.
            AdmissionError: ple-store.page.*, ple-store.table-changed or store.file.*; `into` is then untouched.
        """
        count, per_page, size = self._rows, self._rows_per_page, self._row_bytes
        places = []
        for row in numbers(rows, ROW, STAGE, "rows"):
            number = row if type(row) is int and 0 <= row < count else _number(row, count)
            page, slot = divmod(number, per_page)
            places.append((page, PAGE_HEADER_BYTES + slot * size))
        target = None if into is None else writable(into, len(places) * size, "into", BUFFER)
        pages = self._pages({page for page, _ in places})
        data = b"".join([pages[page][start : start + size] for page, start in places])
        if target is not None:
            target[:] = data
        return data

    def verify_page(self, page: int) -> None:
        """Raises unless one page is right.

        Raises:
            ContractError: ple-store.row, for a page outside the store.
            AdmissionError: ple-store.page.* or store.file.*.
        """
        page = _number(page, self.geometry.page_count, "page")
        check_page_size(self.geometry, self.extent.name)
        data = self.extent.read(self._payload + page * self._stride, self._stride)
        findings = judge_page(data, page, self.geometry, self._digests.entry(page))
        if findings:
            raise AdmissionError(findings[0])

    def verify_pages(self, first: int, stop: int, threads: int = 2, *, jobs: int = 1) -> list[Finding]:
        """Returns what is wrong with pages first..stop-1, 64 findings at most.

        Args:
            first: number of the first page.
            stop: number of the page after the last.
            threads: threads that read and judge; more of them help with large pages only.
            jobs: processes that judge instead, which scale with cores whatever the page size; 1 starts none. Worth it
                from about a gigabyte; the store must then be a file that its path still names.

        Raises:
            ContractError: ple-store.row, for a range outside the table, or store.bound.
            AdmissionError: ple-store.page.size or store.file.*.
        """
        return self._verifier.verify_pages(first, stop, threads, jobs)

    def verify_all(
        self,
        threads: int = 2,
        progress: Progress | None = None,
        *,
        jobs: int = 1,
        judged_before: int = 0,
        checkpoint: Callable[[int], None] | None = None,
    ) -> PleVerification:
        """Reads every page: header, digest and tail of each, and the digest of all.

        The payload digest is one chain over all pages and starts anew each time; page digests can resume.

        Args:
            threads: threads that read ahead, and with one job judge pages.
            progress: called with bytes done and bytes in all.
            jobs: processes that judge pages while this one chains the payload digest; 1 starts none. Worth it from
                about a gigabyte; the store must then be a file that its path still names.
            judged_before: leading pages that an earlier run judged without a finding.
            checkpoint: called with the number of leading pages judged without a finding, about every 64 MiB.

        Raises:
            ContractError: ple-store.row, for a resumption outside the table, or store.bound.
            AdmissionError: ple-store.page.size or store.file.*.
        """
        return self._verifier.verify_all(
            threads, progress, jobs=jobs, judged_before=judged_before, checkpoint=checkpoint
        )

    def _pages(self, wanted: set[int]) -> dict[int, bytes]:
        """Returns the wanted pages, each verified in the bytes that are returned."""
        found: dict[int, bytes] = {}
        if self._cache_pages:
            with self._lock:
                for page in wanted:
                    held = self._cache.get(page)
                    if held is not None:
                        self._cache.move_to_end(page)
                        found[page] = held
            if len(found) == len(wanted):
                return found
        missing = sorted(wanted - found.keys())
        check_page_size(self.geometry, self.extent.name)
        runs = list(neighbours(missing, self._stride, _RUN_BYTES))
        stride, payload, digests = self._stride, self._payload, self._digests
        if len(runs) > 1:
            places = digests.places(missing)
            places += [(payload + first * stride, length * stride) for first, length in runs]
            self.extent.will_need(places)
        sha256, read = hashlib.sha256, self.extent.read
        for first, length in runs:
            data = read(payload + first * stride, length * stride)
            for page in range(first, first + length):
                start = (page - first) * stride
                one = data if length == 1 else data[start : start + stride]
                digest = digests.entry(page)
                if not self._headers.match(one, page) or sha256(one).digest() != digest:
                    raise AdmissionError(judge_page(one, page, self.geometry, digest)[0])
                found[page] = one
        if self._cache_pages:
            with self._lock:
                for page in missing:
                    self._cache[page] = found[page]
                while len(self._cache) > self._cache_pages:
                    self._cache.popitem(last=False)
        return found


def judge_ple_store(extent: Extent, geometry: PleGeometry) -> tuple[PleHeader | None, list[Finding]]:
    """Reads the manifest and returns the header with everything that is wrong; memory doesn't grow with the table.

    Raises:
        ContractError: ple-store.*, when the geometry itself is unusable.
        AdmissionError: store.file.*, when the file can't be read.
    """
    header, _, findings = _judge(extent, geometry, 0)
    return header, findings


def _judge(
    extent: Extent, geometry: PleGeometry, table_budget: int
) -> tuple[PleHeader | None, "DigestTable | None", list[Finding]]:
    check_geometry(geometry)
    if extent.size < HEADER_BYTES:
        finding = Finding.of(
            SIZE, STAGE, extent.name, expected=f"at least {HEADER_BYTES} bytes", got=extent.size
        )
        return None, None, [finding]
    head = extent.read(0, HEADER_BYTES)
    header = unpack_ple_header(head)
    findings = judge_ple_header(header, geometry, extent)
    if header.magic != MAGIC or geometry.payload_offset > extent.size:
        return header, None, findings
    digest = manifest_hash(head)
    table: DigestTable
    if geometry.table_bytes <= table_budget:
        data = extent.read(HEADER_BYTES, geometry.table_bytes)
        digest.update(data)
        table = ResidentDigests(data)
    else:
        table = SealedDigests.streamed(extent, geometry.table_bytes, digest.update)
    start = HEADER_BYTES + geometry.table_bytes
    for piece in extent.pieces(start, geometry.payload_offset - start):
        digest.update(piece)
        used = piece.lstrip(b"\0")
        if used:
            findings.append(Finding.of(PADDING, STAGE, "padding", expected="zeros", got=f"{used[0]:#04x}"))
            break
    else:
        if digest.digest() != header.manifest_sha256:
            findings.append(
                Finding.of(
                    MANIFEST_DIGEST_CLAUSE,
                    STAGE,
                    "manifest_sha256",
                    expected=digest.hexdigest(),
                    got=header.manifest_sha256.hex(),
                )
            )
    return header, table, findings


def _number(value: object, count: int, what: str = "row") -> int:
    """Returns a number in 0..count-1.

    Raises:
        ContractError: ple-store.row.
    """
    number = integer(value)
    if number is None or not 0 <= number < count:
        raise ContractError(Finding.of(ROW, STAGE, what, expected=f"0..{count - 1}", got=value))
    return number
