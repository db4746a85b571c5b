"""Prefill and decode of the MLX model in its fast mode against upstream, at short contexts, on one checkpoint in one run."""

import importlib.util
import statistics
from typing import Final, Literal

from assay.provenance.benchmarks.base import BenchContext, BenchmarkNotRunError, measurement
from assay.provenance.captures.mlx_speed import (
    DECODED,
    MODES,
    Mode,
    Speed,
    SpeedError,
    measure,
    save_middle,
)
from assay.spec.documents.bench import Measurement

CONTEXTS: Final = (512, 2048)
AHEAD: Final[tuple[Literal["ratio"], Literal["at-least"], float]] = ("ratio", "at-least", 1.0)


def run(context: BenchContext) -> list[Measurement]:
    """Returns tokens a second of the fast mode and their ratios to upstream's.

    Raises:
        BenchmarkNotRunError: without mlx, torch or transformers, or when upstream or the model could not be measured.
    """
    return speeds(context, CONTEXTS, ("fast",))


def speeds(context: BenchContext, lengths: tuple[int, ...], modes: tuple[Mode, ...]) -> list[Measurement]:
    """Returns the speeds of modes and their ratios to upstream's; upstream and modes take turns, medians are compared."""
    missing = [name for name in ("mlx", "torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise BenchmarkNotRunError(f"needs {', '.join(missing)} (extra `capture`)")
    folder = context.folder / "checkpoint"
    found: list[Measurement] = []
    try:
        save_middle(folder)
        for length in lengths:
            measured: dict[Mode, list[Speed]] = {}
            for _ in range(context.rounds):
                for mode in ("upstream", *modes):
                    speed = measure(mode, folder, length)
                    if speed is None:
                        raise BenchmarkNotRunError(f"{mode} needs a BLAS in front of MLX, and none was found")
                    measured.setdefault(mode, []).append(speed)
            found += _figures(length, measured, context.rounds)
    except SpeedError as error:
        raise BenchmarkNotRunError(str(error)) from None
    return found


def _figures(length: int, measured: dict[Mode, list[Speed]], rounds: int) -> list[Measurement]:
    peer = measured.pop("upstream")
    told = (
        f"19.6M parameters, float32, random weights, median of {rounds} rounds taken in turn; "
        f"{DECODED} single tokens; {MODES['upstream']}"
    )
    prefill, decode = _median([one.prefill for one in peer]), _median([one.decode for one in peer])
    found = [
        measurement(f"upstream.prefill.{length}", prefill, "tokens/s", told),
        measurement(f"upstream.decode.{length}", decode, "tokens/s", told),
    ]
    for mode, own in measured.items():
        shares = ", ".join(f"{name} {share:.0%}" for name, share in list(own[-1].shares.items())[:4])
        said = f"{MODES[mode]}; of a chunk of 512, stage by stage: {shares}"
        aim = AHEAD if mode == "fast" else None
        figures = (
            ("prefill", [one.prefill for one in own], prefill),
            ("decode", [one.decode for one in own], decode),
        )
        for what, values, reference in figures:
            found.append(
                measurement(
                    f"{mode}.{what}.{length}", _median(values), "tokens/s", said,
                    reference=("upstream in this run", reference), target=aim,
                )
            )  # fmt: skip
    return found


def _median(values: list[float]) -> float:
    return statistics.median(values)
