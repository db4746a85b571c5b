"""Distances between stored numbers: absolute, and in units of the last place of the coarser stored type."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.provenance.captures.arrays import Stored

_COARSENESS: Final = ("f32", "f16", "bf16")


def coarser(a: str, b: str) -> str:
    """Returns the coarser of two float types, in which ulps are counted."""
    return max(a, b, key=_COARSENESS.index)


def ulp_distance(a: Stored, b: Stored) -> NDArray[np.int64]:
    """Returns how many numbers of the coarser type lie between two arrays of floats; NaN has no distance (-1)."""
    kind = coarser(a.dtype, b.dtype)
    left, right = _ordered(a, kind), _ordered(b, kind)
    distance: NDArray[np.int64] = np.abs(left - right)
    distance[np.isnan(a.values()) | np.isnan(b.values())] = -1
    return distance


def beyond(a: NDArray[Any], b: NDArray[Any], rtol: float, atol: float) -> NDArray[np.bool_]:
    """Says where two arrays differ by more than atol + rtol * max(|a|, |b|).

    Two NaNs agree, and so do two equal infinities; any other pair with one that is not finite does not.
    """
    if a.dtype.kind == "i":
        return np.asarray(a != b)
    left, right = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(left - right) <= atol + rtol * np.maximum(np.abs(left), np.abs(right))
        finite = np.isfinite(left) & np.isfinite(right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    return np.asarray(~(same | (finite & near)))


def absolute(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Returns |a - b| in float64; NaN where one of them is NaN, 0 where both are the same infinity."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = np.abs(left - right)
    distance[left == right] = 0.0
    return np.asarray(distance)


def _ordered(stored: Stored, kind: str) -> NDArray[np.int64]:
    """Maps floats of `kind` to integers in their own order, so that neighbours differ by one and -0 equals 0."""
    values = stored.values()
    if kind == "f32":
        bits, sign = values.view(np.uint32).astype(np.int64), np.int64(1) << np.int64(31)
    elif kind == "f16":
        with np.errstate(over="ignore"):
            bits = values.astype(np.float16).view(np.uint16).astype(np.int64)
        sign = np.int64(1) << np.int64(15)
    else:
        word = values.view(np.uint32).astype(np.uint64)
        bits = ((word + 0x7FFF + ((word >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.int64)
        sign = np.int64(1) << np.int64(15)
    return np.asarray(np.where(bits >= sign, sign - bits, bits))
