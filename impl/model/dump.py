"""Files what a recorded run held under the rungs of a capture."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model import state
from assay.impl.model.state import State
from assay.impl.model.trace import Recorder

Rung = tuple[str, int | None, str]
Arrays = dict[Rung, NDArray[Any]]

_RENAMED = {("router", ""): "weights"}
_RAGGED = {"index_scores", "selected"}
_STATES = ("gdn_conv", "gdn_recurrent", "ple_conv", "qsa_key", "qsa_value", "qsa_raw_index")


class Recording:
    """The arrays of one sequence, chunk after chunk, out of batches that may hold others."""

    def __init__(self) -> None:
        self._chunks: dict[Rung, list[NDArray[Any]]] = {}

    def add(self, recorder: Recorder, lengths: Sequence[int], row: int = 0) -> None:
        """Takes the rows of one sequence out of a batch.

        Args:
            recorder: what the batch told.
            lengths: rows of each sequence of the batch.
            row: which sequence.
        """
        first = sum(lengths[:row])
        mx.eval(
            list(recorder.arrays.values())
        )  # NumPy's own conversion would swallow an error of the evaluation
        for (stage, layer, part), arrays in recorder.arrays.items():
            name = _RENAMED.get((stage, part), part)
            chunk = np.array(arrays[0][first : first + lengths[row]])
            self._chunks.setdefault((stage, layer, name), []).append(chunk)

    def arrays(self, after: State) -> Arrays:
        """Returns all arrays by rung, with what is derived from them and the state after the last token."""
        found = {key: _joined(chunks) for key, chunks in self._chunks.items()}
        found |= {key: _closed(found[key]) for key in found if key[2] in _RAGGED}
        tokens = after.frontier
        for (stage, layer, part), rows in list(found.items()):
            if part == "selected":
                mask = np.zeros((rows.shape[0], tokens + 1), np.int64)
                np.put_along_axis(mask, np.where(rows < 0, tokens, rows), 1, axis=1)
                found[(stage, layer, "selection_mask")] = mask[:, :tokens]
        logits = found.get(("output_head", None, ""))
        if logits is not None:
            found[("sampled_id", None, "")] = logits.argmax(axis=-1)
        return found | states(after)


def states(after: State) -> Arrays:
    """Returns the owners that a capture has rungs for; attention caches as [key head, token, dim]."""
    found: Arrays = {}
    for name, array in state.owners(after).items():
        owner, _, layer = name.partition(".")
        if owner not in _STATES:
            continue
        shaped = array.transpose(1, 0, 2) if owner in {"qsa_key", "qsa_value"} else array
        found[("state", int(layer), owner)] = shaped
    for layer_with_ple in after.ple_conv:
        found[("state", layer_with_ple, "ple_history")] = np.array(after.ple_history, np.int64)
    return found


def _joined(chunks: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if chunks[0].ndim == 2 and len({chunk.shape[1] for chunk in chunks}) > 1:
        width = max(chunk.shape[1] for chunk in chunks)
        chunks = [np.pad(one, [(0, 0), (0, width - one.shape[1])], constant_values=-1) for one in chunks]
    return np.concatenate(chunks)


def _closed(rows: NDArray[Any]) -> NDArray[Any]:
    """Drops the columns on the right in which no row of this sequence has anything."""
    used = np.flatnonzero((rows != -1).any(axis=0))
    return rows[:, : max(1, int(used[-1]) + 1 if used.size else 0)]
