"""Checkpoint directories as they lie: every form gives the same model, and what is not a model is refused by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_toys import assert_refused, ids, made, write_form

from assay.provenance.captures.geometries import GEOMETRIES

FORMS = ("published", "saved", "whole")


def loaded(folder: Path) -> Any:
    from assay.impl.model.loader import load_checkpoint
    from assay.impl.model.numerics import Numerics

    return load_checkpoint(folder, Numerics(is_deterministic=True))


def run(model: Any, tokens: list[int]) -> np.ndarray:
    from assay.impl.model.graph import Chunk
    from assay.impl.model.state import fresh

    done = model.run([Chunk(fresh(model.geometry), tokens)], every_logit=True)
    return np.array(done.logits[0])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("geometry", ["small", "two-ple"])
def test_every_form_of_a_checkpoint_is_the_same_model(form: str, geometry: str, tmp_path: Path) -> None:
    tokens = ids(geometry, 12)
    found = run(loaded(write_form(tmp_path, geometry, form)).model, tokens)
    assert found.tobytes() == run(made(geometry), tokens).tobytes()


def test_weights_too_large_to_widen_stay_as_stored_and_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlx.core as mx

    from assay.impl.model import sources

    monkeypatch.setattr(sources, "WIDEN_BELOW_BYTES", 0)
    monkeypatch.setattr(sources, "RESIDENT_BELOW_BYTES", 0)
    model = loaded(write_form(tmp_path, "small", "published")).model
    assert model.weights.layers[0].moe.router.dtype == mx.bfloat16
    assert model.weights.layers[0].moe.experts.up_matrix.dtype == mx.bfloat16
    assert run(model, ids("small", 12)).tobytes() == run(made("small"), ids("small", 12)).tobytes()


@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        ("hidden_act", "gelu", "hidden_act"),
        ("output_gate_type", "tanh", "output_gate_type"),
        ("num_experts_per_tok", 13, "num_experts_per_tok"),
        ("layer_types", ["linear_attention"], "layer_types"),
        ("vocab_size", True, "vocab_size"),
        ("hidden_size", 2**40, "hidden_size"),
        ("num_key_value_heads", 3, "num_attention_heads"),
        ("indexer_budget", 10, "indexer_budget"),
        ("ple_layer_ids", [4], "ple_layer_ids"),
        ("eos_token_id", None, "eos_token_id"),
        ("rope_parameters", None, "rope_parameters"),
        ("heads_per_ngram", 600, "heads_per_ngram"),
        ("indexer_head_dim", None, "indexer_head_dim"),
    ],
)
def test_a_configuration_without_mathematics_is_refused(name: str, value: Any, where: str) -> None:
    from assay.impl.model.geometry import read_geometry

    config = {**GEOMETRIES["small"], name: value}
    assert_refused("model.config", f"config.json: {where}", lambda: read_geometry(config))


def test_a_model_without_sparse_layers_needs_no_index_fields() -> None:
    """Upstream leaves them out together, and saves them as null."""
    from assay.impl.model.geometry import read_geometry

    text = {**GEOMETRIES["small"], "layer_types": ["linear_attention"] * 4}
    for name in text:
        if name.startswith("indexer_"):
            text[name] = None
    assert read_geometry(text).kinds == ("gdn",) * 4


def test_primes_are_bounded_over_all_layers() -> None:
    from assay.impl.model.geometry import read_geometry

    config = {**GEOMETRIES["small"], "heads_per_ngram": 300, "ple_embed_dim": 600, "ple_layer_ids": [1, 2]}
    assert_refused("model.config", "config.json: heads_per_ngram", lambda: read_geometry(config))


@pytest.mark.parametrize("seed", [2**40, -1])
def test_any_seed_that_the_hash_wraps_is_legal(seed: int) -> None:
    from assay.impl.model.geometry import read_geometry

    assert read_geometry({**GEOMETRIES["small"], "seed": seed}).seed == seed


def test_an_absent_gate_falls_back_to_the_activation() -> None:
    """Bug report A16: the field decides, and without it the activation, as upstream has it."""
    from assay.impl.model.geometry import read_geometry

    text = {key: one for key, one in GEOMETRIES["small"].items() if key != "output_gate_type"}
    assert (read_geometry(text).gate, read_geometry(GEOMETRIES["small"]).gate) == ("silu", "sigmoid")


def changed(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return folder


def test_weights_of_another_geometry_are_refused_by_name(tmp_path: Path) -> None:
    folder = changed(write_form(tmp_path, "small", "saved"), hc_lowrank=7)
    name = "model.layers.0.attn_hyper_connection.input_mix_weight_down.weight"
    assert_refused("model.tensor", name, lambda: loaded(folder))


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("vocab_size", "model.embed_tokens.weight"),
        ("moe_intermediate_size", "model.layers.0.mlp.experts.0.gate_proj.weight"),
        ("linear_conv_kernel_dim", "model.layers.0.linear_attn.conv1d.weight"),
        ("ple_conv_kernel_size", "model.layers.1.ple.conv1d.weight"),
        ("hc_lowrank", "model.layers.0.attn_hyper_connection.input_mix_weight_down.weight"),
    ],
)
def test_the_largest_size_is_a_finding_like_any_other(field: str, name: str, tmp_path: Path) -> None:
    folder = changed(write_form(tmp_path, "small", "saved"), **{field: 2**31})
    assert_refused("model.tensor", name, lambda: loaded(folder))


@pytest.mark.parametrize("field", ["num_experts", "split_ngram_parts"])
def test_parts_with_names_of_their_own_are_bounded(field: str) -> None:
    from assay.impl.model.geometry import read_geometry

    config = {**GEOMETRIES["small"], field: 2**31}
    assert_refused("model.config", f"config.json: {field}", lambda: read_geometry(config))


def test_no_more_is_looked_for_after_a_thousand_findings(tmp_path: Path) -> None:
    from assay.spec.errors import AdmissionError

    folder = changed(write_form(tmp_path, "small", "saved"), num_experts=2**16)
    with pytest.raises(AdmissionError) as caught:
        loaded(folder)
    assert (len(caught.value.more), caught.value.more[-1].got) == (20, "at least 980 more findings")


def test_a_missing_expert_is_refused_by_name(tmp_path: Path) -> None:
    folder = changed(write_form(tmp_path, "small", "saved"), num_experts=13)
    assert_refused("model.tensor", "model.layers.0.mlp.gate.weight", lambda: loaded(folder))


def test_a_table_with_a_part_missing_is_refused(tmp_path: Path) -> None:
    folder = changed(write_form(tmp_path, "small", "saved"), split_ngram_parts=5)
    name = "model.layers.1.ple.ple_embedding.ngram_embedding.shard_4.weight"
    assert_refused("model.tensor", name, lambda: loaded(folder))


def test_a_configuration_that_forgets_layers_is_refused(tmp_path: Path) -> None:
    """Without the last layer the rest would load, and be another model."""
    folder = changed(
        write_form(tmp_path, "small", "saved"), num_hidden_layers=3, layer_types=["linear_attention"] * 3
    )
    name = "model.layers.3.attn_hyper_connection.block_inject_weight.weight"
    assert_refused("model.tensor", name, lambda: loaded(folder))


def load_altered(**changes: np.ndarray | None) -> Any:
    """Loads the tensors of `small` with these as well, and without those that are None."""
    from assay.impl.model.loader import load_tensors
    from assay.impl.model.numerics import Numerics
    from assay.provenance.captures.mlx_run import rule_tensors

    changed_ones = {**rule_tensors(GEOMETRIES["small"]), **changes}
    tensors = {name: one for name, one in changed_ones.items() if one is not None}
    return load_tensors(GEOMETRIES["small"], tensors, Numerics(is_deterministic=True))


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.3.self_attn.q_proj.bias",
        "model.layers.0.mlp.experts.0.gate_proj.weight",
        "model.layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight",
        "model.norm.weight",
        "layers.0.mlp.gate.weight",
        "model.layers.0.ple.key_proj.weight",
    ],
)
def test_a_tensor_that_nothing_asks_for_is_refused(name: str) -> None:
    assert_refused("model.tensor", name, lambda: load_altered(**{name: np.zeros((2, 2), np.float32)}))


@pytest.mark.parametrize(
    "name", ["model.visual.blocks.0.attn.qkv.weight", "mtp.fc.weight", "model.rotary_emb.inv_freq"]
)
def test_what_is_not_the_text_model_is_left_alone(name: str) -> None:
    load_altered(**{name: np.zeros((2, 2), np.float32)})


def test_all_that_is_wrong_is_told_before_a_weight_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.impl.model.sources import Source
    from assay.spec.errors import AdmissionError

    monkeypatch.setattr(Source, "_bytes", lambda *_: pytest.fail("a weight was read"))
    wrong = {
        "model.layers.0.linear_attn.A_log": None,
        "model.layers.1.ple.ple_embedding.layer_multipliers": np.array([7, 11, 13]),
        "model.layers.3.self_attn.k_proj.weight": np.zeros((1, 1), np.float32),
        "model.layers.9.mlp.gate.weight": np.zeros((1, 1), np.float32),
    }
    with pytest.raises(AdmissionError) as caught:
        load_altered(**wrong)
    found = [(one.code, one.where) for one in (caught.value.finding, *caught.value.more)]
    assert found == [
        ("model.hash-buffers" if name.endswith("multipliers") else "model.tensor", name) for name in wrong
    ]


def test_many_findings_are_counted_after_the_first_twenty() -> None:
    from assay.spec.errors import AdmissionError

    with pytest.raises(AdmissionError) as caught:
        load_altered(**{f"model.layers.{layer}.x": np.zeros(1, np.float32) for layer in range(10, 35)})
    assert (len(caught.value.more), caught.value.more[-1].got) == (20, "5 more findings")


def test_stored_hash_buffers_of_another_seed_are_refused(tmp_path: Path) -> None:
    from assay.impl.model.loader import load_tensors
    from assay.impl.model.numerics import Numerics
    from assay.provenance.captures.mlx_run import rule_tensors

    name = "model.layers.1.ple.ple_embedding.layer_multipliers"
    tensors = {**rule_tensors(GEOMETRIES["small"]), name: np.array([7, 11, 13])}
    assert_refused(
        "model.hash-buffers",
        name,
        lambda: load_tensors(GEOMETRIES["small"], tensors, Numerics(is_deterministic=True)),
    )


def test_a_row_outside_the_table_never_reaches_mlx() -> None:
    import mlx.core as mx

    from assay.impl.model.tables import ResidentRows

    table = ResidentRows(mx.zeros((4, 2)))
    for bad in (4, -1):
        assert_refused("model.tensor", "ple rows", lambda bad=bad: table.ask(np.array([0, bad])))


def test_affine_experts_multiply_as_their_dequantised_matrices() -> None:
    """The packed form gives what the matrices that it stands for give."""
    import mlx.core as mx

    from assay.impl.model.experts import DenseExperts, Packed, PackedExperts

    values = np.random.default_rng(0)
    gate, up = (mx.array(values.standard_normal((3, 64, 128)).astype("f")) for _ in range(2))
    down = mx.array(values.standard_normal((3, 128, 64)).astype("f"))
    packed, dense = [], []
    for matrix in (gate, up, down):
        parts = mx.quantize(matrix, group_size=32, bits=4)
        packed.append(Packed(*parts, 32, 4))
        dense.append(mx.contiguous(mx.dequantize(*parts, group_size=32, bits=4).swapaxes(1, 2)))
    x, owners = mx.array(values.standard_normal((5, 2, 128)).astype("f")), mx.array([0, 2, 1, 1, 0])
    one, other = (
        forms.outputs(x, owners, lambda gate, up: mx.sigmoid(gate) * up)
        for forms in (PackedExperts(*packed), DenseExperts(*dense))
    )
    assert np.allclose(np.array(one), np.array(other), rtol=2e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("model.layers.1.ple.value_proj.weight", "layers.1.ple"),
        ("model.layers.1.attn_hyper_connection.hc_norm.weight", "layers.1.attn_gr_prepare"),
        ("model.layers.0.linear_attn.dt_bias", "layers.0.gdn"),
        ("model.layers.3.self_attn.v_proj.weight", "layers.3.qsa"),
        ("model.layers.2.mlp.gate.weight", "layers.2.router"),
        ("model.layers.2.mlp.shared_expert.up_proj.weight", "layers.2.routed_shared_moe"),
        ("model.hyper_connection_mixer.hc_norm.weight", "final_gr_mixer"),
        ("lm_head.weight", "output_head"),
    ],
)
def test_damaged_weights_are_told_at_the_first_stage_that_meets_them(name: str, where: str) -> None:
    from assay.impl.model.bank import Bank
    from assay.provenance.captures.mlx_run import rule_tensors

    whole = rule_tensors(GEOMETRIES["small"])[name]
    bank = Bank(load_altered(**{name: np.full_like(whole, np.nan)}))
    before = bank.digest()
    assert_refused("model.finite", where, lambda: bank.advance({0: ids("small", 5)}))
    assert bank.digest() == before
