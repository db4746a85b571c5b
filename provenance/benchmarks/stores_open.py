"""Opening: the row table of the public profile at its true size, and a GGUF directory with a large vocabulary."""

import os
import tracemalloc

from assay.impl.stores.expert_major.blocks import BF16
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.gguf.reader import Entry, read_gguf
from assay.impl.stores.gguf.values import ValueType, array, scalar
from assay.impl.stores.gguf.writer import Planned, plan_gguf, write_gguf
from assay.impl.stores.ple_rows.layout import PleGeometry
from assay.impl.stores.ple_rows.store import PleStore
from assay.impl.stores.ple_rows.tables import QWEN4EXP_ROWS, paged, raw_codec
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.provenance.benchmarks.base import BenchContext, measurement, median_seconds
from assay.spec.documents.bench import Measurement

TENSORS = 1700
STRINGS = 20_000


def run(context: BenchContext) -> list[Measurement]:
    """Measures open time and memory for three page sizes, and a directory against the public reader."""
    found = []
    for page_bytes in (65536, 16384, 4096):
        geometry = paged(QWEN4EXP_ROWS, raw_codec("assay-bf16", BF16, 160), page_bytes)
        path = context.folder / f"true-{page_bytes}"
        write_ple_store(path, geometry, lambda _, count: bytes(320 * count), only_pages={0})
        with StoreFile.open(path) as file:
            extent = file.extent()
            seconds = median_seconds(lambda: PleStore.open(extent, geometry), 1)  # noqa: B023 - called at once
            tracemalloc.start()
            PleStore.open(extent, geometry)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        path.unlink()
        where = f"320,001,536 rows, {_words(geometry)}, sparse"
        found.append(measurement(f"open, {page_bytes >> 10} KiB pages", seconds * 1e3, "ms", where))
        found.append(
            measurement(f"open, {page_bytes >> 10} KiB pages, peak memory", peak / (1 << 20), "MiB", where)
        )
    return found + _directory(context)


def _words(geometry: PleGeometry) -> str:
    return f"{geometry.page_count:,} pages, digest table {geometry.table_bytes / (1 << 20):.0f} MiB"


def _directory(context: BenchContext) -> list[Measurement]:
    entries = [
        Entry("general.architecture", scalar(ValueType.STRING, "qwen4exp")),
        Entry("tokenizer.ggml.tokens", array(ValueType.STRING, [f"token{one}" for one in range(STRINGS)])),
    ]
    plan = plan_gguf(entries, [Planned(f"layers.{one}.weight", (32,), 24) for one in range(TENSORS)])
    path = context.folder / "directory.gguf"
    write_gguf(path, plan, lambda draft, _, start: draft.write(start, os.urandom(32)))

    def ours() -> None:
        with StoreFile.open(path) as file:
            read_gguf(file.extent())

    seconds = median_seconds(ours, context.rounds)
    where = f"{TENSORS} tensors, {STRINGS} strings, cached"
    try:
        from gguf import GGUFReader
    except ImportError:
        return [measurement("GGUF directory", seconds * 1e3, "ms", where)]
    theirs = median_seconds(lambda: GGUFReader(path), 1)
    return [
        measurement("GGUF directory", seconds * 1e3, "ms", where, reference=("GGUFReader", theirs * 1e3),
                    target=("ratio", "at-most", 1.0))
    ]  # fmt: skip
