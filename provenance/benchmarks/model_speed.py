"""Prefill and decode of the MLX model against upstream, at three contexts, on one checkpoint in one run."""

import importlib.util
from typing import Final, Literal

from assay.provenance.benchmarks.base import BenchContext, BenchmarkNotRunError, measurement
from assay.provenance.captures.mlx_speed import DECODED, MODES, Mode, measure, save_middle
from assay.spec.documents.bench import Measurement

CONTEXTS = (512, 2048, 8192)
AHEAD: Final[tuple[Literal["ratio"], Literal["at-least"], float]] = ("ratio", "at-least", 1.0)


def run(context: BenchContext) -> list[Measurement]:
    """Returns tokens a second of each mode, as ratios to upstream's in the same run.

    Raises:
        BenchmarkNotRunError: without mlx, torch or transformers.
    """
    missing = [name for name in ("mlx", "torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise BenchmarkNotRunError(f"needs {', '.join(missing)} (extra `capture`)")
    folder = context.folder / "checkpoint"
    save_middle(folder)
    modes: tuple[Mode, ...] = ("fast", "shipped", "tiled")
    found: list[Measurement] = []
    for length in CONTEXTS:
        peer = measure("upstream", folder, length)
        if peer is None:
            raise BenchmarkNotRunError(f"upstream did not end within its limit at {length} tokens")
        told = f"19.6M parameters, float32, random weights, {DECODED} single tokens; {MODES['upstream']}"
        found.append(measurement(f"upstream.prefill.{length}", peer.prefill, "tokens/s", told))
        found.append(measurement(f"upstream.decode.{length}", peer.decode, "tokens/s", told))
        for mode in modes:
            own = measure(mode, folder, length)
            if own is None:
                continue
            shares = ", ".join(f"{name} {share:.0%}" for name, share in list(own.shares.items())[:4])
            said = f"{MODES[mode]}; of a chunk of 512, stage by stage: {shares}"
            aim = AHEAD if mode == "fast" else None
            for what, value, reference in (
                ("prefill", own.prefill, peer.prefill),
                ("decode", own.decode, peer.decode),
            ):
                found.append(
                    measurement(
                        f"{mode}.{what}.{length}",
                        value,
                        "tokens/s",
                        said,
                        reference=("upstream in this run", reference),
                        target=aim,
                    )
                )
    return found
