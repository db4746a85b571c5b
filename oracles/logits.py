"""From logits to one token id: the physical rows are not the vocabulary, and the mask stands before every policy.

An output matrix is padded beyond the tokenizer (248,320 rows for 248,077 ids). A padding row must never be able to
win, whichever policy chooses (AFN-005, bug report A2).
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles.arithmetic import narrow, softmax
from assay.oracles.checks import (
    Array,
    first_non_finite,
    integer,
    integers,
    numbers,
    positive,
    real,
    refuse,
    working,
)
from assay.oracles.clauses import DOMAIN, FINITE, NOTHING, SHAPE

Policy = Literal["greedy", "temperature", "top-k", "top-p", "min-p"]
POLICIES: Final = ("greedy", "temperature", "top-k", "top-p", "min-p")


LARGEST_ROWS: Final = 2**24


class Choice(NamedTuple):
    """The chosen id, the candidates in order of choice and their probabilities after the policy."""

    id: int
    candidates: Array
    probabilities: Array


def select(
    logits: Array,
    valid_ids: int,
    policy: Policy = "greedy",
    k: int = 20,
    p: float = 0.95,
    min_p: float = 0.05,
    temperature: float = 1.0,
    uniform: float = 0.0,
    mask_words: Sequence[int] | None = None,
    dtype: DTypeLike = np.float32,
) -> Choice:
    """Returns the id that a policy chooses among the valid ids.

    Args:
        logits: [row]; -inf means impossible, NaN and +inf are refused.
        valid_ids: ids 0 .. valid_ids - 1 name tokens; all other rows are masked before anything else.
        policy: `greedy`, `temperature` (all candidates), `top-k`, `top-p` or `min-p`.
        k: for top-k, how many of the most probable stay.
        p: for top-p, the shortest run of the most probable whose sum reaches p stays; the most probable always does.
        min_p: for min-p, all at least min_p times the largest probability stay.
        temperature: logits are divided by it, except by greedy.
        uniform: number in [0, 1) that chooses; 0 chooses the most probable.
        mask_words: 32-bit words, bit i of word w allows id 32 * w + i; must cover the valid ids.
        dtype: float32 or float64.

    Returns:
        `id`, `candidates` (int64, most probable first, ties by the lower id) and their `probabilities`.

    Raises:
        ContractError: oracle.logits.nothing-sampleable, oracle.argument.finite, oracle.argument.domain.

    Order: mask; divide by temperature; softmax; order by probability, then id; cut; renormalise; the first
        candidate whose cumulative probability (float64) exceeds `uniform`.
    Source: AFN-005; bug report A2. The order of choice is the contract's own: runtimes differ in it.
    """
    kind = working(dtype)
    values = masked(logits, valid_ids, mask_words, kind)
    if policy not in POLICIES:
        raise refuse(DOMAIN, "policy", expected=f"one of {', '.join(POLICIES)}", got=policy)
    if policy == "greedy":
        best = int(np.argmax(values))
        return Choice(best, np.array([best], np.int64), np.ones(1, kind))
    probabilities = softmax(_cooled(values, temperature))
    order = np.argsort(-probabilities, kind="stable")
    order = order[np.isfinite(values[order])]
    order = order[: _kept(policy, probabilities[order].astype(np.float64), k, p, min_p)]
    kept = probabilities[order].astype(np.float64)
    shares = kept / kept.sum()
    point = float(real("uniform", uniform, np.float64, ()))
    if not 0 <= point < 1:
        raise refuse(DOMAIN, "uniform", expected="a number in [0, 1)", got=point)
    place = min(int(np.searchsorted(np.cumsum(shares), point, side="right")), order.size - 1)
    return Choice(int(order[place]), order.astype(np.int64), shares.astype(kind))


def masked(
    logits: Array, valid_ids: int, mask_words: Sequence[int] | None = None, dtype: DTypeLike = np.float32
) -> Array:
    """Returns the logits with every id that must not be sampled at -inf.

    Args:
        logits: [row].
        valid_ids: 1 .. rows.
        mask_words: as in `select`.
        dtype: float32 or float64.

    Returns:
        [row].

    Raises:
        ContractError: as `select`; a NaN or +inf in a padding row counts too, for it shows a broken producer.
    """
    values = numbers("logits", logits, dtype, (None,)).copy()
    if (np.isnan(values) | np.isposinf(values)).any():
        bad = first_non_finite(np.where(np.isneginf(values), 0, values))
        raise refuse(FINITE, "logits", expected="finite numbers or -inf", got=bad)
    valid = integer("valid_ids", valid_ids, 1, values.size)
    values[valid:] = -np.inf
    if mask_words is not None:
        words = integers("mask_words", mask_words, 0, 2**32 - 1)
        if len(words) * 32 < valid:
            raise refuse(SHAPE, "mask_words", expected=f"{-(-valid // 32)} words", got=len(words))
        bits = np.unpackbits(np.array(words, "<u4").view(np.uint8), bitorder="little")[:valid]
        values[:valid][bits == 0] = -np.inf
    if np.isneginf(values).all():
        raise refuse(NOTHING, "logits", expected="at least one candidate above -inf", got="none")
    return values


def mask(physical_rows: int, valid_ids: int) -> list[int]:
    """Returns 32-bit words that allow exactly the valid ids; the last word's spare bits are 0.

    Args:
        physical_rows: rows of the output matrix.
        valid_ids: 1 .. physical_rows.

    Returns:
        ceil(valid_ids / 32) words (7,753 for 248,077 ids); rows beyond the last word are not allowed either.

    Source: bug report A2.
    """
    valid = integer("valid_ids", valid_ids, 1, integer("physical_rows", physical_rows, 1, LARGEST_ROWS))
    words = [2**32 - 1] * (valid // 32)
    return [*words, 2 ** (valid % 32) - 1] if valid % 32 else words


def _cooled(values: Array, temperature: float) -> Array:
    """Returns the logits over the temperature; one that leaves no order among them in the working type is refused."""
    divisor = narrow(np.array(positive("temperature", temperature)), values.dtype)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        cooled = np.asarray(values / divisor)
    if not np.isfinite(divisor) or (np.isfinite(cooled) != np.isfinite(values)).any():
        expected = f"a number that divides every logit within {values.dtype}"
        raise refuse(DOMAIN, "temperature", expected=expected, got=temperature)
    return cooled


def _kept(policy: str, falling: Array, k: int, p: float, min_p: float) -> int:
    """How many of the falling probabilities stay; at least one."""
    if policy == "top-k":
        return min(integer("k", k, 1), falling.size)
    if policy == "top-p":
        share = _share("p", p)
        return min(int(np.searchsorted(np.cumsum(falling), share, side="left")) + 1, falling.size)
    if policy == "min-p":
        return int((falling >= _share("min_p", min_p) * falling[0]).sum())
    return int(falling.size)


def _share(name: str, value: float) -> float:
    share = float(real(name, value, np.float64, ()))
    if not 0 < share <= 1:
        raise refuse(DOMAIN, name, expected="a number in (0, 1]", got=share)
    return share
