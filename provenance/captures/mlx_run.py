"""Runs the MLX model over the inputs of a shipped capture, in the same calls, and files what it says by rung.

The weights come from the capture's own statement of its rule, under upstream's names and in upstream's form of storing
experts and table, so that the loader is part of what is judged.
"""

from collections.abc import Sequence
from typing import Any, Final

from numpy.typing import NDArray

from assay.impl.model import state
from assay.impl.model.bank import Bank
from assay.impl.model.dump import Arrays, Recording
from assay.impl.model.geometry import Geometry, read_geometry
from assay.impl.model.graph import Model
from assay.impl.model.loader import load_tensors
from assay.impl.model.numerics import Numerics
from assay.impl.model.ple import derive_hash
from assay.impl.model.trace import Recorder
from assay.provenance.captures.weights import named_weight, role_weight
from assay.spec.documents.capture import Producer
from assay.spec.documents.fixture import Fixture

PRODUCER: Final = Producer(name="assay.impl.model", detail="MLX, float32, deterministic reductions")


def fixture_model(fixture: Fixture, numerics: Numerics) -> Model:
    """Returns the MLX model of a capture's geometry with the weights of its rule."""
    return rule_model(fixture.configuration, numerics, by_role=fixture.weights.rule == "counter-by-role")


def rule_model(config: dict[str, Any], numerics: Numerics, *, by_role: bool = False) -> Model:
    """Returns the MLX model of any configuration with weights by the counter rule."""
    return load_tensors(config, rule_tensors(config, by_role=by_role), numerics)


def rule_tensors(config: dict[str, Any], *, by_role: bool = False) -> dict[str, NDArray[Any]]:
    """Returns every tensor of a configuration by the counter rule, under upstream's parameter names."""
    shapes = parameter_shapes(read_geometry(config))
    if by_role:
        return {name: role_weight(name, shape, config) for name, shape in shapes.items()}
    parts = config["split_ngram_parts"]
    return {name: named_weight(name, shape, parts) for name, shape in shapes.items()}


def run_case(model: Model, fixture: Fixture) -> tuple[Arrays, state.State]:
    """Runs a case as upstream was run: all rows of the batch, call by call, padding on the left.

    Returns:
        The arrays of the recorded row from its first token on, and its state after the last one.
    """
    run = fixture.run
    longest = max(map(len, run.rows))
    ids = [[run.pad_id] * (longest - len(row)) + list(row) for row in run.rows]
    seen = [[False] * (longest - len(row)) + [True] * len(row) for row in run.rows]
    bank, recording, start = Bank(model, len(run.rows)), Recording(), 0
    for width in run.partition:
        stop = start + width
        slots = [slot for slot in range(len(ids)) if any(seen[slot][start:stop])]
        recorder = Recorder()
        bank.advance_padded(
            slots, [ids[slot][start:stop] for slot in slots], [seen[slot][start:stop] for slot in slots],
            recorder, every_logit=True,
        )  # fmt: skip
        if run.row in slots:
            lengths = [sum(seen[slot][start:stop]) for slot in slots]
            recording.add(recorder, lengths, slots.index(run.row))
        start = stop
    after = bank.state(run.row)
    return recording.arrays(after), after


def run_tokens(model: Model, tokens: Sequence[int], partition: Sequence[int]) -> tuple[Arrays, state.State]:
    """Runs one sequence in the given calls and returns its arrays and state."""
    bank, recording, start = Bank(model), Recording(), 0
    for width in partition:
        recorder = Recorder()
        bank.advance({0: list(tokens[start : start + width])}, recorder, every_logit=True)
        recording.add(recorder, [width])
        start += width
    return recording.arrays(bank.state()), bank.state()


def parameter_shapes(g: Geometry) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of upstream's parameters by name, experts fused and each embedding table in one."""
    found: dict[str, tuple[int, ...]] = {
        "lm_head.weight": (g.physical_rows, g.hidden),
        "model.embed_tokens.weight": (g.physical_rows, g.hidden),
        **_mixer("model.hyper_connection_mixer.", g),
    }
    for layer, kind in enumerate(g.kinds):
        name = f"model.layers.{layer}."
        for part in ("attn_hyper_connection.", "mlp_hyper_connection."):
            found |= _mixer(name + part, g)
            found[f"{name}{part}block_inject_weight.weight"] = (g.streams, g.wide)
        found |= _gdn(f"{name}linear_attn.", g) if kind == "gdn" else _qsa(f"{name}self_attn.", g)
        found |= {
            f"{name}mlp.gate.weight": (g.experts, g.hidden),
            f"{name}mlp.experts.gate_up_proj": (g.experts, 2 * g.expert_width, g.hidden),
            f"{name}mlp.experts.down_proj": (g.experts, g.hidden, g.expert_width),
            f"{name}mlp.shared_expert.gate_proj.weight": (g.shared_width, g.hidden),
            f"{name}mlp.shared_expert.up_proj.weight": (g.shared_width, g.hidden),
            f"{name}mlp.shared_expert.down_proj.weight": (g.hidden, g.shared_width),
            f"{name}mlp.shared_expert_gate.weight": (1, g.hidden),
        }
        if layer in g.ple_layers:
            rows = derive_hash(g, g.ple_layers.index(layer)).padded_rows
            found |= _ple(f"{name}ple.", g, rows)
    return found


def _mixer(name: str, g: Geometry) -> dict[str, tuple[int, ...]]:
    return {
        f"{name}hc_norm.weight": (g.wide,),
        f"{name}input_mix_weight_down.weight": (g.rank, g.wide),
        f"{name}input_mix_weight_up.weight": (g.wide, g.rank),
    }


def _gdn(name: str, g: Geometry) -> dict[str, tuple[int, ...]]:
    width = g.value_heads * g.value_dim
    return {
        f"{name}in_proj_qkv.weight": (g.channels, g.hidden),
        f"{name}in_proj_z.weight": (width, g.hidden),
        f"{name}in_proj_a.weight": (g.value_heads, g.hidden),
        f"{name}in_proj_b.weight": (g.value_heads, g.hidden),
        f"{name}conv1d.weight": (g.channels, 1, g.kernel),
        f"{name}A_log": (g.value_heads,),
        f"{name}dt_bias": (g.value_heads,),
        f"{name}norm.weight": (g.value_dim,),
        f"{name}out_proj.weight": (g.hidden, width),
    }


def _qsa(name: str, g: Geometry) -> dict[str, tuple[int, ...]]:
    width, keys = g.heads * g.head_dim, g.kv_heads * g.head_dim
    return {
        f"{name}q_proj.weight": (2 * width, g.hidden),
        f"{name}k_proj.weight": (keys, g.hidden),
        f"{name}v_proj.weight": (keys, g.hidden),
        f"{name}o_proj.weight": (g.hidden, width),
        f"{name}q_norm.weight": (g.head_dim,),
        f"{name}k_norm.weight": (g.head_dim,),
        f"{name}indexer.index_qk_proj.weight": ((g.index_heads + 1) * g.index_dim, g.hidden),
        f"{name}indexer.q_layernorm.weight": (g.index_dim,),
        f"{name}indexer.k_layernorm.weight": (g.index_dim,),
    }


def _ple(name: str, g: Geometry, rows: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{name}key_proj.weight": (g.wide, g.ple_embedding),
        f"{name}value_proj.weight": (g.hidden, g.ple_embedding),
        f"{name}norm_key.weight": (g.wide,),
        f"{name}norm_query.weight": (g.wide,),
        f"{name}norm_conv.weight": (g.wide,),
        f"{name}conv1d.weight": (g.wide, 1, g.ple_kernel),
        f"{name}ple_embedding.ngram_embedding.weight": (rows, g.ple_embedding // g.ple_heads),
    }
