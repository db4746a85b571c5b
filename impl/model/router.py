"""The router: softmax over all experts in float32, the most probable ones in rank order, weights made to sum to one."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model.clauses import ROUTES
from assay.impl.model.geometry import Geometry
from assay.impl.model.numerics import Numerics
from assay.spec.errors import Finding


@dataclass(frozen=True, slots=True)
class Routing:
    """Where each token goes.

    Attributes:
        logits: float32 [token, expert].
        ids: int32 [token, used], most probable first, ties to the lower id; inside the table by construction.
        weights: float32 [token, used].
    """

    logits: mx.array
    ids: mx.array
    weights: mx.array


def route(x: mx.array, weight: mx.array, geometry: Geometry, numerics: Numerics) -> Routing:
    """Returns the experts of every token and their weights.

    Args:
        x: float32 [token, hidden].
        weight: [hidden, expert].
        geometry: number of experts and how many are used.
        numerics: how products are made.

    Order: probabilities in float32 are compared, never rounded ones; a stable sort, so that ties go to the lower id.
    Source: facts 2.6; bug report A18.
    """
    return choose(numerics.linear(x, weight), geometry)


def choose(logits: mx.array, geometry: Geometry) -> Routing:
    """Returns the experts of logits [token, expert]."""
    probabilities = mx.softmax(logits, axis=-1, precise=True)
    ranked = mx.argsort(-probabilities, axis=-1)[:, : geometry.experts_used]
    ids = mx.minimum(ranked.astype(mx.int32), geometry.experts - 1)
    weights = mx.take_along_axis(probabilities, ids, axis=-1)
    if geometry.is_renormalised:
        weights = weights / mx.sum(weights, axis=-1, keepdims=True)
    return Routing(logits, ids, weights)


def faults(
    logits: NDArray[np.float32],
    ids: NDArray[np.int32],
    weights: NDArray[np.float32],
    geometry: Geometry,
    where: str,
) -> list[Finding]:
    """Returns what is wrong with evaluated routes, from the logits alone; nothing for right ones.

    A stable sort of the logits on the host is the judge: softmax is monotone, so a pair that it orders otherwise must
    have probabilities that round to the same value.
    """
    if ids.min(initial=0) < 0 or ids.max(initial=0) >= geometry.experts:
        bad = int(ids.max() if ids.max() >= geometry.experts else ids.min())
        return [_finding(where, f"ids in 0 .. {geometry.experts - 1}", bad)]
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    probabilities = powers / powers.sum(axis=-1, keepdims=True)
    chosen = np.take_along_axis(probabilities, ids, axis=-1)
    found = []
    slack = 4e-7 * chosen[:, :1]  # float32 probabilities that are equal may lie this far apart in float64
    if (chosen[:, 1:] > chosen[:, :-1] + slack).any():
        found.append(_finding(where, "probabilities that fall in rank order", "a rise"))
    if (np.sort(ids, axis=-1)[:, 1:] == np.sort(ids, axis=-1)[:, :-1]).any():
        found.append(_finding(where, "each expert once", "an expert chosen twice"))
    left = probabilities.copy()
    np.put_along_axis(left, ids.astype(np.int64), -1.0, axis=-1)
    if (left.max(axis=-1) > chosen[:, -1] + slack[:, 0]).any():
        found.append(_finding(where, "the most probable experts", "a more probable one was left out"))
    same = chosen[:, 1:] == chosen[:, :-1]
    cut = chosen[:, -1:]
    is_tied = (left == cut).any(axis=-1)  # an expert that was left out equals the last one that was chosen
    first_left = (left == cut).argmax(axis=-1)
    last_chosen = np.where(chosen == cut, ids, -1).max(axis=-1)
    if (same & (ids[:, 1:] < ids[:, :-1])).any() or (is_tied & (first_left < last_chosen)).any():
        found.append(_finding(where, "ties to the lower id", "a tie to the higher id"))
    expected = chosen / chosen.sum(axis=-1, keepdims=True) if geometry.is_renormalised else chosen
    if np.abs(expected - weights).max(initial=0.0) > 2e-5:
        found.append(
            _finding(where, "weights within 2e-5 of a recomputation", float(np.abs(expected - weights).max()))
        )
    return found


def _finding(where: str, expected: object, got: object) -> Finding:
    return Finding.of(ROUTES, "model", where, expected=expected, got=got)
