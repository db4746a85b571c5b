"""Decode of the middle-sized model with half of its experts in the cache: what the disk makes it wait for.

The wavefront with guesses is compared with the same runtime that waits for a whole layer and guesses nothing, on the
same disk, with direct reads, so that no page cache answers for it; and with a memory map that reads the same records
from a file that was dropped from the cache. Memory is what the system says of a process of its own.
"""

import importlib.util
import json
import mmap
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.impl.runtime.cache import Place
from assay.impl.runtime.lanes import Lane
from assay.impl.runtime.policies import Key
from assay.impl.stores.expert_major.store import RecordDigests
from assay.provenance.benchmarks.base import BenchContext, BenchmarkNotRunError, drop_from_cache, measurement
from assay.provenance.captures.middle import write_middle
from assay.spec.documents.bench import Measurement

RECORDS: Final = 128
DECODED: Final = 48
BUDGET: Final = "200MB"
_PROMPT: Final = tuple(range(10, 42))


@dataclass(frozen=True, slots=True)
class Arm:
    """What one way of decoding came to; times in milliseconds a token."""

    wait: float
    token: float
    misses: int
    guesses_used: int
    guesses: int
    read_bytes: int
    is_direct: bool
    asked: tuple[tuple[Key, ...], ...]


@dataclass(frozen=True, slots=True)
class Task:
    """What is decoded: an artifact, a prompt, so many tokens after it, with a cache of so many records."""

    path: Path
    digests: RecordDigests
    prompt: tuple[int, ...]
    decoded: int
    records: int


def run(context: BenchContext) -> list[Measurement]:
    """Returns exposed waits, their ratio, and memory as seen from outside.

    Raises:
        BenchmarkNotRunError: without mlx.
    """
    if importlib.util.find_spec("mlx") is None:
        raise BenchmarkNotRunError("needs mlx")
    path, digests = write_middle(context.folder)
    task = Task(path, digests, _PROMPT, DECODED, RECORDS)
    waves: list[Arm] = []
    barriers: list[Arm] = []
    colds: list[Arm] = []
    maps: list[float] = []
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for _ in range(context.rounds):
            for arms, is_wave, is_direct in (
                (waves, True, True),
                (barriers, False, True),
                (colds, True, False),
            ):
                drop_from_cache(path)
                arms.append(pool.submit(decode, task, is_wave=is_wave, is_direct=is_direct).result())
            drop_from_cache(path)
            maps.append(pool.submit(mapped, path, barriers[-1].asked).result() / DECODED)
    wave, barrier, cold = (
        sorted(arms, key=lambda one: one.wait)[len(arms) // 2] for arms in (waves, barriers, colds)
    )
    how = (
        "direct reads"
        if wave.is_direct and barrier.is_direct
        else "reads through the page cache (direct ones were refused)"
    )
    told = (
        f"{DECODED} tokens after {len(_PROMPT)}, cache of {RECORDS} of 256 records of 96 KiB, {how}, records verified; "
        f"{wave.misses} misses against {barrier.misses}, {wave.guesses_used} of {wave.guesses} guesses used, "
        f"{wave.read_bytes / 1e6:.0f} MB read against {barrier.read_bytes / 1e6:.0f}"
    )
    peak, same = _from_outside(path)
    return [
        measurement(
            "exposed wait", wave.wait, "ms a token", told,
            reference=("the same runtime with a barrier and no guesses", barrier.wait), target=("ratio", "at-most", 0.5),
        ),
        measurement("token", wave.token, "ms", told, reference=("with a barrier and no guesses", barrier.token)),
        measurement(
            "exposed wait, cold store", cold.wait, "ms a token",
            f"file dropped from the guest's cache before the run; a host's cache stays. {cold.misses} misses",
            reference=("numpy's memory map of the records that the barrier asked for, as cold", statistics.median(maps)),
            target=("ratio", "at-most", 1.0),
        ),
        measurement(
            "memory", peak / 1e6, "MB",
            f"highest resident size of `assay generate --stream --memory-budget {BUDGET} --expert-cache {RECORDS}`, from "
            f"outside; tokens {'equal to' if same else 'DIFFERENT FROM'} the resident run's",
            reference=("the budget", 200.0), target=("ratio", "at-most", 1.0),
        ),
    ]  # fmt: skip


def decode(task: Task, *, is_wave: bool, is_direct: bool) -> Arm:
    """Decodes in a process of its own."""
    from assay.impl.model.backend import choose_numerics

    numerics = choose_numerics(fast=False)

    import numpy as np

    from assay.impl.model.bank import Bank
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import Source, streamed

    source = Source(task.path, task.digests, numerics, task.prompt, task.decoded)
    drop_from_cache(task.path)
    options = Options(0, is_barrier=not is_wave, has_guesses=is_wave, row_slot_bytes=1 << 14, row_window=32)
    with streamed(source, Wish(records=task.records, context=128), options, wants_direct=is_direct) as opened:
        stream, bank = opened.stream, Bank(opened.loaded.model)
        bank.advance({0: list(source.prompt)})
        lane, cache = stream.lane, stream.cache.counts
        asked: list[tuple[Key, ...]] = []
        ask = stream.ask

        def noted(lane: Lane, places: Collection[Place]) -> None:
            asked.append(tuple(place.key for place in places))
            ask(lane, places)

        stream.ask = noted  # type: ignore[method-assign]
        before = (lane.counts.exposed_ns, cache.misses, cache.predicted_used, cache.predicted)
        read = stream.counts.exact_bytes + stream.counts.guessed_bytes
        started = time.perf_counter()
        for _ in range(task.decoded):
            bank.advance({0: [int(np.asarray(bank.state().logits).argmax())]})
        spent = time.perf_counter() - started
        read = stream.counts.exact_bytes + stream.counts.guessed_bytes - read
        refusals = getattr(stream.reader, "direct_refusals", {})
        return Arm(
            (lane.counts.exposed_ns - before[0]) / 1e6 / task.decoded, 1e3 * spent / task.decoded, cache.misses - before[1],
            cache.predicted_used - before[2], cache.predicted - before[3], read,
            is_direct and not any(refusals.values()), tuple(asked),
        )  # fmt: skip


def mapped(path: Path, asked: Sequence[Sequence[Key]], advice: str = "") -> float:
    """Returns the milliseconds that copies of these records out of a memory map into one buffer take, unverified.

    Args:
        path: an artifact; it is dropped from the cache before the clock starts.
        asked: keys of records, those that were wanted at the same time together.
        advice: empty for what the system does by itself; `random` for no read-ahead; `willneed` says of all that
            is wanted at the same time that it will be, before the first of it is touched.
    """
    import numpy as np

    from assay.impl.stores.artifact.opened import Artifact

    with Artifact.open(path, is_private=True) as artifact:
        wanted = [[artifact.experts.locate_record(*key) for key in keys] for keys in asked]
    drop_from_cache(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as table:
        if advice == "random":
            table.madvise(mmap.MADV_RANDOM)
        values = np.frombuffer(table, np.uint8)
        target = np.ones(max((size for places in wanted for _, size in places), default=0), np.uint8)
        started = time.perf_counter()
        for places in wanted:
            if advice == "willneed":
                for offset, size in places:
                    start = offset - offset % mmap.PAGESIZE
                    table.madvise(mmap.MADV_WILLNEED, start, offset + size - start)
            for offset, size in places:
                target[:size] = values[offset : offset + size]
        spent = time.perf_counter() - started
        del values  # or the map can't be closed
    return 1e3 * spent


def _from_outside(path: Path) -> tuple[int, bool]:
    """Returns the highest resident size of the streamed command, and whether its tokens are the resident ones."""
    base = [
        sys.executable, "-m", "assay.provenance.cli", "generate", str(path), "--ids", ",".join(map(str, _PROMPT)),
        "--max-new", "16", "--ignore-eos", "--private", "--format", "json", "-q",
    ]  # fmt: skip
    more = ["--stream", "--memory-budget", BUDGET, "--expert-cache", str(RECORDS)]
    process = subprocess.Popen([*base, *more], stdout=subprocess.PIPE, text=True, cwd=path.parent)
    peak = 0
    while process.poll() is None:
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text("ascii").splitlines()
        except OSError as error:
            raise BenchmarkNotRunError("needs /proc to see memory from outside") from error
        peak = max(peak, *(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
        time.sleep(0.01)
    if process.stdout is None:
        raise AssertionError("a pipe was asked for")
    with process.stdout as out:
        streamed_ids = json.loads(out.read())["ids"]
    done = subprocess.run(base, check=True, capture_output=True, text=True, cwd=path.parent)
    return peak, json.loads(done.stdout)["ids"] == streamed_ids
