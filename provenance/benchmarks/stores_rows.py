"""Sixteen rows of random pages, the PLE work of one token: verified by us, unverified by the peers at hand.

Just written: pages never read since the file was written and dropped from this machine's cache. Again: read before, and
dropped. Below a virtual machine its host may still hold both, and nothing here can tell: no figure is one of a cold disk.
The ratio to a peer of the same run, whose file was written the same way, is the figure to look at.
"""

import random
import statistics
from collections.abc import Iterator

from assay.impl.stores.extents import StoreFile
from assay.impl.stores.ple_rows.layout import PleGeometry
from assay.impl.stores.ple_rows.store import PleStore
from assay.provenance.benchmarks.base import BenchContext, drop_from_cache, measurement
from assay.provenance.benchmarks.row_peers import PEERS, microseconds
from assay.provenance.benchmarks.stores_verify import row_store
from assay.spec.documents.bench import Measurement

JUST_WRITTEN = "just written, host cache unknown"
ROWS = 16
BATCHES = 80


def not_measured() -> list[str]:
    """Returns the peers that aren't installed here."""
    return [f"{peer.name}: not installed (extra `peers`)" for peer in PEERS if not peer.is_installed]


def run(context: BenchContext) -> list[Measurement]:
    """Measures our reads just written, again, warm and from the cache of verified pages, and the peers."""
    path, geometry = row_store(context.folder, context.size_mib, 4096)
    rows = geometry.table.rows
    batches = list(_batches(geometry, context.seed, BATCHES))
    results: dict[str, float] = {}
    first: list[float] = []
    drop_from_cache(path)
    with StoreFile.open(path) as file:
        store = PleStore.open(file.extent(), geometry)
        cached = PleStore.open(file.extent(), geometry, cache_bytes=1 << 24)
        sealed = PleStore.open(file.extent(), geometry, table_budget=0)
        # Before and after the peers, each on pages that were never read, because the speed of a disk drifts.
        first.append(microseconds(store.read_rows, batches[: BATCHES // 2]))
        peers = {
            peer.name: peer.measure(context.folder, rows, batches[: peer.most])
            for peer in PEERS
            if peer.is_installed
        }
        first.append(microseconds(store.read_rows, batches[BATCHES // 2 :]))
        results[JUST_WRITTEN] = statistics.mean(first)
        again = []
        for _ in range(context.rounds):
            drop_from_cache(path)
            again.append(microseconds(store.read_rows, batches))
        results["again"] = statistics.median(again)
        microseconds(store.read_rows, batches)
        results["warm"] = microseconds(store.read_rows, batches)
        drop_from_cache(path)
        on_disk = {"again": microseconds(sealed.read_rows, batches)}
        on_disk["warm"] = microseconds(sealed.read_rows, batches)
        few = batches[: BATCHES // 2]
        microseconds(cached.read_rows, few)
        results["verified cache"] = microseconds(cached.read_rows, few)
    where = f"16 rows of 320 B, random 4 KiB pages of {geometry.payload_bytes >> 20} MiB, median of {BATCHES} batches"
    found = [
        measurement(
            f"rows, {JUST_WRITTEN}, against {name}", results[JUST_WRITTEN], "us",
            f"{where}; ours verified, {first[0]:.0f} before and {first[1]:.0f} after the peers; peer unverified",
            reference=(name, peer), target=("ratio", "at-most", 1.0),
        )
        for name, peer in peers.items()
    ]  # fmt: skip
    aims = {JUST_WRITTEN: 1600.0, "again": 330.0, "warm": 100.0, "verified cache": 20.0}
    found += [
        measurement(f"rows, {name}", results[name], "us", where, target=("value", "at-most", aim))
        for name, aim in aims.items()
    ]
    return found + [
        measurement(f"rows, {name}, digest table on disk", value, "us",
                    f"{where}; as of a table beyond the budget of 64 MiB: a part of 4 KiB is read and checked for each page",
                    reference=("table in memory", results[name]))
        for name, value in on_disk.items()
    ]  # fmt: skip


def _batches(geometry: PleGeometry, seed: int, count: int) -> Iterator[list[int]]:
    """Yields batches of rows whose pages are all different, so that every page is read for the first time once."""
    pages = random.Random(seed).sample(range(geometry.page_count - 1), ROWS * count)  # noqa: S311 - no secret
    for start in range(0, len(pages), ROWS):
        yield [
            page * geometry.rows_per_page + page % geometry.rows_per_page
            for page in pages[start : start + ROWS]
        ]
