"""A rope keeps origins through every cut and join, and refuses what would forget them."""

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.impl.text.origin import COMPUTED, TEMPLATE, Origin, OriginError, OriginKind, refuse, watching
from assay.impl.text.rope import EMPTY, Rope, joined, rope

CALLER = Origin(OriginKind.CALLER, "messages[0].content")
ORIGINS = (TEMPLATE, CALLER, COMPUTED)
RUNS = st.lists(st.tuples(st.text(max_size=4), st.sampled_from(ORIGINS)), max_size=6)


def built(runs: list[tuple[str, Origin]]) -> Rope:
    return joined([rope(text, origin) for text, origin in runs])


def labels(value: Rope) -> list[tuple[str, Origin]]:
    return [(character, origin) for text, origin in value.pieces for character in text]


@given(RUNS, st.integers(-8, 30), st.integers(-8, 30))
def test_a_cut_keeps_the_origin_of_each_character(
    runs: list[tuple[str, Origin]], start: int, stop: int
) -> None:
    each = [(character, origin) for text, origin in runs for character in text]
    assert labels(built(runs)[start:stop]) == each[start:stop]


@given(RUNS, RUNS)
def test_a_join_keeps_the_origin_of_each_character(
    left: list[tuple[str, Origin]], right: list[tuple[str, Origin]]
) -> None:
    assert labels(built(left) + built(right)) == labels(built(left)) + labels(built(right))


@given(RUNS, st.sampled_from([-3, -1, 2, 5]))
def test_a_stepped_slice_reads_like_a_plain_one(runs: list[tuple[str, Origin]], step: int) -> None:
    plain = "".join(text for text, _ in runs)
    assert built(runs)[::step].text == plain[::step]


def test_equality_and_hash_are_those_of_the_text() -> None:
    assert rope("a", TEMPLATE) == rope("a", CALLER)
    assert hash(rope("a", TEMPLATE)) == hash(rope("a", CALLER))


@pytest.mark.parametrize(
    "operation",
    [
        str,
        "{}".format,
        lambda value: f"{value}",
        pickle.dumps,
        lambda value: value == "a",
        lambda value: "a" in value,
    ],
)
def test_what_would_forget_the_origin_is_refused(operation: Callable[[Rope], object]) -> None:
    with pytest.raises(OriginError) as caught:
        operation(rope("a", CALLER))
    assert caught.value.finding.code == "chat.origin.lost"


@pytest.mark.parametrize("function", ["".join, len("x").__add__])
def test_functions_of_c_reject_a_rope_by_type(function: Callable[[object], object]) -> None:
    assert not isinstance(rope("a", CALLER), str)
    try:
        found = function([rope("a", CALLER)])
    except TypeError:
        found = NotImplemented
    assert found is NotImplemented


def test_ten_thousand_joins_do_not_recurse() -> None:
    whole = EMPTY
    for _ in range(10_000):
        whole = whole + rope("ab", CALLER)
    assert whole.pieces == (("ab" * 10_000, CALLER),)


def test_a_swallowed_refusal_is_still_noted() -> None:
    with watching() as watched:
        refuse("somewhere", "something")
        first = watched.first
    assert first is not None
    assert first.finding.where == "somewhere"


def test_a_repr_shows_no_character() -> None:
    assert repr(rope("secret", CALLER)) == "<text of 6 characters>"


def test_every_cut_has_the_characters_and_origins_of_its_place() -> None:
    whole = joined([rope("ab", TEMPLATE), rope("c", CALLER), rope("def", COMPUTED), rope("g", TEMPLATE)])
    kinds = [origin.kind for text, origin in whole.pieces for _ in text]
    for start in range(8):
        for stop in range(start, 8):
            cut = whole.cut(start, stop)
            assert cut.text == "abcdefg"[start:stop]
            assert [origin.kind for text, origin in cut.pieces for _ in text] == kinds[start:stop]
