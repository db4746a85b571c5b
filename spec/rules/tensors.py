"""Rules of the tensor roles: shapes from the configuration, names once, totals, norms and facts of the graph."""

from collections import Counter
from typing import Final

from assay.spec.contract.contract import Contract
from assay.spec.contract.tensor_roles import Role
from assay.spec.contract.tensors import DTYPE_BYTES, FULL, LINEAR, expand_tensors
from assay.spec.rules.base import CONFIG, Check, Judge, rule

ROLES: Final = rule(
    "roles.set",
    "The roles are exactly those of the model class, in the order of their names, with weight leaves where the class has modules.",
    cause="A role was dropped, added, renamed or moved; a loader then reports it as a missing or stray tensor.",
    source="transformers, names of the model class's state",
)
SHAPE: Final = rule(
    "roles.shape",
    "Every role's shape follows from the configuration.",
    cause="A dimension was transposed, or a size was changed in the configuration alone.",
    source=CONFIG,
)
DTYPE: Final = rule(
    "roles.dtype",
    "Weights are BF16; the three buffers of the hash are I64.",
    cause="A conversion wrote buffers as floats or weights in another width.",
)
SHARD_COUNT: Final = rule(
    "roles.ple-shards",
    "The embedding table has split_ngram_parts shards, and every other role of the embedding occurs once.",
    cause="A conversion merged or re-split the table.",
    source=CONFIG,
)
UNIQUE: Final = rule(
    "roles.unique",
    "The expanded names are distinct.",
    cause="Two roles expand to one name.",
)
BASE_TOTAL: Final = rule(
    "roles.base-total",
    "The roles expand to the expected number of base tensors: globals, layers by type, and the embedding.",
    cause="A role or a layer was dropped.",
)
PLE_LAYER: Final = rule(
    "roles.ple-layer",
    "The pattern of the embedding is the base prefix and its runtime layer.",
    cause="The one-based configuration number was used in a name.",
)
CLASSIFICATION: Final = rule(
    "totals.classification",
    "Base, draft-head and vision tensors add up to the source's count; the embedding is counted inside the base.",
    cause="The embedding was counted twice.",
)
BYTES: Final = rule(
    "totals.bytes",
    "Bytes of the roles and of the excluded tensors add up to the source's bytes, in total and by dtype.",
    cause="A total kept from another release.",
)
SHARDS: Final = rule(
    "totals.shards",
    "Shards are numbered 1 to their count, and their sizes add up to payload, headers and eight bytes each.",
    cause="A shard of another upload.",
)
FILES: Final = rule(
    "totals.files",
    "Digests are distinct: no two pinned files, shards or sources share one.",
    cause="A digest was pasted over another.",
)
NORM_CLASS: Final = rule(
    "norms.classified",
    "Every norm weight of the roles stands in exactly one of the two lists of conventions.",
    cause="A norm was added to neither or to both; adding one to the wrong norm gives another model.",
    source="transformers, the two norm classes of the family",
)
NORM_KNOWN: Final = rule(
    "norms.known-role",
    "Every entry of the two lists names a norm weight of the roles or of the draft head.",
    cause="A final norm was assumed that the family lacks.",
)
NORM_FORMULA: Final = rule(
    "norms.formula",
    "The zero-centred formula multiplies by (1 + w); the conventional one multiplies by w and by sigmoid(gate).",
    cause="The two conventions were exchanged.",
)
PADDING_ROW: Final = rule(
    "graph.padding-row",
    "The row named as padding is the configured start id, is trained in both tables, and has its evidence.",
    cause="The row was skipped or zeroed because upstream calls it padding.",
)
FINAL_NORM: Final = rule(
    "graph.final-norm",
    "A final norm is present exactly if a global role is a norm outside the mixer; this family has none.",
    cause="A norm added by habit between the last layer and the head.",
)
GATED_RESIDUAL: Final = rule(
    "graph.gated-residual",
    "Injection weights exist, separately for attention and experts, with one row for each stream.",
    cause="One injection shared by both halves of a layer.",
)
ATTENTION: Final = rule(
    "graph.attention",
    "Names and shapes show a gate inside q_proj, a norm per head, the indexer inside attention; text positions have a row for text and one for each rotary axis.",
    cause="Facts of a sister family.",
)
GDN: Final = rule(
    "graph.gdn",
    "Names and shapes show equal query and key widths, a separate z projection, no convolution bias, and decay parameters for each value head.",
    cause="Facts of a sister family that fuses these projections.",
)
MOE: Final = rule(
    "graph.moe",
    "Names and shapes show fused expert tensors and a one-row gate of the shared expert; the router's softmax is float32.",
    cause="A conversion that unfused the experts.",
)


def _expected_roles(contract: Contract) -> dict[str, dict[str, tuple[int, ...]]]:
    """Returns list name -> path -> shape, from the configuration alone."""
    text = contract.config.text
    hidden, wide, low = text.hidden_size, text.hidden_size * text.hc_count, text.hc_lowrank
    experts, width, shared = (
        text.num_experts,
        text.moe_intermediate_size,
        text.shared_expert_intermediate_size,
    )
    value_heads = text.linear_num_value_heads
    value_width = value_heads * text.linear_value_head_dim
    channels = 2 * text.linear_num_key_heads * text.linear_key_head_dim + value_width
    query, keys = text.num_attention_heads * text.head_dim, text.num_key_value_heads * text.head_dim
    index = (text.indexer_n_heads + text.indexer_kv_heads) * text.indexer_head_dim
    heads = (text.ngram_size - 1) * text.heads_per_ngram
    prefix = contract.tensor_roles.base_prefix
    layer, ple = f"{prefix}layers.N.", contract.tensor_roles.ple_layer_pattern

    def mixer(name: str) -> dict[str, tuple[int, ...]]:
        return {
            f"{name}.hc_norm": (wide,),
            f"{name}.input_mix_weight_down": (low, wide),
            f"{name}.input_mix_weight_up": (wide, low),
        }

    def half(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{layer}{name}.block_inject_weight": (text.hc_count, wide), **mixer(f"{layer}{name}")}

    return {
        "global_roles": {
            "lm_head": (text.vocab_size, hidden),
            f"{prefix}embed_tokens": (text.vocab_size, hidden),
            **mixer(f"{prefix}hyper_connection_mixer"),
        },
        "layer_roles": {
            **half("attn_hyper_connection"),
            f"{layer}mlp.experts.down_proj": (experts, hidden, width),
            f"{layer}mlp.experts.gate_up_proj": (experts, 2 * width, hidden),
            f"{layer}mlp.gate": (experts, hidden),
            f"{layer}mlp.shared_expert.down_proj": (hidden, shared),
            f"{layer}mlp.shared_expert.gate_proj": (shared, hidden),
            f"{layer}mlp.shared_expert.up_proj": (shared, hidden),
            f"{layer}mlp.shared_expert_gate": (1, hidden),
            **half("mlp_hyper_connection"),
        },
        "linear_attention_roles": {
            f"{layer}linear_attn.A_log": (value_heads,),
            f"{layer}linear_attn.conv1d": (channels, 1, text.linear_conv_kernel_dim),
            f"{layer}linear_attn.dt_bias": (value_heads,),
            f"{layer}linear_attn.in_proj_a": (value_heads, hidden),
            f"{layer}linear_attn.in_proj_b": (value_heads, hidden),
            f"{layer}linear_attn.in_proj_qkv": (channels, hidden),
            f"{layer}linear_attn.in_proj_z": (value_width, hidden),
            f"{layer}linear_attn.norm": (text.linear_value_head_dim,),
            f"{layer}linear_attn.out_proj": (hidden, value_width),
        },
        "full_attention_roles": {
            f"{layer}self_attn.indexer.index_qk_proj": (index, hidden),
            f"{layer}self_attn.indexer.k_layernorm": (text.indexer_head_dim,),
            f"{layer}self_attn.indexer.q_layernorm": (text.indexer_head_dim,),
            f"{layer}self_attn.k_norm": (text.head_dim,),
            f"{layer}self_attn.k_proj": (keys, hidden),
            f"{layer}self_attn.o_proj": (hidden, query),
            f"{layer}self_attn.q_norm": (text.head_dim,),
            f"{layer}self_attn.q_proj": (2 * query, hidden),
            f"{layer}self_attn.v_proj": (keys, hidden),
        },
        "ple_roles": {
            f"{ple}conv1d": (wide, 1, text.ple_conv_kernel_size),
            f"{ple}key_proj": (wide, text.ple_embed_dim),
            f"{ple}norm_conv": (wide,),
            f"{ple}norm_key": (wide,),
            f"{ple}norm_query": (wide,),
            f"{ple}ple_embedding.layer_multipliers": (text.ngram_size,),
            f"{ple}ple_embedding.ngram_embedding.shard_K": (
                contract.ple_hash.padded_rows // text.split_ngram_parts,
                text.ple_embed_dim // heads,
            ),
            f"{ple}ple_embedding.ngram_heads_offsets": (heads,),
            f"{ple}ple_embedding.ngram_heads_vocab_sizes": (heads,),
            f"{ple}value_proj": (hidden, text.ple_embed_dim),
        },
    }


LEAFLESS: Final = (
    ".experts.down_proj",
    ".experts.gate_up_proj",
    ".A_log",
    ".dt_bias",
    ".layer_multipliers",
    ".ngram_heads_offsets",
    ".ngram_heads_vocab_sizes",
)
HASH_BUFFERS: Final = LEAFLESS[4:]


def roles(contract: Contract, judge: Judge) -> None:
    """Names, leaves, dtypes and shapes of every role."""
    parts, text = contract.tensor_roles, contract.config.text
    judge.equal(ROLES, "tensor_roles.base_prefix", "model.language_model.", parts.base_prefix)
    for name, expected in _expected_roles(contract).items():
        found: tuple[Role, ...] = getattr(parts, name)
        got = [role.path for role in found]
        if got != list(expected):
            missing, extra = sorted(set(expected) - set(got)), sorted(set(got) - set(expected))
            judge.holds(
                ROLES,
                f"tensor_roles.{name}",
                claim=False,
                expected=", ".join(missing) or "this order of names",
                got=", ".join(extra) or f"{len(got)} roles",
            )
        for index, role in enumerate(found):
            where = f"tensor_roles.{name}[{index}]"
            if role.path in expected:
                judge.equal(SHAPE, f"{where}.shape", expected[role.path], role.shape)
            judge.equal(ROLES, f"{where}.leaf", None if role.path.endswith(LEAFLESS) else "weight", role.leaf)
            wanted = "I64" if role.path.endswith(HASH_BUFFERS) else "BF16"
            judge.equal(DTYPE, f"{where}.dtype", wanted, role.dtype)
    for index, ple in enumerate(parts.ple_roles):
        count = text.split_ngram_parts if ple.path.endswith("_K") else 1
        judge.equal(SHARD_COUNT, f"tensor_roles.ple_roles[{index}].count", count, ple.count)
    layer = text.ple_layer_ids[0] - 1
    judge.equal(PLE_LAYER, "tensor_roles.ple_runtime_layer", layer, parts.ple_runtime_layer)
    pattern = f"{parts.base_prefix}layers.{layer}.ple."
    judge.equal(PLE_LAYER, "tensor_roles.ple_layer_pattern", pattern, parts.ple_layer_pattern)


def totals(contract: Contract, judge: Judge) -> None:
    """Counts and bytes add up."""
    parts, excluded = contract.tensor_roles, contract.exclusions
    tensors = expand_tensors(contract)
    repeated = [name for name, count in Counter(one.name for one in tensors).items() if count > 1]
    judge.equal(UNIQUE, "tensor_roles", [], repeated)
    kinds = Counter(contract.config.text.layer_types)
    counted = (
        len(parts.global_roles)
        + len(parts.layer_roles) * contract.config.text.num_hidden_layers
        + len(parts.linear_attention_roles) * kinds[LINEAR]
        + len(parts.full_attention_roles) * kinds[FULL]
        + sum(role.count for role in parts.ple_roles)
    )
    judge.equal(BASE_TOTAL, "tensor_roles.expected_base_tensors", counted, parts.expected_base_tensors)
    judge.equal(BASE_TOTAL, "tensor_roles", parts.expected_base_tensors, len(tensors))
    pins = contract.source_pins
    if pins is None:
        return
    where, classes = "source_pins.classification", pins.classification
    judge.equal(CLASSIFICATION, f"{where}.base", len(tensors), classes.base)
    judge.equal(CLASSIFICATION, f"{where}.ple", sum(role.count for role in parts.ple_roles), classes.ple)
    judge.equal(CLASSIFICATION, f"{where}.vision", excluded.vision_tensors, classes.vision)
    judge.equal(CLASSIFICATION, f"{where}.mtp", excluded.mtp_tensors, classes.mtp)
    judge.equal(
        CLASSIFICATION,
        "source_pins.tensor_count",
        classes.base + classes.mtp + classes.vision,
        pins.tensor_count,
    )
    sizes = Counter({"BF16": excluded.vision_bytes + excluded.mtp_bytes})
    for one in tensors:
        sizes[one.dtype] += one.elements * DTYPE_BYTES[one.dtype]
    judge.equal(BYTES, "source_pins.bytes_by_dtype", dict(sorted(sizes.items())), dict(pins.bytes_by_dtype))
    judge.equal(BYTES, "source_pins.source_bytes", sum(pins.bytes_by_dtype.values()), pins.source_bytes)
    judge.equal(SHARDS, "source_pins.shards", pins.shard_count, len(pins.shards))
    for index, shard in enumerate(pins.shards):
        name = f"model-{index + 1:05d}-of-{pins.shard_count:05d}.safetensors"
        judge.equal(SHARDS, f"source_pins.shards[{index}].name", name, shard.name)
    known = {shard.name for shard in pins.shards}
    for name in pins.header_sha256:
        where = f'source_pins.header_sha256["{name}"]'
        judge.holds(SHARDS, where, name in known, "a pinned shard", name)
    judge.equal(
        SHARDS,
        "source_pins.shard_header_bytes",
        sum(shard.size_bytes for shard in pins.shards) - pins.source_bytes - 8 * pins.shard_count,
        pins.shard_header_bytes,
    )
    digests = [
        *((f'source_pins.files["{name}"].sha256', file.sha256) for name, file in pins.files.items()),
        *(
            (f'source_pins.transformers_sources["{name}"]', one)
            for name, one in pins.transformers_sources.items()
        ),
        *((f"source_pins.shards[{index}].sha256", shard.sha256) for index, shard in enumerate(pins.shards)),
        ("source_pins.inventory_sha256", pins.inventory_sha256),
        *((f'source_pins.header_sha256["{name}"]', one) for name, one in pins.header_sha256.items()),
    ]
    seen: set[str] = set()
    for place, digest in digests:
        judge.holds(FILES, place, digest not in seen, "a digest of its own", digest)
        seen.add(digest)


def norms(contract: Contract, judge: Judge) -> None:
    """Every norm weight has one convention."""
    conventions, parts = contract.norm_conventions, contract.tensor_roles
    lists = (
        parts.global_roles,
        parts.layer_roles,
        parts.linear_attention_roles,
        parts.full_attention_roles,
        parts.ple_roles,
    )
    found = [
        role.path.removeprefix(parts.ple_layer_pattern.removesuffix("ple."))
        .removeprefix(f"{parts.base_prefix}layers.N.")
        .removeprefix(parts.base_prefix)
        for group in lists
        for role in group
        if "norm" in role.path.rsplit(".", 1)[-1]
    ]
    named = Counter((*conventions.zero_centered, *conventions.conventional))
    for role in found:
        judge.equal(NORM_CLASS, f"norm_conventions: {role}", 1, named[role])
    draft = contract.exclusions.mtp_prefix
    for list_name in ("zero_centered", "conventional"):
        for index, role in enumerate(getattr(conventions, list_name)):
            judge.holds(
                NORM_KNOWN,
                f"norm_conventions.{list_name}[{index}]",
                role in found or (role.startswith(draft) and "norm" in role and named[role] == 1),
                "a norm weight of the roles",
                role,
            )
    gated = [role for role in found if role.startswith("linear_attn.")]
    judge.equal(NORM_CLASS, "norm_conventions.conventional", gated, list(conventions.conventional))
    zero, plain = conventions.zero_centered_formula, conventions.conventional_formula
    judge.holds(
        NORM_FORMULA, "norm_conventions.zero_centered_formula", zero.endswith("* (1 + w)"), "(1 + w)", zero
    )
    judge.holds(
        NORM_FORMULA,
        "norm_conventions.conventional_formula",
        plain.startswith("w *") and plain.endswith("* sigmoid(gate)") and "1 + w" not in plain,
        "w * ... * sigmoid(gate)",
        plain,
    )
    judge.equal(NORM_FORMULA, "norm_conventions.rules", 5, len(set(conventions.rules)))


def graph(contract: Contract, judge: Judge) -> None:
    """Facts of the graph that names and shapes can show."""
    facts, text, parts = contract.graph_facts, contract.config.text, contract.tensor_roles
    shapes = {
        role.path.rsplit(".", 1)[-1]: role.shape
        for role in (*parts.layer_roles, *parts.linear_attention_roles, *parts.full_attention_roles)
    }
    paths = [
        role.path for role in (*parts.layer_roles, *parts.linear_attention_roles, *parts.full_attention_roles)
    ]
    row = facts.embedding_padding_row
    judge.equal(PADDING_ROW, "graph_facts.embedding_padding_row.token", text.bos_token_id, row.token)
    for name in ("embed_all_zero", "lm_head_all_zero"):
        judge.equal(PADDING_ROW, f"graph_facts.embedding_padding_row.{name}", False, getattr(row, name))
    judge.equal(PADDING_ROW, "graph_facts.embedding_padding_row.evidence", 3, len(set(row.evidence)))
    present = any(
        "norm" in role.path.rsplit(".", 1)[-1] and "hyper_connection_mixer" not in role.path
        for role in parts.global_roles
    )
    judge.equal(FINAL_NORM, "graph_facts.final_norm.present", present, facts.final_norm.present)
    judge.equal(FINAL_NORM, "graph_facts.final_norm.evidence", 3, len(set(facts.final_norm.evidence)))
    injections = [path for path in paths if path.endswith(".block_inject_weight")]
    residual, where = facts.gated_residual, "graph_facts.gated_residual"
    judge.equal(
        GATED_RESIDUAL, f"{where}.has_block_inject_weight", bool(injections), residual.has_block_inject_weight
    )
    judge.equal(
        GATED_RESIDUAL, f"{where}.attn_and_mlp_separate", len(injections) == 2, residual.attn_and_mlp_separate
    )
    judge.equal(
        GATED_RESIDUAL,
        f"{where}.inject_weight_shape",
        [text.hc_count, text.hc_count * text.hidden_size],
        list(residual.inject_weight_shape),
    )
    attention, where = facts.attention, "graph_facts.attention"
    query = text.num_attention_heads * text.head_dim
    gated = shapes.get("q_proj", (0,))[0] == 2 * query and shapes.get("o_proj", (0, 0))[1] == query
    judge.equal(ATTENTION, f"{where}.query_includes_output_gate", gated, attention.query_includes_output_gate)
    per_head = shapes.get("q_norm") == shapes.get("k_norm") == (text.head_dim,)
    judge.equal(ATTENTION, f"{where}.per_head_qk_norm", per_head, attention.per_head_qk_norm)
    inside = any(".self_attn.indexer." in path for path in paths)
    judge.equal(ATTENTION, f"{where}.indexer_under_self_attn", inside, attention.indexer_under_self_attn)
    judge.equal(
        ATTENTION,
        f"{where}.mrope_position_rows_for_text",
        1 + len(text.rope_parameters.mrope_section),
        attention.mrope_position_rows_for_text,
    )
    gdn, where = facts.gdn, "graph_facts.gdn"
    value_width = text.linear_num_value_heads * text.linear_value_head_dim
    equal_widths = (shapes.get("in_proj_qkv", (0,))[0] - value_width) == (
        2 * text.linear_num_key_heads * text.linear_key_head_dim
    )
    judge.equal(GDN, f"{where}.query_and_key_share_width", equal_widths, gdn.query_and_key_share_width)
    judge.equal(GDN, f"{where}.separate_z_projection", "in_proj_z" in shapes, gdn.separate_z_projection)
    judge.equal(
        GDN, f"{where}.bias_free_conv", not any("conv1d.bias" in path for path in paths), gdn.bias_free_conv
    )
    per_value = shapes.get("A_log") == shapes.get("dt_bias") == (text.linear_num_value_heads,)
    judge.equal(
        GDN, f"{where}.per_value_head_a_log_and_dt_bias", per_value, gdn.per_value_head_a_log_and_dt_bias
    )
    moe, where = facts.moe, "graph_facts.moe"
    fused = {role.path.rsplit(".", 1)[-1]: role for role in parts.layer_roles if ".mlp.experts." in role.path}
    judge.equal(MOE, f"{where}.fused_gate_up_tensor", "gate_up_proj" in fused, moe.fused_gate_up_tensor)
    judge.equal(MOE, f"{where}.fused_down_tensor", "down_proj" in fused, moe.fused_down_tensor)
    one_row = shapes.get("shared_expert_gate", (0,))[0] == 1
    judge.equal(MOE, f"{where}.shared_expert_sigmoid_gate", one_row, moe.shared_expert_sigmoid_gate)
    judge.equal(MOE, f"{where}.router_softmax_in_float32", True, moe.router_softmax_in_float32)


CHECKS: Final[tuple[Check, ...]] = (roles, totals, norms, graph)
