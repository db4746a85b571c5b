"""Reductions whose result for a row depends on that row alone, and the activations.

Prefill and decode must give the same expert ids in the same order by construction, so a product may not depend on
how many rows happen to be computed together. The reference BLAS in MLX's Linux wheel sums each output by itself; a
fast BLAS and a GPU choose a kernel by shape. There every product is made of tiles of a fixed number of rows, padded
with zeros, so that each row meets the same kernel whatever stands beside it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

import mlx.core as mx

from assay.impl.model import backend

TILE_ROWS: Final = 8
HALVED_FROM: Final = 128
"""Rows from which two streams are worth their fences."""
POLYNOMIAL_FROM: Final = 1 << 13
"""Values from which a polynomial of MLX operations is faster than its exponential on the CPU."""
LOG2_E: Final = 1.44269504088896341
ROUNDER: Final = 12582912.0
EXP2_SERIES: Final = (0.00132647266, 0.00967151296, 0.05550733748, 0.24022242080, 0.69314697759, 1.0)
"""2^f for f in -0.5 .. 0.5, highest power first: a least-squares fit of the relative error, exact at 0, within 9.2e-8."""
TILE_KEYS: Final = 64
"""Keys that are scored together; a multiple of every kernel's step."""


@dataclass(frozen=True, slots=True)
class Numerics:
    """How reductions are made.

    Attributes:
        is_deterministic: a row's result never depends on its neighbours.
        tile_rows: rows of every product in a deterministic mode whose BLAS chooses kernels by shape; 0 leaves
            products whole, either because rows are independent anyway or because nobody asked.
    """

    is_deterministic: bool
    tile_rows: int = 0

    def linear(self, x: mx.array, weight: mx.array) -> mx.array:
        """Returns x @ weight, float32 [rows, output].

        Args:
            x: float32 [rows, input].
            weight: [input, output], in its stored type; widened exactly.
        """
        matrix = weight if weight.dtype == mx.float32 else weight.astype(mx.float32)
        if not self.tile_rows:
            return x @ matrix
        rows, width = x.shape
        tiles = -(-rows // self.tile_rows)
        padded = _pad_rows(x, tiles * self.tile_rows).reshape(tiles, self.tile_rows, width)
        product = padded @ mx.broadcast_to(matrix, (tiles, *matrix.shape))
        return product.reshape(tiles * self.tile_rows, -1)[:rows]

    def scores(self, queries: mx.array, keys: mx.array) -> mx.array:
        """Returns the products of every query head with every key, float32 [query, head, key].

        Args:
            queries: float32 [query, head, dim].
            keys: float32 [key, dim].
        """
        if not self.tile_rows:
            return queries @ keys.T
        count, heads, dim = queries.shape
        tiles = -(-keys.shape[0] // TILE_KEYS)
        table = _pad_rows(keys, tiles * TILE_KEYS).reshape(1, tiles, TILE_KEYS, dim)
        product = queries[:, None] @ table.swapaxes(-1, -2)
        return product.swapaxes(1, 2).reshape(count, heads, -1)[:, :, : keys.shape[0]]

    def halves(
        self, work: Callable[..., tuple[mx.array, ...]], *rows: mx.array, is_worth: bool | None = None
    ) -> tuple[mx.array, ...]:
        """Returns what `work` makes of all rows; in the fast mode many rows go in two halves, each on its own stream.

        Args:
            work: looks at each row alone; takes arrays of rows and returns arrays of rows.
            rows: arrays with the same number of rows.
            is_worth: whether two streams gain more than they cost; asked of the number of rows when left out.
        """
        count = rows[0].shape[0]
        enough = count >= HALVED_FROM if is_worth is None else is_worth and count > 1
        if not enough or not self._has_two_streams:
            return work(*rows)
        middle, found = count // 2, []
        for stream, part in zip(backend.two_streams(), (slice(0, middle), slice(middle, count)), strict=True):
            with mx.stream(stream):
                found.append(work(*(one[part] for one in rows)))
        return tuple(mx.concatenate(list(pair)) for pair in zip(*found, strict=True))

    def turn(self, number: int, rows: int) -> AbstractContextManager[object]:
        """Returns the context in which piece `number` of a larger work is built: its own stream in the fast mode."""
        if rows < HALVED_FROM or not self._has_two_streams:
            return nullcontext()
        stream: AbstractContextManager[object] = mx.stream(backend.two_streams()[number % 2])
        return stream

    @property
    def _has_two_streams(self) -> bool:
        """Not after a failure: then MLX may wait for ever as soon as two streams have much to do."""
        is_cpu = mx.default_device() == mx.Device(mx.cpu)
        return not self.is_deterministic and is_cpu and not backend.DEVICE.failures

    def exp(self, x: mx.array) -> mx.array:
        """Returns e^x: MLX's own, or in the fast mode on the CPU a polynomial for large arrays."""
        is_worth = not self.is_deterministic and x.size >= POLYNOMIAL_FROM
        return polynomial_exp(x) if is_worth and mx.default_device() == mx.Device(mx.cpu) else mx.exp(x)

    def sigmoid(self, x: mx.array) -> mx.array:
        """Returns 1 / (1 + e^-x)."""
        if self.is_deterministic or x.size < POLYNOMIAL_FROM:
            return mx.sigmoid(x)
        return 1.0 / (1.0 + self.exp(-x))

    def silu(self, x: mx.array) -> mx.array:
        """Returns x * sigmoid(x)."""
        return x * self.sigmoid(x)


PLAIN: Final = Numerics(is_deterministic=False)
"""Whole products: as fast as the library is."""


def polynomial_exp(x: mx.array) -> mx.array:
    """Returns e^x, float32; NaN stays NaN.

    MLX's exponential on the CPU takes as long as sixty products of the same array, and is up to 64 units of the last
    place off far from zero. This is 2^(n + f) by a polynomial of degree 5 in f; adding 1.5 * 2^23 rounds to n and
    leaves n in the low bits, which are added to the exponent.

    Domain: results outside of 2^-126 .. 2^127 are held at these.
    Error: at most 5 units of the last place for |x| <= 4, growing with |x| to 65, as the product with log2(e) is rounded.
    """
    power = mx.clip(x * LOG2_E, -126.0, 127.0)
    shifted = power + ROUNDER
    rest = power - (shifted - ROUNDER)
    series = rest * EXP2_SERIES[0] + EXP2_SERIES[1]
    for factor in EXP2_SERIES[2:]:
        series = series * rest + factor
    return (series.view(mx.int32) + (shifted.view(mx.int32) << 23)).view(mx.float32)


def softplus(x: mx.array) -> mx.array:
    """Returns log(1 + exp(x)), without overflow and exact in the tails."""
    return mx.logaddexp(x, mx.zeros_like(x))


def l2_normalise(x: mx.array) -> mx.array:
    """Returns x / sqrt(sum(x^2) + 1e-6) over the last axis; the constant stands inside the root."""
    return x * mx.rsqrt(mx.sum(x * x, axis=-1, keepdims=True) + 1e-6)


def non_finite(x: mx.array) -> mx.array:
    """Returns a scalar that is 0 when every value is finite and NaN otherwise."""
    return mx.sum(x - x)


def _pad_rows(x: mx.array, rows: int) -> mx.array:
    missing = rows - x.shape[0]
    return mx.concatenate([x, mx.zeros((missing, *x.shape[1:]), x.dtype)]) if missing else x
