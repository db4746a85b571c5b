"""A conversion is recognised, judged area by area, and never told as a thousand missing fields.

The conversions are made of the miniature's roles, by rules written here: what converters really do to names and shapes.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.checkpoint.foreign_names import _covers, canonical_name, pattern_of
from assay.impl.stores.checkpoint.inventory import InventoryRow
from assay.impl.stores.checkpoint.judge import judge_checkpoint
from assay.impl.stores.checkpoint.writer import PlannedTensor, write_checkpoint
from assay.spec.contract import TensorSpec, expand_tensors
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.profiles import load_profile

PRIVATE = JudgeOptions(is_private=True)
Convert = Callable[[TensorSpec], Iterable[PlannedTensor]]


def convert(folder: Path, rule: Convert, **config: Any) -> Path:
    contract = load_profile("miniature")
    tensors = [tensor for spec in expand_tensors(contract) for tensor in rule(spec)]
    document = {**contract.config.as_file(), **config}
    write_checkpoint(folder, [tensors], files={"config.json": json.dumps(document).encode()})
    return folder


def told(judgement: Judgement) -> list[tuple[str, str]]:
    return [(finding.code, finding.where) for finding in judgement.findings]


def gaps_of_a_sound_conversion(folder: Path) -> list[tuple[str, str]]:
    return [
        ("foreign.conversion", folder.name),
        ("checkpoint.unjudged", "tokenizer"),
        ("checkpoint.unjudged", "tokenizer"),
    ]


def mlx(spec: TensorSpec) -> Iterable[PlannedTensor]:
    """mlx-lm: a nested prefix, switch_mlp experts, transposed convolutions, affine 4-bit in groups of 16 here."""
    name = spec.name.replace("model.language_model.", "language_model.model.").replace(
        "lm_head", "language_model.lm_head"
    )
    if ".conv1d." in name:
        yield PlannedTensor(name, "BF16", (spec.shape[0], spec.shape[2], 1))
    elif spec.group == "routed":
        experts, rows, width = spec.shape
        stem = name.partition(".experts.")[0] + ".switch_mlp."
        parts = ["gate_proj", "up_proj"] if "gate_up" in name else ["down_proj"]
        for part in parts:
            yield from packed(f"{stem}{part}", (experts, rows // len(parts), width))
    elif len(spec.shape) == 2 and spec.shape[1] % 16 == 0 and spec.dtype == "BF16":
        yield from packed(name.removesuffix(".weight"), spec.shape)
    else:
        yield PlannedTensor(name, spec.dtype, spec.shape)


def packed(stem: str, shape: tuple[int, ...]) -> Iterable[PlannedTensor]:
    *outer, width = shape
    yield PlannedTensor(f"{stem}.weight", "U32", (*outer, width // 8))
    yield PlannedTensor(f"{stem}.scales", "BF16", (*outer, width // 16))
    yield PlannedTensor(f"{stem}.biases", "BF16", (*outer, width // 16))


def test_an_mlx_conversion_is_open_with_every_area_judged(tmp_path: Path) -> None:
    folder = convert(tmp_path / "mlx", mlx, quantization={"group_size": 16, "bits": 4})
    judgement = judge_checkpoint(folder, PRIVATE)
    assert told(judgement) == gaps_of_a_sound_conversion(folder)
    assert judgement.facts["conversion"] == "an MLX conversion"
    assert judgement.areas == {
        "config": "accepted", "hash": "accepted", "index": "accepted", "headers": "accepted", "inventory": "accepted",
        "tokenizer": "inconclusive",
    }  # fmt: skip
    assert judgement.facts["config_fields_added"] == ["quantization"]
    assert any(text.startswith("excluded tensors") for text in judgement.not_checked)


def test_the_codecs_and_the_real_bits_per_weight_are_reported(tmp_path: Path) -> None:
    """4 bits and two 16-bit numbers for 16 weights make 6 bits; the parts that stay 16-bit lift the mean a little."""
    judgement = judge_checkpoint(convert(tmp_path / "mlx", mlx), PRIVATE)
    assert set(judgement.facts["codecs"]) == {"4-bit in U32 group 16", "BF16", "BF16 transposed", "I64"}
    assert 6.0 < judgement.facts["bits_per_weight"] < 6.5


def test_a_width_that_the_codec_cannot_hold_is_a_wrong_shape(tmp_path: Path) -> None:
    def cut(spec: TensorSpec) -> Iterable[PlannedTensor]:
        for tensor in mlx(spec):
            is_cut = tensor.name == "language_model.lm_head.weight"
            yield PlannedTensor(tensor.name, "U32", (384, 7)) if is_cut else tensor

    faults = judge_checkpoint(convert(tmp_path / "mlx", cut), PRIVATE).faults
    assert [finding.line for finding in faults] == [
        "foreign.shape: lm_head.weight: expected BF16 [384, 64], got U32 [384, 7]: 224 bits for 64 values"
    ]


def test_a_role_that_is_lost_in_one_layer_is_dropped(tmp_path: Path) -> None:
    def drop(spec: TensorSpec) -> Iterable[PlannedTensor]:
        return [] if spec.name.endswith("layers.5.mlp.gate.weight") else mlx(spec)

    faults = judge_checkpoint(convert(tmp_path / "mlx", drop), PRIVATE).faults
    assert [(finding.code, finding.where, finding.got) for finding in faults] == [
        ("foreign.dropped", "model.language_model.layers.N.mlp.gate.weight",
         "7; not model.language_model.layers.5.mlp.gate.weight")
    ]  # fmt: skip


def test_names_that_no_rule_explains_leave_the_role_open(tmp_path: Path) -> None:
    def rename(spec: TensorSpec) -> Iterable[PlannedTensor]:
        return [
            PlannedTensor(t.name.replace(".mlp.gate.", ".moe.router."), t.dtype, t.shape) for t in mlx(spec)
        ]

    judgement = judge_checkpoint(convert(tmp_path / "mlx", rename), PRIVATE)
    assert judgement.faults == []
    assert [row for row in told(judgement) if row[0] == "foreign.unmapped"] == [
        ("foreign.unmapped", "model.language_model.layers.N.mlp.gate.weight"),
        ("foreign.unmapped", "language_model.model.layers.N.moe.router.weight"),
    ]


def fp8(spec: TensorSpec) -> Iterable[PlannedTensor]:
    if len(spec.shape) == 2 and spec.dtype == "BF16" and spec.group == "dense":
        yield PlannedTensor(spec.name, "F8_E4M3", spec.shape)
        yield PlannedTensor(f"{spec.name}_scale_inv", "F32", (1, 1))
    else:
        yield PlannedTensor(spec.name, spec.dtype, spec.shape)


def test_a_requantised_release_is_named_with_its_method(tmp_path: Path) -> None:
    folder = convert(tmp_path / "fp8", fp8, quantization_config={"quant_method": "fp8"})
    judgement = judge_checkpoint(folder, PRIVATE)
    assert judgement.facts["conversion"] == "a re-quantised release (fp8)"
    assert told(judgement) == gaps_of_a_sound_conversion(folder)
    assert judgement.facts["roles_recoded"] > 0
    assert judgement.facts["roles_as_is"] > 0


def unfused(spec: TensorSpec) -> Iterable[PlannedTensor]:
    if spec.group != "routed":
        yield PlannedTensor(spec.name, spec.dtype, spec.shape)
        return
    experts, rows, width = spec.shape
    parts = ["gate_proj", "up_proj"] if "gate_up" in spec.name else ["down_proj"]
    for number in range(experts):
        for part in parts:
            stem = spec.name.rpartition(".")[0]
            yield PlannedTensor(f"{stem}.{number}.{part}.weight", "BF16", (rows // len(parts), width))


def test_a_resave_with_one_tensor_an_expert_is_whole(tmp_path: Path) -> None:
    folder = convert(tmp_path / "resaved", unfused)
    judgement = judge_checkpoint(folder, PRIVATE)
    assert judgement.facts["conversion"] == "a re-save with one tensor an expert"
    assert told(judgement) == gaps_of_a_sound_conversion(folder)


def test_one_missing_expert_of_a_resave_is_dropped(tmp_path: Path) -> None:
    def drop(spec: TensorSpec) -> Iterable[PlannedTensor]:
        return [t for t in unfused(spec) if "layers.0.mlp.experts.7.up_proj" not in t.name]

    judgement = judge_checkpoint(convert(tmp_path / "resaved", drop), PRIVATE)
    assert [(finding.code, finding.where) for finding in judgement.faults] == [
        ("foreign.dropped", "model.language_model.layers.N.mlp.experts.gate_up_proj")
    ]


def test_a_wrong_field_of_a_conversion_rejects_it_and_a_dropped_field_does_not(tmp_path: Path) -> None:
    folder = convert(tmp_path / "mlx", mlx)
    config = json.loads((folder / "config.json").read_text())
    del config["vision_config"]
    config["text_config"]["output_gate_type"] = "silu"
    (folder / "config.json").write_text(json.dumps(config))
    judgement = judge_checkpoint(folder, PRIVATE)
    assert [(finding.code, finding.where) for finding in judgement.faults] == [
        ("config.value", "config.json: text_config.output_gate_type")
    ]
    assert any(
        f.stage == "config" and "1 pinned fields are not in it: vision_config" in f.got
        for f in judgement.gaps
    )


def test_another_family_is_said_to_be_one_in_two_lines(tmp_path: Path) -> None:
    config = {
        "model_type": "qwen3_5_moe",
        "text_config": {"model_type": "qwen3_5_moe_text", "hidden_size": 2048},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    judgement = judge_checkpoint(tmp_path, JudgeOptions())
    assert [(finding.code, finding.where) for finding in judgement.faults] == [
        ("config.family", "config.json: model_type"),
        ("config.family", "config.json: text_config.model_type"),
    ]
    assert judgement.facts["conversion"] == "a checkpoint of another family, qwen3_5_moe"
    assert any(text.startswith("inventory") for text in judgement.not_checked)


def test_hash_buffers_of_32_bits_are_refused_by_type_in_a_conversion_too(tmp_path: Path) -> None:
    def narrow(spec: TensorSpec) -> Iterable[PlannedTensor]:
        return [PlannedTensor(t.name, "I32" if t.dtype == "I64" else t.dtype, t.shape) for t in mlx(spec)]

    faults = judge_checkpoint(convert(tmp_path / "mlx", narrow), PRIVATE).faults
    name = "model.language_model.layers.1.ple.ple_embedding.layer_multipliers"
    assert faults[0].line == f"foreign.shape: {name}: expected I64 [3], got I32 [3]"
    assert len(faults) == 3


@pytest.mark.parametrize(
    ("stored", "ours"),
    [
        ("language_model.model.layers.0.mlp.gate.weight", "model.language_model.layers.0.mlp.gate"),
        ("model.layers.0.mlp.gate.weight", "model.language_model.layers.0.mlp.gate"),
        ("language_model.lm_head.weight", "lm_head"),
        (
            "model.language_model.layers.3.self_attn.q_proj.weight_packed",
            "model.language_model.layers.3.self_attn.q_proj",
        ),
    ],
)
def test_the_names_of_conversions_lead_back_to_ours(stored: str, ours: str) -> None:
    assert canonical_name(stored) == ours


def test_a_pattern_has_n_for_layers_and_shards_but_keeps_names_with_digits() -> None:
    assert pattern_of("a.layers.12.ple.shard_127.weight") == "a.layers.N.ple.shard_N.weight"
    assert pattern_of("conv1d.weight") == "conv1d.weight"


def test_a_conversion_without_one_of_its_shards_has_an_open_inventory(tmp_path: Path) -> None:
    folder = convert(tmp_path / "fp8", fp8, quantization_config={"quant_method": "fp8"})
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["lm_head.weight"] = "model-00002-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    judgement = judge_checkpoint(folder, PRIVATE)
    assert ("files.missing", "model-00002-of-00002.safetensors") in told(judgement)
    assert judgement.areas["inventory"] != "accepted"


def test_a_parameter_stored_as_f16_leaves_its_role_open(tmp_path: Path) -> None:
    def narrow(spec: TensorSpec) -> Iterable[PlannedTensor]:
        for tensor in fp8(spec):
            is_norm = tensor.name.endswith("ple.norm_conv.weight")
            yield PlannedTensor(tensor.name, "F16" if is_norm else tensor.dtype, tensor.shape)

    judgement = judge_checkpoint(convert(tmp_path / "fp8", narrow), PRIVATE)
    assert ("foreign.retyped", "model.language_model.layers.N.ple.norm_conv.weight") in told(judgement)
    assert judgement.areas["inventory"] == "inconclusive"


@pytest.mark.parametrize(
    ("shape", "is_held"),
    [((64, 48), True), ((), True), ((64,), True), ((64, 1), True), ((2, 3), True), ((3, 64), False), ((48, 64), False),
     ((1, 64, 2, 3), False), ((0, 1), False)],
)  # fmt: skip
def test_scales_must_be_able_to_cover_their_weight(shape: tuple[int, ...], is_held: bool) -> None:
    scale = InventoryRow("a.weight_scale_inv", "F32", shape, "s", 0, 4)
    assert _covers(scale, (64, 48), None) is is_held


def test_scales_of_blocks_must_have_the_block_that_the_config_states() -> None:
    scale = InventoryRow("a.weight_scale_inv", "F32", (2, 2), "s", 0, 16)
    assert _covers(scale, (64, 48), (32, 32))
    assert not _covers(scale, (64, 48), (16, 16))
