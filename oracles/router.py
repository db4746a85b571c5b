"""The router: float32 softmax over all experts, the best k by probability, the lower id at a tie."""

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles.arithmetic import narrow, softmax
from assay.oracles.checks import Array, integer, real, working


class Routed(NamedTuple):
    """Expert ids in rank order (int64 [k]) and their weights [k]; weight i belongs to id i."""

    ids: Array
    weights: Array


def topk(logits: Array, k: int, dtype: DTypeLike = np.float32) -> Routed:
    """Returns the k most probable experts, ties to the lower id, with weights that sum to 1.

    Args:
        logits: [expert].
        k: how many are chosen, 1 .. experts.
        dtype: float32 or float64.

    Returns:
        `ids` and `weights`, most probable first.

    Order: probabilities are compared in the working type, so that two logits whose probabilities round to the
        same value are a tie; the sum of the chosen is formed in float64 and rounded once.
    Source: facts 2.6; bug report A18 (a cast before the selection makes new ties). Upstream's `topk` promises no
        order among equals: the tie rule is the contract's own.
    """
    kind = working(dtype)
    values = real("logits", logits, kind, (None,))
    integer("k", k, 1, values.size)
    probabilities = softmax(values)
    ids = np.argsort(-probabilities, kind="stable")[:k].astype(np.int64)
    chosen = probabilities[ids]
    return Routed(ids, np.asarray(chosen / narrow(chosen.astype(np.float64).sum(), kind), dtype=kind))
