"""What a benchmark is given, how it measures, and how it says what the figure is worth."""

import hashlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.spec.documents.bench import Measurement, Target


@dataclass(frozen=True, slots=True)
class BenchContext:
    """What a benchmark may use.

    Attributes:
        folder: an empty folder on the disk to be measured; removed afterwards.
        size_mib: about how much one benchmark may write, in MiB.
        seed: seed of all randomness.
        rounds: repetitions; figures are medians.
    """

    folder: Path
    size_mib: int = 256
    seed: int = 0
    rounds: int = 3


class BenchmarkNotRunError(Exception):
    """This machine lacks what the benchmark needs; the text says what."""


@dataclass(slots=True)
class Stopwatch:
    """Seconds of the last timed block."""

    seconds: float = 0.0


@contextmanager
def timed() -> Iterator[Stopwatch]:
    """Times a block."""
    watch = Stopwatch()
    begin = time.perf_counter()
    yield watch
    watch.seconds = time.perf_counter() - begin


def median_seconds(
    work: Callable[[], object], rounds: int, before: Callable[[], None] | None = None
) -> float:
    """Returns the median seconds of `work`, with `before` outside the clock each time."""
    seconds = []
    for _ in range(rounds):
        if before is not None:
            before()
        with timed() as watch:
            work()
        seconds.append(watch.seconds)
    return statistics.median(seconds)


def drop_from_cache(path: Path) -> None:
    """Asks the system to forget the cached pages of a file; a host's cache below this machine stays as it is.

    Raises:
        BenchmarkNotRunError: where the system has no such call.
    """
    if not hasattr(os, "posix_fadvise"):
        raise BenchmarkNotRunError("needs posix_fadvise to drop a file from the cache")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def sha256_mib_per_s(rounds: int) -> float:
    """Returns what one core's SHA-256 does over pieces of 1 MiB."""
    piece = os.urandom(1 << 20)

    def work() -> None:
        digest = hashlib.sha256()
        for _ in range(64):
            digest.update(piece)

    return 64 / median_seconds(work, rounds)


def sequential_mib_per_s(path: Path, rounds: int) -> float:
    """Returns what one thread reads from a file that was dropped from the cache, in pieces of 1 MiB."""

    def work() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            offset = 0
            while data := os.pread(descriptor, 1 << 20, offset):
                offset += len(data)
        finally:
            os.close(descriptor)

    return path.stat().st_size / (1 << 20) / median_seconds(work, rounds, lambda: drop_from_cache(path))


def measurement(
    name: str,
    value: float,
    unit: str,
    conditions: str,
    *,
    reference: tuple[str, float] | None = None,
    target: tuple[Literal["ratio", "value"], Literal["at-least", "at-most"], float] | None = None,
) -> Measurement:
    """Makes one figure, with its ratio to the reference and whether the target is met."""
    ratio = value / reference[1] if reference is not None and reference[1] else None
    aim = None
    if target is not None:
        of, bound, wanted = target
        got = ratio if of == "ratio" else value
        met = got is not None and (got >= wanted if bound == "at-least" else got <= wanted)
        aim = Target(of=of, bound=bound, value=wanted, met=met)
    return Measurement(
        name=name,
        value=value,
        unit=unit,
        conditions=conditions,
        reference=reference[0] if reference is not None else None,
        reference_value=reference[1] if reference is not None else None,
        ratio=ratio,
        target=aim,
    )
