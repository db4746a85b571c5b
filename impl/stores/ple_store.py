"""Reader and verifier of PLE rows v1: rows come from pages that were verified in the very bytes they are copied from.

Opening streams the digest table once, for the manifest digest. A table within the budget stays in memory; of a
larger one only a digest of each 4 KiB remains, and the part that a read needs is read again and checked against it,
so that memory is 1/128 of the table and still no entry is trusted that wasn't covered by the manifest digest.
"""

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock
from typing import Final

from assay.impl.stores.arguments import bound, integer, numbers, readable, writable
from assay.impl.stores.extents import PIECE_BYTES, Extent
from assay.impl.stores.overlap import in_order
from assay.impl.stores.ple_digests import DigestTable, ResidentDigests, SealedDigests
from assay.impl.stores.ple_layout import (
    HEADER_BYTES,
    PAGE_HEADER_BYTES,
    STAGE,
    PleGeometry,
    PleHeader,
    check_geometry,
    unpack_ple_header,
)
from assay.impl.stores.ple_processes import PageJudges, PageRange, PageVerdict
from assay.impl.stores.ple_rules import (
    MANIFEST_DIGEST_CLAUSE,
    PADDING,
    PAGE_SIZE,
    PAYLOAD_DIGEST,
    ROW,
    SIZE,
    judge_page,
    judge_ple_header,
    manifest_hash,
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
MAX_PAGE_BYTES: Final = 1 << 26
MAX_FINDINGS: Final = 64
"""Findings that a verification keeps; the number of bad pages is counted beyond."""
DEFAULT_TABLE_BUDGET: Final = 1 << 26
CHECKPOINT_BYTES = 1 << 26
"""How much a verification reads between two checkpoints."""
_RUN_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class PleVerification:
    """What `verify_all` found.

    Attributes:
        findings: up to 64 of them, the payload digest last.
        bad_pages: pages with a finding.
        pages_judged: pages whose header, digest and tail were judged in this run.
        payload_sha256: digest of all pages in order.
    """

    findings: tuple[Finding, ...]
    bad_pages: int
    pages_judged: int
    payload_sha256: bytes


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
        first = geometry.page_header(0)
        self._head, self._rest = first[:16], first[36:]
        self._place = struct.Struct("<QQI")
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
        if not self._has_header(view, number) or hashlib.sha256(view).digest() != digest:
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
        self._check_page_size()
        data = self.extent.read(self._payload + page * self._stride, self._stride)
        findings = judge_page(data, page, self.geometry, self._digests.entry(page))
        if findings:
            raise AdmissionError(findings[0])

    def verify_pages(self, first: int, stop: int, threads: int = 2) -> list[Finding]:
        """Returns what is wrong with pages first..stop-1.

        More threads help with large pages only: with small ones they wait for the interpreter lock, and the processes
        of `verify_all(jobs=...)` are what scales.

        Raises:
            ContractError: ple-store.row, for a range outside the table, or store.bound.
            AdmissionError: store.file.*.
        """
        threads = bound(threads, 1, "threads")
        begin, end = integer(first), integer(stop)
        if begin is None or end is None or not 0 <= begin <= end <= self.geometry.page_count:
            raise ContractError(
                Finding.of(
                    ROW,
                    STAGE,
                    "pages",
                    expected=f"a range in 0..{self.geometry.page_count}",
                    got=f"{first}..{stop}",
                )
            )
        self._check_page_size()
        findings: list[Finding] = []
        for _, found, _ in in_order(self._judge_run, self._runs(range(begin, end), PIECE_BYTES), threads):
            findings += found[: MAX_FINDINGS - len(findings)]
        return findings

    def verify_all(
        self,
        threads: int = 2,
        progress: Callable[[int, int], None] | None = None,
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
        threads, jobs = bound(threads, 1, "threads"), bound(jobs, 1, "jobs")
        self._check_page_size()
        judged_before = _number(judged_before, self.geometry.page_count + 1, "judged_before")
        tally = _Tally(self._stride, judged_before, checkpoint)
        payload = hashlib.sha256()
        total, count = self.geometry.payload_bytes, self.geometry.page_count
        done = 0

        def judged(run: tuple[int, int]) -> tuple[bytes, list[Finding], int]:
            return self._judge_run(run, skip_below=judged_before)

        def unjudged(run: tuple[int, int]) -> tuple[bytes, list[Finding], int]:
            return self.extent.read(self._payload + run[0] * self._stride, run[1] * self._stride), [], 0

        with ExitStack() as stack:
            judges = None
            if jobs > 1:
                judges = stack.enter_context(PageJudges(jobs, self._ranges(judged_before), tally.take))
            work = judged if judges is None else unjudged
            for data, found, bad in in_order(work, self._runs(range(count), PIECE_BYTES), threads):
                payload.update(data)
                done += len(data)
                if judges is None:
                    tally.take(PageVerdict(tuple(found), bad, done // self._stride))
                else:
                    judges.advance()
                if progress is not None:
                    progress(done, total)
            if judges is not None:
                judges.finish()
        self.extent.file.check_unchanged()
        findings = tally.findings
        digest, wanted = payload.digest(), self.header.payload_sha256
        if digest != wanted:
            if (
                judged_before and not findings
            ):  # a page that an earlier run judged has changed since: say which
                findings += self.verify_pages(0, judged_before, threads)[:MAX_FINDINGS]
                tally.bad += len({one.where.split(".")[0].split(" ")[0] for one in findings})
            findings.append(
                Finding.of(PAYLOAD_DIGEST, STAGE, "payload_sha256", expected=wanted.hex(), got=digest.hex())
            )
        return PleVerification(tuple(findings), tally.bad, max(0, count - judged_before), digest)

    def _ranges(self, first: int) -> Iterator[PageRange]:
        """Yields the pages from `first` on in ranges of about 16 MiB, with their digests."""
        file = self.extent.file
        step = max(1, (1 << 24) // self._stride)
        for page in range(first, self.geometry.page_count, step):
            stop = min(page + step, self.geometry.page_count)
            digests = b"".join(self._digests.entry(one) for one in range(page, stop))
            start = self.extent.start + self._payload + page * self._stride
            yield PageRange(file.name, file.identity, start, page, digests, self.geometry)

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
        self._check_page_size()
        runs = list(self._runs(missing))
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
                if not self._has_header(one, page) or sha256(one).digest() != digest:
                    raise AdmissionError(judge_page(one, page, self.geometry, digest)[0])
                found[page] = one
        if self._cache_pages:
            with self._lock:
                for page in missing:
                    self._cache[page] = found[page]
                while len(self._cache) > self._cache_pages:
                    self._cache.popitem(last=False)
        return found

    def _has_header(self, data: bytes | memoryview, page: int) -> bool:
        first = page * self._rows_per_page
        valid = min(self._rows_per_page, self._rows - first)
        return data[:PAGE_HEADER_BYTES] == self._head + self._place.pack(page, first, valid) + self._rest

    def _runs(self, pages: Iterable[int], run_bytes: int = _RUN_BYTES) -> Iterator[tuple[int, int]]:
        """Yields (first page, number of pages) of neighbours that are read in one piece of up to `run_bytes`."""
        longest = max(1, run_bytes // self._stride)
        first = count = 0
        for page in pages:
            if count and page == first + count and count < longest:
                count += 1
                continue
            if count:
                yield first, count
            first, count = page, 1
        if count:
            yield first, count

    def _judge_run(self, run: tuple[int, int], skip_below: int = 0) -> tuple[bytes, list[Finding], int]:
        first, count = run
        stride, digests = self._stride, self._digests
        data = self.extent.read(self._payload + first * stride, count * stride)
        view = memoryview(data)
        findings: list[Finding] = []
        bad = 0
        for page in range(max(first, skip_below), first + count):
            start = (page - first) * stride
            digest = digests.entry(page)
            used = (
                start
                + PAGE_HEADER_BYTES
                + min(self._rows_per_page, self._rows - page * self._rows_per_page) * self._row_bytes
            )
            if (
                self._has_header(data[start : start + PAGE_HEADER_BYTES], page)
                and hashlib.sha256(view[start : start + stride]).digest() == digest
                and not data[used : start + stride].strip(b"\0")
            ):
                continue
            bad += 1
            findings += judge_page(data[start : start + stride], page, self.geometry, digest)
        return data, findings, bad

    def _check_page_size(self) -> None:
        if self._stride > MAX_PAGE_BYTES:
            raise AdmissionError(
                Finding.of(
                    PAGE_SIZE, STAGE, self.extent.name, expected=f"at most {MAX_PAGE_BYTES}", got=self._stride
                )
            )


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
    if geometry.payload_offset > extent.size:
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


class _Tally:
    """Findings of pages in order, and the checkpoints between them."""

    def __init__(self, stride: int, judged_before: int, checkpoint: Callable[[int], None] | None) -> None:
        self.findings: list[Finding] = []
        self.bad = 0
        self._stride = stride
        self._saved = judged_before
        self._checkpoint = checkpoint

    def take(self, verdict: PageVerdict) -> None:
        """Adds what one run of pages came to."""
        self.findings += verdict.findings[: MAX_FINDINGS - len(self.findings)]
        self.bad += verdict.bad
        if self._checkpoint is None or self.bad:
            return
        if (verdict.stop - self._saved) * self._stride >= CHECKPOINT_BYTES:
            self._checkpoint(verdict.stop)
            self._saved = verdict.stop


def _number(value: object, count: int, what: str = "row") -> int:
    """Returns a number in 0..count-1.

    Raises:
        ContractError: ple-store.row.
    """
    number = integer(value)
    if number is None or not 0 <= number < count:
        raise ContractError(Finding.of(ROW, STAGE, what, expected=f"0..{count - 1}", got=value))
    return number
