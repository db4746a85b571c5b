"""What `save_pretrained` of the pinned upstream writes can be built, and every value of the model is in the artifact."""

from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.artifact.build import build_artifact
from assay.impl.stores.artifact.judge import judge_gguf_path
from assay.impl.stores.artifact.opened import Artifact
from assay.impl.stores.artifact.origin import BuildRefusedError
from assay.impl.stores.artifact.source import artifact_name
from assay.impl.stores.artifact.tensors import ArtifactTensors
from assay.provenance.captures.geometries import GEOMETRIES
from assay.spec.judgement import JudgeOptions
from assay.spec.profiles import load_profile
from assay.spec.verdicts import Verdict

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

ODD = {
    "num_hidden_layers": 5, "layer_types": ["linear_attention"] * 4 + ["full_attention"], "ple_layer_ids": [4],
    "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 22, "vocab_size": 51, "seed": 7,
    "ngram_size": 2, "heads_per_ngram": 3, "ple_embed_dim": 21, "ngram_vocab_size_base": 31, "split_ngram_parts": 1,
}  # fmt: skip
SIZES = {
    "plain": {}, "odd": ODD, "bias": {"attention_bias": True}, "one-expert": {"num_experts": 1, "num_experts_per_tok": 1},
    "two-streams": {"hc_count": 2, "hc_lowrank": 1}, "tied": {"tie_word_embeddings": True},
    "large-seed": {"seed": (1 << 32) - 1},
}  # fmt: skip


def saved(folder: Path, config: Any, model_class: Any, dtype: str, shard: str = "5GB") -> dict[str, bytes]:
    """Saves a small model as upstream does and returns the bytes of its values by their names in an artifact."""
    torch.manual_seed(11)
    model = model_class(config).to(getattr(torch, dtype))
    model.save_pretrained(folder, max_shard_size=shard)
    return {
        artifact_name(name): value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for name, value in model.state_dict().items()
    }


def text_model(
    folder: Path, sizes: dict[str, Any], dtype: str = "bfloat16", shard: str = "5GB"
) -> dict[str, bytes]:
    from transformers.models.qwen4_exp import configuration_qwen4_exp as configuration
    from transformers.models.qwen4_exp import modeling_qwen4_exp as modeling

    config = configuration.Qwen4ExpTextConfig(**{**GEOMETRIES["small"], **sizes})
    return saved(folder, config, modeling.Qwen4ExpForCausalLM, dtype, shard)


def held(path: Path) -> dict[str, bytes]:
    assert judge_gguf_path(path, JudgeOptions(is_private=True, with_payload=True)).verdict is Verdict.ACCEPTED
    with Artifact.open(path, is_private=True) as artifact:
        tensors = ArtifactTensors(artifact)
        return {name: tensors.read(name) for name in tensors.rows}


@pytest.mark.parametrize("name", SIZES)
def test_a_text_model_of_any_geometry_is_in_its_artifact_bit_by_bit(name: str, tmp_path: Path) -> None:
    values = text_model(tmp_path / "saved", SIZES[name])
    build_artifact(tmp_path / "saved", tmp_path / "x.gguf")
    found = held(tmp_path / "x.gguf")
    wanted = {one: data for one, data in values.items() if one != "lm_head.weight" or name != "tied"}
    assert found.keys() == wanted.keys()
    assert [one for one in found if found[one] != wanted[one]] == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shards_and_types_make_no_difference(dtype: str, tmp_path: Path) -> None:
    values = text_model(tmp_path / "saved", {}, dtype, "20KB")
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 5
    build_artifact(tmp_path / "saved", tmp_path / "x.gguf")
    assert held(tmp_path / "x.gguf") == values


def test_experts_of_16_bit_floats_are_refused_by_name(tmp_path: Path) -> None:
    text_model(tmp_path / "saved", {}, "float16")
    with pytest.raises(BuildRefusedError) as caught:
        build_artifact(tmp_path / "saved", tmp_path / "x.gguf")
    assert {(one.code, one.got) for one in caught.value.findings} == {("build.source.dtype", "F16")}
    first = "model.safetensors: model.language_model.layers.0.mlp.experts.0.gate_proj.weight"
    assert caught.value.findings[0].where == first.replace("language_model.", "")


@pytest.mark.parametrize(("at_top", "in_text"), [(True, False), (False, True), (True, True)])
def test_a_model_with_images_is_built_without_them_and_its_top_says_whether_it_is_tied(
    at_top: bool, in_text: bool, tmp_path: Path
) -> None:
    from transformers.models.qwen4_exp import configuration_qwen4_exp as configuration
    from transformers.models.qwen4_exp import modeling_qwen4_exp as modeling

    fields = load_profile("miniature").config.as_file()
    fields["tie_word_embeddings"], fields["text_config"]["tie_word_embeddings"] = at_top, in_text
    config = configuration.Qwen4ExpConfig(**fields)
    values = saved(tmp_path / "saved", config, modeling.Qwen4ExpForConditionalGeneration, "bfloat16")
    build_artifact(tmp_path / "saved", tmp_path / "x.gguf")
    found = held(tmp_path / "x.gguf")
    assert ("lm_head.weight" in found) is not at_top
    excluded = {one for one in values if one.startswith("model.visual.")}
    assert len(excluded) > 10
    assert found.keys() | excluded | ({"lm_head.weight"} if at_top else set()) == values.keys()
    assert [one for one in found if found[one] != values[one]] == []
