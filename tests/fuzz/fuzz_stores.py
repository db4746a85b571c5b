"""Coverage-guided fuzzing of the store parsers.

By hand, for as long as wanted: `python tests/fuzz/fuzz_stores.py gguf -max_total_time=600 CORPUS_DIR`. A crash, a hang of
more than a few seconds, an exception other than a typed finding, or memory out of proportion ends the run.
"""

import contextlib
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["assay.impl.stores"]):
    from assay.impl.stores import expert_store as reader
    from assay.impl.stores import gguf, gguf_rules
    from assay.impl.stores import ple_store as rows
    from assay.impl.stores.expert_families import PUBLIC, private_expert_family

from assay.impl.stores.store_files import judge_ple_file
from assay.mutations import expert_store, ple_store
from assay.mutations.store_memory import memory_extent
from assay.mutations.store_samples import GOLDEN_PLE, SMALL_FAMILY, native_gguf
from assay.spec.errors import AssayError
from assay.spec.judgement import JudgeOptions

ANY_PRIVATE = private_expert_family(0x80000002, "", None)
PROPORTION = 64
"""Bytes of memory allowed for each byte of input, beside a fixed megabyte."""


def fuzz_gguf(data: bytes) -> None:
    """Reads and judges a directory."""
    extent = memory_extent(data)
    gguf_rules.judge_gguf(gguf.read_gguf(extent), extent)


def fuzz_expert(data: bytes) -> None:
    """Judges a store as each family, and verifies what is accepted."""
    extent = memory_extent(data)
    for family in (*PUBLIC.values(), SMALL_FAMILY, ANY_PRIVATE):
        manifest, findings = reader.judge_expert_store(extent, family)
        if manifest is not None and not findings:
            reader.ExpertStore(extent, manifest).verify_all(threads=1)


def fuzz_ple(data: bytes) -> None:
    """Judges a store against a geometry, then against its own as the command does."""
    extent = memory_extent(data)
    _, findings = rows.judge_ple_store(extent, GOLDEN_PLE)
    if not findings:
        rows.PleStore.open(extent, GOLDEN_PLE).verify_all(threads=1)
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        judge_ple_file(Path(file.name), JudgeOptions(is_private=True))


TARGETS: dict[str, Callable[[bytes], None]] = {"gguf": fuzz_gguf, "expert": fuzz_expert, "ple": fuzz_ple}


def seeds(target: str, folder: Path) -> None:
    """Writes the valid samples that mutation starts from."""
    if target == "expert":
        (folder / "small").write_bytes(expert_store.sample()[:8192])
        (folder / "whole").write_bytes(expert_store.sample())
    elif target == "ple":
        (folder / "golden").write_bytes(ple_store.sample())
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
