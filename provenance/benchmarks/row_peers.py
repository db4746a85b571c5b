"""Other ways to keep rows on a disk and read sixteen of them, none of which verifies what it read.

Each peer writes the same rows in its own form, is dropped from this machine's cache, opened anew, and reads the same
batches. LMDB and lance come with the extra `peers`; a peer that isn't installed is named as not measured.
"""

import importlib.util
import mmap
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay.provenance.benchmarks.base import drop_from_cache

ROW_BYTES: Final = 320
_RUN: Final = 1 << 16
Read = Callable[[Sequence[int]], object]
Batches = list[list[int]]


@dataclass(frozen=True, slots=True)
class Peer:
    """One way to keep rows.

    Attributes:
        name: what people call it.
        package: what must be installed, or nothing.
        measure: (folder, rows, batches) -> microseconds a batch, median.
        most: batches that it is given, for one that takes long.
    """

    name: str
    package: str
    measure: Callable[[Path, int, Batches], float]
    most: int = 80

    @property
    def is_installed(self) -> bool:
        """Whether its package is there."""
        return not self.package or importlib.util.find_spec(self.package) is not None


def microseconds(read: Read, batches: Batches) -> float:
    """Returns the median microseconds of a batch."""
    seconds = []
    for batch in batches:
        begin = time.perf_counter()
        read(batch)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds) * 1e6


def _sqlite(folder: Path, rows: int, batches: Batches) -> float:
    path = folder / "rows.sqlite"
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=OFF")
    database.execute("PRAGMA synchronous=OFF")
    database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, data BLOB)")
    database.executemany("INSERT INTO rows VALUES (?, ?)", ((row, _row(row)) for row in range(rows)))
    database.commit()
    database.close()
    drop_from_cache(path)
    database = sqlite3.connect(path)
    mark = ",".join("?" * len(batches[0]))
    query = f"SELECT id, data FROM rows WHERE id IN ({mark})"  # noqa: S608 - only question marks
    found = microseconds(lambda batch: database.execute(query, batch).fetchall(), batches)
    database.close()
    return found


def _lmdb(folder: Path, rows: int, batches: Batches) -> float:
    import lmdb

    path = folder / "rows.lmdb"
    size = max(1 << 26, 3 * rows * ROW_BYTES)
    with lmdb.open(str(path), map_size=size, subdir=False, sync=False, lock=False) as environment:
        with environment.begin(write=True) as transaction:
            cursor = transaction.cursor()
            cursor.putmulti(((_key(row), _row(row)) for row in range(rows)), append=True)
        environment.sync(True)
    drop_from_cache(path)  # only what nobody maps can be dropped
    with (
        lmdb.open(str(path), readonly=True, subdir=False, lock=False, readahead=False) as environment,
        environment.begin() as transaction,
    ):
        return microseconds(lambda batch: [transaction.get(_key(row)) for row in batch], batches)


def _lance(folder: Path, rows: int, batches: Batches) -> float:
    import lance
    import pyarrow as pa

    path = folder / "rows.lance"
    kind = pa.binary(ROW_BYTES)
    schema = pa.schema([("data", kind)])

    def runs() -> Iterator[Any]:
        for start in range(0, rows, _RUN):
            data = pa.py_buffer(b"".join(_row(row) for row in range(start, min(start + _RUN, rows))))
            array = pa.FixedSizeBinaryArray.from_buffers(kind, data.size // ROW_BYTES, [None, data])
            yield pa.record_batch([array], schema=schema)

    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, runs()), str(path))
    for one in path.rglob("*"):
        if one.is_file():
            drop_from_cache(one)
    dataset = lance.dataset(str(path))
    return microseconds(dataset.take, batches)


def _memmap(folder: Path, rows: int, batches: Batches) -> float:
    """Maps the file anew for each batch: what readahead brought in would otherwise be most of a small file."""
    path = _raw(folder, rows)
    seconds = []
    for batch in batches:
        drop_from_cache(path)
        seconds.append(_mapped(path, rows, [batch], mmap.MADV_NORMAL))
    return statistics.median(seconds)


def _memmap_at_random(folder: Path, rows: int, batches: Batches) -> float:
    path = _raw(folder, rows)
    drop_from_cache(path)
    return _mapped(path, rows, batches, mmap.MADV_RANDOM)


def _mapped(path: Path, rows: int, batches: Batches, advice: int) -> float:
    import numpy as np

    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    memory.madvise(advice)
    table = np.frombuffer(memory, dtype=np.uint8).reshape(rows, ROW_BYTES)
    return microseconds(lambda batch: np.array(table[batch]), batches)


def _raw(folder: Path, rows: int) -> Path:
    path = folder / "rows.raw"
    with path.open("wb") as file:
        for start in range(0, rows, _RUN):
            file.write(b"".join(_row(row) for row in range(start, min(start + _RUN, rows))))
    return path


def _key(row: int) -> bytes:
    return row.to_bytes(4, "big")


def _row(row: int) -> bytes:
    return row.to_bytes(4, "little") * (ROW_BYTES // 4)


PEERS: Final = (
    Peer("LMDB", "lmdb", _lmdb),
    Peer("lance", "lance", _lance),
    Peer("SQLite", "", _sqlite),
    Peer("numpy.memmap", "", _memmap, most=20),
    Peer("numpy.memmap, MADV_RANDOM", "", _memmap_at_random),
)
