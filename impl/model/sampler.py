"""From logits to one id, on the host: padding rows are masked before any policy looks, and every draw has a seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.impl.model.clauses import LOGITS, refuse

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Policy:
    """How an id is chosen.

    Attributes:
        temperature: 0 takes the largest logit, ties to the lower id; otherwise logits are divided by it.
        top_k: how many of the most probable stay; 0 keeps all.
        top_p: the shortest run of the most probable whose sum reaches it stays; 1 keeps all.
        min_p: all at least this share of the largest probability stay; 0 keeps all.
        seed: of the draws; draw n of a seed is a function of both alone.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


def choose(
    logits: NDArray[np.float32],
    valid_ids: int,
    policy: Policy,
    draw: int = 0,
    allowed: Sequence[int] | None = None,
) -> int:
    """Returns the chosen id, always below `valid_ids`.

    Args:
        logits: float32 [physical row]; the rows from `valid_ids` on name no token.
        valid_ids: 1 .. rows.
        policy: how to choose.
        draw: number of the draw, which with the seed decides.
        allowed: 32-bit words of a grammar, bit i of word w allows id 32 w + i; None allows all.

    Raises:
        ContractError: model.logits.

    Order: mask, divide, softmax in float64, sort by probability and then id, top-k, top-p, min-p, renormalise, first
        candidate whose cumulative probability exceeds the draw.
    Source: AFN-005; bug report A2.
    """
    values = masked(logits, valid_ids, allowed)
    if policy.temperature <= 0:
        return int(np.argmax(values))
    scaled = values.astype(np.float64) / policy.temperature
    powers = np.exp(scaled - scaled.max())
    order = np.argsort(-powers, kind="stable")
    order = order[powers[order] > 0]
    shares = powers[order] / powers.sum()
    kept = shares.size if policy.top_k <= 0 else min(policy.top_k, shares.size)
    if policy.top_p < 1:
        kept = min(kept, int(np.searchsorted(np.cumsum(shares), policy.top_p)) + 1)
    if policy.min_p > 0:
        kept = min(kept, int((shares >= policy.min_p * shares[0]).sum()))
    chosen = shares[:kept] / shares[:kept].sum()
    place = int(np.searchsorted(np.cumsum(chosen), uniform(policy.seed, draw), side="right"))
    return int(order[min(place, kept - 1)])


def masked(
    logits: NDArray[np.float32], valid_ids: int, allowed: Sequence[int] | None = None
) -> NDArray[np.float32]:
    """Returns a copy with everything that must not be chosen at -inf.

    Raises:
        ContractError: model.logits, for NaN or +inf anywhere, padding rows included, or when nothing is left.
    """
    values = np.array(logits, np.float32)
    if np.isnan(values).any() or np.isposinf(values).any():
        bad = int(np.flatnonzero(np.isnan(values) | np.isposinf(values))[0])
        raise refuse(LOGITS, f"logits[{bad}]", expected="a finite number or -inf", got=float(values[bad]))
    if not 1 <= valid_ids <= values.size:
        raise refuse(LOGITS, "valid ids", expected=f"1 .. {values.size}", got=valid_ids)
    values[valid_ids:] = -np.inf
    if allowed is not None:
        if len(allowed) * 32 < valid_ids:
            raise refuse(LOGITS, "allowed", expected=f"{-(-valid_ids // 32)} words", got=len(allowed))
        bits = np.unpackbits(np.array(allowed, "<u4").view(np.uint8), bitorder="little")[:valid_ids]
        values[:valid_ids][bits == 0] = -np.inf
    if np.isneginf(values).all():
        raise refuse(LOGITS, "logits", expected="an id that can be chosen", got="none")
    return values


def uniform(seed: int, draw: int) -> float:
    """Returns the draw-th number of a seed, in [0, 1): a counter rule, so that any runtime can repeat it."""
    value = (seed * 0x9E3779B97F4A7C15 + draw * 0xD1B54A32D192ED03 + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((value ^ (value >> 31)) >> 11) * 2.0**-53
