"""Sixteen rows of random pages, the PLE work of one token: verified by us, unverified by the peers at hand.

Just written: pages never read since the file was written and dropped from this machine's cache. Again: read before, and
dropped. Below a virtual machine its host may still hold both, and nothing here can tell: no figure is one of a cold disk.
The ratio to a peer of the same run, whose file was written the same way, is the figure to look at.
"""

import random
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from assay.impl.stores.extents import StoreFile
from assay.impl.stores.ple_layout import PleGeometry
from assay.impl.stores.ple_store import PleStore
from assay.provenance.benchmarks.base import BenchContext, drop_from_cache, measurement
from assay.provenance.benchmarks.stores_verify import row_store
from assay.spec.documents.bench import Measurement

JUST_WRITTEN = "just written, host cache unknown"
NOT_MEASURED = ("LMDB: no dependency of this project", "lance: no dependency of this project")
"""Peers that issue and machine notes name and this run does not compare with."""
ROWS = 16
ROW_BYTES = 320
Read = Callable[[Sequence[int]], object]


def run(context: BenchContext) -> list[Measurement]:
    """Measures our reads just written, again, warm and from the cache of verified pages, and the peers."""
    path, geometry = row_store(context.folder, context.size_mib, 4096)
    rows = geometry.table.rows
    batches = list(_batches(geometry, context.seed, 80))
    results: dict[str, float] = {}
    drop_from_cache(path)
    with StoreFile.open(path) as file:
        store = PleStore.open(file.extent(), geometry)
        cached = PleStore.open(file.extent(), geometry, cache_bytes=1 << 24)
        results[JUST_WRITTEN] = _microseconds(store.read_rows, batches)
        results["again"] = statistics.median(
            _microseconds(store.read_rows, batches, lambda: drop_from_cache(path))
            for _ in range(context.rounds)
        )
        _microseconds(store.read_rows, batches)
        results["warm"] = _microseconds(store.read_rows, batches)
        few = batches[:40]
        _microseconds(cached.read_rows, few)
        results["verified cache"] = _microseconds(cached.read_rows, few)
    peers = {
        "SQLite": _sqlite(context.folder / "rows.sqlite", rows, batches),
        "numpy.memmap": _memmap(context.folder / "rows.raw", rows, batches[:20]),
    }
    where = f"16 rows of 320 B, random 4 KiB pages of {geometry.payload_bytes >> 20} MiB, 80 batches"
    found = [
        measurement(f"rows, {JUST_WRITTEN}, against {name}", results[JUST_WRITTEN], "us", f"{where}; peer unverified",
                    reference=(name, peer), target=("ratio", "at-most", 1.0))
        for name, peer in peers.items()
    ]  # fmt: skip
    aims = {JUST_WRITTEN: 1600.0, "again": 330.0, "warm": 100.0, "verified cache": 20.0}
    return found + [
        measurement(f"rows, {name}", results[name], "us", where, target=("value", "at-most", aim))
        for name, aim in aims.items()
    ]


def _batches(geometry: PleGeometry, seed: int, count: int) -> Iterator[list[int]]:
    """Yields batches of rows whose pages are all different, so that every page is read for the first time once."""
    pages = random.Random(seed).sample(range(geometry.page_count - 1), ROWS * count)  # noqa: S311 - no secret
    for start in range(0, len(pages), ROWS):
        yield [
            page * geometry.rows_per_page + page % geometry.rows_per_page
            for page in pages[start : start + ROWS]
        ]


def _microseconds(read: Read, batches: list[list[int]], before: Callable[[], None] | None = None) -> float:
    if before is not None:
        before()
    seconds = []
    for batch in batches:
        begin = time.perf_counter()
        read(batch)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds) * 1e6


def _sqlite(path: Path, rows: int, batches: list[list[int]]) -> float:
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=OFF")
    database.execute("PRAGMA synchronous=OFF")
    database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, data BLOB)")
    blob = bytes(range(256)) + bytes(64)
    database.executemany("INSERT INTO rows VALUES (?, ?)", ((row, blob) for row in range(rows)))
    database.commit()
    database.close()
    drop_from_cache(path)
    database = sqlite3.connect(path)
    mark = ",".join("?" * ROWS)
    query = f"SELECT id, data FROM rows WHERE id IN ({mark})"  # noqa: S608 - only question marks
    found = _microseconds(lambda batch: database.execute(query, batch).fetchall(), batches)
    database.close()
    return found


def _memmap(path: Path, rows: int, batches: list[list[int]]) -> float:
    import numpy as np

    with path.open("wb") as file:
        piece = bytes(ROW_BYTES) * 4096
        for start in range(0, rows, 4096):
            file.write(piece[: ROW_BYTES * min(4096, rows - start)])
    drop_from_cache(path)
    table = np.memmap(path, dtype=np.uint8, mode="r", shape=(rows, ROW_BYTES))
    return _microseconds(lambda batch: np.array(table[batch]), batches)
