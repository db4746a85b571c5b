"""Rules of the pinned configuration: relations between its fields that every member of the family keeps."""

from typing import Final

from assay.spec.contract.contract import Contract
from assay.spec.contract.tensors import FULL, LINEAR
from assay.spec.rules.base import CONFIG, Check, Judge, rule

LAYER_COUNT: Final = rule(
    "config.layer-types.count",
    "There is one layer type for each layer.",
    cause="num_hidden_layers or the list was changed alone.",
    source=CONFIG,
)
LAYER_PATTERN: Final = rule(
    "config.layer-types.pattern",
    "Layer i has full attention exactly when (i + 1) is a multiple of full_attention_interval, else linear attention.",
    cause="A shifted pattern: it changes which weights a layer looks for, and reads like broken attention.",
    source=CONFIG,
)
LAYER_INTERVAL: Final = rule(
    "config.layer-types.interval",
    "The number of layers is a multiple of full_attention_interval.",
    cause="A truncated copy of the model.",
)
MTP_LAYERS: Final = rule(
    "config.mtp",
    "The draft head has one full-attention layer, shares the rotary base, has no dedicated embeddings and takes no hidden state from a chosen layer.",
    cause="The draft head of another family.",
    source=CONFIG,
)
UNTIED: Final = rule(
    "config.untied",
    "Input table and head are two tensors: tie_word_embeddings is false at both levels, and both are among the roles.",
    cause="A loader default that ties small models.",
    source=CONFIG,
)
ATTENTION_BIAS: Final = rule(
    "config.attention-bias",
    "There is no attention bias and no attention dropout.",
    cause="A class default of a sister family.",
    source=CONFIG,
)
HEADS: Final = rule(
    "config.heads",
    "Query heads are a multiple of key-value heads, and value heads of linear attention a multiple of its key heads.",
    cause="One head count was changed alone.",
)
EMBED: Final = rule(
    "config.ple-width",
    "The per-layer embedding is as wide as the hidden state and divides evenly over its heads.",
    cause="A head count of the hash was changed alone.",
)
PLE_LAYER: Final = rule(
    "config.ple-layer",
    "There is one per-layer embedding; its configured number counts from one, is in range, and is the runtime layer plus one.",
    cause="The one-based number was used as a zero-based layer: the block then runs one layer late.",
    source=CONFIG,
)
INDEXER: Final = rule(
    "config.indexer-budget",
    "The budget of the indexer is a whole number of groups.",
    cause="A budget in tokens was changed without its groups.",
)
INDEXER_KEYS: Final = rule(
    "config.indexer-keys",
    "The indexer has one key head.",
    cause="Key heads of attention were taken for those of the indexer.",
)
ROTARY: Final = rule(
    "config.rotary",
    "head_dim times partial_rotary_factor is a whole even number, and the factor stands equally at both places.",
    cause="A factor changed at one of its two places; readers differ in which one they take.",
    source=CONFIG,
)
MROPE: Final = rule(
    "config.mrope-sections",
    "The three sections are those of an interleaved split: section a holds the frequencies a, a + 3, a + 6, ... below half the rotary width.",
    cause="Sections that still add up but belong to another head size.",
    source="transformers, interleaved multi-axis rotary embedding",
)
ROPE_TYPE: Final = rule(
    "config.rope-type",
    "The rotary embedding is of the default kind, interleaved over its axes.",
    cause="A long-context scaling added by a re-release.",
    source=CONFIG,
)
ROUTER: Final = rule(
    "config.router",
    "Fewer experts are used than exist, router logits are not an output, and the chosen weights are renormalised.",
    cause="A router default of a sister family.",
    source=CONFIG,
)
WIDTHS: Final = rule(
    "config.widths",
    "Shared and routed experts are equally wide, and the vision tower ends at the hidden size.",
    cause="One width was changed alone.",
    source=CONFIG,
)
VISION: Final = rule(
    "config.vision",
    "The vision width divides over its heads, and the position table is a square.",
    cause="A vision tower of another size.",
    source=CONFIG,
)
ACTIVATIONS: Final = rule(
    "config.activations",
    "Experts use silu, the linear-attention gate a sigmoid; states are float32 and weights bfloat16, as the dtypes of the roles say.",
    cause="The gate of a sister family is silu: the model still answers, and answers wrongly.",
    source=CONFIG,
)
IDS: Final = rule(
    "config.token-ids",
    "Ids declared in the configuration are those of the vocabulary, and the padding id is null.",
    cause="Ids of a sister tokenizer with another base size.",
    source=CONFIG,
)
SEED: Final = rule(
    "config.seed",
    "The default seed is the seed of the hash.",
    cause="A seed changed at one place; every row of the per-layer embedding then moves.",
)
UNJUDGED: Final = rule(
    "config.unjudged",
    "A leaf that nothing judges is named once and is not also pinned.",
    cause="A leaf was moved out of judgement.",
    source="assay",
)


def layers(contract: Contract, judge: Judge) -> None:
    """The layer pattern."""
    text = contract.config.text
    interval = text.full_attention_interval
    judge.equal(LAYER_COUNT, "config.text.layer_types", text.num_hidden_layers, len(text.layer_types))
    judge.equal(LAYER_INTERVAL, "config.text.num_hidden_layers", 0, text.num_hidden_layers % interval)
    for index, kind in enumerate(text.layer_types):
        wanted = FULL if (index + 1) % interval == 0 else LINEAR
        judge.equal(LAYER_PATTERN, f"config.text.layer_types[{index}]", wanted, kind)


def draft_head(contract: Contract, judge: Judge) -> None:
    """The draft head's configuration, which is carried and never run."""
    text, mtp = contract.config.text, contract.config.text.mtp
    judge.equal(
        MTP_LAYERS, "config.text.mtp.layer_types", [FULL] * mtp.num_hidden_layers, list(mtp.layer_types)
    )
    judge.equal(
        MTP_LAYERS, "config.text.mtp_num_hidden_layers", mtp.num_hidden_layers, text.mtp_num_hidden_layers
    )
    judge.equal(MTP_LAYERS, "config.text.mtp.num_hidden_layers", 1, mtp.num_hidden_layers)
    judge.equal(MTP_LAYERS, "config.text.mtp.rope_theta", text.rope_parameters.rope_theta, mtp.rope_theta)
    judge.equal(
        MTP_LAYERS, "config.text.mtp_use_dedicated_embeddings", False, text.mtp_use_dedicated_embeddings
    )
    judge.equal(
        MTP_LAYERS,
        "config.text.mtp.mtp_use_hidden_state_from_layer",
        None,
        mtp.mtp_use_hidden_state_from_layer,
    )


def relations(contract: Contract, judge: Judge) -> None:
    """Divisibility and agreement of sizes."""
    text, top, vision = contract.config.text, contract.config.top, contract.config.vision
    judge.equal(UNTIED, "config.text.tie_word_embeddings", False, text.tie_word_embeddings)
    judge.equal(UNTIED, "config.top.tie_word_embeddings", False, top.tie_word_embeddings)
    paths = {role.path for role in contract.tensor_roles.global_roles}
    wanted = {"lm_head", f"{contract.tensor_roles.base_prefix}embed_tokens"}
    judge.holds(UNTIED, "tensor_roles.global_roles", wanted <= paths, sorted(wanted), sorted(paths & wanted))
    judge.equal(ATTENTION_BIAS, "config.text.attention_bias", False, text.attention_bias)
    judge.equal(ATTENTION_BIAS, "config.text.attention_dropout", 0.0, text.attention_dropout)
    judge.equal(
        HEADS, "config.text.num_attention_heads", 0, text.num_attention_heads % text.num_key_value_heads
    )
    judge.equal(
        HEADS,
        "config.text.linear_num_value_heads",
        0,
        text.linear_num_value_heads % text.linear_num_key_heads,
    )
    heads = (text.ngram_size - 1) * text.heads_per_ngram
    judge.equal(EMBED, "config.text.ple_embed_dim", 0, text.ple_embed_dim % heads)
    judge.equal(EMBED, "config.text.ple_embed_dim", text.hidden_size, text.ple_embed_dim)
    runtime = contract.tensor_roles.ple_runtime_layer
    judge.equal(PLE_LAYER, "config.text.ple_layer_ids", [runtime + 1], list(text.ple_layer_ids))
    judge.holds(
        PLE_LAYER,
        "tensor_roles.ple_runtime_layer",
        runtime < text.num_hidden_layers,
        f"below {text.num_hidden_layers}",
        runtime,
    )
    judge.equal(INDEXER, "config.text.indexer_budget", 0, text.indexer_budget % text.indexer_compress_ratio)
    judge.equal(INDEXER_KEYS, "config.text.indexer_kv_heads", 1, text.indexer_kv_heads)
    judge.holds(
        ROUTER,
        "config.text.num_experts_per_tok",
        text.num_experts_per_tok < text.num_experts,
        f"below {text.num_experts}",
        text.num_experts_per_tok,
    )
    judge.equal(ROUTER, "config.text.output_router_logits", False, text.output_router_logits)
    judge.equal(ROUTER, "config.norm_topk_prob.value", True, contract.config.norm_topk_prob.value)
    judge.equal(
        WIDTHS,
        "config.text.shared_expert_intermediate_size",
        text.moe_intermediate_size,
        text.shared_expert_intermediate_size,
    )
    judge.equal(WIDTHS, "config.vision.out_hidden_size", text.hidden_size, vision.out_hidden_size)
    judge.equal(VISION, "config.vision.num_heads", 0, vision.hidden_size % vision.num_heads)
    side = int(vision.num_position_embeddings**0.5)
    judge.equal(VISION, "config.vision.num_position_embeddings", side * side, vision.num_position_embeddings)


def rotary(contract: Contract, judge: Judge) -> None:
    """Partial rotary embedding with interleaved axes."""
    text, rope = contract.config.text, contract.config.text.rope_parameters
    width = text.head_dim * rope.partial_rotary_factor
    judge.equal(
        ROTARY, "config.text.partial_rotary_factor", rope.partial_rotary_factor, text.partial_rotary_factor
    )
    judge.holds(
        ROTARY,
        "config.text.rope_parameters.partial_rotary_factor",
        width == int(width) and int(width) % 2 == 0 and 0 < width <= text.head_dim,
        f"a whole even width up to {text.head_dim}",
        width,
    )
    half = int(width) // 2
    sections = [len(range(axis, half, 3)) for axis in range(3)]
    judge.items(MROPE, "config.text.rope_parameters.mrope_section", sections, rope.mrope_section)
    judge.equal(ROPE_TYPE, "config.text.rope_parameters.rope_type", "default", rope.rope_type)
    judge.equal(ROPE_TYPE, "config.text.rope_parameters.mrope_interleaved", True, rope.mrope_interleaved)


def names_and_ids(contract: Contract, judge: Judge) -> None:
    """Activations, dtypes and declared ids."""
    config, text, top = contract.config, contract.config.text, contract.config.top
    judge.equal(ACTIVATIONS, "config.text.hidden_act", "silu", text.hidden_act)
    judge.equal(ACTIVATIONS, "config.text.output_gate_type", "sigmoid", text.output_gate_type)
    judge.equal(ACTIVATIONS, "config.text.mamba_ssm_dtype", "float32", text.mamba_ssm_dtype)
    floats = {role.dtype for role in contract.tensor_roles.layer_roles}
    judge.equal(
        ACTIVATIONS,
        "config.text.dtype",
        {"BF16": "bfloat16"}.get("".join(sorted(floats)), "one dtype"),
        text.dtype,
    )
    ids = contract.vocabulary.model_config_ids
    for where, wanted, got in (
        ("config.text.bos_token_id", ids.bos, text.bos_token_id),
        ("config.text.eos_token_id", ids.eos, text.eos_token_id),
        ("config.text.pad_token_id", None, text.pad_token_id),
        ("config.top.image_token_id", ids.image, top.image_token_id),
        ("config.top.video_token_id", ids.video, top.video_token_id),
        ("config.top.vision_start_token_id", ids.vision_start, top.vision_start_token_id),
        ("config.top.vision_end_token_id", ids.vision_end, top.vision_end_token_id),
    ):
        judge.equal(IDS, where, wanted, got)
    judge.equal(SEED, "config.seed.value", contract.ple_hash.seed, config.seed.value)
    file = config.as_file()
    seen: set[str] = set()
    for index, leaf in enumerate(config.unjudged):
        claim = leaf.path not in file and leaf.path not in seen
        judge.holds(
            UNJUDGED, f"config.unjudged[{index}].path", claim, "a leaf that nothing else judges", leaf.path
        )
        seen.add(leaf.path)


CHECKS: Final[tuple[Check, ...]] = (layers, draft_head, relations, rotary, names_and_ids)
