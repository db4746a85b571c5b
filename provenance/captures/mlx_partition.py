"""Whether chunks, batches and neighbours show: the MLX model against its own one-shot run, byte for byte."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.impl.model.bank import Bank
from assay.impl.model.graph import Model
from assay.impl.model.numerics import Numerics
from assay.impl.model.state import State, differing
from assay.impl.model.trace import Recorder
from assay.provenance.captures.mlx_run import rule_model
from assay.provenance.captures.writing import NEAR_GAP

Wrong = list[tuple[str, str]]


def differing_partitions(
    config: dict[str, Any], tokens: Sequence[int], numerics: Numerics, seed: int
) -> tuple[Wrong, int]:
    """Returns where a partition, a padded batch or an interleaving differs from one shot, and how many were run."""
    model = rule_model(config, numerics)
    whole = _run(model, tokens, [len(tokens)])
    drawn = random.Random(seed)  # noqa: S311 - reproducible inputs, no secret
    partitions = [[1] * len(tokens)]
    for _ in range(4):
        edges = sorted(drawn.sample(range(1, len(tokens)), min(7, len(tokens) - 1)))
        partitions.append(
            [stop - start for start, stop in zip([0, *edges], [*edges, len(tokens)], strict=True)]
        )
    wrong: Wrong = []
    for widths in partitions:
        wrong += _compared(f"calls of {widths}", whole, _run(model, tokens, widths))
    short = list(tokens[: len(tokens) // 3])
    alone = _run(model, short, [len(short)])
    for pads in (1, 3, 4, 5):
        bank = Bank(model, 2)
        line = [short[0]] * pads + short
        seen = [False] * pads + [True] * len(short)
        bank.advance_padded([0, 1], [line, list(tokens[: len(line)])], [seen, [True] * len(line)])
        wrong += [(f"{pads} pads", name) for name in differing(bank.state(0), alone[0])]
    bank = Bank(model, 2)
    for place in range(len(tokens)):
        bank.advance({0: [tokens[place]]})
        if place < len(short):
            bank.advance({1: [short[place]]})
    wrong += [("interleaved long", name) for name in differing(bank.state(0), whole[0])]
    wrong += [("interleaved short", name) for name in differing(bank.state(1), alone[0])]
    return wrong, len(partitions) + 5


def fast_difference(
    config: dict[str, Any], length: int, seed: int, fast: Numerics, exact: Numerics
) -> dict[str, Any]:
    """Returns how far whole products lie from pinned ones, and the routes that flip, by their margin at the cut."""
    drawn = random.Random(seed)  # noqa: S311 - reproducible inputs, no secret
    tokens = [drawn.randrange(config["vocab_size"]) for _ in range(length)]
    runs = [_run(rule_model(config, one), tokens, [length]) for one in (fast, exact)]
    used = config["num_experts_per_tok"]
    flips = near = 0
    for layer, ids in runs[1][2].items():
        changed = (np.sort(runs[0][2][layer], axis=-1) != np.sort(ids, axis=-1)).any(axis=-1)
        ranked = np.sort(runs[1][3][layer], axis=-1)[:, ::-1]
        gaps = ranked[:, used - 1] - ranked[:, used]
        flips += int(changed.sum())
        near += int((changed & (gaps <= NEAR_GAP)).sum())
    return {
        "tokens": length,
        "largestLogitDifference": float(np.abs(runs[0][1] - runs[1][1]).max()),
        "routesFlipped": flips,
        "routesFlippedNearTheCut": near,
    }


Run = tuple[
    State,
    np.ndarray[Any, Any],
    dict[int | None, np.ndarray[Any, Any]],
    dict[int | None, np.ndarray[Any, Any]],
]


def _run(model: Model, tokens: Sequence[int], widths: Sequence[int]) -> Run:
    """State, logits, expert ids and router logits of one sequence run in calls of these widths."""
    bank, start = Bank(model), 0
    logits: list[Any] = []
    routes: dict[tuple[str, int | None], list[Any]] = {}
    for width in widths:
        recorder = Recorder()
        done = bank.advance({0: list(tokens[start : start + width])}, recorder, every_logit=True)
        logits.append(np.array(done.logits[0]))
        for (stage, layer, part), arrays in recorder.arrays.items():
            if stage == "router" and part in {"ids", "logits"}:
                routes.setdefault((part, layer), []).append(np.array(arrays[0]))
        start += width
    joined = {key: np.concatenate(arrays) for key, arrays in routes.items()}
    ids = {layer: array for (part, layer), array in joined.items() if part == "ids"}
    scores = {layer: array for (part, layer), array in joined.items() if part == "logits"}
    return bank.state(), np.concatenate(logits), ids, scores


def _compared(name: str, whole: Run, other: Run) -> Wrong:
    wrong = [(name, owner) for owner in differing(whole[0], other[0])]
    if whole[1].tobytes() != other[1].tobytes():
        wrong.append((name, "logits"))
    wrong += [
        (name, f"layers.{layer}.router.ids")
        for layer, ids in whole[2].items()
        if ids.tobytes() != other[2][layer].tobytes()
    ]
    return wrong
