"""The ladder: the rungs at which two runs of the model can be compared, in the order in which they depend on each other.

prompt bytes -> token ids -> PLE rows -> embedding -> the stages of every layer -> final logits -> sampled id,
and last the state that is carried on. Every capture names its arrays by these words.
"""

from typing import Final

LAYER_STAGES: Final = (
    "ple",
    "attn_gr_prepare",
    "gdn",
    "qsa",
    "attn_gr_apply",
    "moe_gr_prepare",
    "router",
    "routed_shared_moe",
    "moe_gr_apply",
)
"""Stages that belong to a layer, in the order in which a layer runs them."""

FIRST_STAGES: Final = ("embedding", "four_stream_residual")
LAST_STAGES: Final = ("final_gr_mixer", "output_head")
GRAPH_STAGES: Final = (*FIRST_STAGES, *LAYER_STAGES, *LAST_STAGES)
"""The 13 stages of the graph."""

ARRAY_STAGES: Final = ("ple_rows", *GRAPH_STAGES, "sampled_id", "state")
"""Every stage that an entry of a capture can name; prompt bytes and token ids are fields of the capture."""

LAYERED: Final = frozenset({"ple_rows", *LAYER_STAGES, "state"})
"""Stages whose entries must name a layer."""

PARTS: Final[dict[str, tuple[str, ...]]] = {
    "ple": ("key", "norm_key", "value", "norm_query", "norm_conv"),
    "attn_gr_prepare": ("normed", "mix", "injection"),
    "gdn": ("qkv", "z", "b", "a", "gated_norm"),
    "qsa": (
        "index_qk",
        "index_query",
        "index_scores",
        "selection_mask",
        "selected",
        "q_proj",
        "k_proj",
        "v_proj",
        "q_norm",
        "k_norm",
        "gated",
    ),
    "moe_gr_prepare": ("normed", "mix", "injection"),
    "router": ("logits", "ids", "weights"),
    "routed_shared_moe": ("routed", "shared", "shared_gate"),
    "final_gr_mixer": ("normed", "mix"),
    "state": (
        "gdn_conv",
        "gdn_recurrent",
        "qsa_key",
        "qsa_value",
        "qsa_raw_index",
        "ple_conv",
        "ple_history",
    ),
}
"""Named intermediate arrays of a stage, in the order in which they come about; the stage's own result has no part."""


def rung(stage: str, layer: int | None, part: str) -> tuple[int, int, int, int, str]:
    """Returns the sort key of an array: earlier rungs feed later ones.

    PLE rows depend on token ids alone and come before the embedding; the stages between run layer by layer;
    a part comes before the stage's own result, unknown parts after the known ones.
    """
    parts = PARTS.get(stage, ())
    place = parts.index(part) if part in parts else len(parts) + (1 if part == "" else 0)
    depth = -1 if layer is None else layer
    if stage == "ple_rows":
        return (0, depth, 0, place, part)
    if stage in FIRST_STAGES:
        return (1, FIRST_STAGES.index(stage), 0, place, part)
    if stage in LAYER_STAGES:
        return (2, depth, LAYER_STAGES.index(stage), place, part)
    if stage in LAST_STAGES:
        return (3, LAST_STAGES.index(stage), 0, place, part)
    return (4 if stage == "sampled_id" else 5, depth, 0, place, part)


def rung_name(stage: str, layer: int | None, part: str) -> str:
    """Returns how a rung is written for readers, such as `layers.3.qsa.selected`."""
    name = stage if layer is None else f"layers.{layer}.{stage}"
    return f"{name}.{part}" if part else name
