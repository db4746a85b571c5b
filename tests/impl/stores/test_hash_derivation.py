"""The hash buffers follow from five values of the config; the literals come from published facts."""

from typing import Any

import pytest

from assay.impl.stores.checkpoint.hash_derivation import derive_hash_buffers, judge_hash
from assay.spec.profiles import load_profile

REAL = {
    "vocab_size": 248320, "ngram_size": 3, "heads_per_ngram": 8, "ngram_vocab_size_base": 20000000,
    "make_ngram_vocab_size_divisible_by": 128,
}  # fmt: skip


def test_the_published_values_are_derived() -> None:
    buffers = derive_hash_buffers(REAL, seed=1234, ordinal=0, prime_step=10007)
    assert buffers.multipliers == (23703573157769, 20109073645365, 8052911324071)
    assert (buffers.primes[0], len(buffers.primes), sum(buffers.primes)) == (20000003, 16, 320001446)
    assert buffers.offsets[:3] == (0, 20000003, 40000026)
    assert buffers.padded_rows == 320001536


def test_a_small_derivation_by_hand() -> None:
    """The primes from 7 on are 7, 11, 13, 17; their sum 48 is padded to 50."""
    small = {
        **REAL,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 7,
        "make_ngram_vocab_size_divisible_by": 10,
    }
    buffers = derive_hash_buffers(small, seed=0, ordinal=0, prime_step=0)
    assert (buffers.primes, buffers.offsets, buffers.padded_rows) == ((7, 11, 13, 17), (0, 7, 18, 31), 50)


EDITS: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "another base": (
        {"ngram_vocab_size_base": 20000004},
        [("primes", "ngram_heads_vocab_sizes"), ("primes", "ngram_heads_offsets"), ("rows", "padded rows")],
    ),
    "another divisor": ({"make_ngram_vocab_size_divisible_by": 100}, [("rows", "padded rows")]),
    "a seed of its own": ({"seed": 1235}, [("multipliers", "layer_multipliers")]),
    "the tokenizer's size": ({"vocab_size": 248077}, [("multipliers", "layer_multipliers")]),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_value_that_changes_the_hash_is_told_by_what_it_changes(name: str) -> None:
    edit, expected = EDITS[name]
    findings = judge_hash({"text_config": {**REAL, **edit}}, load_profile("qwen4exp"))
    assert [(finding.code, finding.where) for finding in findings] == [
        (f"checkpoint.hash.{code}", f"derived from config.json: {where}") for code, where in expected
    ]


@pytest.mark.parametrize("value", [None, 0, -3, 1.0, True, "3", 2**40])
def test_an_input_that_is_no_bounded_positive_integer_is_refused_before_anything_is_derived(
    value: object,
) -> None:
    findings = judge_hash({"text_config": {**REAL, "ngram_size": value}}, load_profile("qwen4exp"))
    assert [(finding.code, finding.where) for finding in findings] == [
        ("checkpoint.hash.inputs", "config.json: text_config.ngram_size")
    ]


def test_a_number_of_heads_that_would_take_long_is_refused() -> None:
    findings = judge_hash({"text_config": {**REAL, "heads_per_ngram": 10**6}}, load_profile("qwen4exp"))
    assert [(finding.code, finding.where) for finding in findings] == [
        ("checkpoint.hash.inputs", "config.json: text_config.heads_per_ngram")
    ]


def test_a_config_without_text_lacks_every_input() -> None:
    findings = judge_hash({}, load_profile("qwen4exp"))
    assert [finding.code for finding in findings] == ["checkpoint.hash.inputs"] * 5
