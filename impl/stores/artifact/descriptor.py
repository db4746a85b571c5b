"""What one artifact must be: every metadata entry, every tensor, both stores, as data derived before the file is judged.

Admission compares; it discovers nothing. A descriptor is made from the contract (the public profile's structural
fixture) or, behind the private seam, from a configuration (`private`), and everything in it is an equality.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from assay.impl.stores.expert_major.families import QWEN4EXP, ExpertFamily
from assay.impl.stores.expert_major.layout import NO_DIGEST
from assay.impl.stores.expert_major.rules import ExpectedSource
from assay.impl.stores.gguf.values import Value, ValueType, array, scalar
from assay.impl.stores.ple_rows.layout import PleGeometry
from assay.impl.stores.ple_rows.tables import STRUCTURAL
from assay.spec.contract import expand_tensors
from assay.spec.profiles import load_profile

STAGES: Final = (
    "identity",
    "physical_profile",
    "metadata",
    "tokenizer",
    "inventory",
    "expert_store",
    "ple_store",
    "policy",
    "ownership",
)
"""The loader's stages, in the order in which they judge; `none` and `accepted` are only words of the report."""

EXPERT_TENSOR: Final = "ds4.expert_major.v2"
PLE_TENSOR: Final = "ds4.ple_rows.v1"
PHYSICAL_KEY: Final = "ds4.model.physical_profile_id"
PROFILE_KEY: Final = "ds4.model.profile_id"
IDENTITY_KEYS: Final = (
    "general.architecture",
    PROFILE_KEY,
    "ds4.model.source_architecture",
    "ds4.model.source_revision",
    "ds4.model.transformers_revision",
    "ds4.model.tensor_inventory_digest",
    "ds4.model.source_tensor_count",
    "ds4.model.source_bytes",
)
DIGEST_KEYS: Final = ("ds4.tokenizer.digest", "ds4.tokenizer_config.digest", "ds4.chat_template.digest")
POLICY_KEYS: Final = ("ds4.text_only", "ds4.mtp.present", "ds4.mtp.executed")
BF16: Final = 30
I8: Final = 24


@dataclass(frozen=True, slots=True)
class DenseTensor:
    """One tensor of the dense owner: its name, its dimensions fastest first, and the GGML types that it may have."""

    name: str
    dimensions: tuple[int, ...]
    types: frozenset[int]


@dataclass(frozen=True, slots=True)
class ArtifactDescriptor:
    """Everything that an artifact of one physical profile must be.

    Attributes:
        profile_id: model profile.
        physical_profile_id: how that profile is stored.
        entries: every metadata entry, in file order; the closed set.
        absent: keys that must not be there, each for a reason of its own.
        dense: the dense tensors in the byte order of their names.
        family: the expert store's family.
        source: what the expert store must say of its source.
        rows: geometry of the row store.
        is_private: whether it exists only behind the private seam.
        is_structural: whether the payload is absent, so that nothing can ever be computed from it.
    """

    profile_id: str
    physical_profile_id: str
    entries: Mapping[str, Value]
    absent: tuple[str, ...]
    dense: tuple[DenseTensor, ...]
    family: ExpertFamily
    source: ExpectedSource
    rows: PleGeometry
    is_private: bool
    is_structural: bool
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tensor_count(self) -> int:
        """Tensors of the file: the dense ones and the two stores."""
        return len(self.dense) + 2

    def stage_of(self, key: str) -> str:
        """Returns the stage that judges a metadata entry."""
        if key in IDENTITY_KEYS:
            return "identity"
        if key == PHYSICAL_KEY:
            return "physical_profile"
        if key in DIGEST_KEYS or key.startswith("qwen4exp.tokenizer."):
            return "tokenizer"
        if key.startswith("ds4.expert_store."):
            return "expert_store"
        if key.startswith("ds4.ple_store."):
            return "ple_store"
        return "policy" if key in POLICY_KEYS else "metadata"

    def entries_of(self, stage: str) -> dict[str, Value]:
        """Returns the entries that a stage judges: scalars in file order, then arrays."""
        mine = {key: value for key, value in self.entries.items() if self.stage_of(key) == stage}
        return dict(sorted(mine.items(), key=lambda item: item[1].element is not None))


def typed(kind: str, value: Any) -> Value:
    """Returns a metadata value of a type in the contract's spelling: `UINT32`, `UINT64[3]`.

    Raises:
        ValueError: when the value doesn't fit the type.
    """
    name, bracket, _ = kind.partition("[")
    if bracket:
        return array(ValueType[name], list(value))
    return scalar(ValueType[name], value)


@cache
def fixture_descriptor() -> ArtifactDescriptor:
    """Returns the descriptor of the public profile's structural fixture: geometry without payload, for tests only."""
    contract = load_profile("qwen4exp")
    admission, pins = contract.admission, contract.source_pins
    if admission is None or pins is None:
        raise ValueError("the public profile has no admission section")
    fixture = admission.physical_fixture
    dense = sorted(
        (
            DenseTensor(one.name, tuple(reversed(one.shape)), frozenset({BF16}))
            for one in expand_tensors(contract)
            if one.owner == "dense"
        ),
        key=lambda one: one.name.encode("utf-8"),
    )
    source = ExpectedSource(
        pins.tensor_count, pins.source_bytes, bytes.fromhex(pins.inventory_sha256), NO_DIGEST
    )
    return ArtifactDescriptor(
        contract.identity.profile_id,
        fixture.physical_profile_id,
        {entry.key: typed(entry.type, entry.value) for entry in admission.metadata.entries},
        tuple(admission.metadata.absent_keys),
        tuple(dense),
        QWEN4EXP,
        source,
        STRUCTURAL,
        is_private=False,
        is_structural=True,
    )
