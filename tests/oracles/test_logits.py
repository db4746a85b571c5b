"""The vocabulary boundary through every policy, and the policies themselves."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_toys import assert_refused

from assay.oracles import logits

VALID, ROWS = 248_077, 248_320


def padded() -> np.ndarray:
    """A2: padding rows dominate; the last valid id is the best of the rest."""
    values = np.full(ROWS, -1.0)
    values[248_076] = -0.5
    values[248_077], values[248_090], values[248_319] = 40, 41, 42
    return values


@pytest.mark.parametrize(
    "policy",
    [
        {"policy": "greedy"},
        {"policy": "top-k", "k": 20},
        {"policy": "top-p", "p": 0.95},
        {"policy": "min-p", "min_p": 0.9},
        {"policy": "temperature", "temperature": 0.7},
    ],
)
@pytest.mark.parametrize("grammar", [False, True])
def test_a_padding_row_never_wins(policy: dict[str, object], grammar: bool) -> None:
    """A2: a grammar mask of 7,753 words, all bits set, still allows 248,090 and must not."""
    words = [2**32 - 1] * 7753 if grammar else None
    assert logits.select(padded(), VALID, mask_words=words, **policy).id == 248_076


@pytest.mark.parametrize("uniform", [0.0, 0.5, 0.999999])
@pytest.mark.parametrize("policy", ["temperature", "top-k", "top-p", "min-p"])
def test_no_uniform_number_reaches_a_padding_row(policy: str, uniform: float) -> None:
    chosen = logits.select(padded(), VALID, policy, k=ROWS, p=1.0, min_p=1e-9, uniform=uniform)
    assert chosen.id < VALID
    assert int(chosen.candidates.max()) < VALID


def test_a_mask_of_valid_ids_has_spare_bits_of_zero() -> None:
    """248,077 = 7,752 * 32 + 13: the last word has 13 bits, so that 248,090 is out."""
    words = logits.mask(ROWS, VALID)
    assert (len(words), words[0], words[-1]) == (7753, 4294967295, 8191)


def test_words_that_end_with_the_vocabulary_are_whole() -> None:
    assert logits.mask(64, 32) == [4294967295]
    assert logits.mask(1, 1) == [1]
    assert logits.mask(70, 65) == [4294967295, 4294967295, 1]
    assert_refused("oracle.argument.domain", "valid_ids", lambda: logits.mask(10, 0))
    assert_refused("oracle.argument.domain", "physical_rows", lambda: logits.mask(2**24 + 1, 1))


def test_one_word_covers_32_ids_and_no_more() -> None:
    assert logits.select(np.arange(32.0), 32, mask_words=[0b111]).id == 2
    assert_refused(
        "oracle.argument.shape", "mask_words", lambda: logits.select(np.arange(33.0), 33, mask_words=[0b111])
    )


def test_the_largest_uniform_number_takes_the_last_candidate() -> None:
    """Ten shares of 0.1 add up to the largest double below 1, so that nothing exceeds it."""
    assert logits.select(np.zeros(10), 10, "temperature", uniform=float(np.nextafter(1, 0))).id == 9


def test_greedy_has_one_candidate() -> None:
    chosen = logits.select([0.0, 1.0], 2)
    assert (chosen.candidates.tolist(), chosen.probabilities.tolist()) == ([1], [1.0])


def test_greedy_takes_the_lower_id_at_a_tie() -> None:
    assert logits.select([1.0, 5.0, 5.0], 3).id == 1


def probabilities() -> list[float]:
    """Ids 0 .. 3 with probability 0.1, 0.4, 0.3, 0.2."""
    return [math.log(share) for share in (0.1, 0.4, 0.3, 0.2)]


@pytest.mark.parametrize(
    ("policy", "candidates"),
    [
        ({"policy": "temperature"}, [1, 2, 3, 0]),
        ({"policy": "top-k", "k": 2}, [1, 2]),
        ({"policy": "top-k", "k": 9}, [1, 2, 3, 0]),
        ({"policy": "top-p", "p": 0.5}, [1, 2]),
        ({"policy": "top-p", "p": 0.39}, [1]),
        ({"policy": "top-p", "p": 0.75}, [1, 2, 3]),
        ({"policy": "min-p", "min_p": 0.6}, [1, 2]),
        ({"policy": "min-p", "min_p": 1.0}, [1]),
    ],
)
def test_a_policy_keeps_the_candidates_of_its_definition(
    policy: dict[str, object], candidates: list[int]
) -> None:
    chosen = logits.select(probabilities(), 4, **policy)
    assert chosen.candidates.tolist() == candidates
    assert chosen.probabilities.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("uniform", "expected"), [(0.0, 1), (0.39, 1), (0.41, 2), (0.69, 2), (0.71, 3), (0.95, 0)]
)
def test_a_uniform_number_chooses_by_cumulative_probability(uniform: float, expected: int) -> None:
    """Falling order 0.4, 0.3, 0.2, 0.1: cuts at 0.4, 0.7, 0.9."""
    assert logits.select(probabilities(), 4, "temperature", uniform=uniform).id == expected


def test_kept_probabilities_are_renormalised() -> None:
    """Top 2 of 0.4 and 0.3: 4/7 = 0.571429; a uniform number of 0.55 stays with the first."""
    chosen = logits.select(probabilities(), 4, "top-k", k=2, uniform=0.55)
    assert chosen.probabilities == pytest.approx([4 / 7, 3 / 7], abs=1e-6)
    assert chosen.id == 1


def test_a_low_temperature_sharpens() -> None:
    """Temperature 1/2 squares: 0.16, 0.09, 0.04, 0.01 over 0.30."""
    chosen = logits.select(probabilities(), 4, "temperature", temperature=0.5)
    assert chosen.probabilities == pytest.approx([16 / 30, 9 / 30, 4 / 30, 1 / 30], abs=1e-6)


def test_masking_stands_before_the_policy() -> None:
    """The best id masked: top-k 1 must be the next, not nothing."""
    assert logits.select(probabilities(), 4, "top-k", k=1, mask_words=[0b1101]).id == 2


def test_impossible_ids_are_no_candidates() -> None:
    assert logits.select([-np.inf, 0.0], 2, "temperature", uniform=0.99).candidates.tolist() == [1]


@pytest.mark.parametrize(
    ("code", "where", "change"),
    [
        ("oracle.logits.nothing-sampleable", "logits", {"logits": [-np.inf, -np.inf, 1.0], "valid_ids": 2}),
        ("oracle.logits.nothing-sampleable", "logits", {"mask_words": [0]}),
        ("oracle.argument.finite", "logits", {"logits": [0.0, np.nan, 0.0]}),
        ("oracle.argument.finite", "logits", {"logits": [0.0, np.inf, 0.0]}),
        ("oracle.argument.domain", "valid_ids", {"valid_ids": 0}),
        ("oracle.argument.domain", "valid_ids", {"valid_ids": 4}),
        ("oracle.argument.domain", "policy", {"policy": "beam"}),
        ("oracle.argument.domain", "k", {"policy": "top-k", "k": 0}),
        ("oracle.argument.domain", "p", {"policy": "top-p", "p": 0.0}),
        ("oracle.argument.domain", "min_p", {"policy": "min-p", "min_p": 1.5}),
        ("oracle.argument.domain", "temperature", {"policy": "temperature", "temperature": 0.0}),
        ("oracle.argument.domain", "uniform", {"policy": "temperature", "uniform": 1.0}),
        ("oracle.argument.finite", "uniform", {"policy": "temperature", "uniform": np.nan}),
        ("oracle.argument.finite", "p", {"policy": "top-p", "p": np.nan}),
        ("oracle.argument.finite", "min_p", {"policy": "min-p", "min_p": np.nan}),
        ("oracle.argument.finite", "temperature", {"policy": "temperature", "temperature": np.nan}),
        ("oracle.argument.shape", "mask_words", {"mask_words": []}),
        ("oracle.argument.domain", "mask_words[0]", {"mask_words": [2**32]}),
    ],
)
def test_selection_refuses_by_name(code: str, where: str, change: dict[str, object]) -> None:
    good: dict[str, object] = {"logits": [0.0, 1.0, 2.0], "valid_ids": 3}
    assert_refused(code, where, lambda: logits.select(**{**good, **change}))


@pytest.mark.parametrize("temperature", [1e-40, 1e-300, 1e300])
def test_a_temperature_that_leaves_no_order_is_refused(temperature: float) -> None:
    """A logit over it is infinite or 0 / 0 in float32: the id would be chosen among NaNs."""
    assert_refused(
        "oracle.argument.domain",
        "temperature",
        lambda: logits.select([1.0, 2.0], 2, "temperature", temperature=temperature),
    )


def test_a_small_temperature_is_a_sharp_choice_and_float64_takes_a_smaller_one() -> None:
    assert logits.select([1.0, 2.0], 2, "temperature", temperature=1e-30).id == 1
    assert logits.select([1.0, 2.0], 2, "temperature", temperature=1e-40, dtype="float64").id == 1
    impossible = logits.select([-np.inf, 1.0, 2.0], 3, "temperature", temperature=1e30)
    assert impossible.candidates.tolist() == [1, 2]


@settings(max_examples=40, derandomize=True, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=2, max_size=12), st.floats(0, 0.999), st.data())
def test_a_policy_never_leaves_the_valid_ids(values: list[int], uniform: float, data: st.DataObject) -> None:
    valid = data.draw(st.integers(1, len(values)))
    policy = data.draw(st.sampled_from(logits.POLICIES))
    assert logits.select(values, valid, policy, uniform=uniform).id < valid
