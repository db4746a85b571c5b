"""Decode with half of the experts cached where a record has the real size: what the disk makes it wait for.

The middle-sized model with wider experts: BF16 records of 2,752,512 bytes, weights by the counter rule. Every way runs
in a fresh process on a file that was dropped from this machine's page cache, and the ways change their order from round
to round. Before each round the same tokens are decoded once without a clock: that says which records are wanted, and
leaves a host's cache, which can't be seen from here, in the same state for everybody.

A memory map only copies what the barrier asked for, one wanted set after another, and verifies nothing. It computes
nothing meanwhile either, so that its time is its wait.
"""

import importlib.util
import multiprocessing
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.expert_major.store import RecordDigests
from assay.provenance.benchmarks.base import BenchContext, BenchmarkNotRunError, drop_from_cache, measurement
from assay.provenance.benchmarks.stream_decode import Arm, Task, decode, mapped
from assay.provenance.captures.middle import write_middle
from assay.spec.documents.bench import Measurement

DECODED: Final = 12
EXPERTS: Final = 32
CHANGES: Final[dict[str, Any]] = {"hidden_size": 1024, "moe_intermediate_size": 448, "num_experts": EXPERTS}
RECORD_BYTES: Final = 3 * 2 * 1024 * 448
_LAYER_TYPES: Final = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
_MOST_LAYERS: Final = 16
WAYS: Final = {
    "wave, direct": (True, True),
    "barrier, direct": (False, True),
    "wave, cold": (True, False),
    "barrier, cold": (False, False),
}
"""Name -> whether it is the wavefront with guesses or a barrier without, and whether reads pass the page cache."""
ADVICE: Final = {"": "by default", "random": "MADV_RANDOM", "willneed": "MADV_WILLNEED for all of a layer's"}


def run(context: BenchContext) -> list[Measurement]:
    """Returns exposed waits against a barrier and against memory maps.

    Raises:
        BenchmarkNotRunError: without mlx.
    """
    if importlib.util.find_spec("mlx") is None:
        raise BenchmarkNotRunError("needs mlx")
    layers = layers_of(context.size_mib)
    path, digests = write_large(context.folder, layers)
    return measure(path, digests, layers, context.rounds, context.seed)


def layers_of(size_mib: int) -> int:
    """Returns the layers of which checkpoint and artifact take about `size_mib`; in fours, 4 at least."""
    of_four = 2 * 4 * EXPERTS * RECORD_BYTES // (1 << 20)
    return max(4, min(_MOST_LAYERS, size_mib // of_four * 4))


def write_large(folder: Path, layers: int) -> tuple[Path, RecordDigests]:
    """Writes the model's checkpoint and artifact, 88 MB a layer each; returns the artifact and its records' digests."""
    types = _LAYER_TYPES * (layers // 4)
    return write_middle(folder, {**CHANGES, "num_hidden_layers": layers, "layer_types": types})


def measure(path: Path, digests: RecordDigests, layers: int, rounds: int, seed: int) -> list[Measurement]:
    """Lets the ways take turns and returns the figures."""
    capacity = EXPERTS * layers // 2
    arms: dict[str, list[Arm]] = {name: [] for name in WAYS}
    maps: dict[str, list[float]] = {name: [] for name in ADVICE}
    for turn in range(rounds):
        prompt = tuple(10 + (seed + 37 * turn + 5 * place) % 4000 for place in range(16))
        task = Task(path, digests, prompt, DECODED, capacity)
        asked = _fresh(path, decode, task, is_wave=False, is_direct=True).asked
        names = [*WAYS, *ADVICE]
        for name in names[:: -1 if turn % 2 else 1]:
            if name in WAYS:
                is_wave, is_direct = WAYS[name]
                arms[name].append(_fresh(path, decode, task, is_wave=is_wave, is_direct=is_direct))
            else:
                maps[name].append(_fresh(path, mapped, path, asked, name) / DECODED)
    return _figures(arms, maps, layers, capacity)


def _fresh(path: Path, work: Callable[..., Any], *arguments: object, **named: object) -> Any:
    """Returns what some work gives in a new process, on a file that was dropped from the cache."""
    drop_from_cache(path)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **named).result()


def _figures(
    arms: dict[str, list[Arm]], maps: dict[str, list[float]], layers: int, capacity: int
) -> list[Measurement]:
    wave, barrier, cold, cold_barrier = (
        sorted(found, key=lambda one: one.wait)[len(found) // 2] for found in arms.values()
    )
    is_direct = wave.is_direct and barrier.is_direct
    how = "direct reads" if is_direct else "reads through the page cache (direct ones were refused)"
    told = (
        f"{DECODED} tokens after 16, cache of {capacity} of {EXPERTS * layers} records of {RECORD_BYTES} B, records "
        f"verified, fresh processes in turn"
    )
    what = (
        f"{wave.misses} misses against {barrier.misses}, {wave.guesses_used} of {wave.guesses} guesses used, "
        f"{wave.read_bytes / 1e6:.0f} MB read against {barrier.read_bytes / 1e6:.0f}"
    )
    dropped = "file dropped from the guest's cache, not from a host's, which is as warm as one decode leaves it for all"
    found = [
        measurement(
            "exposed wait", wave.wait, "ms a token", f"{told}, {how}; {what}",
            reference=("the same runtime with a barrier and no guesses", barrier.wait), target=("ratio", "at-most", 0.5),
        ),
        measurement(
            "token", wave.token, "ms", f"{told}, {how}",
            reference=("with a barrier and no guesses", barrier.token),
        ),
        measurement(
            "exposed wait, cold store", cold.wait, "ms a token", f"{told}; {dropped}",
            reference=("with a barrier and no guesses", cold_barrier.wait), target=("ratio", "at-most", 0.5),
        ),
        measurement(
            "token, cold store", cold.token, "ms", f"{told}; {dropped}",
            reference=("with a barrier and no guesses", cold_barrier.token),
        ),
    ]  # fmt: skip
    for name, arm in (("direct", wave), ("through the cache", cold)):
        if name == "direct" and not is_direct:
            continue
        for advice, said in ADVICE.items():
            found.append(
                measurement(
                    f"wait, {name}, by map {advice or 'default'}", arm.wait, "ms a token",
                    f"{told}; {dropped}. {arm.misses} misses of the wave, {barrier.misses} records copied out of the map, unverified",
                    reference=(f"memory map, {said}", statistics.median(maps[advice])), target=("ratio", "at-most", 1.0),
                )
            )  # fmt: skip
    return found
