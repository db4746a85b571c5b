"""Per-layer embedding against literal rows that no project code produced."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_toys import TOY, assert_refused, toy_rows

from assay.oracles import ple

PRODUCTION_MULTIPLIERS = [23703573157769, 20109073645365, 8052911324071]
PRODUCTION_PRIMES = [
    20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
    20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171,
]  # fmt: skip
PRODUCTION_OFFSETS = [
    0, 20000003, 40000026, 60000059, 80000106, 100000165, 120000228, 140000297,
    160000374, 180000455, 200000548, 220000655, 240000802, 260000955, 280001114, 300001275,
]  # fmt: skip


def test_rows_follow_the_lag_order() -> None:
    """A6: multiplier 0 belongs to the current token; the reversed order would give [4,83], [17,75], [25,86]."""
    assert toy_rows([5, 8, 3]) == [[0, 100], [15, 74], [24, 65]]


def test_rows_of_the_whole_toy_run() -> None:
    expected = [[0, 100], [15, 74], [24, 65], [8, 79], [6, 86], [19, 67]]
    assert toy_rows([5, 8, 3, 4, 6, 9]) == expected


def test_a_predecessor_beyond_an_end_of_sequence_reads_as_end_of_sequence() -> None:
    """A6: without the reset the third triple would be 98."""
    assert toy_rows([5, 2, 9, 3]) == [[0, 100], [4, 88], [41, 104], [12, 102]]


def test_a_rewound_history_is_that_of_the_shorter_run() -> None:
    """A7: a reset to EOS gives [10,69], the stale token gives [41,56]."""
    history = ple.history_after([5, 8, 3, 6][:3], eos=2)
    assert toy_rows([4], history) == [[8, 79]]


@pytest.mark.parametrize("keep", [1, 2])
def test_a_longer_rewind_equals_the_one_shot_run(keep: int) -> None:
    """A7: rewind by 3 and by 2; the one-shot rows are those of TOY-PLE."""
    rest = [5, 8, 3][keep:]
    one_shot = [[0, 100], [15, 74], [24, 65]]
    assert toy_rows(rest, ple.history_after([5, 8, 3, 6][:keep], eos=2)) == one_shot[keep:]


def test_a_rewind_across_an_end_of_sequence_finds_the_old_predecessors() -> None:
    """A7: after [5, 2, 9] rewound to [5, 2], the 9 hashes as it did."""
    assert toy_rows([9, 3], ple.history_after([5, 2], eos=2)) == [[41, 104], [12, 102]]
    assert toy_rows([2], ple.history_after([5], eos=2)) == [[4, 88]]


def test_no_accepted_draft_leaves_the_committed_history() -> None:
    """A26: committed [5, 8, 3], drafts 6 and 9 rejected."""
    history = ple.history_after([5, 8, 3], eos=2)
    assert history == [8, 3]
    assert toy_rows([4], history) == [[8, 79]]


def test_history_restarts_after_an_end_of_sequence() -> None:
    assert ple.history_after([5, 8, 2], eos=2) == []
    assert ple.history_after([5, 2, 9], eos=2) == [9]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.integers(0, 12))
def test_rows_do_not_depend_on_the_chunk(tokens: list[int], cut: int) -> None:
    """AFN-012: a chunk is not a sequence boundary."""
    whole = toy_rows(tokens)
    first, second = tokens[:cut], tokens[cut:]
    assert toy_rows(first) + toy_rows(second, ple.history_after(first, eos=2)) == whole


def test_multipliers_of_the_published_model() -> None:
    assert ple.multipliers(seed=1234, vocab_size=248320) == PRODUCTION_MULTIPLIERS


def test_the_tokenizer_size_gives_other_multipliers() -> None:
    """Control: 248,077 instead of 248,320."""
    assert ple.multipliers(seed=1234, vocab_size=248077)[0] == 12984081294479


def test_the_second_layer_has_multipliers_of_its_own() -> None:
    """Ordinal 1, and a vocabulary of 13: printed by a C program."""
    assert ple.multipliers(ordinal=1) == [3352040966061, 19752442147475, 10742103100073]
    assert ple.multipliers(vocab_size=13) == [589070248966791929, 362485235752429893, 653946433189588159]


def test_the_smallest_arguments_of_the_derivation() -> None:
    """A vocabulary of 2^63 - 1 leaves a bound of 1 for every multiplier; two lags are the fewest."""
    assert ple.multipliers(seed=0, vocab_size=2**63 - 1, ngram_size=2) == [1, 1]
    assert ple.multipliers(vocab_size=1, ngram_size=2)[0] % 2 == 1
    assert ple.primes(base=1, count=1, divisor=1) == ([2], [0], 2, 2)
    for name, value in (
        ("seed", -1),
        ("vocab_size", 0),
        ("vocab_size", 2**63),
        ("ngram_size", 1),
        ("ordinal", -1),
    ):
        assert_refused(
            "oracle.argument.domain", name, lambda name=name, value=value: ple.multipliers(**{name: value})
        )
    for name in ("base", "count", "divisor"):
        assert_refused("oracle.argument.domain", name, lambda name=name: ple.primes(**{name: 0}))
    assert_refused("oracle.argument.domain", "count", lambda: ple.primes(count=1025))


def test_primes_and_offsets_of_the_published_model() -> None:
    found = ple.primes()
    assert found.primes == PRODUCTION_PRIMES
    assert found.offsets == PRODUCTION_OFFSETS
    assert (found.rows, found.padded_rows) == (320001446, 320001536)


def test_the_second_layer_continues_the_list_of_primes() -> None:
    """2, 3, 5, 7, 11, 13 in blocks of two: ordinal 2 gets 11 and 13."""
    assert ple.primes(base=1, count=2, ordinal=2, divisor=10).primes == [11, 13]
    assert ple.primes(base=1, count=2, ordinal=2, divisor=10).padded_rows == 30


def test_the_fixture_geometry_has_its_sixteen_primes() -> None:
    expected = [17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79]
    assert ple.primes(base=17).primes == expected


def test_the_first_published_row_is_exact() -> None:
    """Tokens 1000, 2000, 248076: 2,590,377; float64 products give 2,589,501."""
    window = [248076, 2000]
    rows = ple.rows(
        [1000, 2000, 248076], PRODUCTION_MULTIPLIERS, PRODUCTION_PRIMES, PRODUCTION_OFFSETS, 8, 248044
    )
    control = ple.wrapped(window, PRODUCTION_MULTIPLIERS[:2], PRODUCTION_PRIMES[0])
    assert rows[2][0] == 2590377
    assert (control.exact_row, control.float64_row) == (2590377, 2589501)


def test_wrapping_is_seen_only_beyond_63_bits() -> None:
    """(2^62) * 3 = 2^63 + 2^62: unsigned as is, signed 2^62 - 2^63 = -2^62; -2^62 mod 7 = 3 (2^62 mod 7 = 4)."""
    control = ple.wrapped([2**62], [3], 7)
    assert (control.exact, control.unsigned, control.signed) == (3 * 2**62, 3 * 2**62, -(2**62))
    assert (control.unsigned_row, control.signed_row) == (5, 3)


def test_rows_refuse_a_product_beyond_63_bits() -> None:
    toy = {**TOY, "multipliers": [2**40, 11, 13]}
    assert ple.rows([2**23 - 1], **toy)
    assert_refused(
        "oracle.ple.product",
        "tokens (token 8388608, multiplier 1099511627776)",
        lambda: ple.rows([2**23], **toy),
    )


def test_rows_refuse_a_wrong_number_of_primes() -> None:
    assert_refused("oracle.argument.shape", "primes", lambda: ple.rows([1], **{**TOY, "primes": [53]}))


def test_rows_refuse_a_negative_token_by_its_place() -> None:
    assert_refused("oracle.argument.domain", "tokens[1]", lambda: toy_rows([1, -1]))


def injected(key: list[list[float]], **changes: object) -> ple.Injected:
    arguments: dict[str, object] = {
        "wide": [3.0, 4.0, 3.0, 4.0],
        "embedding": [1.0],
        "key": key,
        "value": [[3.0], [4.0]],
        "norm_key": np.zeros(4),
        "norm_query": np.zeros(4),
        "norm_conv": np.zeros(4),
        "conv": np.zeros((4, 4)),
        "streams": 2,
        "eps": 1e-30,
        "dtype": "float64",
    }
    return ple.inject(**{**arguments, **changes})


def test_an_exact_zero_gate_stays_zero() -> None:
    """k = [4, -3] is orthogonal to q = [3, 4]: sigmoid(0) = 0.5; the floor of 1e-6 would give sigmoid(0.001)."""
    done = injected([[4.0], [-3.0], [4.0], [-3.0]])
    assert done.gate.tolist() == [0.5, 0.5]


def test_the_gate_is_the_signed_root_of_the_scaled_product() -> None:
    """Equal directions: dot of two normed rows of width 2 is 2, s = 2/sqrt(2), gate = sigmoid(2^(1/4)) = 0.766599."""
    done = injected([[3.0], [4.0], [-3.0], [-4.0]])
    root = 2**0.25
    assert done.gate == pytest.approx([1 / (1 + np.exp(-root)), 1 / (1 + np.exp(root))], abs=1e-12)
    assert done.gate[0] == pytest.approx(0.766599, abs=1e-6)


def test_the_convolution_state_holds_nine_normed_values() -> None:
    """kernel 4 with dilation 3 needs 9 past values; the newest is the norm of the gated value [3, 4] * gate."""
    done = injected([[3.0], [4.0], [3.0], [4.0]])
    assert done.state.shape == (4, 9)
    assert done.state[:, :8].any() == np.False_
    assert done.state[:2, 8] == pytest.approx([0.848528, 1.131371], abs=1e-6)


def test_what_is_added_is_the_gated_value_and_its_convolution() -> None:
    """Only the current tap is 1: convolved = silu(normed) with silu(0.848528) = 0.594127."""
    taps = np.zeros((4, 4))
    taps[:, 3] = 1
    done = injected([[3.0], [4.0], [3.0], [4.0]], conv=taps)
    gate = 1 / (1 + np.exp(-(2**0.25)))
    normed = 3 / np.sqrt(12.5)
    assert done.added[0] == pytest.approx(3 * gate + normed / (1 + np.exp(-normed)), abs=1e-12)
    assert done.wide[0] == pytest.approx(3 + done.added[0], abs=1e-12)


def test_pairs_alone_are_an_order_too() -> None:
    """Two multipliers: one order, the toy's bigram column."""
    toy = {"multipliers": [7, 11], "primes": [53], "offsets": [0], "heads_per_ngram": 1, "eos": 2}
    assert ple.rows([5, 8, 3], **toy) == [[0], [15], [24]]


def test_the_smallest_arguments_are_answered() -> None:
    """Multiplier 1, prime 1, end of sequence 0: 1 ^ 0 modulo 1 is 0; history of one token."""
    assert ple.rows([1], [1, 1], [1], [0], 1, 0) == [[0]]
    assert ple.history_after([5, 8], eos=0, size=1) == [8]
    assert ple.history_after([5, 0, 8], eos=0, size=1, history=[3]) == [8]


@pytest.mark.parametrize(
    ("code", "where", "change"),
    [
        ("oracle.argument.domain", "multipliers[0]", {"multipliers": [0, 1, 1]}),
        ("oracle.argument.domain", "primes[0]", {"primes": [0, 1]}),
        ("oracle.argument.domain", "offsets[1]", {"offsets": [0, -1]}),
        ("oracle.argument.shape", "offsets", {"offsets": [0]}),
        ("oracle.argument.shape", "multipliers", {"multipliers": [1]}),
        ("oracle.argument.domain", "heads_per_ngram", {"heads_per_ngram": 0}),
        ("oracle.argument.domain", "eos", {"eos": -1}),
        ("oracle.argument.domain", "history[0]", {"history": [-1]}),
        ("oracle.argument.type", "tokens", {"tokens": "58"}),
        ("oracle.argument.type", "tokens[0]", {"tokens": [1.0]}),
    ],
)
def test_rows_refuse_by_name(code: str, where: str, change: dict[str, object]) -> None:
    assert_refused(code, where, lambda: ple.rows(**{"tokens": [1], **TOY, **change}))


def test_the_history_refuses_by_name() -> None:
    assert_refused("oracle.argument.domain", "size", lambda: ple.history_after([1], eos=2, size=0))
    assert_refused("oracle.argument.domain", "tokens[1]", lambda: ple.history_after([1, -1], eos=2))


def test_the_sign_turns_at_2_to_the_63() -> None:
    """2^63 read as signed is -2^63, 2^63 - 1 is itself; -2^63 mod 5 = 2 and 2^63 mod 5 = 3."""
    turned = ple.wrapped([2**62], [2], 5)
    assert (turned.signed, turned.signed_row, turned.unsigned_row) == (-(2**63), 2, 3)
    assert ple.wrapped([7], [1317624576693539401], 5).signed == 2**63 - 1
    assert ple.wrapped([2**63], [2], 5).unsigned == 0


def test_controls_take_zeros_and_refuse_by_name() -> None:
    assert ple.wrapped([0], [0], 1) == (0,) * 8
    assert_refused("oracle.argument.shape", "window", lambda: ple.wrapped([], [], 1))
    assert_refused("oracle.argument.shape", "window", lambda: ple.wrapped([1], [1, 1], 1))
    assert_refused("oracle.argument.domain", "prime", lambda: ple.wrapped([1], [1], 0))
    assert_refused("oracle.argument.domain", "window[0]", lambda: ple.wrapped([2**64], [1], 1))
    assert_refused("oracle.argument.domain", "multipliers[1]", lambda: ple.wrapped([1, 1], [1, 2**64], 1))


def test_every_product_of_a_window_is_wrapped_and_joins_the_others() -> None:
    """By hand: 3 * 5 = 15 and 2^40 * 2^30 = 2^70, which is 0 modulo 2^64."""
    control = ple.wrapped([3, 2**40], [5, 2**30], 101)
    assert (control.exact, control.unsigned, control.signed, control.float64) == (
        2**70 + 15,
        15,
        15,
        2**70 + 15,
    )
    assert ple.wrapped([2**40, 3], [2**30, 5], 101) == control
    assert ple.wrapped([1], [2**64 - 1], 7).signed == -1


def test_a_single_stream_can_be_injected_into() -> None:
    done = injected([[3.0], [4.0]], wide=[3.0, 4.0], streams=1, conv=np.zeros((2, 4)), **ONE_STREAM)
    assert done.gate == pytest.approx([0.766599], abs=1e-6)
    assert done.wide == pytest.approx([3 + 3 * 0.766599, 4 + 4 * 0.766599], abs=1e-5)


ONE_STREAM = {"norm_key": np.zeros(2), "norm_query": np.zeros(2), "norm_conv": np.zeros(2)}


@pytest.mark.parametrize(
    ("code", "where", "change"),
    [
        ("oracle.argument.domain", "wide", {"streams": 3}),
        ("oracle.argument.domain", "wide", {"wide": []}),
        ("oracle.argument.domain", "streams", {"streams": 0}),
        ("oracle.argument.shape", "value", {"value": [[1.0]]}),
        ("oracle.argument.shape", "norm_query", {"norm_query": np.zeros(2)}),
        ("oracle.argument.shape", "conv", {"conv": np.zeros((2, 4))}),
        ("oracle.argument.shape", "state", {"state": np.zeros((4, 3))}),
    ],
)
def test_an_injection_refuses_by_name(code: str, where: str, change: dict[str, object]) -> None:
    assert_refused(code, where, lambda: injected([[1.0]] * 4, **change))


@pytest.mark.parametrize("name", ["tokens", "history"])
def test_rows_refuse_a_token_beyond_the_vocabulary_by_its_place(name: str) -> None:
    """Of 10 tokens 9 is the last."""
    given = {"tokens": [1], "history": [], "vocab_size": 10}
    assert len(ple.rows(**TOY, **{**given, name: [1, 9]})) == (2 if name == "tokens" else 1)
    assert_refused(
        "oracle.argument.domain", f"{name}[1]", lambda: ple.rows(**TOY, **{**given, name: [1, 10]})
    )


def test_a_layer_beyond_the_list_of_primes_is_refused() -> None:
    """1,024 primes at most: 64 layers of 16 heads before this one."""
    assert_refused("oracle.argument.domain", "ordinal", lambda: ple.primes(base=2, ordinal=65))
    assert len(ple.primes(base=2, ordinal=64).primes) == 16
