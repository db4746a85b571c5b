"""Two norm conventions, told apart by the numbers of public bug reports."""

import numpy as np
import pytest
from oracle_toys import assert_refused

from assay.oracles import norms


def test_a_zero_gain_gives_the_plain_normed_row() -> None:
    """A17: x = [3, 4], stored w = 0."""
    assert norms.rms([3, 4], [0, 0], 1e-6, "zero-centred") == pytest.approx([0.848528, 1.131371], abs=5e-7)


def test_the_conventional_gain_is_used_directly() -> None:
    """A17: plain w gives zeros here; with w = 1 the plain row."""
    assert norms.rms([3, 4], [0, 0], 1e-6, "conventional").tolist() == [0, 0]
    assert norms.rms([3, 4], [1, 1], 1e-6, "conventional") == pytest.approx([0.848528, 1.131371], abs=5e-7)


def test_a_zero_centred_gain_of_one_doubles() -> None:
    """A17: what a double shift gives for w = 0."""
    assert norms.rms([3, 4], [1, 1], 1e-6, "zero-centred") == pytest.approx([1.697056, 2.262742], abs=1e-6)


def test_groups_have_statistics_of_their_own() -> None:
    grouped = norms.rms([3, 4, 300, 400], np.zeros(4), 1e-6, "zero-centred", groups=2)
    assert grouped == pytest.approx([0.848528, 1.131371, 0.848528, 1.131371], abs=1e-6)


def test_eps_stands_inside_the_root() -> None:
    """mean square 4, eps 5: 2 / sqrt(9)."""
    assert norms.rms([2, 2], [0, 0], 5.0)[0] == pytest.approx(2 / 3, abs=1e-7)


def test_large_values_do_not_overflow_in_their_squares() -> None:
    assert norms.rms([3e30, 4e30], [0, 0]) == pytest.approx([0.848528, 1.131371], abs=1e-6)


def test_the_recurrent_gate_is_a_sigmoid() -> None:
    """A16: normed value 1; SiLU would give -0.238406, 0.311230, 2.857722."""
    y = [norms.gated([1.0], [1.0], [gate], 1e-12)[0] for gate in (-2, 0.5, 3)]
    assert y == pytest.approx([0.119203, 0.622459, 0.952574], abs=1e-6)


def test_an_eps_too_small_for_a_row_of_zeros_is_named() -> None:
    assert_refused("oracle.argument.domain", "eps", lambda: norms.rms([0.0, 0.0], [0.0, 0.0], eps=1e-300))
    assert norms.rms([0.0, 0.0], [0.0, 0.0], eps=1e-70).tolist() == [0, 0]
    assert norms.rms([3.0, 3.0], [0.0, 0.0], eps=1e-300).tolist() == [1, 1]


def test_float32_results_are_float32_and_float64_is_a_second_opinion() -> None:
    assert norms.rms([3, 4], [0, 0]).dtype == np.float32
    assert norms.rms([3, 4], [0, 0], dtype="float64")[0] == pytest.approx(3 / np.sqrt(12.500001), abs=1e-15)


@pytest.mark.parametrize(
    ("code", "where", "change"),
    [
        ("oracle.argument.shape", "weight", {"weight": [0.0]}),
        ("oracle.argument.finite", "x", {"x": [3.0, np.nan]}),
        ("oracle.argument.finite", "weight", {"weight": [0.0, np.inf]}),
        ("oracle.argument.finite", "x", {"x": [3.0, 1e39]}),
        ("oracle.argument.type", "x", {"x": [3.0, "4"]}),
        ("oracle.argument.type", "x", {"x": [[3.0], [4.0, 5.0]]}),
        ("oracle.argument.domain", "eps", {"eps": 0.0}),
        ("oracle.argument.domain", "convention", {"convention": "plain"}),
        ("oracle.argument.domain", "groups", {"groups": 3}),
        ("oracle.argument.domain", "x", {"x": np.zeros(0), "weight": np.zeros(0)}),
        ("oracle.argument.domain", "dtype", {"dtype": "float16"}),
    ],
)
def test_an_argument_outside_the_domain_is_named(code: str, where: str, change: dict[str, object]) -> None:
    arguments: dict[str, object] = {"x": [3.0, 4.0], "weight": [0.0, 0.0], "eps": 1e-6}
    if where == "groups":
        arguments |= {"x": [1.0, 2.0, 3.0, 4.0], "weight": np.zeros(4)}
    assert_refused(code, where, lambda: norms.rms(**{**arguments, **change}))
