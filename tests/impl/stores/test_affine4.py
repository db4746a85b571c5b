"""Affine 4-bit agrees with MLX bit for bit; MLX is the judge here and nowhere in the codec."""

import struct

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from assay.impl.stores.expert_major.affine4 import decode, encode, from_bf16, interleave, separate, to_bf16
from assay.spec.errors import ContractError


def theirs(values: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """Blocks by mx.quantize of the BF16 values, and mx.dequantize of them with BF16 and with F32 scales."""
    weight, scales, biases = mx.quantize(mx.array(values).astype(mx.bfloat16), group_size=64, bits=4)
    half = mx.dequantize(weight, scales, biases, group_size=64, bits=4)
    wide = mx.dequantize(weight, scales.astype(mx.float32), biases.astype(mx.float32), group_size=64, bits=4)
    bits = [np.array(one.view(mx.uint16)) for one in (scales, biases)]
    blocks = interleave(np.array(weight), bits[0], bits[1])
    return blocks, np.array(half.astype(mx.float32)), np.array(wide)


def bf16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return from_bf16(to_bf16(values.astype(np.float32)))


def agree(values: NDArray[np.float32]) -> None:
    blocks, half, wide = theirs(values)
    ours = encode(values)
    assert np.array_equal(ours, blocks)
    assert np.array_equal(decode(ours, "bf16").view(np.uint32), half.view(np.uint32))
    assert np.array_equal(decode(ours, "f32").view(np.uint32), wide.view(np.uint32))


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e-3, 1.0, 3e4, 1e30])
def test_normal_values_of_any_scale_agree(scale: float) -> None:
    values = np.random.default_rng(7).standard_normal((64, 640)) * scale
    agree(bf16(values.astype(np.float32)))


@pytest.mark.parametrize(
    "group",
    [
        np.zeros(64),
        np.full(64, 0.5),
        np.full(64, -0.5),
        np.where(np.arange(64) == 3, -0.0, 0.0),
        np.linspace(-1, 1, 64),
        np.linspace(0, 1, 64),
        np.linspace(-1, 0, 64),
        np.where(np.arange(64) == 0, 1e-38, 0.0),
        np.where(np.arange(64) == 63, 3e38, -3e38 / 16),
        np.repeat([-2.0, 2.0], 32),
        np.arange(64) % 16 - 7.5,
    ],
)
def test_groups_at_the_edges_agree(group: NDArray[np.float64]) -> None:
    agree(bf16(group.astype(np.float32)[None, :]))


@given(
    st.lists(
        st.integers(0, 0xFFFF).filter(lambda bits: bits & 0x7F80 != 0x7F80 and (bits & 0x7FFF) < 0x7E80),
        min_size=64,
        max_size=64,
    )
)
@settings(max_examples=150, deadline=None)
def test_any_finite_bf16_group_agrees(bits: list[int]) -> None:
    agree(from_bf16(np.array([bits], dtype=np.uint16)))


def test_a_block_has_nibbles_low_first_then_scale_then_bias() -> None:
    """Written by hand: codes 0..15 four times, scale 0.5, bias -1."""
    codes = [one % 16 for one in range(64)]
    packed = bytes(codes[2 * k] | codes[2 * k + 1] << 4 for k in range(32))
    block = packed + struct.pack("<f", 0.5)[2:] + struct.pack("<f", -1.0)[2:]
    assert len(block) == 36
    got = decode(np.frombuffer(block, dtype=np.uint8))
    assert got.tolist() == [0.5 * code - 1.0 for code in codes]


def test_words_scales_and_biases_survive_interleaving() -> None:
    rng = np.random.default_rng(3)
    weight = rng.integers(0, 2**32, (5, 7, 80), dtype=np.uint32)
    scales = rng.integers(0, 2**16, (5, 7, 10), dtype=np.uint16)
    biases = rng.integers(0, 2**16, (5, 7, 10), dtype=np.uint16)
    again = separate(interleave(weight, scales, biases))
    assert all(np.array_equal(one, other) for one, other in zip(again, (weight, scales, biases), strict=True))


@pytest.mark.parametrize("width", [0, 160, 639])
def test_a_width_that_is_not_whole_groups_is_refused(width: int) -> None:
    """Bug report A31, the 160-wide row with group 64."""
    with pytest.raises(ContractError) as caught:
        encode(np.zeros((2, width), dtype=np.float32))
    assert caught.value.finding.code == "codec.blocks.cover"


def test_bytes_that_are_not_whole_blocks_are_refused() -> None:
    with pytest.raises(ContractError) as caught:
        decode(np.zeros(71, dtype=np.uint8))
    assert (caught.value.finding.code, caught.value.finding.got) == (
        "codec.blocks.cover",
        "71, which leaves 35",
    )


def test_values_that_are_not_finite_are_refused() -> None:
    values = np.zeros((3, 64), dtype=np.float32)
    for wrong in (np.inf, -np.inf, np.nan):
        values[2, 63] = wrong
        with pytest.raises(ContractError) as caught:
            encode(values)
        assert (caught.value.finding.code, caught.value.finding.where) == ("codec.affine4.range", "group 2")


def test_values_that_bf16_does_not_hold_are_refused() -> None:
    """MLX keeps the scales of a float32 matrix in float32; a block can't, so that the two would part silently."""
    values = np.zeros((2, 64), dtype=np.float32)
    values[1, 5] = np.float32(0.1)
    with pytest.raises(ContractError) as caught:
        encode(values)
    assert (caught.value.finding.code, caught.value.finding.where) == ("codec.affine4.source", "group 1")
    encode(bf16(values))


@pytest.mark.parametrize(
    "values",
    [np.zeros((1, 64)), np.zeros((1, 64), np.float16), np.zeros((1, 64), np.int32), [[0.0] * 64], None, np.float32(0)],
    ids=["float64", "float16", "int32", "list", "None", "scalar"],
)  # fmt: skip
def test_only_arrays_of_float32_are_encoded(values: object) -> None:
    with pytest.raises(ContractError) as caught:
        encode(values)
    assert (caught.value.finding.code, caught.value.finding.where) == ("codec.affine4.source", "array")


@pytest.mark.parametrize("blocks", [np.zeros(36), np.zeros(36, np.int8), bytes(36), None, np.uint8(0)], ids=["float64", "int8", "bytes", "None", "scalar"])  # fmt: skip
def test_only_arrays_of_bytes_are_decoded(blocks: object) -> None:
    with pytest.raises(ContractError) as caught:
        decode(blocks)
    assert (caught.value.finding.code, caught.value.finding.where) == ("codec.affine4.source", "array")


def test_strided_values_are_encoded_as_their_copy_is() -> None:
    values = bf16(np.random.default_rng(1).standard_normal((128, 64)).astype(np.float32))
    assert np.array_equal(encode(values.T), encode(values.T.copy()))
    blocks = encode(values)
    assert np.array_equal(decode(blocks[::2]), decode(blocks)[::2])


@pytest.mark.parametrize("largest", [3e38, 3.3e38])
def test_values_that_no_group_can_hold_are_refused_and_not_written_as_nan(largest: float) -> None:
    values = np.zeros((2, 64), dtype=np.float32)
    values[1, :2] = largest, -largest
    values = bf16(values)
    with pytest.raises(ContractError) as caught:
        encode(values)
    assert (caught.value.finding.code, caught.value.finding.where) == ("codec.affine4.range", "group 1")
