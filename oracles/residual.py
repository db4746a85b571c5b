"""The gated residual over parallel streams: read one row out of the wide residual, put one block's output back.

The wide residual is flat, stream after stream: [stream * hidden].
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles.arithmetic import linear, sigmoid, silu
from assay.oracles.checks import Array, integer, real, refuse, working
from assay.oracles.clauses import DOMAIN
from assay.oracles.norms import rms


class Read(NamedTuple):
    """What a read gives: the block's input [hidden], the weights [stream] for its output, and its two parts.

    `normed` is the grouped norm [streams * hidden], `mix` the gates before the sigmoid [streams * hidden].
    """

    read: Array
    injection: Array
    normed: Array
    mix: Array


class FinalRead(NamedTuple):
    """What the final mixer gives: as `Read`, without an injection."""

    read: Array
    normed: Array
    mix: Array


def read(
    wide: Array,
    norm: Array,
    down: Array,
    up: Array,
    inject: Array,
    streams: int = 4,
    eps: float = 1e-6,
    dtype: DTypeLike = np.float32,
) -> Read:
    """Returns the block input and the injection weights, both taken before the block runs.

    Args:
        wide: [streams * hidden].
        norm: [streams * hidden], zero-centred gain.
        down: [rank, streams * hidden].
        up: [streams * hidden, rank].
        inject: [streams, streams * hidden].
        streams: number of streams.
        eps: of the norm.
        dtype: float32 or float64.

    Returns:
        `read` [hidden] and `injection` [streams].

    Order: n = grouped norm; h = silu(down n / streams); g = sigmoid(up h); read = mean over streams of g * n, its
        products in the working type, its sum in float64 rounded once; injection = 2 sigmoid(inject n / streams).
    Source: facts 2.2; transformers 5.24.0 `Qwen4ExpTextGatedResidual`.
    """
    kind = working(dtype)
    mixed = _mix(wide, norm, down, up, streams, eps, kind)
    matrix = real("inject", inject, kind, (streams, mixed.normed.size))
    weights = 2 * sigmoid(linear(matrix, mixed.normed) / kind.type(streams))
    return Read(mixed.read, np.asarray(weights, dtype=kind), mixed.normed, mixed.mix)


def final_mix(
    wide: Array,
    norm: Array,
    down: Array,
    up: Array,
    streams: int = 4,
    eps: float = 1e-6,
    dtype: DTypeLike = np.float32,
) -> FinalRead:
    """Returns the read [hidden] with its parts: the mixer after the last layer has weights of its own and injects nothing.

    Order: as `read`.
    Source: facts 2.2.
    """
    return _mix(wide, norm, down, up, streams, eps, working(dtype))


def apply(wide: Array, block: Array, injection: Array, dtype: DTypeLike = np.float32) -> Array:
    """Returns the wide residual with the block's output added to every stream, each with its own weight.

    Args:
        wide: [streams * hidden].
        block: [hidden], the block's output.
        injection: [streams], computed before the block.
        dtype: float32 or float64.

    Returns:
        [streams * hidden].

    Order: one product and one sum for each value, in the working type.
    Source: facts 2.2.
    """
    kind = working(dtype)
    update = real("block", block, kind, (None,))
    weights = real("injection", injection, kind, (None,))
    values = real("wide", wide, kind, (weights.size * update.size,))
    return np.asarray(values + (weights[:, None] * update[None, :]).reshape(-1), dtype=kind)


def _mix(
    wide: Array, norm: Array, down: Array, up: Array, streams: int, eps: float, kind: np.dtype[np.floating]
) -> FinalRead:
    values = real("wide", wide, kind, (None,))
    count = integer("streams", streams, 1)
    if values.size == 0 or values.size % count:
        raise refuse(DOMAIN, "wide", expected=f"a multiple of {count} values", got=values.size)
    first = real("down", down, kind, (None, values.size))
    second = real("up", up, kind, (values.size, first.shape[0]))
    normal = rms(values, real("norm", norm, kind, values.shape), eps, "zero-centred", count, kind)
    mix = linear(second, silu(linear(first, normal) / kind.type(count)))
    mixed = (sigmoid(mix) * normal).reshape(count, -1)
    return FinalRead(np.asarray(mixed.astype(np.float64).mean(axis=0), dtype=kind), normal, mix)
