"""Four questions about an id, and no policy that can choose an unassigned row."""

import numpy as np
import pytest

from assay.impl.text.vocabulary import Vocabulary
from assay.spec.errors import ContractError
from assay.spec.text import text_contract

V = Vocabulary(text_contract("qwen4exp"))
LAST = 248_076


def dominated() -> np.ndarray:
    """mlx-vlm 1917: every padding row beats every token, and one token beats the others."""
    logits = np.full(248_320, -1.0, dtype=np.float32)
    logits[LAST] = -0.5
    logits[248_077:] = 39.0
    logits[[248_077, 248_090, 248_319]] = 40.0, 41.0, 42.0
    return logits


@pytest.mark.parametrize(
    ("id_", "answers"),
    [
        (-1, (False, False, False, False)),
        (0, (True, True, True, False)),
        (248_043, (True, True, True, False)),
        (248_044, (True, True, True, True)),
        (248_045, (True, True, True, False)),
        (248_046, (True, True, True, True)),
        (LAST, (True, True, True, False)),
        (248_077, (True, False, False, False)),
        (248_319, (True, False, False, False)),
        (248_320, (False, False, False, False)),
        (2**31 - 1, (False, False, False, False)),
    ],
)
def test_the_four_questions_have_four_answers(id_: int, answers: tuple[bool, bool, bool, bool]) -> None:
    assert (V.has_row(id_), V.is_sampleable(id_), V.has_text(id_), V.is_stop(id_)) == answers


def test_a_dominant_padding_row_is_never_the_greedy_choice() -> None:
    assert V.greedy(dominated()) == LAST


@pytest.mark.parametrize("policy", [{"top_k": 20}, {"top_p": 0.95}, {"top_k": 1}, {"temperature": 5.0}])
def test_a_dominant_padding_row_has_no_chance_under_any_policy(policy: dict[str, float]) -> None:
    chances = V.distribution(dominated(), **policy)
    assert chances[248_077:].sum() == 0
    assert int(chances.argmax()) == LAST
    assert V.sample(dominated(), np.random.default_rng(0), **policy) < 248_077


def test_a_grammar_mask_cannot_bring_a_padding_row_back() -> None:
    # 7,753 words cover 248,077 ids; 248,090 still lies in the last word, 248,319 in none.
    mask = np.full(7_753, 0xFFFFFFFF, dtype=np.uint32)
    assert V.greedy(dominated(), mask) == LAST
    only = np.zeros(7_753, dtype=np.uint32)
    only[5 // 32] |= np.uint32(1 << 5)
    assert V.greedy(dominated(), only) == 5


@pytest.mark.parametrize("words", [7_753, 7_760])
def test_bits_beyond_the_tokenizers_ids_allow_nothing(words: int) -> None:
    mask = np.zeros(words, dtype=np.uint32)
    mask[-1] = 1 << 31  # id 248,095 or 248,319
    with pytest.raises(ContractError) as caught:
        V.greedy(dominated(), mask)
    assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.logits.empty", "logits")


def test_zero_padding_rows_do_not_beat_negative_logits() -> None:
    logits = np.zeros(248_320, dtype=np.float32)
    logits[:248_077] = -5.0
    logits[7] = -4.0
    assert V.greedy(logits) == 7


def test_equal_logits_choose_the_smallest_id() -> None:
    assert V.greedy(np.zeros(248_320, dtype=np.float32)) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_no_number_is_refused_where_it_can_be_chosen(value: float) -> None:
    logits = dominated()
    logits[9] = value
    with pytest.raises(ContractError) as caught:
        V.greedy(logits)
    assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.logits.value", "logits[9]")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_in_a_padding_row_is_masked(value: float) -> None:
    logits = dominated()
    logits[248_200] = value
    assert V.greedy(logits) == LAST


def test_nothing_left_to_choose_is_its_own_error() -> None:
    logits = np.full(248_320, -np.inf, dtype=np.float32)
    logits[248_100] = 1.0
    with pytest.raises(ContractError) as caught:
        V.sample(logits, np.random.default_rng(0))
    assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.logits.empty", "logits")


@pytest.mark.parametrize("width", [248_077, 248_321])
def test_logits_of_another_width_are_refused(width: int) -> None:
    with pytest.raises(ContractError) as caught:
        V.greedy(np.zeros(width, dtype=np.float32))
    assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.logits.width", "logits")


@pytest.mark.parametrize(
    "policy", [{"temperature": 0.0}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": 0}, {"temperature": np.nan}]
)
def test_a_policy_that_keeps_nothing_is_refused(policy: dict[str, float]) -> None:
    with pytest.raises(ContractError) as caught:
        V.distribution(dominated(), **policy)
    assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.policy", "policy")


def test_top_p_keeps_ids_until_their_sum_reaches_it() -> None:
    logits = np.full(248_320, -np.inf)
    logits[:4] = np.log([0.5, 0.25, 0.125, 0.125])
    assert np.flatnonzero(V.distribution(logits, top_p=0.7)).tolist() == [0, 1]
    assert V.distribution(logits, top_p=0.7)[:2] == pytest.approx([2 / 3, 1 / 3])


def test_the_input_is_left_as_it_was() -> None:
    logits = dominated()
    V.masked(logits)
    assert logits[248_319] == 42.0


@pytest.mark.parametrize("bad", [-1, 248_077, 248_320, True])
def test_a_consumer_of_ids_bounds_them(bad: int) -> None:
    with pytest.raises(ContractError) as caught:
        V.bounded([3, bad], "ple.hash")
    assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.id", "ple.hash[1]")


def test_a_consumer_may_name_a_wider_domain() -> None:
    assert V.bounded([248_319], "embedding", rows=248_320) == [248_319]


@pytest.mark.parametrize(
    "mask",
    [
        np.ones(7_753, dtype="<i8"), np.ones(7_753, dtype="<u8"), np.ones(7_753, dtype=">u4"), np.ones(7_753, dtype="<f4"),
        np.ones(5, dtype="<u4"), np.ones(8_000, dtype="<u4"), np.ones((1, 7_753), dtype="<u4"), np.ones(7_753, dtype=bool),
        [1] * 7_753,
    ],
    ids=["int64", "uint64", "big-endian", "float", "short", "long", "matrix", "few booleans", "list"],
)  # fmt: skip
def test_a_mask_of_another_form_is_refused(mask: object) -> None:
    with pytest.raises(ContractError) as caught:
        V.greedy(dominated(), mask)  # type: ignore[arg-type]
    assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.mask", "allowed")


@pytest.mark.parametrize("kind", ["<u4", "<i4"])
def test_a_strided_mask_of_words_allows_what_its_bits_say(kind: str) -> None:
    words = np.zeros(7_753, dtype=kind)
    words[1] = 1 << 3
    assert V.greedy(dominated(), np.repeat(words, 2)[::2]) == 35


def test_a_mask_may_be_one_boolean_for_each_id() -> None:
    assert V.greedy(dominated(), np.arange(248_077) == 35) == 35


@pytest.mark.parametrize(
    "logits", [[0.0] * 248_320, np.zeros(248_320, dtype=np.int32)], ids=["list", "integers"]
)
def test_logits_that_are_no_array_of_floats_are_refused(logits: object) -> None:
    with pytest.raises(ContractError) as caught:
        V.greedy(logits)  # type: ignore[arg-type]
    assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.logits.value", "logits")


@pytest.mark.parametrize(
    "policy",
    [{"top_k": 2.5}, {"top_k": True}, {"top_k": "a"}, {"temperature": "a"}, {"temperature": float("inf")}, {"top_p": None}],
    ids=str,
)  # fmt: skip
def test_a_policy_of_another_type_is_refused(policy: dict[str, object]) -> None:
    with pytest.raises(ContractError) as caught:
        V.distribution(dominated(), **policy)  # type: ignore[arg-type]
    assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.policy", "policy")


@pytest.mark.parametrize(
    "id_",
    [None, "a", 0.0, 1.5, float("nan"), True, np.True_, 1 << 20000, -1 << 20000],
    ids=lambda one: type(one).__name__,
)
def test_what_is_no_integer_of_the_domain_is_refused_with_its_place(id_: object) -> None:
    with pytest.raises(ContractError) as caught:
        V.bounded([0, id_], "ple")  # type: ignore[list-item]
    assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.id", "ple[1]")


@pytest.mark.parametrize("id_", [0.5, float("nan"), "a", True])
def test_what_is_no_integer_is_no_id(id_: object) -> None:
    questions = (V.has_row, V.is_sampleable, V.has_text, V.is_stop)
    assert [ask(id_) for ask in questions] == [False] * 4  # type: ignore[arg-type]
