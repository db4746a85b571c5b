"""Public bug reports about running models, as tests of the MLX code with their own literal numbers.

REPORTS names the test of every report of the areas GDN, PLEH, QSA, RTR, NORM, CACHE and TOK, here or elsewhere, or says
what has to come first.
"""

import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from model_toys import ids, made

from assay.spec.errors import ContractError

REPORTS: Final = {
    "A2": "impl/model/test_bug_reports.py::test_a2_padding_rows_are_never_sampled",
    "A3": "impl/text/test_engine.py::test_the_older_pattern_tears_marks_from_their_word",
    "A5": "impl/text/test_chat.py::test_trimming_is_pythons_whole_code_points",
    "A6": "impl/model/test_bug_reports.py::test_a6_multipliers_go_by_lag",
    "A7": "impl/model/test_transaction.py::test_a_rewind_takes_every_owner_back",
    "A10": "impl/model/test_qsa.py::test_a_tie_at_the_cut_goes_to_the_lower_group_and_emission_is_by_time",
    "A11": "impl/model/test_bug_reports.py::test_a11_tokens_that_share_a_position_are_grouped_by_rank",
    "A12": "impl/model/test_partition.py::test_a_padded_row_is_the_row_alone",
    "A13": "impl/model/test_bug_reports.py::test_a13_the_state_after_prefill_is_that_of_single_tokens",
    "A14": "impl/model/test_bug_reports.py::"
    "test_a14_states_of_chunks_are_those_of_one_run_and_nothing_unwritten_is_read",
    "A15": "impl/model/test_partition.py::test_slot_zero_is_a_slot_and_filler_rows_write_nowhere",
    "A16": "impl/model/test_bug_reports.py::test_a16_the_output_gate_is_what_the_field_says",
    "A17": "impl/model/test_bug_reports.py::test_a17_gains_around_zero_are_one_plus_w",
    "A18": "impl/model/test_bug_reports.py::test_a18_probabilities_are_compared_in_float32",
    "A19": "impl/model/test_bug_reports.py::test_a19_weights_are_indexed_by_rank",
    "A26": "impl/model/test_bug_reports.py::test_a26_a_dilated_past_of_nine_values_crosses_a_chunk",
    "A29": "later: reuse of prefixes between requests",
    "A30": "later: saved sessions",
}


@pytest.mark.parametrize("report", REPORTS)
def test_every_report_has_its_test_or_waits_by_name(report: str) -> None:
    file, _, name = REPORTS[report].partition("::")
    if file.startswith("later: "):
        return
    text = (Path(__file__).parents[2] / file).read_text()
    assert re.search(rf"^def {name}\b", text, re.MULTILINE)


def toy() -> Any:
    """TOY-PLE: end 2, multipliers 7, 11, 13 by lag, one head each for pairs (53) and triples (59)."""
    from assay.impl.model.ple import Hash

    return Hash((7, 11, 13), (53, 59), (0, 53), 112)


def rows(tokens: list[int], history: tuple[int, ...] = ()) -> list[list[int]]:
    from assay.impl.model.ple import row_ids

    return row_ids(tokens, history, toy(), 1, 2, physical_rows=16).tolist()


@pytest.mark.parametrize(
    ("tokens", "history", "where", "got"),
    [([5, 16], (), "ple.tokens[1]", "16"), ([5], (3, -1), "ple.history[1]", "-1"), ([1 << 62], (), "ple.tokens[0]", str(1 << 62))],
)  # fmt: skip
def test_a2_the_hash_bounds_every_id_that_it_takes(
    tokens: list[int], history: tuple[int, ...], where: str, got: str
) -> None:
    with pytest.raises(ContractError) as caught:
        rows(tokens, history)
    found = caught.value.finding
    assert (found.code, found.where, found.got) == ("model.tokens", where, got)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([5, 8, 3], [[0, 100], [15, 74], [24, 65]]),
        ([5, 2, 9, 3], [[0, 100], [4, 88], [41, 104], [12, 102]]),
        ([5, 8, 3, 4, 6, 9], [[0, 100], [15, 74], [24, 65], [8, 79], [6, 86], [19, 67]]),
    ],
)
def test_a6_multipliers_go_by_lag(tokens: list[int], expected: list[list[int]]) -> None:
    assert rows(tokens) == expected


@pytest.mark.parametrize("cut", range(1, 6))
def test_a7_history_is_a_function_of_the_position(cut: int) -> None:
    from assay.impl.model.ple import history_after

    line = [5, 8, 3, 4, 6, 9]
    history = history_after(line[:cut], (), 2, 2)
    assert rows(line[cut:], history) == rows(line)[cut:]
    assert rows([4], history_after([5, 8, 3], (), 2, 2)) == [[8, 79]]


def test_a26_a_dilated_past_of_nine_values_crosses_a_chunk() -> None:
    """Unit impulse at 0, taps 1, 10, 100, 1000 oldest first, dilation 3, split 5 and 7; SiLU passes large values."""
    import mlx.core as mx

    from assay.impl.model import conv
    from assay.impl.model.numerics import PLAIN

    taps = mx.array([[1.0], [10.0], [100.0], [1000.0]])
    impulse, past, told = np.zeros((12, 1), np.float32), mx.zeros((9, 1)), []
    impulse[0] = 1
    for start, stop in ((0, 5), (5, 12)):
        y, past = conv.causal(mx.array(impulse[start:stop]), taps, past, 3, PLAIN)
        told.append(np.array(y)[:, 0])
    line = np.concatenate(told)
    raw = np.array([1000, 0, 0, 100, 0, 0, 10, 0, 0, 1, 0, 0], np.float32)
    assert np.allclose(line, raw / (1 + np.exp(-raw)), rtol=1e-6)


@pytest.mark.parametrize("is_deterministic", [True, False])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 63, 64, 65])
def test_a13_the_state_after_prefill_is_that_of_single_tokens(length: int, is_deterministic: bool) -> None:
    """Scalar delta rule q = k = v = 1, log gate -0.5, rate 0.25; 33 tokens give 0.458630, in either form of ours."""
    from dataclasses import replace

    import mlx.core as mx

    from assay.impl.model.gdn import _recur
    from assay.impl.model.numerics import Numerics

    own = replace(made("small").geometry, key_heads=1, value_heads=1, key_dim=1, value_dim=1)
    mixed = mx.broadcast_to(
        mx.array([1000.0, 1000.0, 1.0]), (length, 3)
    )  # far above the constant inside the root
    logs, rates = mx.full((length, 1), -0.5), mx.full((length, 1), 0.25)
    _, state = _recur(mixed, logs, rates, mx.zeros((1, 1, 1)), own, Numerics(is_deterministic))
    wanted = 0.0
    for _ in range(length):
        wanted *= np.exp(-0.5)
        wanted += (1 - wanted) * 0.25
    assert abs(float(state.item()) - wanted) < 1e-6
    if length == 33:
        assert abs(float(state.item()) - 0.458630) < 1e-6


def test_a11_a_copy_carries_its_raw_keys_and_keeps_them() -> None:
    """A is copied to C and then overwritten: C continues as A would have."""
    from assay.impl.model.bank import Bank
    from assay.impl.model.state import differing, owners

    line = ids("small", 9)
    bank, alone = Bank(made("small"), 3), Bank(made("small"))
    bank.advance({0: line[:6]})
    raw = owners(bank.state(0))["qsa_raw_index.3"].copy()
    bank.copy(0, 2)
    bank.reset(0)
    bank.advance({0: [9, 9, 9, 9, 9, 9, 9]})
    assert owners(bank.state(2))["qsa_raw_index.3"].tobytes() == raw.tobytes()
    bank.advance({2: line[6:]})
    alone.advance({0: line})
    assert differing(bank.state(2), alone.state()) == []


def test_a11_tokens_that_share_a_position_are_grouped_by_rank() -> None:
    """Six tokens, all at position 7: one group of the first four, turned at 7, and a tail of two."""
    from assay.impl.model.bank import Bank
    from assay.impl.model.state import owners
    from assay.impl.model.trace import Recorder

    bank, told = Bank(made("small")), Recorder()
    bank.advance({0: ids("small", 6)}, told, positions={0: np.full((6, 3), 7, np.int64)})
    held = owners(bank.state())
    assert (held["positions"] == 7).all()
    selected = np.array(told.arrays["qsa", 3, "selected"][0])[-1].tolist()
    assert [row for row in selected if row >= 0] == [0, 1, 2, 3, 4, 5]
    g = made("small").geometry
    mean = held["qsa_raw_index.3"][:4].astype(np.float64).mean(axis=0)
    gain = np.array(made("small").weights.layers[3].mixing.index_k_gain)
    normed = mean / np.sqrt((mean**2).mean() + g.eps) * gain
    half = g.rotary_dim // 2
    angles = 7 / g.theta ** (np.arange(half) * 2 / g.rotary_dim)
    turned = normed.copy()
    turned[:half] = normed[:half] * np.cos(angles) - normed[half : 2 * half] * np.sin(angles)
    turned[half : 2 * half] = normed[half : 2 * half] * np.cos(angles) + normed[:half] * np.sin(angles)
    assert held["qsa_pooled.3"].shape[0] == 1
    assert np.allclose(held["qsa_pooled.3"][0], turned, atol=1e-5)


@pytest.mark.parametrize("widths", [(6, 6, 6), (5, 8, 5), (1,) * 18])
def test_a14_states_of_chunks_are_those_of_one_run_and_nothing_unwritten_is_read(
    widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New buffers are filled with NaN: whatever is read without having been written reaches a state."""
    from assay.impl.model import columns
    from assay.impl.model.bank import Bank
    from assay.impl.model.state import differing, owners

    class Poisoned(columns.Buffer):
        def __init__(self, rows: int, shape: tuple[int, ...]) -> None:
            super().__init__(rows, shape)
            self.view[:] = np.nan

    whole = Bank(made("small"))
    whole.advance({0: ids("small", 18)})
    monkeypatch.setattr(columns, "Buffer", Poisoned)
    bank, start = Bank(made("small")), 0
    for width in widths:
        bank.advance({0: ids("small", 18)[start : start + width]})
        start += width
    assert differing(bank.state(), whole.state()) == []
    assert all(np.isfinite(array).all() for array in owners(bank.state()).values())


@pytest.mark.parametrize(
    ("gate", "sigmoid", "silu"),
    [(-2.0, 0.119203, -0.238406), (0.5, 0.622459, 0.311230), (3.0, 0.952574, 2.857722)],
)
def test_a16_the_output_gate_is_what_the_field_says(gate: float, sigmoid: float, silu: float) -> None:
    import mlx.core as mx

    from assay.impl.model import norms
    from assay.impl.model.numerics import PLAIN

    x, one = mx.array([1.0, 1.0]), mx.array([1.0, 1.0])
    for activation, wanted in (("sigmoid", sigmoid), ("silu", silu)):
        got = norms.gated(x, one, mx.array([gate, gate]), 1e-12, activation, PLAIN)
        assert abs(float(got[0].item()) - wanted) < 2e-6


def test_a17_gains_around_zero_are_one_plus_w() -> None:
    """x = [3, 4] with stored zeros gives [0.848528, 1.131371]; zeros and twice as much are the faults."""
    import mlx.core as mx

    from assay.impl.model import norms
    from assay.impl.model.loader import _centred

    class Stored:
        def vector(self, _name: str, shape: tuple[int, ...]) -> Any:
            return mx.zeros(shape)

        def made(self, array: Any) -> Any:
            return array

    gain = _centred(Stored(), "norm", 2)
    got = np.array(norms.rms(mx.array([3.0, 4.0]), gain, 1e-6))
    assert np.allclose(got, [0.848528, 1.131371], atol=1e-6)


def test_a17_the_gate_half_of_fused_rows_stands_first() -> None:
    import mlx.core as mx

    from assay.impl.model.geometry import read_geometry
    from assay.impl.model.loader import _experts
    from assay.provenance.captures.geometries import GEOMETRIES

    config = {
        **GEOMETRIES["small"],
        "num_experts": 1,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 2,
        "hidden_size": 1,
    }

    class Stored:
        def has(self, name: str) -> bool:
            return name.endswith("gate_up_proj")

        def matrix(self, _name: str, shape: tuple[int, ...]) -> Any:
            return mx.arange(1, 1 + int(np.prod(shape)), dtype=mx.float32).reshape(shape)

        def made(self, array: Any) -> Any:
            return array

    found = _experts(Stored(), read_geometry(config), "e.")
    assert (found.gate_matrix.tolist(), found.up_matrix.tolist()) == ([[[1.0, 2.0]]], [[[3.0, 4.0]]])


def test_a18_probabilities_are_compared_in_float32() -> None:
    """Twelve experts, ten chosen: id 11 at 1.001 beats id 9 at 1.000; in bf16 they would tie."""
    from dataclasses import replace

    import mlx.core as mx

    from assay.impl.model import router

    logits = np.full((1, 12), 3.0, np.float32)
    logits[0, 9:] = [1.000, 0.5, 1.001]
    own = replace(made("small").geometry, experts=12, experts_used=10)
    found = router.choose(mx.array(logits), own)
    assert np.array(found.ids)[0].tolist() == [*range(9), 11]
    assert np.allclose(np.array(found.weights)[0], [0.109463] * 9 + [0.014829], atol=1e-6)
    logits[0, 11] = 1.000
    assert np.array(router.choose(mx.array(logits), own).ids)[0].tolist() == list(range(10))


def test_a19_weights_are_indexed_by_rank() -> None:
    """Two experts that give 10 and 20; ids 1, 0 with weights 0.75, 0.25 give 0.75 * 20 + 0.25 * 10."""
    import mlx.core as mx

    from assay.impl.model import moe
    from assay.impl.model.numerics import Numerics
    from assay.impl.model.router import Routing

    class Constant:
        def outputs(self, x: Any, owners: Any, _gated: Any) -> Any:
            return mx.where(owners == 0, 10.0, 20.0)[:, None, None] + mx.zeros(
                (owners.shape[0], x.shape[1], 1)
            )

    zero = mx.zeros((1, 1))
    weights = moe.MoeWeights(zero, Constant(), zero, zero, zero, zero)
    for tokens in (1, 6):  # gathered, and sorted by expert
        routing = Routing(zero, mx.array([[1, 0]] * tokens), mx.array([[0.75, 0.25]] * tokens))
        got = moe.forward(
            mx.zeros((tokens, 1)), weights, routing, Numerics(is_deterministic=True), lambda *_: None
        )
        assert np.allclose(np.array(got), 17.5)


@pytest.mark.parametrize(
    "policy", [{}, {"temperature": 1.0, "top_k": 1}, {"temperature": 0.01, "top_p": 0.95}]
)
@pytest.mark.parametrize("grammar", [False, True])
def test_a2_padding_rows_are_never_sampled(policy: dict[str, Any], grammar: bool) -> None:
    from assay.impl.model.sampler import Policy, choose

    logits = np.full(248_320, -1.0, np.float32)
    logits[248_076] = -0.5
    logits[[248_077, 248_090, 248_319]] = [40, 41, 42]
    words = [2**32 - 1] * 7753 if grammar else None
    if policy.get("top_p"):
        policy = {**policy, "temperature": 0.001}
    assert choose(logits, 248_077, Policy(**policy), 0, words) == 248_076
