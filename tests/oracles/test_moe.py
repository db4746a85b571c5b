"""Routing and experts against literal numbers of public bug reports."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_toys import assert_refused

from assay.oracles import moe, router

A18 = [3.0] * 9 + [1.0, 0.5, 1.001]


def test_selection_is_made_before_any_cast() -> None:
    """A18: a BF16 softmax makes 9 and 11 a tie and picks 9."""
    routed = router.topk(A18, 10)
    assert routed.ids.tolist() == [*range(9), 11]
    assert routed.weights == pytest.approx([0.109463] * 9 + [0.014829], abs=1e-6)


def test_an_exact_tie_at_the_cut_goes_to_the_lower_id() -> None:
    """A18 with id 11 lowered to the logit of id 9."""
    assert router.topk([3.0] * 9 + [1.0, 0.5, 1.0], 10).ids.tolist() == list(range(10))


def test_rank_order_is_by_probability() -> None:
    """exp(0), exp(log 2), exp(log 3): chosen 3/5 and 2/5."""
    routed = router.topk([0.0, math.log(2), math.log(3)], 2)
    assert routed.ids.tolist() == [2, 1]
    assert routed.weights == pytest.approx([0.6, 0.4], abs=1e-6)


def test_large_logits_do_not_overflow() -> None:
    assert router.topk([1e4, -1e4], 1).weights.tolist() == [1.0]


@settings(max_examples=50, derandomize=True, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=20), st.data())
def test_the_chosen_are_those_that_fewer_than_k_beat(logits: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(logits)))
    order = sorted(range(len(logits)), key=lambda one: (-logits[one], one))
    routed = router.topk(logits, k)
    assert routed.ids.tolist() == order[:k]
    assert routed.weights.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("code", "where", "logits", "k"), [
    ("oracle.argument.domain", "k", [1.0], 2),
    ("oracle.argument.domain", "k", [1.0], 0),
    ("oracle.argument.finite", "logits", [1.0, np.nan], 1),
    ("oracle.argument.shape", "logits", [[1.0]], 1),
    ("oracle.argument.type", "k", [1.0], True),
])  # fmt: skip
def test_the_router_refuses_by_name(code: str, where: str, logits: list[float], k: int) -> None:
    assert_refused(code, where, lambda: router.topk(logits, k))


def test_weights_go_with_their_rank() -> None:
    """A19: expert e returns e."""
    outputs = np.arange(10.0)[:, None]
    assert moe.combine([7, 2], [0.75, 0.25], outputs).tolist() == [5.75]
    assert moe.combine([0, 9], [0.5, 0.5], outputs).tolist() == [4.5]


def test_the_gate_is_the_first_half_of_a_fused_matrix() -> None:
    """A17: rows 1, 2, 3, 4."""
    gate, up = moe.split_fused(np.array([[1.0], [2.0], [3.0], [4.0]]))
    assert (gate.ravel().tolist(), up.ravel().tolist()) == ([1, 2], [3, 4])


def test_an_expert_gates_with_silu() -> None:
    """gate 1, up 2: silu(1) * 2 = 1.462117; exchanged halves would give silu(2) = 1.761594."""
    assert moe.fused_expert([1.0], [[1.0], [2.0]], [[1.0]])[0] == pytest.approx(1.462117, abs=1e-6)


def block(**changes: object) -> moe.Mixed:
    """Three experts that return silu(1) * (id + 1); the router prefers 2, then 0."""
    arguments: dict[str, object] = {
        "x": [1.0],
        "router": [[math.log(1)], [math.log(0.5)], [math.log(3)]],
        "gate_up": [[[1.0], [1.0]], [[1.0], [2.0]], [[1.0], [3.0]]],
        "down": [[[1.0]], [[1.0]], [[1.0]]],
        "shared_gate": [[1.0]],
        "shared_up": [[10.0]],
        "shared_down": [[1.0]],
        "shared_scale": [0.0],
        "k": 2,
    }
    return moe.forward(**{**arguments, **changes})


def test_the_block_weighs_its_experts_and_adds_the_shared_one() -> None:
    """Weights 3/4 and 1/4: silu(1) * (3 * 0.75 + 1 * 0.25) = 0.731059 * 2.5; shared: sigmoid(0) * 10 * 0.731059."""
    done = block()
    assert done.ids.tolist() == [2, 0]
    assert done.weights == pytest.approx([0.75, 0.25], abs=1e-6)
    assert done.routed[0] == pytest.approx(0.731059 * 2.5, abs=1e-5)
    assert done.shared[0] == pytest.approx(3.655293, abs=1e-5)
    assert done.y[0] == pytest.approx(0.731059 * 2.5 + 3.655293, abs=1e-5)


def test_a_missing_expert_is_refused_by_name() -> None:
    assert_refused("oracle.argument.shape", "gate_up", lambda: block(gate_up=[[[1.0], [1.0]]] * 2))
    assert_refused("oracle.argument.domain", "k", lambda: block(k=4))


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("gate_up", {"gate_up": [[[1.0]] * 3] * 3}),
        ("gate_up", {"gate_up": [[1.0], [1.0]]}),
        ("down", {"down": [[[1.0, 1.0]]] * 3}),
        ("down", {"down": [[[1.0]]] * 2}),
        ("shared_gate", {"shared_gate": [1.0]}),
        ("shared_up", {"shared_up": [[1.0], [1.0]]}),
        ("shared_down", {"shared_down": [[1.0, 1.0]]}),
        ("shared_scale", {"shared_scale": [[0.0]]}),
        ("router", {"router": [[1.0, 2.0]]}),
    ],
)
def test_the_block_refuses_a_wrong_shape_by_its_own_argument(where: str, change: dict[str, object]) -> None:
    assert_refused("oracle.argument.shape", where, lambda: block(**change))


def test_a_fused_matrix_of_odd_rows_or_another_rank_is_refused() -> None:
    for rows in (np.zeros((3, 1)), np.zeros(2), np.zeros((2, 2, 2))):
        assert_refused("oracle.argument.domain", "gate_up", lambda rows=rows: moe.split_fused(rows))


def test_the_two_halves_of_an_expert_must_agree() -> None:
    assert_refused("oracle.argument.shape", "up", lambda: moe.expert([1.0], [[1.0]], [[1.0], [2.0]], [[1.0]]))
    assert_refused("oracle.argument.shape", "down", lambda: moe.expert([1.0], [[1.0]], [[1.0]], [[1.0, 2.0]]))
    assert moe.expert([1.0], [[1.0]] * 2, [[1.0]] * 2, [[1.0, 1.0]])[0] == pytest.approx(
        2 * 0.731059, abs=1e-5
    )


def test_combining_refuses_an_id_without_an_output() -> None:
    assert_refused("oracle.argument.domain", "ids[0]", lambda: moe.combine([3], [1.0], [[0.0]] * 3))


def test_softmax_works_along_the_last_axis() -> None:
    """1/2 and 1/2; 1/4 and 3/4."""
    from assay.oracles.arithmetic import softmax

    found = softmax(np.array([[0.0, 0.0], [0.0, math.log(3)]]))
    assert found == pytest.approx(np.array([[0.5, 0.5], [0.25, 0.75]]), abs=1e-12)
