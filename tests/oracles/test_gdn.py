"""The recurrence, its convolution and its slots, against hand computation and public bug reports."""

import math

import numpy as np
import pytest
from oracle_toys import assert_refused

from assay.oracles import conv, gdn, norms
from assay.oracles.state import write_slots


def scalar_run(tokens: int) -> float:
    """q = k = v = 1, log-gate -0.5, beta 0.25."""
    ones = np.ones((tokens, 1, 1))
    done = gdn.sequence(ones, ones, ones, np.full((tokens, 1), -0.5), np.full((tokens, 1), 0.25))
    return float(done.state[0, 0, 0])


def test_the_scalar_rule_over_33_tokens() -> None:
    """A13: 0.458630; a scan that misses the last decay gives 0.593972."""
    assert scalar_run(33) == pytest.approx(0.458630, abs=1e-6)


@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 63, 64, 65])
def test_the_scalar_rule_has_its_closed_form(tokens: int) -> None:
    """A13: S_n = 0.25 (1 - r^n) / (1 - r) with r = 0.75 exp(-0.5)."""
    ratio = 0.75 * math.exp(-0.5)
    assert scalar_run(tokens) == pytest.approx(0.25 * (1 - ratio**tokens) / (1 - ratio), abs=1e-6)


def arguments(tokens: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "q": random.normal(size=(tokens, 2, 4)),
        "k": random.normal(size=(tokens, 2, 4)),
        "v": random.normal(size=(tokens, 6, 3)),
        "log_decay": -random.uniform(0, 1, size=(tokens, 6)),
        "beta": random.uniform(0, 1, size=(tokens, 6)),
    }


@pytest.mark.parametrize("chunks", [(6, 6, 6), (5, 8, 5), (1,) * 18, (18,)])
def test_state_and_outputs_do_not_depend_on_the_chunks(chunks: tuple[int, ...]) -> None:
    """A14: 18 tokens; the same bytes, whatever the partition, and no NaN of a destination is read."""
    whole = gdn.sequence(**arguments(18))
    state = np.zeros((6, 4, 3), np.float32)
    bank = np.full((2, state.size), np.nan)
    outputs, start = [], 0
    for size in chunks:
        part = {name: value[start : start + size] for name, value in arguments(18).items()}
        done = gdn.sequence(**part, state=state)
        bank[1] = done.state.ravel()
        state, start = bank[1].reshape(state.shape), start + size
        outputs.append(done.y)
    assert np.concatenate(outputs).tobytes() == whole.y.tobytes()
    assert state.astype(np.float32).tobytes() == whole.state.tobytes()


def test_a_step_is_a_sequence_of_one() -> None:
    one = arguments(1)
    step = gdn.step(**{name: value[0] for name, value in one.items()})
    assert step.y.tobytes() == gdn.sequence(**one).y.tobytes()


def test_one_step_by_hand() -> None:
    """S = 2, decay 1/2: S = 1; k = 1, v = 3, beta = 1/2: delta = (3 - 1) / 2 = 1; S = 2; q = 1: y = 2."""
    done = gdn.step([[1.0]], [[1.0]], [[3.0]], [math.log(0.5)], [0.5], [[[2.0]]], prepared=True)
    assert (done.y.tolist(), done.state.tolist()) == ([[2.0]], [[[2.0]]])


def test_q_is_scaled_and_both_are_normalised() -> None:
    """Width 4: q = [2,0,0,0] becomes [1/2,0,0,0], k = [3,0,0,0] becomes [1,0,0,0]: y = v / 2."""
    done = gdn.step([[2.0, 0, 0, 0]], [[3.0, 0, 0, 0]], [[8.0]], [0.0], [1.0])
    assert done.y[0, 0] == pytest.approx(4.0, abs=1e-5)
    assert done.state[0, 0, 0] == pytest.approx(8.0, abs=1e-5)


def test_the_constant_stands_inside_the_root() -> None:
    """k = 0.001: k / sqrt(1e-6 + 1e-6) = 0.707107; outside the root it would be 1 / 1.001."""
    done = gdn.step([[1.0]], [[0.001]], [[1.0]], [0.0], [1.0], dtype="float64")
    assert done.state[0, 0, 0] == pytest.approx(0.707107, abs=1e-6)


def test_value_heads_read_key_heads_in_blocks() -> None:
    """Six value heads over two key heads: 0, 0, 0, 1, 1, 1; the second key head has k = 0."""
    done = gdn.step([[1.0], [1.0]], [[1.0], [0.0]], np.ones((6, 1)), np.zeros(6), np.ones(6), prepared=True)
    assert done.y.ravel().tolist() == [1, 1, 1, 0, 0, 0]


def test_the_prediction_uses_the_decayed_state() -> None:
    """S = 4, decay 1/2, k = 1, v = 2, beta = 1: the decayed state already predicts 2, so nothing is added."""
    done = gdn.step([[1.0]], [[1.0]], [[2.0]], [math.log(0.5)], [1.0], [[[4.0]]], prepared=True)
    assert done.state.ravel().tolist() == [2.0]


def test_gates_follow_the_stored_logarithm() -> None:
    """-exp(0) * softplus(0) = -0.693147; -exp(log 2) * softplus(25) = -50; sigmoid(0) = 0.5."""
    log_decay, beta = gdn.gates([0.0, 24.0], [0.0, 1.0], [0.0, math.log(2)], [0.0, 1.0])
    assert log_decay == pytest.approx([-0.693147, -50.0], abs=1e-5)
    assert beta == pytest.approx([0.5, 0.731059], abs=1e-6)


def test_gates_take_rows_of_tokens() -> None:
    """Two tokens of three heads: the stored logarithm belongs to the head, exp(log 2) doubles the second."""
    log_decay, beta = gdn.gates(np.zeros((2, 3)), np.zeros((2, 3)), [0.0, math.log(2), 0.0], np.zeros(3))
    assert log_decay == pytest.approx(np.array([[-0.693147, -1.386294, -0.693147]] * 2), abs=1e-5)
    assert beta.tolist() == [[0.5] * 3] * 2


def test_softplus_keeps_its_small_end() -> None:
    """softplus(-30) = exp(-30) = 9.357623e-14, not 0."""
    log_decay, _ = gdn.gates([-30.0], [0.0], [0.0], [0.0])
    assert log_decay[0] == pytest.approx(-9.357623e-14, rel=1e-5)


def test_the_gated_norm_has_no_added_one() -> None:
    assert norms.gated([3.0, 4.0], [0.0, 0.0], [9.0, 9.0]).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("q", {"q": np.zeros((1, 1, 3))}),
        ("v", {"v": np.zeros((2, 2, 2))}),
        ("log_decay", {"log_decay": np.zeros((1, 3))}),
        ("beta", {"beta": np.zeros(2)}),
        ("state", {"state": np.zeros((2, 3, 2))}),
    ],
)
def test_a_wrong_shape_is_refused_by_name(where: str, change: dict[str, np.ndarray]) -> None:
    good = {
        "q": np.zeros((1, 1, 2)),
        "k": np.zeros((1, 1, 2)),
        "v": np.zeros((1, 2, 2)),
        "log_decay": np.zeros((1, 2)),
        "beta": np.zeros((1, 2)),
    }
    gdn.sequence(**good)
    assert_refused("oracle.argument.shape", where, lambda: gdn.sequence(**{**good, **change}))


def test_value_heads_that_are_no_multiple_are_refused() -> None:
    call = (np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), np.zeros((1, 3, 1)), np.zeros((1, 3)), np.zeros((1, 3)))
    assert_refused("oracle.argument.domain", "v", lambda: gdn.sequence(*call))


def test_slot_zero_is_a_slot_and_padding_writes_nowhere() -> None:
    """A15: slots 0, 2, 5 padded to four rows; all others keep their canary 0xDEAD."""
    bank = np.full((6, 1), float(0xDEAD))
    after = write_slots(bank, [0, 2, 5, -1], [[10.0], [12.0], [15.0], [99.0]])
    assert after.ravel().tolist() == [10, 0xDEAD, 12, 0xDEAD, 0xDEAD, 15]


def test_a_filler_that_is_a_slot_is_refused() -> None:
    """A15: 0 as both slot and mark is the fault."""
    assert_refused("oracle.argument.domain", "filler", lambda: write_slots([[0.0]], [0], [[1.0]], filler=0))
    assert_refused("oracle.argument.type", "filler", lambda: write_slots([[0.0]], [0], [[1.0]], filler="x"))
    bank = [[0.0], [1.0], [2.0]]
    assert_refused("oracle.argument.domain", "filler", lambda: write_slots(bank, [2], [[9.0]], filler=2))
    assert write_slots(bank, [3, 2], [[8.0], [9.0]], filler=3).tolist() == [[0.0], [1.0], [9.0]]
    assert_refused("oracle.argument.domain", "slots[0]", lambda: write_slots(bank, [3], [[9.0]]))


@pytest.mark.parametrize(
    ("slots", "where"), [([0, 0], "slots[1]"), ([0, 7], "slots[1]"), ([-2, 1], "slots[0]")]
)
def test_a_slot_twice_or_out_of_range_is_refused(slots: list[int], where: str) -> None:
    bank = np.zeros((2, 1))
    assert_refused("oracle.argument.domain", where, lambda: write_slots(bank, slots, [[1.0], [2.0]]))


IMPULSE = [[1.0]] + [[0.0]] * 11
TAPS = [[1.0, 10.0, 100.0, 1000.0]]
IMPULSE_OUT = [1000, 0, 0, 100, 0, 0, 10, 0, 0, 1, 0, 0]


def test_a_dilated_impulse_meets_every_third_tap() -> None:
    """A26: taps oldest first, dilation 3."""
    assert conv.causal(IMPULSE, TAPS, dilation=3).y.ravel().tolist() == IMPULSE_OUT


def test_a_dilated_impulse_crosses_a_chunk() -> None:
    """A26: split 5 and 7; three past values instead of nine lose the 10 and the 1."""
    first = conv.causal(IMPULSE[:5], TAPS, dilation=3)
    second = conv.causal(IMPULSE[5:], TAPS, first.state, 3)
    assert first.state.shape == (1, 9)
    assert np.concatenate([first.y, second.y]).ravel().tolist() == IMPULSE_OUT


def test_the_past_is_held_oldest_first() -> None:
    assert conv.causal([[1.0], [2.0], [3.0], [4.0]], TAPS).state.tolist() == [[2, 3, 4]]


def test_channels_do_not_mix() -> None:
    y = conv.causal([[1.0, 2.0]], [[0.0, 3.0], [0.0, 5.0]]).y
    assert y.tolist() == [[3, 10]]


def test_silu_is_applied_to_the_sum() -> None:
    """silu(2) = 1.761594."""
    assert conv.causal([[1.0]], [[2.0]], activation="silu").y[0, 0] == pytest.approx(1.761594, abs=1e-6)


def test_a_state_of_the_kernel_alone_is_refused() -> None:
    """AFN-012: three past values where nine are needed."""
    call = {"state": np.zeros((1, 3)), "dilation": 3}
    assert_refused("oracle.argument.shape", "state", lambda: conv.causal(IMPULSE, TAPS, **call))


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("dilation", {"dilation": 0}),
        ("activation", {"activation": "gelu"}),
        ("weight", {"weight": np.zeros((1, 0))}),
    ],
)
def test_a_convolution_refuses_what_it_has_no_answer_for(where: str, change: dict[str, object]) -> None:
    good: dict[str, object] = {"x": IMPULSE, "weight": TAPS}
    assert_refused("oracle.argument.domain", where, lambda: conv.causal(**{**good, **change}))
