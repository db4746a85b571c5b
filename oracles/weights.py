"""Weights by rule: every value is a function of its tensor's name and its place, so that a C program can make it too.

value(role, i) = (((S(0x4E585134 xor role * 0xD6E8FEB86659FD93 xor i * 0xA0761D6478BD642F) >> 40) & 0xFFFF) - 32768)
times 0.12 / 32768, with S the SplitMix64 step, all products modulo 2^64. For a named tensor, role is FNV-1a 64 of
the UTF-8 name and i the flat row-major index.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.oracles.checks import integer

SEED: Final = 0x4E585134
ROLE_FACTOR: Final = 0xD6E8FEB86659FD93
INDEX_FACTOR: Final = 0xA0761D6478BD642F
FNV_OFFSET: Final = 1469598103934665603
FNV_PRIME: Final = 1099511628211
MASK_64: Final = 2**64 - 1
LARGEST_LIST: Final = 2**20
"""Values that are listed at once."""

CONVENTIONAL_SUFFIX: Final = "linear_attn.norm.weight"


def role_of(name: str) -> int:
    """Returns FNV-1a 64 of the tensor's UTF-8 name."""
    value = FNV_OFFSET
    for byte in name.encode("utf-8"):
        value = ((value ^ byte) * FNV_PRIME) & MASK_64
    return value


def values(role: int, first: int, count: int) -> NDArray[np.float32]:
    """Returns `count` values of a role from flat index `first` on, float32, before any rounding to BF16.

    Args:
        role: 0 .. 2^64 - 1.
        first: flat row-major index.
        count: how many.

    Returns:
        float32 [count], each in [-0.12, 0.12).

    Order: exact in integers; one product in float64, rounded once to float32.
    Source: facts 4.1.
    """
    integer("role", role, 0, MASK_64)
    integer("first", first, 0, MASK_64)
    integer("count", count, 0)
    return at(role, np.arange(count, dtype=np.uint64) + np.uint64(first))


def at(role: int, indices: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Returns the values at any flat indices, shaped as they are."""
    base = np.uint64(SEED ^ ((role * ROLE_FACTOR) & MASK_64))
    mixed = base ^ (indices * np.uint64(INDEX_FACTOR))
    mixed = mixed + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    steps = ((mixed >> np.uint64(40)) & np.uint64(0xFFFF)).astype(np.int64) - 32768
    return (steps * (0.12 / 32768)).astype(np.float32)


def round_to_bf16(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns finite float32 values rounded to BF16, nearest even, still held as float32."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


def tensor(name: str, shape: tuple[int, ...], bf16: bool = True) -> NDArray[np.float32]:
    """Returns a whole tensor of the miniature checkpoint.

    The gain of the recurrent layers' gated norm is conventional, so it is 1 + value; all others are the value.

    Args:
        name: as in the checkpoint, for instance `model.language_model.embed_tokens.weight`.
        shape: row-major.
        bf16: round to BF16, as stored.

    Returns:
        float32 of this shape.
    """
    return named(name, np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape), bf16)


def named(name: str, indices: NDArray[np.uint64], bf16: bool = True) -> NDArray[np.float32]:
    """Returns the values of a named tensor at flat indices, by the same rule as `tensor`."""
    found = at(role_of(name), indices)
    if name.endswith(CONVENTIONAL_SUFFIX):
        found = found + np.float32(1)
    return round_to_bf16(found) if bf16 else found
