"""Verification of a row store: the payload digest against its bounds, page digests against threads."""

import os
import statistics
from collections.abc import Callable
from pathlib import Path

from assay.impl.stores.expert_major.blocks import BF16
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.ple_rows.layout import PleGeometry
from assay.impl.stores.ple_rows.store import PleStore
from assay.impl.stores.ple_rows.tables import derived_table, paged, raw_codec
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.provenance.benchmarks.base import (
    BenchContext,
    drop_from_cache,
    measurement,
    median_seconds,
    sequential_mib_per_s,
    sha256_mib_per_s,
)
from assay.spec.documents.bench import Measurement


def run(context: BenchContext) -> list[Measurement]:
    """Measures verify_all and verify_pages on a fresh store."""
    path, geometry = row_store(context.folder, context.size_mib, 16384)
    size = geometry.payload_bytes / (1 << 20)
    cores = os.cpu_count() or 1
    jobs = max(1, cores - 1)  # with two cores, threads of one process do as well and cost no start
    rates: dict[str, list[float]] = {}
    with StoreFile.open(path) as file:
        store = PleStore.open(file.extent(), geometry)
        count = geometry.page_count
        kinds: tuple[tuple[str, Callable[[], object], bool], ...] = (
            ("payload", lambda: store.verify_all(3, judged_before=count), True),
            ("cold", lambda: store.verify_all(2, jobs=jobs), True),
            ("warm", lambda: store.verify_all(2, jobs=jobs), False),
            ("1 thread", lambda: store.verify_pages(0, count, 1), False),
            ("threads", lambda: store.verify_pages(0, count, cores), False),
        )

        def level() -> None:
            """Reads everything once: a disk that is throttled is faster after a pause, whoever comes then."""
            sequential_mib_per_s(path, 1)
            drop_from_cache(path)

        for _ in range(context.rounds):  # interleaved: disk and neighbours drift
            rates.setdefault("hash", []).append(sha256_mib_per_s(1))
            level()
            rates.setdefault("disk", []).append(sequential_mib_per_s(path, 1))
            for name, work, is_cold in kinds:
                before = level if is_cold else None
                rates.setdefault(name, []).append(size / median_seconds(work, 1, before))
    rate = {name: statistics.median(values) for name, values in rates.items()}
    hashing = rate["hash"]
    bound = min(("one core's SHA-256", hashing), ("sequential read", rate["disk"]), key=lambda one: one[1])
    where = f"{size:.0f} MiB in 16 KiB pages"
    beside = f"{jobs} processes judge pages" if jobs > 1 else "2 threads read and judge pages"
    both = f"{where}, {cores} cores: {beside} beside the chain, so that every byte is hashed twice"
    return [
        measurement("payload digest, cold", rate["payload"], "MiB/s", f"{where}, dropped from the cache after a pass of reads, pages judged before",
                    reference=bound, target=("ratio", "at-least", 0.9)),
        measurement("verify_all, cold", rate["cold"], "MiB/s", f"{both}; dropped from the cache", reference=bound,
                    target=("ratio", "at-least", 0.9)),
        measurement("verify_all, warm", rate["warm"], "MiB/s", f"{both}; cached", reference=("one core's SHA-256", hashing)),
        measurement(f"page digests, {cores} threads", rate["threads"], "MiB/s", f"{where}, cached, {cores} cores",
                    reference=("1 thread", rate["1 thread"])),
    ]  # fmt: skip


def row_store(folder: Path, size_mib: int, page_bytes: int) -> tuple[Path, PleGeometry]:
    """Writes a store of about `size_mib` MiB of 320-byte rows and returns its path and geometry."""
    heads = 16
    rows = size_mib * (1 << 20) // page_bytes * ((page_bytes - 64) // 320)
    table = derived_table(
        family=0x80000010, profile="assay-bench-v1", base=rows // heads, heads=heads, width=160, alignment=128
    )
    geometry = paged(table, raw_codec("assay-bf16", BF16, 160), page_bytes)
    noise = os.urandom(1 << 20)

    def encode(first: int, count: int) -> bytes:
        start = first * 7919 % (len(noise) - 320 * count)
        return noise[start : start + 320 * count]

    path = folder / f"rows-{page_bytes}"
    write_ple_store(path, geometry, encode)
    return path, geometry
