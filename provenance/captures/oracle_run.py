"""Runs the oracles over the inputs of a shipped capture and files what they say under the capture's rungs.

This path shares nothing with the collection: the oracles read the configuration and make the weights by themselves.
Only the translation of layouts is here: upstream keeps one more column of the convolution and puts heads first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.oracles.rungs import TAPS
from assay.provenance.captures.compare import FILLS
from assay.spec.documents.fixture import Fixture

Rung = tuple[str, int | None, str]
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class OracleRun:
    """What the oracles say: token rows by rung, ragged rows as lists, and the state in upstream's layout."""

    rows: dict[Rung, list[Array]]
    states: dict[Rung, Array]


def run_oracles(fixture: Fixture, tokens: list[int]) -> OracleRun:
    """Returns every tapped array of the whole-model oracle, in float32, token by token."""
    from assay.oracles.geometry import from_config

    geometry = from_config(fixture.configuration)
    return run_with(geometry, _weights(fixture, geometry), tokens)


def run_with(geometry: Any, weights: Any, tokens: list[int]) -> OracleRun:
    """Returns what the oracle says with any weights."""
    from assay.oracles.model import Model

    model = Model(geometry, weights)
    rows: dict[Rung, list[Array]] = {}

    def tap(stage: str, layer: int | None, _token: int, array: Any) -> None:
        if stage in TAPS:
            name, part = TAPS[stage]
            rows.setdefault((name, layer, part), []).append(np.array(array))

    done = model.run(tokens, tap=tap)
    for layer in [key[1] for key in rows if key[0] == "qsa" and key[2] == "selected"]:
        rows[("qsa", layer, "selection_mask")] = [
            np.isin(np.arange(len(tokens)), chosen).astype(np.int32)
            for chosen in rows[("qsa", layer, "selected")]
        ]
    return OracleRun(rows, _states(done.state, geometry))


def as_arrays(run: OracleRun, like: Mapping[Rung, Array]) -> dict[Rung, Array]:
    """Returns everything that the oracles said in the shapes of another run's arrays, with the ids that follow."""
    found = {
        key: aligned(rows, like[key], FILLS.get((key[0], key[2]), 0.0))
        for key, rows in run.rows.items()
        if key in like
    }
    logits = run.rows[("output_head", None, "")]
    found[("sampled_id", None, "")] = np.array([int(row.argmax()) for row in logits], np.int64)
    return found | {key: array for key, array in run.states.items() if key in like}


def aligned(rows: list[Array], like: Array, fill: float) -> Array:
    """Stacks rows of growing width into the shape of a captured array; places beyond a row hold `fill`."""
    stacked = np.full((len(rows), like[0].size), fill, np.float32 if like.dtype.kind == "f" else np.int64)
    for place, row in enumerate(rows):
        flat = row.reshape(-1)
        stacked[place, : flat.size] = flat
    return stacked.reshape(len(rows), *like.shape[1:])


def committed_history(history: Array, eos: int) -> list[int]:
    """Returns what is left of upstream's last ids once everything up to an end of text is dropped."""
    ids = [int(one) for one in history]
    return ids[len(ids) - ids[::-1].index(eos) :] if eos in ids else ids


def _weights(fixture: Fixture, geometry: Any) -> Any:
    if fixture.weights.rule == "counter-by-name":
        from assay.oracles.tensors import RuleWeights

        return RuleWeights(geometry)
    from assay.oracles.fixture import FixtureWeights

    return FixtureWeights()


def _states(state: Any, geometry: Any) -> dict[Rung, Array]:
    found: dict[Rung, Array] = {}
    for part in ("gdn_conv", "gdn_recurrent", "ple_conv"):
        for layer, array in getattr(state, part).items():
            found[("state", layer, part)] = np.asarray(array)
    for part in ("qsa_key", "qsa_value"):
        for layer, array in getattr(state, part).items():
            found[("state", layer, part)] = np.asarray(array).transpose(1, 0, 2)
    for layer, array in state.qsa_raw_index.items():
        found[("state", layer, "qsa_raw_index")] = np.asarray(array).reshape(len(array), -1)
    for layer in geometry.ple_layers:
        found[("state", layer, "ple_history")] = np.array(state.ple_history, np.int64)
    return found
