"""Verification of a row store: page digests, which scale with cores, and the payload digest, which is one chain.

Both read everything once. The chain bounds the speed of the whole: one core's SHA-256, or the disk. What judges pages
beside it takes the other cores: threads where pages are large, processes where they are small, because a thread that
hashes small pieces spends its time handing over the interpreter lock.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from assay.impl.stores.arguments import bound, integer
from assay.impl.stores.extents import Extent
from assay.impl.stores.overlap import in_order
from assay.impl.stores.ple_rows.digests import DigestTable
from assay.impl.stores.ple_rows.layout import DIGEST_BYTES, PAGE_HEADER_BYTES, STAGE, PageHeaders, PleGeometry
from assay.impl.stores.ple_rows.processes import PageJudges, PageRange, PageVerdict
from assay.impl.stores.ple_rows.rules import PAGE_SIZE, PAYLOAD_DIGEST, ROW, judge_page
from assay.impl.stores.recycled import RecycledBuffers
from assay.spec.errors import AdmissionError, ContractError, Finding

MAX_PAGE_BYTES: Final = 1 << 26
MAX_FINDINGS: Final = 64
"""Findings that a verification keeps; the number of bad pages is counted beyond."""
CHECKPOINT_BYTES = 1 << 26
"""How much a verification reads between two checkpoints."""
_RUN_BYTES: Final = 1 << 21
_RANGE_BYTES: Final = 1 << 24

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


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


class PageVerifier:
    """Judges the pages of a store whose manifest holds."""

    def __init__(
        self, extent: Extent, geometry: PleGeometry, digests: DigestTable, payload_sha256: bytes
    ) -> None:
        self._extent = extent
        self._geometry = geometry
        self._digests = digests
        self._wanted = payload_sha256
        self._headers = PageHeaders(geometry)
        self._stride = geometry.page_stride

    def verify_pages(self, first: int, stop: int, threads: int, jobs: int) -> list[Finding]:
        """Returns what is wrong with pages first..stop-1; see `PleStore.verify_pages`."""
        threads, jobs = bound(threads, 1, "threads"), bound(jobs, 1, "jobs")
        begin, end = integer(first), integer(stop)
        count = self._geometry.page_count
        if begin is None or end is None or not 0 <= begin <= end <= count:
            raise ContractError(
                Finding.of(ROW, STAGE, "pages", expected=f"a range in 0..{count}", got=f"{first}..{stop}")
            )
        check_page_size(self._geometry, self._extent.name)
        if jobs > 1:
            tally = _Tally(self._stride, begin, None)
            with PageJudges(jobs, self._ranges(begin, end), tally.take) as judges:
                judges.finish()
            return tally.findings
        buffers = RecycledBuffers(2 * threads + 2)
        findings: list[Finding] = []
        runs = neighbours(range(begin, end), self._stride, _RUN_BYTES)
        for _, found, _ in in_order(lambda run: self._judge(run, buffers, begin), runs, threads):
            findings += found[: MAX_FINDINGS - len(findings)]
        return findings

    def verify_all(
        self,
        threads: int,
        progress: Progress | None,
        *,
        jobs: int,
        judged_before: int,
        checkpoint: Callable[[int], None] | None,
    ) -> PleVerification:
        """Judges every page and the payload digest; see `PleStore.verify_all`."""
        threads, jobs = bound(threads, 1, "threads"), bound(jobs, 1, "jobs")
        check_page_size(self._geometry, self._extent.name)
        total, count = self._geometry.payload_bytes, self._geometry.page_count
        before = integer(judged_before)
        if before is None or not 0 <= before <= count:
            raise ContractError(
                Finding.of(ROW, STAGE, "judged_before", expected=f"0..{count}", got=judged_before)
            )
        tally = _Tally(self._stride, before, checkpoint)
        payload = hashlib.sha256()
        buffers = RecycledBuffers(2 * threads + 2)
        done = 0
        with ExitStack() as stack:
            judges = None
            if jobs > 1 and before < count:
                judges = stack.enter_context(PageJudges(jobs, self._ranges(before, count), tally.take))
            first_judged = before if judges is None else count
            runs = neighbours(range(count), self._stride, _RUN_BYTES)
            for data, found, bad in in_order(
                lambda run: self._judge(run, buffers, first_judged), runs, threads
            ):
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
        self._extent.file.check_unchanged()
        digest = payload.digest()
        if digest != self._wanted:
            if before and not tally.findings:
                # A page that an earlier run judged has changed since: say which.
                tally.findings += self.verify_pages(0, before, threads, 1)
                tally.bad += len({one.where.split(".")[0].split(" ")[0] for one in tally.findings})
            tally.findings.append(
                Finding.of(
                    PAYLOAD_DIGEST, STAGE, "payload_sha256", expected=self._wanted.hex(), got=digest.hex()
                )
            )
        return PleVerification(tuple(tally.findings), tally.bad, count - before, digest)

    def _judge(
        self, run: tuple[int, int], buffers: RecycledBuffers, first_judged: int
    ) -> tuple[memoryview, list[Finding], int]:
        """Reads a run of pages and judges those from `first_judged` on."""
        first, count = run
        stride, geometry = self._stride, self._geometry
        data = buffers.take(count * stride)
        self._extent.fill(geometry.payload_offset + first * stride, data)
        findings: list[Finding] = []
        bad, judged = 0, max(first, first_judged)
        if judged >= first + count:
            return data, findings, bad
        digests = self._digests.entries(judged, first + count - judged)
        for page in range(judged, first + count):
            start = (page - first) * stride
            one = data[start : start + stride]
            used = PAGE_HEADER_BYTES + geometry.valid_rows(page) * geometry.codec.row_bytes
            place = DIGEST_BYTES * (page - judged)
            digest = digests[place : place + DIGEST_BYTES]
            if (
                self._headers.match(one, page)
                and hashlib.sha256(one).digest() == digest
                and not bytes(one[used:]).strip(b"\0")
            ):
                continue
            bad += 1
            findings += judge_page(bytes(one), page, geometry, digest)
        return data, findings, bad

    def _ranges(self, first: int, stop: int) -> Iterator[PageRange]:
        """Yields pages in ranges of about 16 MiB, with their digests, for processes."""
        file, geometry = self._extent.file, self._geometry
        step = max(1, _RANGE_BYTES // self._stride)
        for page in range(first, stop, step):
            end = min(page + step, stop)
            digests = self._digests.entries(page, end - page)
            start = self._extent.start + geometry.payload_offset + page * self._stride
            yield PageRange(file.name, file.identity, start, page, digests, geometry)


def neighbours(pages: Iterable[int], stride: int, run_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields (first page, number of pages) of neighbours that are read in one piece of up to `run_bytes`."""
    longest = max(1, run_bytes // stride)
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


def check_page_size(geometry: PleGeometry, where: str) -> None:
    """Raises ple-store.page.size for pages that are never read whole."""
    if geometry.page_stride > MAX_PAGE_BYTES:
        raise AdmissionError(
            Finding.of(
                PAGE_SIZE, STAGE, where, expected=f"at most {MAX_PAGE_BYTES}", got=geometry.page_stride
            )
        )


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
