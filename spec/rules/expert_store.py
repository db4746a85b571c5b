"""Rules of the expert store: its geometry follows from the configuration."""

from typing import Final

from assay.spec.contract.contract import Contract
from assay.spec.rules.base import Check, Judge, rule

GEOMETRY: Final = rule(
    "expert-store.geometry",
    "Layers and experts of the store are those of the configuration.",
    cause="A geometry of a neighbouring family; its records then lie at other offsets.",
)
CONTAINER: Final = rule(
    "expert-store.container",
    "The tensor is `ds4.expert_major.v` and the version; a record is gate, up, down.",
    cause="An abandoned third version, or components in another order.",
    source="field note AFN-002",
)
ROUTE: Final = rule(
    "expert-store.route-records",
    "A token touches layers times experts per token records at least.",
    cause="A cache planned for another number of chosen experts.",
)
RAISE: Final = rule(
    "expert-store.raise-max-experts",
    "The shared limit is raised exactly when the experts pass the old one, and up to the number of experts.",
    cause="A limit copied from another family: a 512-expert store is refused, or read past its end.",
    source="field note AFN-002",
)
CANDIDATE: Final = rule(
    "expert-store.candidate",
    "A group divides both row widths; its block is packed 4-bit values with a BF16 scale and bias; four groups are one logical block.",
    cause="A group size taken from a family with wider rows.",
    source="mlx affine quantization, 4 bits",
)
CANDIDATE_STATUS: Final = rule(
    "expert-store.candidate-status",
    "The candidate never claims a release: its status says structural, and its reason names the down row that forced the group.",
    cause="A structural fixture promoted by its label.",
)

OLD_LIMIT: Final = 384


def geometry(contract: Contract, judge: Judge) -> None:
    """Counts follow from the configuration."""
    store, text = contract.expert_store, contract.config.text
    judge.equal(GEOMETRY, "expert_store.layers", text.num_hidden_layers, store.layers)
    judge.equal(GEOMETRY, "expert_store.experts_per_layer", text.num_experts, store.experts_per_layer)
    judge.equal(CONTAINER, "expert_store.tensor", f"ds4.expert_major.v{store.version}", store.tensor)
    judge.items(CONTAINER, "expert_store.components", ("gate", "up", "down"), store.components)
    judge.equal(
        ROUTE,
        "expert_store.minimum_route_records_per_token",
        text.num_hidden_layers * text.num_experts_per_tok,
        store.minimum_route_records_per_token,
    )
    limit = store.raise_max_experts
    judge.equal(RAISE, "expert_store.raise_max_experts", text.num_experts > OLD_LIMIT, limit is not None)
    if limit is not None:
        judge.equal(RAISE, "expert_store.raise_max_experts.from_experts", OLD_LIMIT, limit.from_experts)
        judge.equal(RAISE, "expert_store.raise_max_experts.to_experts", text.num_experts, limit.to_experts)


def candidate(contract: Contract, judge: Judge) -> None:
    """The structural storage proves geometry and claims nothing."""
    text, one = contract.config.text, contract.expert_store.structural_candidate
    where = "expert_store.structural_candidate"
    group = one.group_size
    judge.holds(
        CANDIDATE,
        f"{where}.group_size",
        text.hidden_size % group == 0
        and text.moe_intermediate_size % group == 0
        and 256 % group == 0
        and group == 64,
        "a group of 64 that divides both row widths",
        group,
    )
    judge.equal(CANDIDATE, f"{where}.block_bytes", group // 2 + 2 + 2, one.block_bytes)
    judge.equal(CANDIDATE, f"{where}.storage", "mlx-affine4", one.storage)
    judge.equal(CANDIDATE, f"{where}.logical_ggml_type", "Q4_K", one.logical_ggml_type)
    structural = "structural" in one.status and (
        "not-release" in one.status or contract.visibility == "private"
    )
    judge.holds(CANDIDATE_STATUS, f"{where}.status", structural, "a structural status", one.status)
    row = f"{text.moe_intermediate_size}-wide"
    judge.holds(
        CANDIDATE_STATUS,
        f"{where}.reason",
        row in one.reason,
        f"a reason that names the {row} row",
        one.reason,
    )


CHECKS: Final[tuple[Check, ...]] = (geometry, candidate)
