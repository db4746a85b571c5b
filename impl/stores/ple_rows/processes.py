"""Judges pages in other processes, while the caller's own hashes the payload.

Pages are small, so that hashing them in threads spends its time handing over the interpreter lock, and starves the
one thread that chains the payload digest. Processes share nothing but the file: each is told where it lies, which
identity it must have, and the digests of its pages as the manifest digest covered them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from assay.impl.stores.extents import FILE_CHANGED, StoreFile, fail
from assay.impl.stores.ple_rows.layout import DIGEST_BYTES, PleGeometry
from assay.impl.stores.ple_rows.rules import judge_page
from assay.impl.workers import spawn_pool, worker_deaths
from assay.spec.errors import Finding


@dataclass(frozen=True, slots=True)
class PageRange:
    """Pages for one process; everything in it pickles.

    Attributes:
        path: the file.
        identity: what `StoreFile.identity` must be.
        start: where the first page lies in the file.
        first: number of the first page.
        digests: 32 bytes for each page.
        geometry: what the pages must be.
    """

    path: str
    identity: tuple[int, int, int, int]
    start: int
    first: int
    digests: bytes
    geometry: PleGeometry


@dataclass(frozen=True, slots=True)
class PageVerdict:
    """What one process found: findings, bad pages, and the number of the page after the last."""

    findings: tuple[Finding, ...]
    bad: int
    stop: int


class PageJudges:
    """A pool of processes that judges ranges of pages in order, at most twice as many in flight as processes."""

    def __init__(self, jobs: int, ranges: Iterator[PageRange], take: Callable[[PageVerdict], None]) -> None:
        self._pool = spawn_pool(jobs)
        self._ranges = ranges
        self._take = take
        with worker_deaths("pages"):
            self._pending: deque[Future[PageVerdict]] = deque(
                self._pool.submit(judge_range, one) for one in islice(ranges, 2 * jobs)
            )

    def advance(self) -> None:
        """Takes what is finished, without waiting, and hands out as much again."""
        while self._pending and self._pending[0].done():
            self._step()

    def finish(self) -> None:
        """Waits for all ranges."""
        while self._pending:
            self._step()

    def _step(self) -> None:
        with worker_deaths("pages"):
            verdict = self._pending.popleft().result()
            self._pending.extend(self._pool.submit(judge_range, one) for one in islice(self._ranges, 1))
        self._take(verdict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def judge_range(pages: PageRange) -> PageVerdict:
    """Judges the pages of a range; runs in a process of its own.

    Raises:
        AdmissionError: store.file.*, also when the file is another one than the caller opened.
    """
    stride = pages.geometry.page_stride
    count = len(pages.digests) // DIGEST_BYTES
    findings: list[Finding] = []
    bad = 0
    with StoreFile.open(Path(pages.path)) as file:
        if file.identity != pages.identity:
            fail(FILE_CHANGED, pages.path, expected=pages.identity, got=file.identity)
        extent = file.extent(pages.start, count * stride)
        step = max(1, (1 << 20) // stride)
        for first in range(0, count, step):
            data = extent.read(first * stride, min(step, count - first) * stride)
            for place in range(first, first + len(data) // stride):
                begin = (place - first) * stride
                digest = pages.digests[DIGEST_BYTES * place : DIGEST_BYTES * (place + 1)]
                found = judge_page(data[begin : begin + stride], pages.first + place, pages.geometry, digest)
                bad += bool(found)
                findings += found[: max(0, 64 - len(findings))]
    return PageVerdict(tuple(findings), bad, pages.first + count)
