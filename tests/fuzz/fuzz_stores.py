"""Coverage-guided fuzzing of the store parsers.

By hand, for as long as wanted: `python tests/fuzz/fuzz_stores.py gguf -max_total_time=600 CORPUS_DIR`. A crash, a hang of
more than a few seconds, an exception other than a typed finding, or memory out of proportion ends the run.
"""

import contextlib
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["assay.impl.stores", "assay.spec.documents.record_digests"]):
    from assay.impl.stores.expert_major import store as reader
    from assay.impl.stores.expert_major.families import PUBLIC, private_expert_family
    from assay.impl.stores.expert_major.record_digests import digests_path, load_digests, save_digests
    from assay.impl.stores.gguf import reader as gguf
    from assay.impl.stores.gguf import rules as gguf_rules
    from assay.impl.stores.ple_rows import store as rows
    from assay.impl.stores.store_files import judge_rows

from assay.impl.stores.expert_major.layout import HEADER_BYTES as EXPERT_HEADER_BYTES
from assay.impl.stores.expert_major.store import RecordDigests
from assay.impl.stores.ple_rows.layout import HEADER_BYTES as PLE_HEADER_BYTES
from assay.impl.stores.ple_rows.layout import unpack_ple_header
from assay.impl.stores.ple_rows.rules import manifest_hash
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.mutations import expert_store, ple_store
from assay.mutations.store_memory import memory_extent
from assay.mutations.store_samples import GOLDEN_PLE, SMALL_FAMILY, golden_rows, native_gguf
from assay.spec.errors import AssayError
from assay.spec.judgement import Judgement, JudgeOptions

ANY_PRIVATE = private_expert_family(0x80000002, "", None)
PRIVATE_PLE = replace(GOLDEN_PLE, table=replace(GOLDEN_PLE.table, family=0x80000003, profile="assay-fuzz-v1"))
PROPORTION = 64
"""Bytes of memory allowed for each byte of input, beside a fixed megabyte."""


def fuzz_gguf(data: bytes) -> None:
    """Reads and judges a directory."""
    extent = memory_extent(data)
    gguf_rules.judge_gguf(gguf.read_gguf(extent), extent)


def fuzz_expert(data: bytes) -> None:
    """Judges a store as each family, as it is and signed again, and verifies and reads what is accepted."""
    for one in (data, expert_store.signed_again(data)) if len(data) >= EXPERT_HEADER_BYTES else (data,):
        extent = memory_extent(one)
        for family in (*PUBLIC.values(), SMALL_FAMILY, ANY_PRIVATE):
            manifest, findings = reader.judge_expert_store(extent, family)
            if manifest is not None and not findings:
                _use_experts(reader.ExpertStore(extent, manifest))


def _use_experts(store: reader.ExpertStore) -> None:
    found = store.verify_all(threads=1)
    verified = store if found.digests is None else store.with_digests(found.digests)
    for layer in store.manifest.layers:
        for expert in {0, layer.expert_count - 1}:
            record = verified.read_record(layer.layer_id, expert)
            if len(record.data) != layer.record_bytes or record.is_verified is not (
                found.digests is not None
            ):
                raise RuntimeError("a record of another size or label")


def fuzz_ple(data: bytes) -> None:
    """Judges a store against a geometry, then against its own as the command does, as it is and signed again."""
    for one in (data, _signed_again(data)):
        extent = memory_extent(one)
        for geometry in (GOLDEN_PLE, PRIVATE_PLE):
            _, findings = rows.judge_ple_store(extent, geometry)
            if not findings:
                _use_rows(rows.PleStore.open(extent, geometry, table_budget=0, cache_bytes=1 << 14))
        judgement = Judgement("ple-store")
        judge_rows(extent, judgement, JudgeOptions(is_private=True, with_payload=True))


def _use_rows(store: rows.PleStore) -> None:
    found = store.verify_all(threads=1)
    last = store.geometry.table.rows - 1
    for row in (0, last, last // 2):
        buffer = bytearray(b"\xa5" * store.geometry.codec.row_bytes)
        try:
            store.read_rows([row], buffer)
        except AssayError:
            if not found.bad_pages or buffer.strip(b"\xa5"):
                raise RuntimeError("a good row was refused, or a buffer touched") from None


def _signed_again(data: bytes) -> bytes:
    """Returns a row store with the manifest digest that it now has, as far as its header says where that is."""
    if len(data) < PLE_HEADER_BYTES:
        return data
    digest = manifest_hash(data[:PLE_HEADER_BYTES])
    digest.update(data[PLE_HEADER_BYTES : unpack_ple_header(data[:PLE_HEADER_BYTES]).payload_offset])
    return data[:376] + digest.digest() + data[408:]


def fuzz_digests(data: bytes) -> None:
    """Parses a file of record digests."""
    with tempfile.TemporaryDirectory() as folder:
        path = digests_path(Path(folder), bytes(32))
        path.parent.mkdir()
        path.write_bytes(data)
        load_digests(Path(folder), bytes(32))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "gguf": fuzz_gguf,
    "expert": fuzz_expert,
    "ple": fuzz_ple,
    "digests": fuzz_digests,
}


def seeds(target: str, folder: Path) -> None:
    """Writes the valid samples that mutation starts from."""
    if target == "expert":
        (folder / "small").write_bytes(expert_store.sample()[:8192])
        (folder / "whole").write_bytes(expert_store.sample())
    elif target == "ple":
        (folder / "golden").write_bytes(ple_store.sample())
        write_ple_store(folder / "private", PRIVATE_PLE, golden_rows)
    elif target == "digests":
        digests = RecordDigests(bytes(32), bytes(32), (bytes(64), bytes(32)))
        with tempfile.TemporaryDirectory() as scratch:
            data = save_digests(Path(scratch), digests, "build").read_bytes()
        (folder / "digests").write_bytes(data)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            (folder / "native").write_bytes(native_gguf(Path(scratch), "deepseek4")[1].read_bytes()[:4096])


def checked(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Returns the target with typed findings accepted and memory bounded."""

    def one(data: bytes) -> None:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with contextlib.suppress(AssayError):
            target(data)
        used = tracemalloc.get_traced_memory()[1] - before
        if used > (1 << 20) + PROPORTION * len(data):
            raise MemoryError(f"{used} bytes for {len(data)} bytes of input")

    return one


if __name__ == "__main__":
    name, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as corpus:
        seeds(name, Path(corpus))
        tracemalloc.start()
        atheris.Setup(
            [sys.argv[0], "-timeout=10", "-rss_limit_mb=2048", *options, corpus], checked(TARGETS[name])
        )
        atheris.Fuzz()
