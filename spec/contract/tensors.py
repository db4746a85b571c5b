"""Expansion of the tensor roles to the full list of names, dtypes and shapes."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Final, Literal

from assay.spec.contract.contract import Contract
from assay.spec.contract.tensor_roles import Role, TensorRoles

DTYPE_BYTES: Final = {"BF16": 2, "I64": 8}
MOST_SHARDS: Final = 65536
LINEAR: Final = "linear_attention"
FULL: Final = "full_attention"

Group = Literal["dense", "routed", "ple-compute", "ple-shard", "ple-hash"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor that the checkpoint must hold.

    Attributes:
        name: source name.
        dtype: safetensors spelling, `BF16` or `I64`.
        shape: source order.
        group: `dense`, `routed` (expert store), `ple-compute` (dense), `ple-shard` or `ple-hash` (row store).
        layer: runtime layer, or None for a global tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    group: Group
    layer: int | None

    @property
    def elements(self) -> int:
        """Product of the shape."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of the payload."""
        return self.elements * DTYPE_BYTES[self.dtype]

    @property
    def classification(self) -> Literal["base", "ple"]:
        """Class in the source inventory; `ple` counts inside `base` there."""
        return "ple" if self.group.startswith("ple") else "base"

    @property
    def owner(self) -> Literal["dense", "expert_major", "ple"]:
        """Owner of the tensor's values in the artifact."""
        if self.group == "routed":
            return "expert_major"
        return "ple" if self.group in {"ple-shard", "ple-hash"} else "dense"


def expand_tensors(contract: Contract) -> tuple[TensorSpec, ...]:
    """Returns every base tensor of the profile: globals, then layer by layer, then the per-layer embedding.

    Vision and MTP tensors are not listed: the contract accounts for them by count and prefix
    (`contract.exclusions`). Names may repeat if the roles do; `roles.unique` judges that.

    Raises:
        ValueError: when a role has more than 65,536 shards.
    """
    return _expand(contract.tensor_roles, contract.config.text.layer_types)


# A battery judges thousands of contracts whose roles are mostly the same; frozen models are their own key.
@lru_cache(maxsize=8)
def _expand(roles: TensorRoles, layer_types: tuple[str, ...]) -> tuple[TensorSpec, ...]:
    found = [_spec(role, role.path, None) for role in roles.global_roles]
    by_type = {LINEAR: roles.linear_attention_roles, FULL: roles.full_attention_roles}
    for layer, kind in enumerate(layer_types):
        for role in (*roles.layer_roles, *by_type.get(kind, ())):
            found.append(_spec(role, role.path.replace("layers.N.", f"layers.{layer}."), layer))  # noqa: PERF401
    for role in roles.ple_roles:
        if role.count > MOST_SHARDS:
            raise ValueError(f"{role.count} shards are more than a table has")
        for number in range(role.count):
            path = role.path.removesuffix("_K") + f"_{number}" if role.path.endswith("_K") else role.path
            found.append(_spec(role, path, roles.ple_runtime_layer))
    return tuple(found)


def _spec(role: Role, path: str, layer: int | None) -> TensorSpec:
    name = f"{path}.{role.leaf}" if role.leaf else path
    return TensorSpec(name, role.dtype, role.shape, _group(path, role.dtype), layer)


def _group(path: str, dtype: str) -> Group:
    if ".mlp.experts." in path:
        return "routed"
    if ".ple.ple_embedding." in path:
        return "ple-hash" if dtype == "I64" else "ple-shard"
    return "ple-compute" if ".ple." in path else "dense"
