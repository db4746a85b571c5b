"""The whole model: stages, chunks, sequences, state, and the oracle's own consistency.

Numbers against upstream are the parity gate's matter; here stands what must hold whatever the numbers are.
"""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from oracle_toys import assert_refused

from assay.oracles import geometry, model, state, tensors
from assay.oracles.fixture import FIXTURE_CONFIG, FIXTURE_TOKENS, FixtureWeights, fixture_geometry

Taps = dict[tuple[str, int | None, int], np.ndarray]


@functools.cache
def made() -> FixtureWeights:
    """The fixture's tensors, made once: 4 x 512 experts take longer than a token."""
    return FixtureWeights()


def oracle(**options: Any) -> model.Model:
    return model.Model(fixture_geometry(), made(), **options)


def tapped(tokens: Sequence[int], **options: Any) -> tuple[Taps, model.Run]:
    found: Taps = {}

    def tap(stage: str, layer: int | None, token: int, array: np.ndarray) -> None:
        assert (stage, layer, token) not in found
        found[stage, layer, token] = array

    return found, oracle(**options).run(tokens, tap=tap)


def test_a_token_of_the_fixture_makes_33_stage_calls() -> None:
    """Facts 4: 2 + 1 + 7 * 4 + 2; each of the thirteen stages occurs."""
    found, _ = tapped([2])
    calls = Counter(stage for stage, _, _ in found if "." not in stage)
    assert sum(calls.values()) == 33
    assert set(calls) == set(model.STAGES)
    assert (calls["ple"], calls["gdn"], calls["qsa"], calls["router"]) == (1, 3, 1, 4)


def test_every_tap_is_in_the_published_list() -> None:
    found, _ = tapped([2, 5])
    assert {stage for stage, _, _ in found} == set(model.TAPS)


def test_every_tap_has_the_axes_that_the_list_states() -> None:
    found, _ = tapped([2, 5])
    for (stage, _, _), array in found.items():
        stated = model.TAPS[stage]  # without brackets: one axis, as long as the choice
        axes = stated.rpartition("[")[2].rstrip("]").split(",") if "[" in stated else ["rows"]
        assert array.ndim == len(axes), stage


@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1, 1), (2, 1, 3), (6,)])
def test_chunks_give_the_same_bytes(chunks: tuple[int, ...]) -> None:
    """Facts 4.2: token by token, (2, 1, 3) and one shot."""
    whole = oracle().run(FIXTURE_TOKENS)
    current, lines, start = None, [], 0
    for size in chunks:
        done = oracle().run(FIXTURE_TOKENS[start : start + size], current)
        current, start = done.state, start + size
        lines.append(done.logits)
    assert np.concatenate(lines).tobytes() == whole.logits.tobytes()
    assert current is not None
    assert state.differing(current, whole.state) == []


def test_chunks_around_an_end_of_sequence_give_the_same_bytes() -> None:
    """Facts 4.2: partition 1, 2, 1 with the fixture's end of sequence inside."""
    tokens = [5, 12, 7, 3]
    whole = oracle().run(tokens)
    first = oracle().run(tokens[:1])
    second = oracle().run(tokens[1:3], first.state)
    third = oracle().run(tokens[3:], second.state)
    assert state.differing(third.state, whole.state) == []
    assert third.logits[-1].tobytes() == whole.logits[-1].tobytes()


def test_interleaved_sequences_stay_apart() -> None:
    one, two = oracle(), oracle()
    alone = one.run([2, 5, 7]), one.run([9, 4, 3])
    left, right = two.run([2]), two.run([9])
    for a, b in ((5, 4), (7, 3)):
        left, right = two.run([a], left.state), two.run([b], right.state)
    assert state.differing(left.state, alone[0].state) == []
    assert state.differing(right.state, alone[1].state) == []


def test_a_run_does_not_change_the_state_that_it_was_given() -> None:
    before = oracle().run([2, 5]).state
    kept = state.copy(before)
    oracle().run([7, 3], before)
    assert state.differing(before, kept) == []


def test_a_rewind_continues_as_a_fresh_run() -> None:
    """A7 and A26: every owner shows the committed prefix, for every accepted length."""
    committed = oracle().run([5, 8])
    drafts = [3, 6, 9]
    kept = [committed.state]
    for token in drafts:
        kept.append(oracle().run([token], kept[-1]).state)
    for accepted in range(len(drafts) + 1):
        back = state.rewind(kept, 2 + accepted)
        fresh = oracle().run([5, 8, *drafts[:accepted]]).state
        assert state.differing(back, fresh) == []
        assert oracle().run([4], back).logits.tobytes() == oracle().run([4], fresh).logits.tobytes()


def test_a_rewind_hands_out_an_equal_state_with_memory_of_its_own() -> None:
    kept = [oracle().fresh(), oracle().fresh(first_position=7)]
    back = state.rewind(kept, 0)
    assert state.differing(back, kept[0]) == []
    assert not any(
        np.shares_memory(left, right)
        for owner in state.LAYER_OWNERS
        for left, right in zip(getattr(back, owner).values(), getattr(kept[0], owner).values(), strict=True)
    )


def test_a_rewind_to_a_length_that_was_not_kept_is_refused() -> None:
    assert_refused("oracle.argument.domain", "tokens", lambda: state.rewind([oracle().fresh()], 3))


def test_a_copy_shares_no_memory() -> None:
    """A11: overwriting the original leaves the copy."""
    original = oracle().run([2, 5]).state
    twin = state.copy(original)
    before = state.arrays(state.copy(twin))
    for name, array in state.arrays(original).items():
        if array.ndim and array.size and name != "ple_history":
            array[...] = 9
    assert all(before[name].tobytes() == array.tobytes() for name, array in state.arrays(twin).items())


def test_every_owner_is_named_when_it_differs() -> None:
    """Two tokens against one: every owner of the fixture has moved but the anchor."""
    one, two = oracle().run([2]).state, oracle().run([2, 5]).state
    moved = {name.split(".")[0] for name in state.differing(one, two)}
    assert moved == set(state.OWNERS) - {"first_position"}


def test_the_history_restarts_after_an_end_of_sequence() -> None:
    assert oracle().run([5, 12]).state.ple_history == ()
    assert oracle().run([5, 12, 7]).state.ple_history == (7,)
    assert oracle().run([5, 8, 7]).state.ple_history == (8, 7)


def test_state_sizes_are_those_of_the_geometry() -> None:
    """Facts 4.1: 10 channels and 3 past values; 3 heads of 2 x 2; 9 past values of 16."""
    arrays = state.arrays(oracle().run([2, 5, 7]).state)
    assert arrays["gdn_conv.0"].shape == (10, 3)
    assert arrays["gdn_recurrent.2"].shape == (3, 2, 2)
    assert arrays["qsa_key.3"].shape == (3, 1, 2)
    assert arrays["qsa_raw_index.3"].shape == (3, 2)
    assert arrays["ple_conv.1"].shape == (16, 9)


def test_within_the_budget_every_position_is_selected() -> None:
    found, _ = tapped([2, 5, 7, 3, 9, 4, 2, 5])
    for token in range(8):
        assert found["qsa.tokens", 3, token].tolist() == list(range(token + 1))


def test_past_the_budget_the_selection_has_the_budgets_width() -> None:
    """Two groups of four and a tail: at 15 tokens 8 + 3."""
    found, _ = tapped([token % 12 for token in range(15)])
    assert found["qsa.tokens", 3, 14].size == 11
    assert found["qsa.groups", 3, 14].size == 2


def test_positions_count_from_the_anchor() -> None:
    """AFN-018: a left-padded sequence; rotation depends on distances, so the logits agree up to rounding."""
    plain = oracle(dtype="float64").run([2, 5, 7, 3, 9]).logits
    current = oracle(dtype="float64").fresh(first_position=100)
    shifted = oracle(dtype="float64").run([2, 5, 7, 3, 9], current)
    assert shifted.state.positions[0].tolist() == [100, 101, 102, 103, 104]
    assert shifted.logits == pytest.approx(plain, abs=1e-9)


def test_the_streams_start_as_copies_of_the_embedding() -> None:
    found, _ = tapped([2])
    row = found["embedding", None, 0]
    assert found["four_stream_residual", None, 0].tolist() == [*row, *row, *row, *row]


def test_float64_is_a_second_opinion() -> None:
    single, double = oracle().run(FIXTURE_TOKENS), oracle(dtype="float64").run(FIXTURE_TOKENS)
    assert (single.logits.dtype, double.logits.dtype) == (np.float32, np.float64)
    assert np.abs(single.logits - double.logits).max() < 1e-6
    assert np.abs(single.logits - double.logits).max() > 0


class Overflowing(FixtureWeights):
    """One gain of the first layer's first mixer so large that its product leaves float32."""

    def tensor(self, name: str) -> np.ndarray:
        found = super().tensor(name)
        first = name == "model.language_model.layers.0.attn_hyper_connection.hc_norm.weight"
        return np.full_like(found, 3e38) if first else found


def test_an_overflow_is_refused_where_it_arises() -> None:
    broken = model.Model(fixture_geometry(), Overflowing())
    where = "attn_gr_prepare.normed, layer 0, token 0"
    assert_refused("oracle.result.finite", where, lambda: broken.run([2]))


@pytest.mark.parametrize(("tokens", "where"), [([13], "tokens[0]"), ([2, -1], "tokens[1]")])
def test_a_token_beyond_the_physical_rows_is_refused(tokens: list[int], where: str) -> None:
    assert_refused("oracle.argument.domain", where, lambda: oracle().run(tokens))


def test_a_batch_axis_is_refused() -> None:
    assert_refused("oracle.argument.type", "tokens[0]", lambda: oracle().run([[2, 5]]))


def test_no_tokens_give_no_logits() -> None:
    assert oracle().run([]).logits.shape == (0, 13)


def test_rotary_positions_may_be_given() -> None:
    rows = np.array([[0, 1, 1], [0, 1, 1], [0, 1, 2]])
    done = oracle().run([2, 5, 7], positions=rows)
    assert done.state.positions.tolist() == rows.tolist()
    assert_refused("oracle.argument.shape", "positions", lambda: oracle().run([2], positions=rows))


def test_a_table_row_comes_out_of_its_own_shard() -> None:
    """750 rows (the sum of the sixteen primes) in two parts: row 377 is place 2 of shard 1."""
    from assay.oracles import weights

    text = {**FIXTURE_CONFIG["text_config"], "split_ngram_parts": 2}
    dims = geometry.from_config({"text_config": text})
    assert dims.ple_primes(0).padded_rows == 750
    row = tensors.RuleWeights(dims).ple_rows(1, [377])
    name = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.shard_1.weight"
    assert row.tolist() == [weights.tensor(name, (375, 1))[2].tolist()]


def test_a_tensor_of_another_geometry_is_refused() -> None:
    rule = tensors.RuleWeights(fixture_geometry())
    assert rule.tensor("lm_head.weight").shape == (13, 4)
    assert_refused("oracle.argument.domain", "tensor", lambda: rule.tensor("model.norm.weight"))
    assert_refused("oracle.argument.domain", "tensor", lambda: FixtureWeights().tensor("model.norm.weight"))


def without(name: str) -> dict[str, Any]:
    text = {key: value for key, value in FIXTURE_CONFIG["text_config"].items() if key != name}
    return {"text_config": text}


@pytest.mark.parametrize(
    "name", ["output_gate_type", "hidden_act", "hidden_size", "eos_token_id", "layer_types"]
)
def test_a_missing_field_is_refused_by_name(name: str) -> None:
    """A16: without the gate's type a port guesses SiLU."""
    assert_refused("oracle.argument.domain", name, lambda: geometry.from_config(without(name)))


def test_another_gate_is_refused() -> None:
    text = {**FIXTURE_CONFIG["text_config"], "output_gate_type": "silu"}
    assert_refused(
        "oracle.argument.domain", "output_gate_type", lambda: geometry.from_config({"text_config": text})
    )


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ("num_attention_heads", "num_key_value_heads", 3),
        ("linear_num_value_heads", "linear_num_key_heads", 2),
        ("num_experts_per_tok", "num_experts", 9),
        ("indexer_budget", "indexer_budget", 9),
        ("partial_rotary_factor", "head_dim", 3),
        ("partial_rotary_factor", "indexer_head_dim", 1),
        ("ple_embed_dim", "ple_embed_dim", 17),
        ("ngram_size", "ngram_size", 1),
        ("ple_layer_ids[0]", "ple_layer_ids", [5]),
        ("layer_types", "num_hidden_layers", 5),
    ],
)
def test_dimensions_that_do_not_fit_together_are_refused(where: str, name: str, value: Any) -> None:
    text = {**FIXTURE_CONFIG["text_config"], name: value}
    assert_refused("oracle.argument.domain", where, lambda: geometry.from_config({"text_config": text}))


@pytest.mark.parametrize("sections", [[1, 0], [1, 1, 0]])
def test_sections_are_three_and_drive_the_whole_rotation(sections: list[int]) -> None:
    rope = {**FIXTURE_CONFIG["text_config"]["rope_parameters"], "mrope_section": sections}
    text = {**FIXTURE_CONFIG["text_config"], "rope_parameters": rope}
    assert_refused(
        "oracle.argument.domain", "mrope_section", lambda: geometry.from_config({"text_config": text})
    )


@pytest.mark.checkpoint
def test_the_published_geometry_reads_as_its_facts_say(checkpoint: Any) -> None:
    """Facts 1 and the row store's section 6."""
    import json

    dims = geometry.from_config(json.loads((checkpoint / "config.json").read_text(encoding="utf-8")))
    assert (dims.hidden, dims.streams, dims.wide, dims.rank) == (2560, 4, 10240, 320)
    assert [dims.layer_types.count(kind) for kind in ("gdn", "qsa")] == [36, 12]
    assert dims.layer_types[:4] == ("gdn", "gdn", "gdn", "qsa")
    assert (dims.heads, dims.kv_heads, dims.head_dim, dims.rotary_dim) == (24, 2, 256, 64)
    assert (dims.theta, dims.sections) == (1e7, (11, 11, 10))
    assert (dims.index_heads, dims.index_dim, dims.ratio, dims.budget_groups) == (4, 128, 4, 512)
    assert dims.selection_width == 2051
    assert (dims.key_heads, dims.value_heads, dims.gdn_channels, dims.kernel) == (16, 48, 10240, 4)
    assert (dims.experts, dims.experts_used, dims.expert_width, dims.shared_width) == (512, 10, 640, 640)
    assert (dims.ple_layers, dims.ple_heads, dims.ple_kernel, dims.eos) == ((1,), 16, 4, 248044)
    assert dims.ple_multipliers(0) == [23703573157769, 20109073645365, 8052911324071]
    assert dims.ple_primes(0).padded_rows == 320001536


@pytest.mark.checkpoint
def test_tensor_names_and_shapes_are_those_of_the_published_headers(checkpoint: Any) -> None:
    """Every name that the oracle asks for stands in the published index."""
    import json

    dims = geometry.from_config(json.loads((checkpoint / "config.json").read_text(encoding="utf-8")))
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text(encoding="utf-8"))[
        "weight_map"
    ]
    assert set(tensors.shapes(dims)) <= set(index)
    left = {name for name in index if name not in tensors.shapes(dims)}
    assert {name.split(".")[0] for name in left} <= {"mtp", "model"}
    assert all(".visual." in name or name.startswith("mtp.") or ".ple_embedding." in name for name in left)


def test_fields_that_upstream_defaults_have_its_defaults() -> None:
    """transformers 5.24.0 Qwen4ExpTextConfig."""
    given = {
        "ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram", "ngram_vocab_size_base",
        "make_ngram_vocab_size_divisible_by", "split_ngram_parts", "seed",
    }  # fmt: skip
    text = {key: value for key, value in FIXTURE_CONFIG["text_config"].items() if key not in given}
    dims = geometry.from_config({"text_config": {**text, "hidden_size": 16}})
    assert (dims.ple_embedding, dims.ple_kernel, dims.ngram_size, dims.heads_per_ngram) == (16, 4, 3, 8)
    assert (dims.ngram_base, dims.ngram_divisor, dims.ngram_parts, dims.seed) == (20_000_000, 128, 512, 1234)


def test_owners_of_equal_bytes_and_another_type_or_layer_differ() -> None:
    import dataclasses

    plain = oracle().fresh()
    turned = {layer: array.view(np.int32) for layer, array in plain.gdn_conv.items()}
    found = state.differing(plain, dataclasses.replace(plain, gdn_conv=turned))
    assert found == ["gdn_conv.0", "gdn_conv.1", "gdn_conv.2"]
    fewer = {layer: array for layer, array in plain.gdn_conv.items() if layer}
    assert state.differing(plain, dataclasses.replace(plain, gdn_conv=fewer)) == ["gdn_conv.0"]
    assert state.differing(dataclasses.replace(plain, gdn_conv=fewer), plain) == ["gdn_conv.0"]


def test_the_operation_hands_out_the_stages_of_the_tokens_asked_for() -> None:
    from assay.oracles.catalogue import rule_model

    logits, stages = rule_model(FIXTURE_CONFIG, [2, 5], taps=[1])
    assert logits.shape == (2, 13)
    assert {frozenset(one) for one in stages} == {frozenset({"stage", "layer", "token", "values"})}
    assert {one["token"] for one in stages} == {1}
    head = next(one for one in stages if one["stage"] == "output_head")
    assert head["values"] == logits[1].tolist()
    assert rule_model(FIXTURE_CONFIG, [2])[1] == []


def test_a_tap_of_a_token_that_is_not_there_is_refused() -> None:
    from assay.oracles.catalogue import rule_model

    for tokens, tap in (([2, 5], 2), ([2], -1), ([], 0)):
        assert_refused(
            "oracle.argument.domain",
            "taps[0]",
            lambda t=tokens, p=tap: rule_model(FIXTURE_CONFIG, t, taps=[p]),
        )


def test_an_anchor_whose_tokens_leave_the_positions_is_refused() -> None:
    from assay.oracles.catalogue import rule_model

    assert len(rule_model(FIXTURE_CONFIG, [2], first_position=2**53 - 1)[0]) == 1
    for anchor in (2**53, 2**64):
        assert_refused(
            "oracle.argument.domain",
            "first_position",
            lambda at=anchor: rule_model(FIXTURE_CONFIG, [2], first_position=at),
        )


@pytest.mark.parametrize(
    ("positions", "code"),
    [
        ([[-1], [0], [0]], "domain"),
        ([[0], [0], [-1]], "domain"),
        ([[0.0], [0.0], [0.0]], "shape"),
        ([[0], [0]], "shape"),
        ([[0, 1]] * 3, "shape"),
    ],
)
def test_rotary_positions_of_a_run_are_refused_by_name(positions: Any, code: str) -> None:
    assert_refused(f"oracle.argument.{code}", "positions", lambda: oracle().run([2], positions=positions))


def test_rotary_positions_of_no_tokens_are_none() -> None:
    assert oracle().run([], positions=np.zeros((3, 0), np.int64)).logits.shape[0] == 0


def test_a_run_by_rule_begins_at_its_anchor_and_at_0_unless_told() -> None:
    from assay.oracles.catalogue import rule_model

    def selected(**anchor: int) -> list[list[int]]:
        stages = rule_model(FIXTURE_CONFIG, [2, 5], taps=[0, 1], **anchor)[1]
        return [one["values"] for one in stages if one["stage"] == "qsa.tokens"]

    assert selected() == [[0], [0, 1]]
    assert selected(first_position=7) == [[7], [7, 8]]


def test_a_copy_of_a_state_shares_no_positions() -> None:
    done = oracle().run([2, 5]).state
    assert state.copy(done).positions is not done.positions
    assert not np.shares_memory(state.copy(done).positions, done.positions)
