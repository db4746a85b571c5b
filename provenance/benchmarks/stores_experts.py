"""Expert records of the real size, read and verified, against unverified reads of the same file at the same depth."""

import hashlib
import mmap
import os
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay.impl.stores.expert_major.store import ExpertStore
from assay.impl.stores.extents import StoreFile
from assay.provenance.benchmarks.base import (
    BenchContext,
    BenchmarkNotRunError,
    drop_from_cache,
    measurement,
    timed,
)
from assay.provenance.benchmarks.stream_samples import RECORD_BYTES, expert_sample
from assay.spec.documents.bench import Measurement

THREADS = 3


def run(context: BenchContext) -> list[Measurement]:
    """Measures records in random order: verified, and as plain preadv into one buffer a thread."""
    sample = expert_sample(context)
    experts, path = sample.experts, sample.path
    order = list(range(experts))
    random.Random(context.seed).shuffle(order)  # noqa: S311 - no secret
    size = experts * RECORD_BYTES / (1 << 20)
    with StoreFile.open(path) as file:
        store = sample.opened(file)
        offsets = [store.locate_record(0, expert)[0] for expert in order]

        def verified() -> None:
            for record in store.read_records([(0, expert) for expert in order], THREADS):
                assert record.is_verified  # noqa: S101 - an unverified read would be no measurement

        depth = 2 * THREADS  # what `read_records` has in flight
        plain = f"unverified preadv, depth {depth}"
        kinds = {"verified": verified, plain: lambda: _plain_reads(file.descriptor, offsets, depth)}

        def level() -> None:
            """Reads everything once: a disk that is throttled is faster after a pause, whoever comes then."""
            drop_from_cache(path)
            _plain_reads(file.descriptor, offsets, depth)
            drop_from_cache(path)

        cold = _rates(kinds, size, 3 * context.rounds, level)
        direct = _direct(path, store, order, size, 3 * context.rounds, level)
        in_memory = {"verified": verified, "SHA-256": lambda: _hashes(experts)}
        warm = _rates(in_memory, size, context.rounds, lambda: None)
        streamed: dict[str, Callable[[], object]] = {
            "whole": lambda: store.verify_all(THREADS, derive=False),
            "with digests": lambda: store.verify_all(THREADS),
            "read": lambda: _stream(path),
            "SHA-256": lambda: _hash_one(experts),
        }
        whole = _rates(streamed, size, context.rounds, lambda: drop_from_cache(path))
    records = f"{experts} records of {RECORD_BYTES} B in random order"
    where = f"{records}, {THREADS} threads, up to {depth} in flight, dropped from this machine's cache, each after a pass of unverified reads"
    bound = min(
        ("one core's SHA-256", whole["SHA-256"]), ("sequential read", whole["read"]), key=lambda one: one[1]
    )
    found = [
        measurement(
            "verified records, cold", cold["verified"], "MiB/s", f"{where}",
            reference=(plain, cold[plain]), target=("ratio", "at-least", 0.95),
        ),
        measurement(
            "verified records, warm", warm["verified"], "MiB/s", f"{records}, {THREADS} threads, cached: a copy and a hash",
            reference=(f"SHA-256 of the same records in memory, {THREADS} threads", warm["SHA-256"]),
        ),
        measurement(
            "verify_all of experts, cold", whole["whole"], "MiB/s", f"{size:.0f} MiB, payload digest",
            reference=bound, target=("ratio", "at-least", 0.9),
        ),
        measurement(
            "verify_all of experts with record digests", whole["with digests"], "MiB/s",
            f"{size:.0f} MiB, cold; every byte is hashed twice", reference=bound,
        ),
    ]  # fmt: skip
    if direct is not None:
        found.insert(
            1,
            measurement(
                "verified records, direct", direct["checked"], "MiB/s",
                f"{records}, O_DIRECT into {THREADS} buffers, one a thread, judged there by `check_record`",
                reference=(f"unverified O_DIRECT preadv, depth {THREADS}", direct["plain"]),
                target=("ratio", "at-least", 0.95),
            ),
        )  # fmt: skip
    return found


def _direct(
    path: Path,
    store: ExpertStore,
    order: list[int],
    size_mib: float,
    rounds: int,
    level: Callable[[], None],
) -> dict[str, float] | None:
    """Reads past the cache into own aligned memory, as a runtime does; None where the file system won't."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except (OSError, AttributeError):
        return None

    def reads(*, checked: bool) -> None:
        def work(part: list[int]) -> None:
            with mmap.mmap(-1, RECORD_BYTES) as buffer:
                for expert in part:
                    offset, size = store.locate_record(0, expert)
                    with memoryview(buffer) as view:
                        if os.preadv(descriptor, [view], offset) != size:
                            raise BenchmarkNotRunError("a direct read came back short")
                        if checked and not store.check_record(0, expert, view):
                            raise AssertionError("a store with digests compares them")

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, [order[start::THREADS] for start in range(THREADS)]))

    try:
        kinds = {"checked": lambda: reads(checked=True), "plain": lambda: reads(checked=False)}
        return _rates(kinds, size_mib, rounds, level)
    finally:
        os.close(descriptor)


def _rates(
    kinds: Mapping[str, Callable[[], object]], size_mib: float, rounds: int, before: Callable[[], object]
) -> dict[str, float]:
    """Returns the MiB/s of each kind, over the time of all its rounds.

    They take turns and change places, because the speed of a disk drifts and what rested before is faster.
    """
    seconds = dict.fromkeys(kinds, 0.0)
    order = list(kinds)
    for turn in range(rounds):
        for name in order if turn % 2 else order[::-1]:
            before()
            with timed() as watch:
                kinds[name]()
            seconds[name] += watch.seconds
    return {name: rounds * size_mib / one for name, one in seconds.items()}


def _plain_reads(descriptor: int, offsets: list[int], depth: int) -> None:
    """Reads records into one buffer a thread, unverified: the fastest that plain Python does."""

    def work(part: list[int]) -> None:
        buffer = bytearray(RECORD_BYTES)
        for offset in part:
            os.preadv(descriptor, [buffer], offset)

    with ThreadPoolExecutor(depth) as pool:
        list(pool.map(work, [offsets[start::depth] for start in range(depth)]))


def _hashes(records: int) -> None:
    """Hashes as many records as are read, from one that lies in memory."""
    data = os.urandom(RECORD_BYTES)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: hashlib.sha256(data).digest(), range(records)))


def _hash_one(records: int) -> None:
    """Chains one SHA-256 over as many bytes as the store has."""
    data, digest = os.urandom(RECORD_BYTES), hashlib.sha256()
    for _ in range(records):
        digest.update(data)


def _stream(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
