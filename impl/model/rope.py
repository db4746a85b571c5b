"""Partial rotary embedding, half-split pairs, with interleaved sections of three position rows.

Angles are made on the host: positions are known before anything is computed, and one library's cosine serves every
partition of a sequence.
"""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model.geometry import Geometry


@dataclass(frozen=True, slots=True)
class Turn:
    """Cosine and sine of every token, float32 [token, 1, rotary / 2]."""

    cosine: mx.array
    sine: mx.array


def turns(geometry: Geometry, positions: NDArray[np.int64]) -> Turn:
    """Returns the rotation of each token.

    Args:
        geometry: base, rotated width and sections.
        positions: int64 [token, 3]: time, height, width; equal for text.

    Order: frequencies in float64, rounded once; angle, cosine and sine in float32.
    Source: facts 2.4; transformers 5.24.0 `Qwen4ExpTextRotaryEmbedding`.
    """
    half = geometry.rotary_dim // 2
    exponents = np.arange(half, dtype=np.float64) * 2 / geometry.rotary_dim
    frequencies = (1.0 / np.power(geometry.theta, exponents)).astype(np.float32)
    rows = positions[:, [_axis(index, geometry.sections) for index in range(half)]]
    angles = rows.astype(np.float32) * frequencies
    return Turn(_column(np.cos(angles)), _column(np.sin(angles)))


def rotate(x: mx.array, turn: Turn) -> mx.array:
    """Returns the heads with their first values rotated and the rest as they are, float32 [token, head, dim]."""
    half = turn.cosine.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    turned = [
        first * turn.cosine - second * turn.sine,
        second * turn.cosine + first * turn.sine,
    ]
    return mx.concatenate([*turned, rest] if rest.shape[-1] else turned, axis=-1)


def _axis(index: int, sections: tuple[int, int, int]) -> int:
    """Which position row drives a frequency: height and width are woven in as long as their sections last."""
    axis = index % 3
    return axis if axis and index < 3 * sections[axis] else 0


def _column(values: NDArray[Any]) -> mx.array:
    return mx.array(np.ascontiguousarray(values, dtype=np.float32))[:, None, :]
