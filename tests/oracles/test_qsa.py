"""Sparse attention: grouping, scores, selection, emission, attention over the selected rows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_toys import assert_refused

from assay.oracles import qsa
from assay.spec.errors import ContractError


def all_tied() -> np.ndarray:
    """A10: 600 groups, all 0 (half of them -0.0) but 300 and 599."""
    scores = np.zeros(600)
    scores[::2] = -0.0
    scores[300], scores[599] = 4, 5
    return scores


def test_ties_at_the_cut_go_to_the_lower_group() -> None:
    """A10: groups 0 .. 510 and 599, then the tail 2400, 2401; width 2,050."""
    chosen = qsa.select(all_tied(), 512, 2402, 4)
    assert chosen.groups.tolist() == [*range(511), 599]
    assert chosen.tokens[-6:].tolist() == [2396, 2397, 2398, 2399, 2400, 2401]
    assert chosen.tokens.size == 2050


def test_selection_repeats_to_the_byte() -> None:
    """A10: twenty runs."""
    runs = {qsa.select(all_tied(), 512, 2402, 4).tokens.tobytes() for _ in range(20)}
    assert len(runs) == 1


def test_emission_is_chronological_and_not_by_rank() -> None:
    """AFN-017: by rank the groups would be emitted 2, 1, 0."""
    chosen = qsa.select([1, 2, 3, 0], 3, 17, 4)
    assert chosen.groups.tolist() == [0, 1, 2]
    assert chosen.tokens.tolist() == [*range(12), 16]
    assert qsa.select([1, 2, 3, 0], 2, 16, 4).tokens.tolist() == [4, 5, 6, 7, 8, 9, 10, 11]


def test_tokens_are_absolute_and_groups_count_from_the_anchor() -> None:
    chosen = qsa.select([0, 5], 1, 9, 4, first_position=100)
    assert chosen.groups.tolist() == [1]
    assert chosen.tokens.tolist() == [104, 105, 106, 107, 108]


@pytest.mark.parametrize("visible", [1, 3, 4, 5, 2047, 2048, 2049, 2050, 2051])
def test_a_short_history_is_selected_whole(visible: int) -> None:
    """AFN-017: below the cut the row is the dense one, whatever the scores are."""
    scores = np.random.default_rng(visible).normal(size=visible // 4)
    assert qsa.select(scores, 512, visible, 4).tokens.tolist() == list(range(visible))


def test_the_first_position_past_the_budget_drops_one_group() -> None:
    """Facts 5.1: at 2,052 exactly 2,048 tokens and a tail of 0."""
    chosen = qsa.select(np.arange(513), 512, 2052, 4)
    assert chosen.tokens.size == 2048
    assert chosen.groups.tolist() == list(range(1, 513))


def test_a_nan_score_is_refused_by_its_group() -> None:
    assert_refused("oracle.qsa.nan-score", "scores[1]", lambda: qsa.select([0, np.nan], 1, 8, 4))


def test_infinite_scores_are_ordered() -> None:
    assert qsa.select([0, np.inf, -np.inf, 1], 2, 16, 4).groups.tolist() == [1, 3]


def test_a_ratio_of_one_and_a_budget_of_none_are_answered() -> None:
    assert qsa.select([2, 1], 1, 2, 1).tokens.tolist() == [0]
    assert qsa.select([2], 0, 5, 4).tokens.tolist() == [4]
    assert qsa.groups([3, 4], 1).starts.tolist() == [3, 4]


def test_the_largest_anchor_keeps_its_positions_exact() -> None:
    """2^53 is the last: beyond it a double can't hold a position."""
    assert qsa.select([], 1, 1, 4, first_position=2**53).tokens.tolist() == [2**53]
    assert_refused(
        "oracle.argument.domain", "first_position", lambda: qsa.select([], 1, 1, 4, first_position=2**53 + 1)
    )


def test_more_tokens_than_any_context_are_refused_before_they_are_listed() -> None:
    assert_refused("oracle.argument.domain", "visible", lambda: qsa.select([], 1, 2**24 + 1, 2**25))


def test_padding_may_be_marked_by_minus_one() -> None:
    assert qsa.groups([-1, 0, 1], 2).groups.tolist() == [[1, 2]]
    assert_refused("oracle.argument.domain", "positions[0]", lambda: qsa.groups([-2, 0], 2))


def test_the_first_of_two_nan_scores_is_named() -> None:
    assert_refused("oracle.qsa.nan-score", "scores[1]", lambda: qsa.select([0, np.nan, np.nan], 1, 12, 4))


def test_a_group_of_slots_that_do_not_exist_is_refused() -> None:
    call = {"groups": [[0, 2]], "starts": [0], "weight": [0.0, 0.0], "rotary_dim": 2, "sections": (1, 0, 0)}
    assert_refused("oracle.argument.domain", "groups[0][1]", lambda: qsa.pool(np.zeros((2, 2)), **call))


def test_starts_that_do_not_match_the_groups_are_refused() -> None:
    call = {
        "groups": [[0, 1]],
        "starts": [0, 1],
        "weight": [0.0, 0.0],
        "rotary_dim": 2,
        "sections": (1, 0, 0),
    }
    assert_refused("oracle.argument.shape", "starts", lambda: qsa.pool(np.zeros((2, 2)), **call))


def test_scores_are_asked_for_complete_groups_only() -> None:
    assert_refused("oracle.argument.shape", "scores", lambda: qsa.select([0, 1, 2], 1, 11, 4))


@pytest.mark.parametrize("where", ["visible", "ratio", "budget_groups", "first_position"])
def test_counts_out_of_range_are_refused_by_name(where: str) -> None:
    arguments = {"visible": 8, "ratio": 4, "budget_groups": 1, "first_position": 0}
    low = {"visible": 0, "ratio": 0, "budget_groups": -1, "first_position": -1}[where]
    arguments[where] = low
    assert_refused("oracle.argument.domain", where, lambda: qsa.select([0, 1], **arguments))


def test_a_huge_ratio_is_refused_before_a_group_is_laid_out() -> None:
    """One row of `ratio` positions would be 16 GiB, although no group is complete."""
    assert_refused("oracle.argument.domain", "ratio", lambda: qsa.select([], 1, 3, 2**31))
    assert_refused("oracle.argument.domain", "ratio", lambda: qsa.groups([0], 2**63))
    assert qsa.select([], 1, 3, 2**16).tokens.tolist() == [0, 1, 2]
    assert qsa.groups([0], 2**16).tail.tolist() == [0]


def test_a_position_that_no_double_holds_is_refused_by_its_slot() -> None:
    assert_refused("oracle.argument.domain", "positions[1]", lambda: qsa.groups([0, 2**64], 1, False))
    assert qsa.groups([2**53], 1).starts.tolist() == [2**53]
    assert_refused("oracle.argument.domain", "positions[0]", lambda: qsa.groups([2**53 + 1], 1))


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 32), st.integers(0, 3))
def test_selection_is_the_set_that_the_rule_names(scores: list[int], budget: int, tail: int) -> None:
    """Against the definition: a group is chosen when fewer than `budget` groups beat it."""
    expected = [
        one
        for one, score in enumerate(scores)
        if sum(other > score or (other == score and rank < one) for rank, other in enumerate(scores)) < budget
    ]
    chosen = qsa.select(scores, budget, 4 * len(scores) + tail, 4)
    assert chosen.groups.tolist() == expected
    assert chosen.tokens.tolist() == sorted(chosen.tokens.tolist())


def test_relu_stands_before_the_sum_over_heads() -> None:
    """Products 3 and -2: ReLU first gives 3, the sum first would give 1."""
    assert qsa.scores([[1.0], [1.0]], [[3.0]]).tolist() == [6.0]
    assert qsa.scores([[3.0], [-2.0]], [[1.0]]).tolist() == [3.0]


def test_scores_are_divided_by_the_root_of_the_width() -> None:
    assert qsa.scores([[2.0, 0, 0, 0]], [[3.0, 1, 1, 1]]).tolist() == [3.0]


def test_groups_go_by_logical_position_behind_padding() -> None:
    """A12: four pads and nine tokens."""
    found = qsa.groups([None] * 4 + list(range(9)), 4)
    assert found.groups.tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    assert found.starts.tolist() == [0, 4]
    assert found.tail.tolist() == [12]


@pytest.mark.parametrize("pads", [1, 3, 5])
def test_padding_moves_slots_and_nothing_else(pads: int) -> None:
    """A12, repeated with pads 1, 3 and 5."""
    found = qsa.groups([None] * pads + list(range(9)), 4)
    assert found.starts.tolist() == [0, 4]
    assert found.groups.tolist() == [[pads + one for one in range(4)], [pads + one for one in range(4, 8)]]
    assert found.tail.tolist() == [pads + 8]


def test_cells_of_another_sequence_are_not_pooled() -> None:
    """A11: cells alternate A, B, A, B; the mean of A's keys is 1 (mixed pooling gives 0)."""
    owners = ["A", "B"] * 4
    keys = np.array([[1.0, 1.0] if owner == "A" else [-1.0, -1.0] for owner in owners])
    positions = [index // 2 if owner == "A" else None for index, owner in enumerate(owners)]
    found = qsa.groups(positions, 4)
    assert found.groups.tolist() == [[0, 2, 4, 6]]
    pooled = qsa.pool(keys, found.groups, found.starts, [0.0, 0.0], 2, sections=(1, 0, 0))
    assert pooled.tolist() == [pytest.approx([1.0, 1.0], abs=1e-6)]


def test_equal_positions_are_grouped_by_rank_when_holes_are_allowed() -> None:
    """A11: six tokens at position 7: one group of the first four, a tail of two."""
    found = qsa.groups([7] * 6, 4, contiguous=False)
    assert (found.groups.tolist(), found.starts.tolist(), found.tail.tolist()) == (
        [[0, 1, 2, 3]],
        [7],
        [4, 5],
    )


def test_slots_may_lie_in_any_order() -> None:
    """A wrapped cache: positions decide."""
    assert qsa.groups([12, 13, 10, 11], 2).groups.tolist() == [[2, 3], [0, 1]]


@pytest.mark.parametrize(
    ("positions", "code", "where"),
    [
        ([100, 101, 103, 104], "oracle.qsa.hole", "positions[2]"),
        ([5, 5], "oracle.qsa.repeat", "positions[1]"),
    ],
)
def test_a_hole_and_a_repeat_are_refused_by_their_slot(positions: list[int], code: str, where: str) -> None:
    """AFN-018."""
    assert_refused(code, where, lambda: qsa.groups(positions, 4))


def test_a_repeat_is_told_how_equal_positions_are_grouped() -> None:
    with pytest.raises(ContractError, match="each position once") as caught:
        qsa.groups([5, 5], 4)
    assert "contiguous" in caught.value.finding.hint


def test_a_group_key_is_normed_after_the_mean() -> None:
    """Mean of [6, 0] and [0, 8] is [3, 4]: normed 0.848528, 1.131371; norms first would mean [0.7071, 0.7071]."""
    pooled = qsa.pool([[6.0, 0.0], [0.0, 8.0]], [[0, 1]], [0], [0.0, 0.0], 2, sections=(1, 0, 0))
    assert pooled[0] == pytest.approx([0.848528, 1.131371], abs=1e-6)


def test_a_group_key_is_rotated_at_its_first_position() -> None:
    """[1, 1] normed, rotated by 4 radians: cos 4 - sin 4 = 0.103159, cos 4 + sin 4 = -1.410446."""
    pooled = qsa.pool([[1.0, 1.0]] * 2, [[0, 1]], [4], [0.0, 0.0], 2, sections=(1, 0, 0))
    assert pooled[0] == pytest.approx([0.103159, -1.410446], abs=2e-6)


def test_attention_weighs_only_selected_rows() -> None:
    """Equal products over rows 0 and 2: the mean of 1 and 5; row 1 does not exist for it."""
    y = qsa.attend([[[0.0]]], [[[1.0]], [[9.0]], [[1.0]]], [[[1.0]], [[100.0]], [[5.0]]], [0, 2])
    assert y.tolist() == [[[3.0]]]


def test_attention_scales_by_the_root_of_the_width() -> None:
    """q.k = 4 against 0 at width 4: weights sigmoid(2) = 0.880797."""
    y = qsa.attend([[[2.0, 0, 0, 0]]], [[[2.0, 0, 0, 0]], [[0.0, 0, 0, 0]]], [[[1.0]], [[0.0]]], [0, 1])
    assert y[0, 0, 0] == pytest.approx(0.880797, abs=1e-6)


def test_query_heads_share_key_heads_in_blocks() -> None:
    """Four query heads over two key heads: 0, 0, 1, 1 (a modulo would give 0, 1, 0, 1)."""
    y = qsa.attend(np.zeros((1, 4, 1)), np.zeros((1, 2, 1)), [[[10.0], [20.0]]], [0])
    assert y.ravel().tolist() == [10, 10, 20, 20]


def test_attention_reads_absolute_positions_from_its_anchor() -> None:
    y = qsa.attend([[[0.0]]], [[[0.0]]] * 3, [[[1.0]], [[2.0]], [[3.0]]], [101], first_position=100)
    assert y.tolist() == [[[2.0]]]
    assert_refused(
        "oracle.argument.domain",
        "tokens[0]",
        lambda: qsa.attend([[[0.0]]], [[[0.0]]], [[[1.0]]], [99], first_position=100),
    )


def test_heads_that_are_no_multiple_are_refused() -> None:
    def call(heads: int, key_heads: int) -> object:
        rows = np.zeros((1, key_heads, 1))
        return qsa.attend(np.zeros((1, heads, 1)), rows, rows, [0])

    assert_refused("oracle.argument.domain", "q", lambda: call(3, 2))
    assert_refused("oracle.argument.domain", "q", lambda: call(3, 0))
    assert np.shape(call(3, 1)) == (1, 3, 1)


def test_a_row_behind_the_cache_is_refused() -> None:
    rows = np.zeros((2, 1, 1))
    assert_refused("oracle.argument.domain", "tokens[1]", lambda: qsa.attend([[[0.0]]], rows, rows, [1, 2]))


@pytest.mark.parametrize("tokens", [0, 1.0, "0", None, np.array(0)])
def test_rows_that_are_no_list_are_refused(tokens: object) -> None:
    rows = np.zeros((1, 1, 1))
    assert_refused("oracle.argument.type", "tokens", lambda: qsa.attend(rows, rows, rows, tokens))


@pytest.mark.parametrize("tokens", [[0], (0,), np.array([0]), np.array([[0]])])
def test_rows_may_stand_in_any_kind_of_list(tokens: object) -> None:
    assert qsa.attend([[[0.0]]], [[[0.0]]], [[[7.0]]], tokens).tolist() == [[[7.0]]]


def test_each_query_may_have_its_own_rows() -> None:
    y = qsa.attend(np.zeros((2, 1, 1)), np.zeros((2, 1, 1)), [[[1.0]], [[2.0]]], [[0], [1]])
    assert y.ravel().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("tokens", "where"), [([[0]], "tokens"), ([], "tokens"), ([0, 0], "tokens"), ([[0], []], "tokens[1]")]
)
def test_a_bad_list_of_rows_is_refused(tokens: list[object], where: str) -> None:
    def call() -> object:
        return qsa.attend(np.zeros((2, 1, 1)), np.zeros((2, 1, 1)), np.zeros((2, 1, 1)), tokens)

    code = "oracle.argument.shape" if tokens == [[0]] else "oracle.argument.domain"
    assert_refused(code, where, call)


def test_dense_and_sparse_agree_while_everything_is_selected() -> None:
    random = np.random.default_rng(1)
    q, k, v = random.normal(size=(1, 4, 6)), random.normal(size=(11, 2, 6)), random.normal(size=(11, 2, 6))
    selected = qsa.select(random.normal(size=2), 2, 11, 4).tokens.tolist()
    assert qsa.dense(q, k, v).tobytes() == qsa.attend(q, k, v, selected).tobytes()


def test_dense_attention_is_causal() -> None:
    """The first of two queries sees rows 0 .. 1, the second 0 .. 2."""
    y = qsa.dense(np.zeros((2, 1, 1)), np.zeros((3, 1, 1)), [[[0.0]], [[6.0]], [[30.0]]])
    assert y.ravel().tolist() == [3, 12]


def test_as_many_queries_as_rows_are_the_whole_sequence() -> None:
    rows = np.zeros((2, 1, 1))
    assert qsa.dense(rows, rows, [[[2.0]], [[4.0]]]).ravel().tolist() == [2, 3]
    assert_refused("oracle.argument.domain", "q", lambda: qsa.dense(np.zeros((3, 1, 1)), rows, rows))
    assert_refused("oracle.qsa.dense-ceiling", "k", lambda: qsa.dense(rows, rows, rows, ceiling=1))


def test_dense_attention_accepts_2051_keys_and_refuses_2052() -> None:
    """AFN-011: the exact last accepted and first rejected input."""
    rows = np.zeros((2051, 1, 1))
    assert qsa.dense(np.zeros((1, 1, 1)), rows, rows).shape == (1, 1, 1)
    more = np.zeros((2052, 1, 1))
    assert_refused("oracle.qsa.dense-ceiling", "k", lambda: qsa.dense(np.zeros((1, 1, 1)), more, more))


def test_softmax_survives_large_products() -> None:
    y = qsa.attend([[[1e3]]], [[[1e3]], [[-1e3]]], [[[1.0]], [[2.0]]], [0, 1], scale=1.0)
    assert y.tolist() == [[[1.0]]]


@pytest.mark.parametrize("scale", [math.nan, math.inf, 1e39])
def test_a_scale_that_is_not_finite_is_refused_by_name(scale: float) -> None:
    rows = np.zeros((1, 1, 1))
    assert_refused("oracle.argument.finite", "scale", lambda: qsa.attend(rows, rows, rows, [0], scale=scale))


def test_the_scale_may_be_given() -> None:
    y = qsa.attend([[[1.0]]], [[[1.0]], [[0.0]]], [[[1.0]], [[0.0]]], [0, 1], scale=math.log(3))
    assert y[0, 0, 0] == pytest.approx(0.75, abs=1e-6)


def test_the_ceiling_is_a_whole_number_above_zero_and_the_scale_reaches_the_dense_form() -> None:
    rows = np.zeros((1, 1, 1))
    assert_refused("oracle.argument.type", "ceiling", lambda: qsa.dense(rows, rows, rows, ceiling="x"))
    assert_refused("oracle.argument.domain", "ceiling", lambda: qsa.dense(rows, rows, rows, ceiling=0))
    y = qsa.dense([[[1.0]]], [[[1.0]], [[0.0]]], [[[1.0]], [[0.0]]], scale=math.log(3))
    assert y[0, 0, 0] == pytest.approx(0.75, abs=1e-6)


def test_a_group_has_four_positions_unless_told() -> None:
    assert qsa.groups([0, 1, 2, 3, 4]).groups.tolist() == [[0, 1, 2, 3]]
