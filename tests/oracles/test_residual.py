"""The gated residual over streams, by hand."""

import math

import numpy as np
import pytest
from oracle_toys import assert_refused

from assay.oracles import residual


def mix(**changes: object) -> residual.Read:
    """Two streams of width 1: normed rows are the signs; down and up pick single products."""
    arguments: dict[str, object] = {
        "wide": [5.0, -7.0],
        "norm": [0.0, 0.0],
        "down": [[2.0, 0.0]],
        "up": [[1.0], [0.0]],
        "inject": [[2.0, 0.0], [0.0, 0.0]],
        "streams": 2,
        "eps": 1e-12,
    }
    return residual.read(**{**arguments, **changes})


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_a_read_is_the_gated_mean_of_the_normed_streams() -> None:
    """h = silu(2 / 2) = 0.731059; gates sigmoid(0.731059) = 0.675038 and 0.5; mean of 0.675038 and -0.5.

    Without the division by the streams h would be silu(2) = 1.761594 and the read 0.176676.
    """
    assert mix().read[0] == pytest.approx((sigmoid(sigmoid(1)) - 0.5) / 2, abs=1e-6)
    assert mix().read[0] == pytest.approx(0.087519, abs=1e-6)


def test_the_injection_is_twice_a_sigmoid_of_a_quotient() -> None:
    """2 sigmoid(2 / 2) = 1.462117 and 2 sigmoid(0) = 1."""
    assert mix().injection == pytest.approx([1.462117, 1.0], abs=1e-6)


def test_streams_are_normed_apart() -> None:
    """[5, -7] as one row of width 2 would not give signs; with a gain of 1 the norm doubles."""
    doubled = mix(norm=[1.0, 1.0], up=[[0.0], [0.0]])
    assert doubled.read[0] == pytest.approx((2 - 2) / 2 * 0.5, abs=1e-6)
    assert mix(wide=[5.0, 7.0], up=[[0.0], [0.0]]).read[0] == pytest.approx(0.5, abs=1e-6)


def test_gates_multiply_the_normed_row_value_by_value() -> None:
    """Hidden 2: streams [3, 4] and [4, 3], all gates 1/2: the mean of 0.848528 and 1.131371, halved."""
    read = residual.read(
        [3.0, 4.0, 4.0, 3.0], np.zeros(4), np.zeros((1, 4)), np.zeros((4, 1)), np.zeros((2, 4)), 2
    )
    assert read.read == pytest.approx([0.494975, 0.494975], abs=1e-6)


def test_the_read_averages_streams_and_not_neighbours() -> None:
    """Streams [1, 0] and [0, 0]: normed [sqrt 2, 0] and 0; half of the gate, half of the mean: 0.353553 and 0."""
    read = residual.read(
        [1.0, 0.0, 0.0, 0.0], np.zeros(4), np.zeros((1, 4)), np.zeros((4, 1)), np.zeros((2, 4)), 2
    )
    assert read.read == pytest.approx([0.353553, 0.0], abs=1e-6)


def test_a_single_stream_is_a_residual_too() -> None:
    assert residual.apply([1.0, 2.0], [10.0, 20.0], [0.5]).tolist() == [6, 12]
    read = residual.read([3.0, 4.0], np.zeros(2), np.zeros((1, 2)), np.zeros((2, 1)), np.zeros((1, 2)), 1)
    assert read.read == pytest.approx([0.424264, 0.565685], abs=1e-6)


def test_the_final_mixer_reads_and_injects_nothing() -> None:
    read = residual.final_mix([5.0, -7.0], [0.0, 0.0], [[2.0, 0.0]], [[1.0], [0.0]], 2, 1e-12)
    assert read.read.shape == (1,)
    assert read.read[0] == pytest.approx(0.087519, abs=1e-6)
    assert read.normed == pytest.approx([1.0, -1.0], abs=1e-6)
    assert read.mix == pytest.approx([0.731059, 0.0], abs=1e-6)


def test_apply_adds_to_every_stream_with_its_own_weight() -> None:
    wide = residual.apply([1.0, 2.0, 3.0, 4.0], [10.0, 20.0], [0.5, 2.0])
    assert wide.tolist() == [6, 12, 23, 44]


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("down", {"down": [[1.0]]}),
        ("up", {"up": [[1.0, 1.0], [0.0, 0.0]]}),
        ("inject", {"inject": [[1.0, 1.0]]}),
        ("norm", {"norm": [0.0]}),
    ],
)
def test_a_wrong_shape_is_refused_by_name(where: str, change: dict[str, object]) -> None:
    assert_refused("oracle.argument.shape", where, lambda: mix(**change))


def test_a_width_that_streams_do_not_share_is_refused() -> None:
    assert_refused("oracle.argument.domain", "wide", lambda: mix(streams=3))
    assert_refused("oracle.argument.domain", "wide", lambda: mix(wide=[]))
    assert_refused("oracle.argument.domain", "streams", lambda: mix(streams=0))


def test_apply_refuses_a_wide_row_of_another_width() -> None:
    assert_refused(
        "oracle.argument.shape", "wide", lambda: residual.apply(np.zeros(3), [1.0, 2.0], [1.0, 1.0])
    )
