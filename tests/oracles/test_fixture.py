"""The fixture's tensors are put together from the numbered roles that its facts name."""

import numpy as np
import pytest
from oracle_toys import assert_refused

from assay.oracles import weights
from assay.oracles.fixture import FixtureWeights, fixture_geometry

LAYER = "model.language_model.layers."
ROLES = {
    "model.language_model.embed_tokens.weight": 100,
    "model.language_model.hyper_connection_mixer.hc_norm.weight": 1420,
    "model.language_model.hyper_connection_mixer.input_mix_weight_up.weight": 1422,
    f"{LAYER}0.attn_hyper_connection.hc_norm.weight": 1000,
    f"{LAYER}2.attn_hyper_connection.input_mix_weight_down.weight": 1201,
    f"{LAYER}3.mlp_hyper_connection.block_inject_weight.weight": 1313,
    f"{LAYER}1.ple.key_proj.weight": 2001,
    f"{LAYER}1.ple.value_proj.weight": 2002,
    f"{LAYER}1.ple.norm_key.weight": 2003,
    f"{LAYER}1.ple.norm_query.weight": 2004,
    f"{LAYER}1.ple.norm_conv.weight": 2005,
    f"{LAYER}1.ple.conv1d.weight": 2006,
    f"{LAYER}0.linear_attn.in_proj_qkv.weight": 3000,
    f"{LAYER}1.linear_attn.in_proj_z.weight": 3021,
    f"{LAYER}1.linear_attn.in_proj_b.weight": 3022,
    f"{LAYER}1.linear_attn.in_proj_a.weight": 3023,
    f"{LAYER}2.linear_attn.conv1d.weight": 3044,
    f"{LAYER}2.linear_attn.A_log": 3045,
    f"{LAYER}2.linear_attn.dt_bias": 3046,
    f"{LAYER}2.linear_attn.out_proj.weight": 3048,
    f"{LAYER}3.self_attn.k_proj.weight": 4001,
    f"{LAYER}3.self_attn.v_proj.weight": 4002,
    f"{LAYER}3.self_attn.indexer.q_layernorm.weight": 4006,
    f"{LAYER}3.self_attn.indexer.k_layernorm.weight": 4007,
    f"{LAYER}3.self_attn.o_proj.weight": 4009,
    f"{LAYER}3.self_attn.q_norm.weight": 4010,
    f"{LAYER}3.self_attn.k_norm.weight": 4011,
    f"{LAYER}2.mlp.gate.weight": 5002,
    f"{LAYER}1.mlp.shared_expert.gate_proj.weight": 15010,
    f"{LAYER}1.mlp.shared_expert.up_proj.weight": 15011,
    f"{LAYER}1.mlp.shared_expert.down_proj.weight": 15012,
    f"{LAYER}1.mlp.shared_expert_gate.weight": 15013,
    "lm_head.weight": 17000,
}
"""Facts 4.1, for the tensors that are one role each."""


def values(role: int, count: int) -> list[float]:
    return weights.values(role, 0, count).tolist()


@pytest.mark.parametrize("name", ROLES)
def test_a_tensor_of_one_role(name: str) -> None:
    found = FixtureWeights().tensor(name)
    assert found.ravel().tolist() == values(ROLES[name], found.size)


def test_the_gated_norm_is_one_and_the_value() -> None:
    found = FixtureWeights().tensor(f"{LAYER}1.linear_attn.norm.weight")
    assert found.tolist() == (np.float32(1) + weights.values(3027, 0, 2)).tolist()


def test_queries_and_gates_alternate_by_head() -> None:
    """Two heads of two: query rows of head 0, gate rows of head 0, then head 1."""
    found = FixtureWeights().tensor(f"{LAYER}3.self_attn.q_proj.weight").reshape(4, 8)
    query, gate = values(4000, 16), values(4003, 16)
    assert found.tolist() == [query[:8], gate[:8], query[8:], gate[8:]]


def test_index_queries_stand_before_the_raw_key() -> None:
    found = FixtureWeights().tensor(f"{LAYER}3.self_attn.indexer.index_qk_proj.weight")
    assert found.ravel().tolist() == values(4004, 16) + values(4005, 8)


def test_an_expert_has_three_roles_and_the_gate_stands_first() -> None:
    """Layer 2, expert 511: 6000 + 4000 + 1533 = 11533."""
    fused = FixtureWeights().tensor(f"{LAYER}2.mlp.experts.gate_up_proj")[511]
    assert fused.ravel().tolist() == values(11533, 12) + values(11534, 12)
    down = FixtureWeights().tensor(f"{LAYER}2.mlp.experts.down_proj")[511]
    assert down.ravel().tolist() == values(11535, 12)


def test_table_rows_are_one_value_wide() -> None:
    assert FixtureWeights().ple_rows(1, [0, 749]).ravel().tolist() == [
        values(2000, 1)[0],
        float(weights.values(2000, 749, 1)[0]),
    ]
    assert_refused("oracle.argument.domain", "layer", lambda: FixtureWeights().ple_rows(2, [0]))


def test_the_geometry_is_that_of_the_facts() -> None:
    dims = fixture_geometry()
    assert (dims.hidden, dims.streams, dims.rank, dims.physical_rows) == (4, 4, 2, 13)
    assert (dims.gdn_channels, dims.budget_groups, dims.selection_width) == (10, 2, 11)
    assert (dims.experts, dims.experts_used, dims.expert_width) == (512, 10, 3)
