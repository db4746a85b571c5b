"""The arithmetic under the oracles, by numbers worked out by hand."""

import math

import numpy as np
import pytest

from assay.oracles import arithmetic


def single(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_a_number_beyond_the_working_type_becomes_an_infinity_without_a_warning() -> None:
    narrowed = arithmetic.narrow(np.array([1e300, -1e300, 1.0]), np.float32)
    assert narrowed.dtype == np.float32
    assert narrowed.tolist() == [math.inf, -math.inf, 1.0]


def test_a_sum_is_formed_in_float64_and_rounded_once() -> None:
    """2^24 + 1 + 1 in float32, left to right, loses both ones; rounded once it keeps them."""
    ones = single(1, 1, 1)
    assert arithmetic.linear(single(2**24, 1, 1)[None], ones).tolist() == [2**24 + 2]
    assert arithmetic.dot(single(2**24, 1, 1), ones).tolist() == 2**24 + 2


def test_linear_multiplies_each_output_row_with_the_last_axis() -> None:
    weight = single(1, 2, 3, 4, 5, 6).reshape(3, 2)
    assert arithmetic.linear(weight, single(1, 10, 0, 1).reshape(2, 2)).tolist() == [[21, 43, 65], [2, 4, 6]]


@pytest.mark.parametrize(
    ("x", "expected"),
    [(0.0, 0.5), (math.log(3), 0.75), (-math.log(3), 0.25), (200.0, 1.0), (-200.0, 0.0)],
)
def test_sigmoid_of_known_numbers(x: float, expected: float) -> None:
    assert arithmetic.sigmoid(single(x)).tolist() == pytest.approx([expected], abs=1e-7)
    assert arithmetic.silu(single(x)).tolist() == pytest.approx([x * expected], abs=1e-5)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.0, math.log(2)),
        (math.log(3), math.log(4)),
        (-math.log(3), math.log(4 / 3)),
        (20.0, 20.000000002061153),
        (20.5, 20.5),
        (1000.0, 1000.0),
        (-20.5, 1.2501528663867426e-09),
        (-100.0, 3.720075976020836e-44),
    ],
)
def test_softplus_is_linear_above_20_and_exponential_below_minus_20(x: float, expected: float) -> None:
    assert arithmetic.softplus(np.array([x])).tolist() == pytest.approx([expected], rel=1e-12)


def test_softmax_of_known_numbers_along_the_last_axis() -> None:
    rows = np.array([[0.0, math.log(3)], [-math.inf, 5.0]])
    assert arithmetic.softmax(rows).tolist() == [pytest.approx([0.25, 0.75]), [0, 1]]


def test_the_constant_of_the_l2_norm_stands_inside_the_root() -> None:
    assert arithmetic.l2_normalise(np.array([3.0, 4.0])).tolist() == pytest.approx([0.6, 0.8], rel=1e-7)
    assert arithmetic.l2_normalise(np.array([3.0, 4.0]))[0] == 3 / math.sqrt(25 + 1e-6)
    assert arithmetic.l2_normalise(np.array([1e-3]))[0] == pytest.approx(math.sqrt(0.5), rel=1e-12)


def test_the_inverse_root_is_of_the_mean_of_squares_plus_eps() -> None:
    assert arithmetic.inverse_rms(np.array([[1.0, 7.0], [0.0, 0.0]]), 0.25).tolist() == [
        [pytest.approx(1 / math.sqrt(25.25))],
        [2.0],
    ]
    assert arithmetic.inverse_rms(single(1e30), 1e-6).tolist() == pytest.approx([1e-30], rel=1e-6)
