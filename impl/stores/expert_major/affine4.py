"""MLX affine 4-bit, group 64: encoder and decoder that agree with `mx.quantize` and `mx.dequantize` bit for bit.

A group of 64 values becomes 36 bytes: 32 bytes of nibbles (value 2k low, 2k + 1 high, in byte k), then a BF16 scale,
then a BF16 bias. A value is scale * q + bias. The edge of larger magnitude is representable exactly: the scale is
adjusted so that a whole number of steps separates it from zero.

Here is numpy, without MLX, so that a builder needs no MLX; the arithmetic follows it operation by operation in
float32, with the rounding of BF16 where MLX rounds.
"""

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from assay.impl.stores.expert_major.blocks import AFFINE4, COVER, RANGE, SOURCE
from assay.spec.errors import ContractError, Finding

GROUP: Final = 64
GROUP_BYTES: Final = 36
_BINS: Final = np.float32(15)
_LEAST_SCALE: Final = np.float32(1e-7)

Source = Literal["f32", "bf16"]
"""Type of the values that were quantised; MLX keeps scales and biases in it."""


def encode(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Returns the blocks of rows of values.

    Args:
        values: float32 [..., width], each exactly representable in BF16; width a multiple of 64.

    Returns:
        uint8 [..., width / 64 * 36]: per group 32 packed bytes, BF16 scale, BF16 bias.

    Raises:
        ContractError: codec.blocks.cover, for a width that isn't whole groups; codec.affine4.range, for values so
            large that scale or bias of a group is not finite, and for values that are not finite themselves;
            codec.affine4.source, for an array that isn't float32 or holds what BF16 can't.

    Domain: BF16 values; what MLX computes for a BF16 matrix.
    Source: MLX affine quantisation, mode "affine", bits 4, group 64.
    """
    _check_array(values, np.float32)
    width = values.shape[-1]
    if width % GROUP or not width:
        raise ContractError(
            Finding.of(
                COVER,
                "codec",
                AFFINE4.name,
                expected=f"a multiple of {GROUP} values",
                got=f"{width}, which leaves {width % GROUP}",
            )
        )
    groups = np.ascontiguousarray(values).reshape(-1, GROUP)
    finite = np.isfinite(groups).all(axis=1)
    if not finite.all():
        raise _range(int(np.argmin(finite)), "finite values", "NaN or infinity")
    exact = (groups.view(np.uint32) & np.uint32(0xFFFF) == 0).all(axis=1)
    if not exact.all():
        raise _error(SOURCE, f"group {int(np.argmin(exact))}", "values that BF16 holds exactly", "more bits")
    with np.errstate(over="ignore", invalid="ignore"):
        codes, scales, biases = quantise(groups)
        rounded = from_bf16(to_bf16(np.stack([scales, biases])))
        last = rounded[1] + rounded[0] * _BINS
    usable = np.isfinite(rounded).all(axis=0) & np.isfinite(last)
    if not usable.all():
        place = int(np.argmin(usable))
        raise _range(
            place,
            "a finite scale and bias in BF16",
            f"values in {groups[place].min()}..{groups[place].max()}",
        )
    blocks = np.empty((len(groups), GROUP_BYTES), dtype=np.uint8)
    blocks[:, :32] = codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)
    blocks[:, 32:34] = to_bf16(scales).view(np.uint8).reshape(-1, 2)
    blocks[:, 34:36] = to_bf16(biases).view(np.uint8).reshape(-1, 2)
    return blocks.reshape(*values.shape[:-1], width // GROUP * GROUP_BYTES)


def quantise(
    groups: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """Returns codes uint8 [n, 64], scales float32 [n] and biases float32 [n], before any rounding to BF16."""
    low, high = groups.min(axis=1), groups.max(axis=1)
    is_low = np.abs(low) > np.abs(high)
    scale = np.maximum((high - low) / _BINS, _LEAST_SCALE)
    scale = np.where(is_low, scale, -scale).astype(np.float32)
    edge = np.where(is_low, low, high).astype(np.float32)
    steps = np.rint(edge / scale)
    is_zero = steps == 0
    scale = np.where(is_zero, scale, edge / np.where(is_zero, np.float32(1), steps)).astype(np.float32)
    bias = np.where(is_zero, np.float32(0), edge).astype(np.float32)
    codes = np.rint((groups - bias[:, None]) / scale[:, None])
    return np.clip(codes, np.float32(0), _BINS).astype(np.uint8), scale, bias


def decode(blocks: NDArray[np.uint8], source: Source = "f32") -> NDArray[np.float32]:
    """Returns the values of blocks.

    Args:
        blocks: uint8 [..., n * 36].
        source: `f32` multiplies and adds in float32, as the container's rule says and as MLX does with scales widened
            to float32; `bf16` rounds product and sum to BF16, as MLX does with BF16 scales.

    Returns:
        float32 [..., n * 64].

    Raises:
        ContractError: codec.blocks.cover, for a run of bytes that isn't whole blocks; codec.affine4.source, for what is
            no array of bytes.
    """
    _check_array(blocks, np.uint8)
    size = blocks.shape[-1]
    if size % GROUP_BYTES:
        raise ContractError(
            Finding.of(
                COVER,
                "codec",
                AFFINE4.name,
                expected=f"a multiple of {GROUP_BYTES} bytes",
                got=f"{size}, which leaves {size % GROUP_BYTES}",
            )
        )
    rows = np.ascontiguousarray(blocks).reshape(-1, GROUP_BYTES)
    codes = np.empty((len(rows), GROUP), dtype=np.float32)
    codes[:, 0::2] = rows[:, :32] & np.uint8(15)
    codes[:, 1::2] = rows[:, :32] >> np.uint8(4)
    scales = from_bf16(np.ascontiguousarray(rows[:, 32:34]).view(np.uint16))
    biases = from_bf16(np.ascontiguousarray(rows[:, 34:36]).view(np.uint16))
    if source == "bf16":
        values = from_bf16(to_bf16(from_bf16(to_bf16(codes * scales)) + biases))
    else:
        values = codes * scales + biases
    return values.reshape(*blocks.shape[:-1], size // GROUP_BYTES * GROUP)


def _check_array(values: object, dtype: type[np.generic]) -> None:
    if not isinstance(values, np.ndarray) or values.dtype != dtype or not values.ndim:
        kind = (
            f"{values.dtype} {list(values.shape)}"
            if isinstance(values, np.ndarray)
            else type(values).__name__
        )
        raise _error(SOURCE, "array", f"{np.dtype(dtype)} with at least one dimension", kind)


def _range(group: int, expected: str, got: str) -> ContractError:
    return _error(RANGE, f"group {group}", expected, got)


def _error(code: str, where: str, expected: str, got: str) -> ContractError:
    return ContractError(Finding.of(code, "codec", where, expected=expected, got=got))


def interleave(
    weight: NDArray[np.uint32], scales: NDArray[np.uint16], biases: NDArray[np.uint16]
) -> NDArray[np.uint8]:
    """Returns the blocks of MLX's three arrays.

    Args:
        weight: uint32 [..., width / 8], eight nibbles a word, low first.
        scales: BF16 bits, uint16 [..., width / 64].
        biases: BF16 bits, uint16 [..., width / 64].

    Returns:
        uint8 [..., width / 64 * 36].
    """
    groups = scales.shape[-1]
    rows = scales.shape[:-1]
    blocks = np.empty((*rows, groups, GROUP_BYTES), dtype=np.uint8)
    blocks[..., :32] = np.ascontiguousarray(weight).view(np.uint8).reshape(*rows, groups, 32)
    blocks[..., 32:34] = np.ascontiguousarray(scales).view(np.uint8).reshape(*rows, groups, 2)
    blocks[..., 34:36] = np.ascontiguousarray(biases).view(np.uint8).reshape(*rows, groups, 2)
    return blocks.reshape(*rows, groups * GROUP_BYTES)


def separate(
    blocks: NDArray[np.uint8],
) -> tuple[NDArray[np.uint32], NDArray[np.uint16], NDArray[np.uint16]]:
    """Returns MLX's weight words, scale bits and bias bits of blocks; the inverse of `interleave`."""
    rows, groups = blocks.shape[:-1], blocks.shape[-1] // GROUP_BYTES
    parts = blocks.reshape(*rows, groups, GROUP_BYTES)
    weight = np.ascontiguousarray(parts[..., :32]).view(np.uint32).reshape(*rows, groups * 8)
    scales = np.ascontiguousarray(parts[..., 32:34]).view(np.uint16).reshape(*rows, groups)
    biases = np.ascontiguousarray(parts[..., 34:36]).view(np.uint16).reshape(*rows, groups)
    return weight, scales, biases


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Returns the BF16 bits of finite float32 values, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Returns the float32 values of BF16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
