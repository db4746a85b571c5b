"""The rules' own arithmetic, against published numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.spec.hashing import align_up, is_prime, primes_after, splitmix64

STANDARD = {"gamma": 0x9E3779B97F4A7C15, "m1": 0xBF58476D1CE4E5B9, "m2": 0x94D049BB133111EB}


def test_splitmix64_gives_the_published_first_output_for_state_zero() -> None:
    # First output of the reference generator seeded with 0.
    assert splitmix64(0, **STANDARD) == 0xE220A8397B1DCDAF


def test_the_sixteen_published_primes_follow_each_other() -> None:
    assert primes_after(19_999_999, 16) == (
        20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
        20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171,
    )  # fmt: skip


@given(st.integers(-10, 20_000))
@settings(max_examples=200)
def test_primality_agrees_with_trial_division(number: int) -> None:
    divided = number > 1 and all(number % factor for factor in range(2, int(number**0.5) + 1))
    assert is_prime(number) == divided


@pytest.mark.parametrize("number", [561, 3_215_031_751, 3_825_123_056_546_413_051])
def test_strong_pseudoprimes_are_not_prime(number: int) -> None:
    # A Carmichael number; the least strong pseudoprimes to the bases 2, 3, 5, 7 and to the first nine primes.
    assert not is_prime(number)


def test_the_largest_prime_below_2_to_63_is_prime() -> None:
    assert is_prime(2**63 - 25)
    assert primes_after(2**63 - 26, 1) == (2**63 - 25,)


def test_skipped_primes_are_left_out() -> None:
    assert primes_after(1, 3, skip=2) == (5, 7, 11)


@pytest.mark.parametrize(("count", "skip"), [(-1, 0), (4097, 0), (1, 4096)])
def test_a_count_that_no_table_has_is_refused(count: int, skip: int) -> None:
    with pytest.raises(ValueError, match="more than any table has"):
        primes_after(1, count, skip=skip)


def test_rounding_up_reaches_the_published_padded_rows() -> None:
    assert align_up(320_001_446, 128) == 320_001_536
    assert align_up(128, 128) == 128
