"""Distances between stored numbers, against values worked out from the formats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.provenance.captures.arrays import Stored
from assay.provenance.captures.numbers import absolute, beyond, ulp_distance
from assay.provenance.captures.tolerances import BY_RUNG, tolerance

FLOATS = st.floats(width=32, allow_nan=False)


def f32(*values: float) -> Stored:
    return Stored(np.array(values, np.float32), "f32")


@given(FLOATS, st.integers(0, 5))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_n_steps_up_are_n_ulps(value: float, steps: int) -> None:
    stepped = np.float32(value)
    for _ in range(steps):
        stepped = np.nextafter(stepped, np.float32(np.inf))
    if np.isfinite(stepped) and np.isfinite(np.float32(value)):
        zero_crossings = int(np.float32(value) == 0 and np.signbit(np.float32(value)))
        assert ulp_distance(f32(value), f32(float(stepped)))[0] in {steps, steps - zero_crossings}


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1.0, 1.0 + 2.0**-23, 1),
        (0.0, -0.0, 0),
        (2.0**-149, -(2.0**-149), 2),  # the smallest numbers on both sides of zero
        (1.0, 2.0, 1 << 23),
        (float("nan"), 1.0, -1),
    ],
)
def test_ulps_of_float32(a: float, b: float, expected: int) -> None:
    assert ulp_distance(f32(a), f32(b)).tolist() == [expected]


def test_bfloat16_words_are_widened_exactly() -> None:
    """0x3FC0 = 1.5, 0xC010 = -2.25, 0x7F80 = infinity."""
    words = Stored(np.array([0x3FC0, 0xC010, 0x7F80], np.uint16), "bf16")
    assert words.values().tolist() == [1.5, -2.25, float("inf")]


def test_the_coarser_type_counts() -> None:
    """1 + 2^-9 rounds to even, to 1, in bfloat16: no distance there."""
    assert ulp_distance(f32(1.0 + 2.0**-9), Stored(np.array([0x3F80], np.uint16), "bf16")).tolist() == [0]


@given(FLOATS, FLOATS)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_the_tolerance_is_symmetric(a: float, b: float) -> None:
    x, y = np.array([a], np.float32), np.array([b], np.float32)
    assert beyond(x, y, 1e-3, 1e-6).tolist() == beyond(y, x, 1e-3, 1e-6).tolist()


def test_the_tolerance_includes_its_bound() -> None:
    x, y = np.array([1.0, 1.0]), np.array([1.25, 1.2500001])
    assert beyond(x, y, 0.0, 0.25).tolist() == [False, True]


def test_equal_infinities_have_no_distance() -> None:
    inf = np.array([np.inf, np.inf])
    assert absolute(inf, np.array([np.inf, -np.inf])).tolist() == [0.0, np.inf]
    assert beyond(inf, np.array([np.inf, -np.inf]), 1.0, 1.0).tolist() == [False, True]


def test_integers_have_no_tolerance() -> None:
    big = np.array([2**53, 2**53 + 1], np.int64)
    assert beyond(big, big[::-1], 1.0, 1e9).tolist() == [True, True]


@pytest.mark.parametrize(
    ("stage", "part", "types", "expected"),
    [
        ("embedding", "", ("f32", "f32"), (0.0, 0.0)),
        ("gdn", "", ("f32", "f32"), (2e-5, 2e-5)),
        ("qsa", "index_scores", ("f32", "f32"), (2e-5, 5e-5)),
        ("router", "ids", ("i64", "i32"), (0.0, 0.0)),
        ("gdn", "", ("f32", "f16"), (2.0**-9, 2.0**-12)),
        ("gdn", "", ("bf16", "f16"), (2.0**-6, 2.0**-9)),
    ],
)
def test_tolerances(stage: str, part: str, types: tuple[str, str], expected: tuple[float, float]) -> None:
    found = tolerance(stage, part, types)
    assert (found.rtol, found.atol) == expected
    assert len(found.reason) > 20


def test_every_tolerance_has_a_reason() -> None:
    assert all(one.reason for one in BY_RUNG.values())
