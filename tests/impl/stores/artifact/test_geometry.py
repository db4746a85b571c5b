"""The builder's own tensor list agrees with the contract's roles and with the oracles' shapes."""

import copy
from typing import Any

import pytest

from assay.impl.stores.artifact.geometry import dense_shapes, hash_values, read_geometry, routed_shapes
from assay.oracles.geometry import from_config
from assay.oracles.tensors import shapes
from assay.provenance.captures.geometries import GEOMETRIES
from assay.spec.contract import expand_tensors
from assay.spec.errors import ContractError
from assay.spec.profiles import load_profile


@pytest.mark.parametrize("profile", ["qwen4exp", "miniature"])
def test_dense_and_routed_tensors_are_the_contracts(profile: str) -> None:
    contract = load_profile(profile)
    geometry = read_geometry(contract.config.as_file())
    specs = expand_tensors(contract)
    assert dense_shapes(geometry) == {one.name: one.shape for one in specs if one.owner == "dense"}
    assert routed_shapes(geometry) == {one.name: one.shape for one in specs if one.group == "routed"}
    assert {name: (len(values),) for name, values in hash_values(geometry).items()} == {
        one.name: one.shape for one in specs if one.group == "ple-hash"
    }


@pytest.mark.parametrize("name", [name for name in GEOMETRIES if name != "two-ple"])
def test_every_shape_is_the_oracles(name: str) -> None:
    geometry = read_geometry(GEOMETRIES[name])
    assert {**dense_shapes(geometry), **routed_shapes(geometry)} == shapes(from_config(GEOMETRIES[name]))


def test_the_published_hash_values_follow() -> None:
    geometry = read_geometry(load_profile("qwen4exp").config.as_file())
    values = list(hash_values(geometry).values())
    assert values[0] == (23703573157769, 20109073645365, 8052911324071)
    assert (values[1][15], values[2][15]) == (300001275, 20000171)


def test_a_tied_output_matrix_is_not_stored() -> None:
    text = {**GEOMETRIES["small"], "tie_word_embeddings": True}
    assert "lm_head.weight" not in dense_shapes(read_geometry(text))


def test_biases_of_full_attention_are_stored_when_the_configuration_has_them() -> None:
    with_bias = set(dense_shapes(read_geometry({**GEOMETRIES["small"], "attention_bias": True})))
    stem = "model.language_model.layers.3.self_attn."
    assert with_bias - set(dense_shapes(read_geometry(GEOMETRIES["small"]))) == {
        f"{stem}{name}_proj.bias" for name in ("q", "k", "v", "o")
    }


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        ("hidden_size", None, "text_config.hidden_size"),
        ("hidden_size", 24.0, "text_config.hidden_size"),
        ("hidden_size", True, "text_config.hidden_size"),
        ("vocab_size", 1 << 40, "text_config.vocab_size"),
        ("layer_types", ["linear_attention"], "text_config.layer_types"),
        ("layer_types", ["mamba"] * 4, "text_config.layer_types[0]"),
        ("layer_types", ["linear_attention", [], {}, None], "text_config.layer_types[1]"),
        ("layer_types", None, "text_config.layer_types"),
        ("ple_layer_ids", [2, 4], "text_config.ple_layer_ids"),
        ("ple_layer_ids", [9], "text_config.ple_layer_ids[0]"),
        ("seed", -1, "text_config.seed"),
        ("seed", 1 << 32, "text_config.seed"),
    ],
)
def test_a_configuration_that_gives_no_geometry_is_refused_by_key(key: str, value: Any, where: str) -> None:
    text = copy.deepcopy(GEOMETRIES["small"])
    text[key] = value
    with pytest.raises(ContractError) as caught:
        read_geometry(text)
    assert (caught.value.finding.code, caught.value.finding.where) == ("private.geometry", where)
