"""A configuration is read field by field: every dimension under its own name, defaults only where upstream has them."""

import copy
from typing import Any

import pytest
from oracle_toys import assert_refused

from assay.oracles import geometry

SIZES = {
    "hc_count": ("streams", 3), "hc_lowrank": ("rank", 5), "vocab_size": ("physical_rows", 97), "hidden_size": ("hidden", 24),
    "num_attention_heads": ("heads", 6), "num_key_value_heads": ("kv_heads", 2), "head_dim": ("head_dim", 32),
    "indexer_n_heads": ("index_heads", 7), "indexer_head_dim": ("index_dim", 34), "indexer_compress_ratio": ("ratio", 4),
    "linear_num_key_heads": ("key_heads", 9), "linear_num_value_heads": ("value_heads", 18), "linear_key_head_dim": ("key_dim", 10),
    "linear_value_head_dim": ("value_dim", 11), "linear_conv_kernel_dim": ("kernel", 12), "num_experts": ("experts", 19),
    "num_experts_per_tok": ("experts_used", 13), "moe_intermediate_size": ("expert_width", 14),
    "shared_expert_intermediate_size": ("shared_width", 15),
}  # fmt: skip
"""Field -> (name in the geometry, a value of its own)."""

OPTIONAL = {
    "ple_embed_dim": ("ple_embedding", 40, 24), "ple_conv_kernel_size": ("ple_kernel", 6, 4), "ngram_size": ("ngram_size", 5, 3),
    "heads_per_ngram": ("heads_per_ngram", 2, 8), "ngram_vocab_size_base": ("ngram_base", 101, 20_000_000),
    "make_ngram_vocab_size_divisible_by": ("ngram_divisor", 21, 128), "split_ngram_parts": ("ngram_parts", 22, 512),
}  # fmt: skip
"""Field -> (name in the geometry, a value of its own, upstream's default; the embedding is as wide as the model)."""

TEXT: dict[str, Any] = {
    **{name: value for name, (_, value) in SIZES.items()},
    **{name: value for name, (_, value, _) in OPTIONAL.items()},
    "hidden_act": "silu", "output_gate_type": "sigmoid", "num_hidden_layers": 4, "indexer_budget": 12, "rms_norm_eps": 1e-5,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "indexed_attention"], "eos_token_id": 23,
    "ple_layer_ids": [3, 2], "seed": 77,
    "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1]},
}  # fmt: skip


def read(**changes: Any) -> geometry.Geometry:
    return geometry.from_config({"text_config": {**TEXT, **changes}})


def without(name: str) -> geometry.Geometry:
    text = copy.deepcopy(TEXT)
    del text[name]
    return geometry.from_config(text)


def rope(**changes: Any) -> dict[str, Any]:
    return {"rope_parameters": {**TEXT["rope_parameters"], **changes}}


def test_every_field_has_a_place_of_its_own() -> None:
    found = read()
    assert {place: getattr(found, place) for place, _ in SIZES.values()} == dict(SIZES.values())
    assert {place: getattr(found, place) for place, _, _ in OPTIONAL.values()} == {
        place: value for place, value, _ in OPTIONAL.values()
    }
    assert found.layer_types == ("gdn", "qsa", "gdn", "qsa")
    assert (found.eps, found.theta, found.sections, found.rotary_dim) == (1e-5, 500.0, (2, 1, 1), 8)
    assert (found.budget_groups, found.ple_layers, found.seed, found.eos) == (3, (1, 2), 77, 23)


@pytest.mark.parametrize("name", [*SIZES, "num_hidden_layers", "indexer_budget", "rms_norm_eps", "layer_types",
                                  "eos_token_id", "hidden_act", "output_gate_type", "rope_parameters"])  # fmt: skip
def test_what_upstream_has_no_default_for_is_asked_for_by_name(name: str) -> None:
    assert_refused("oracle.argument.domain", name, lambda: without(name))
    assert_refused("oracle.argument.domain", name, lambda: read(**{name: None}))


@pytest.mark.parametrize("name", ["rope_theta", "mrope_section"])
def test_what_a_rotation_needs_is_asked_for_by_name(name: str) -> None:
    assert_refused("oracle.argument.domain", name, lambda: read(**rope(**{name: None})))


@pytest.mark.parametrize("name", OPTIONAL)
def test_upstreams_default_stands_where_a_field_is_absent_or_null(name: str) -> None:
    place, _, default = OPTIONAL[name]
    changes = (
        {"ple_embed_dim": 48} if name == "heads_per_ngram" else {}
    )  # 4 orders of 8 heads divide it no more
    text = {**TEXT, "ngram_size": 3, **changes}
    for wanting in ({key: text[key] for key in text if key != name}, {**text, name: None}):
        assert getattr(geometry.from_config(wanting), place) == default


def test_the_seed_has_upstreams_default_and_no_layer_of_embeddings_is_allowed() -> None:
    assert without("seed").seed == 1234
    assert without("ple_layer_ids").ple_layers == ()
    assert read(ple_layer_ids=None).ple_layers == ()
    assert read(ple_layer_ids=[4, 1, 4]).ple_layers == (0, 3)


@pytest.mark.parametrize("name", [*SIZES, *OPTIONAL, "num_hidden_layers", "indexer_budget"])
@pytest.mark.parametrize(
    ("value", "code"),
    [("4", "type"), (2.0, "type"), (True, "type"), (0, "domain"), (-1, "domain"), (2**31 + 1, "domain")],
)
def test_a_size_is_a_whole_number_above_zero_and_is_named(name: str, value: Any, code: str) -> None:
    assert_refused(f"oracle.argument.{code}", name, lambda: read(**{name: value}))


@pytest.mark.parametrize(("name", "value"), [("seed", -1), ("seed", 2**31 + 1), ("eos_token_id", -1), ("eos_token_id", 2**31 + 1)])  # fmt: skip
def test_the_seed_and_the_end_of_text_are_bounded_by_name(name: str, value: int) -> None:
    assert_refused("oracle.argument.domain", name, lambda: read(**{name: value}))


@pytest.mark.parametrize(("name", "value"), [("seed", "77"), ("eos_token_id", "23"), ("eos_token_id", [])])
def test_the_seed_and_the_end_of_text_are_whole_numbers(name: str, value: Any) -> None:
    assert_refused("oracle.argument.type", name, lambda: read(**{name: value}))


def test_zero_is_a_seed_and_an_end_of_text_and_the_first_of_several_ends_counts() -> None:
    assert (read(seed=0).seed, read(eos_token_id=0).eos, read(eos_token_id=[7, 8]).eos) == (0, 0, 7)
    assert (read(seed=2**31).seed, read(eos_token_id=2**31).eos) == (2**31, 2**31)


def test_the_rotated_part_is_stated_with_the_rotation_or_beside_it_or_is_the_whole_head() -> None:
    plain = {"rope_theta": 500.0, "mrope_section": [2, 1, 1]}
    assert read(rope_parameters=plain, partial_rotary_factor=0.25).rotary_dim == 8
    assert read(partial_rotary_factor=0.5).rotary_dim == 8  # what stands with the rotation wins
    whole = {**plain, "mrope_section": [6, 5, 5]}
    assert read(rope_parameters=whole).rotary_dim == 32
    assert read(rope_parameters={**whole, "partial_rotary_factor": 1.5}).rotary_dim == 32


@pytest.mark.parametrize(
    ("where", "changes"),
    [
        ("num_attention_heads", {"num_attention_heads": 7}),
        ("linear_num_value_heads", {"linear_num_value_heads": 19}),
        ("num_experts_per_tok", {"num_experts_per_tok": 20}),
        ("indexer_budget", {"indexer_budget": 13}),
        ("partial_rotary_factor", rope(partial_rotary_factor=5 / 32)),
        ("partial_rotary_factor", rope(partial_rotary_factor=1 / 64)),
        ("partial_rotary_factor", {"indexer_head_dim": 6}),
        ("partial_rotary_factor", rope(partial_rotary_factor=0.0)),
        ("mrope_section", rope(mrope_section=[2, 1, 2])),
        ("mrope_section", rope(mrope_section=[2, 2])),
        ("mrope_section", rope(mrope_section=[1, 1, 1, 1])),
        ("ngram_size", {"ngram_size": 65}),
        ("ngram_size", {"ngram_size": 1}),
        ("ple_embed_dim", {"ple_embed_dim": 41}),
        ("hidden_act", {"hidden_act": "gelu"}),
        ("output_gate_type", {"output_gate_type": "silu"}),
        ("layer_types", {"layer_types": ["linear_attention"]}),
        ("layer_types", {"layer_types": ["linear_attention"] * 3 + ["dense"]}),
        ("layer_types", {"layer_types": "linear"}),
        ("ple_layer_ids[0]", {"ple_layer_ids": [0]}),
        ("ple_layer_ids[1]", {"ple_layer_ids": [1, 5]}),
        ("rope_parameters", {"rope_parameters": [1]}),
        ("rms_norm_eps", {"rms_norm_eps": 0.0}),
    ],
)
def test_dimensions_that_do_not_fit_are_refused_by_the_one_that_must_give_way(
    where: str, changes: dict[str, Any]
) -> None:
    assert_refused("oracle.argument.domain", where, lambda: read(**changes))


@pytest.mark.parametrize(
    "changes",
    [{"num_experts_per_tok": 19}, {"indexer_head_dim": 8}, {"ngram_size": 2}, {"ngram_size": 64, "ple_embed_dim": 126}],
)  # fmt: skip
def test_the_last_dimensions_that_fit_are_taken(changes: dict[str, Any]) -> None:
    found = read(**changes)
    assert all(getattr(found, {**SIZES, **OPTIONAL}[name][0]) == value for name, value in changes.items())


def test_a_configuration_may_be_the_text_part_alone_and_must_be_an_object() -> None:
    assert geometry.from_config(TEXT) == read()
    assert_refused("oracle.argument.domain", "text_config", lambda: geometry.from_config({"text_config": 3}))
