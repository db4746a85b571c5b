"""Partial interleaved rotary embedding against hand computation."""

import math

import numpy as np
import pytest
from oracle_toys import assert_refused

from assay.oracles import rope


def test_only_the_first_values_are_rotated() -> None:
    """Frequency 1 at position 1: [1, 2] turns by one radian; 3 and 4 pass."""
    y = rope.apply([[[1.0, 2.0, 3.0, 4.0]]], [1], 2, sections=(1, 0, 0))[0, 0]
    expected = [math.cos(1) - 2 * math.sin(1), 2 * math.cos(1) + math.sin(1), 3, 4]
    assert y == pytest.approx(expected, abs=1e-6)


def test_three_rows_of_positions_drive_their_sections() -> None:
    """Frequency 1 is height's: at height 2 the second pair turns by 2 radians, the first by 1."""
    y = rope.apply([[[1.0, 1.0, 0.0, 0.0]]], [[1], [2], [9]], 4, 1.0, (1, 1, 0))[0, 0]
    assert y == pytest.approx([math.cos(1), math.cos(2), math.sin(1), math.sin(2)], abs=1e-6)


def test_pairs_are_half_a_rotation_apart() -> None:
    """Four rotated values pair 0 with 2; with theta 100 the second frequency is 1/10."""
    y = rope.apply([[[1.0, 0.0, 0.0, 0.0]]], [1], 4, 100.0, (2, 0, 0))[0, 0]
    assert y == pytest.approx([math.cos(1), 0, math.sin(1), 0], abs=1e-6)
    second = rope.apply([[[0.0, 1.0, 0.0, 0.0]]], [1], 4, 100.0, (2, 0, 0))[0, 0]
    assert second == pytest.approx([0, math.cos(0.1), 0, math.sin(0.1)], abs=1e-6)


def test_sections_are_interleaved_and_not_blocks() -> None:
    """Sections 2, 1, 1: frequencies 0, 1, 2, 3 read time, height, width, time."""
    rows = np.array([[100], [10], [1]])
    angles = rope.angles(rows, 8, 1.0, (2, 1, 1))
    assert angles.tolist() == [[100, 10, 1, 100]]


def test_the_published_sections_end_with_time_and_height() -> None:
    """Sections 11, 11, 10: of 32 frequencies, height is at 1, 4, .. 31, width at 2, 5, .. 29, time elsewhere."""
    axes = rope.angles(np.array([[0], [1], [2]]), 64, 1.0, (11, 11, 10))[0].tolist()
    assert [index for index, axis in enumerate(axes) if axis == 1] == list(range(1, 32, 3))
    assert [index for index, axis in enumerate(axes) if axis == 2] == list(range(2, 30, 3))


def test_a_uneven_share_falls_back_to_time() -> None:
    """Sections 3, 1, 0: only frequency 1 is height's."""
    assert rope.angles(np.array([[7], [8], [9]]), 8, 1.0, (3, 1, 0)).tolist() == [[7, 8, 7, 7]]


def test_a_section_ends_where_its_share_is_used_up() -> None:
    """Sections 6, 2, 0: height has frequencies 1 and 4; frequency 7 would be its third and is time's."""
    assert rope.angles(np.array([[0], [1], [2]]), 16, 1.0, (6, 2, 0)).tolist() == [[0, 1, 0, 0, 1, 0, 0, 0]]


def test_products_depend_on_distance_alone() -> None:
    random = np.random.default_rng(3)
    q, k = random.normal(size=(1, 1, 8)), random.normal(size=(1, 1, 8))
    products = [
        float((rope.apply(q, [9 + s], 8, dtype="float64", sections=(2, 1, 1)) * rope.apply(k, [4 + s], 8, dtype="float64", sections=(2, 1, 1))).sum())
        for s in (0, 1000)
    ]  # fmt: skip
    assert products[0] == pytest.approx(products[1], abs=1e-9)


@pytest.mark.parametrize(
    ("code", "where", "change"),
    [
        ("oracle.argument.domain", "rotary_dim", {"rotary_dim": 3}),
        ("oracle.argument.domain", "rotary_dim", {"rotary_dim": 6}),
        ("oracle.argument.domain", "sections", {"sections": (1, 1, 1)}),
        ("oracle.argument.domain", "theta", {"theta": 0.0}),
        ("oracle.argument.domain", "positions[0]", {"positions": [-1]}),
        ("oracle.argument.shape", "positions", {"positions": [1, 2]}),
        ("oracle.argument.type", "positions[0]", {"positions": [1.5]}),
        ("oracle.argument.type", "positions", {"positions": 1}),
        ("oracle.argument.shape", "positions", {"positions": [[1], [1]]}),
        ("oracle.argument.shape", "positions", {"positions": [[1], [1], [1, 2]]}),
        ("oracle.argument.domain", "positions[2][0]", {"positions": [[1], [1], [2**53 + 1]]}),
        ("oracle.argument.shape", "x", {"x": np.zeros((1, 4))}),
    ],
)
def test_an_argument_outside_the_domain_is_named(code: str, where: str, change: dict[str, object]) -> None:
    good: dict[str, object] = {
        "x": np.zeros((1, 1, 4)),
        "positions": [0],
        "rotary_dim": 4,
        "sections": (2, 0, 0),
    }
    rope.apply(**good)
    assert_refused(code, where, lambda: rope.apply(**{**good, **change}))
