"""Partial rotary embedding with interleaved multimodal sections.

The first `rotary_dim` values of a head are rotated, value i with value i + rotary_dim / 2; the rest pass unchanged.
Frequency i takes its position from one of three rows (time, height, width); for text the three are equal.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles.checks import Array, integer, integers, positive, real, refuse, working
from assay.oracles.clauses import DOMAIN, SHAPE

LARGEST_POSITION: Final = 2**53


def apply(
    x: Array,
    positions: Array,
    rotary_dim: int,
    theta: float = 1e7,
    sections: Sequence[int] = (11, 11, 10),
    dtype: DTypeLike = np.float32,
) -> Array:
    """Returns the heads with their first `rotary_dim` values rotated to their positions.

    Args:
        x: [token, head, dim].
        positions: integers [token], or [3, token] for time, height and width.
        rotary_dim: even, 2 .. dim.
        theta: base of the frequencies, above 0.
        sections: how many frequencies each of the three rows drives; they add up to rotary_dim / 2.
        dtype: float32 or float64.

    Returns:
        [token, head, dim].

    Order: frequencies in float64 rounded once; angle = position * frequency in the working type; cosine, sine and
        the two products in the working type.
    Source: facts 2.4; transformers 5.24.0 `Qwen4ExpTextRotaryEmbedding`.
    """
    kind = working(dtype)
    values = real("x", x, kind, (None, None, None))
    tokens, _, dim = values.shape
    if integer("rotary_dim", rotary_dim) % 2 or not 2 <= rotary_dim <= dim:
        raise refuse(DOMAIN, "rotary_dim", expected=f"an even number in 2 .. {dim}", got=rotary_dim)
    angle = angles(position_rows("positions", positions, tokens), rotary_dim, theta, sections, kind)
    cosine, sine = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    half = rotary_dim // 2
    low, high = values[..., :half], values[..., half:rotary_dim]
    turned = [low * cosine - high * sine, high * cosine + low * sine, values[..., rotary_dim:]]
    return np.asarray(np.concatenate(turned, axis=-1), dtype=kind)


def angles(
    rows: Array, rotary_dim: int, theta: float, sections: Sequence[int], dtype: DTypeLike = np.float32
) -> Array:
    """Returns the angle of every token and frequency, [token, rotary_dim / 2].

    Args:
        rows: integers [3, token].
        rotary_dim: even.
        theta: base of the frequencies.
        sections: three counts.
        dtype: float32 or float64.
    """
    kind = working(dtype)
    base = positive("theta", theta)
    half = rotary_dim // 2
    counts = integers("sections", list(sections), 0)
    if len(counts) != 3 or sum(counts) != half:
        raise refuse(DOMAIN, "sections", expected=f"three counts with sum {half}", got=list(sections))
    exponents = np.arange(half, dtype=np.float64) * 2 / rotary_dim
    frequencies = (1 / np.power(base, exponents)).astype(kind)
    axes = [_axis(index, counts) for index in range(half)]
    return np.asarray(rows[axes, :].T.astype(kind) * frequencies[None, :], dtype=kind)


def position_rows(name: str, positions: Any, tokens: int) -> Array:
    """Returns positions as int64 [3, token]; one row of them stands for all three.

    Raises:
        ContractError: oracle.argument.*, under this name.
    """
    rows = list(positions) if isinstance(positions, (list, tuple, np.ndarray)) else positions
    nested = isinstance(rows, list) and rows != [] and isinstance(rows[0], (list, tuple, np.ndarray))
    lines = [
        integers(f"{name}[{index}]" if nested else name, line, 0, LARGEST_POSITION)
        for index, line in enumerate(rows if nested else [rows])
    ]
    if len(lines) != (3 if nested else 1) or any(len(line) != tokens for line in lines):
        got = [len(line) for line in lines]
        raise refuse(
            SHAPE, name, expected=f"{tokens} positions, or three rows of them", got=f"{got} positions"
        )
    return np.array(lines if nested else lines * 3, np.int64).reshape(3, tokens)


def _axis(index: int, sections: Sequence[int]) -> int:
    """Which of the three position rows drives this frequency: H and W are woven in as long as they last."""
    axis = index % 3
    return axis if axis and index < 3 * sections[axis] else 0
