"""Families of ExpertMajor v2: four public ones, closed, and private ones from 0x80000000 up.

A family says which geometry a store may have; it isn't the container's version and not the codec's status.
"""

from dataclasses import dataclass
from typing import Final, Literal

from assay.impl.stores.arguments import integer
from assay.impl.stores.expert_major.blocks import (
    AFFINE4,
    AFFINE4_WIDE,
    GGML,
    PLAIN_TYPES,
    ROUTED_TYPES,
    Block,
)
from assay.impl.stores.expert_major.layout import LayerShape, Storage
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

PRIVATE_FAMILY: Final = declare(
    "expert-store.private-family",
    Authority.FORM,
    "A private family has an id from 0x80000000 up and sizes from 1 up, all of 32 bits.",
    source="assay: private families",
    cause="the id of a public family, or one that no header can hold",
)
PRIVATE_BASE: Final = 0x80000000
"""First private family id; public ids are below."""


@dataclass(frozen=True, slots=True)
class ExpertGeometry:
    """An exact geometry: every layer alike, ids 0 to layers - 1."""

    layers: int
    experts: int
    used: int
    hidden: int
    width: int

    def shapes(self, block: Block) -> tuple[LayerShape, ...]:
        """Returns the layers of this geometry stored in one kind of block."""
        wide, narrow = (block, self.hidden, self.width), (block, self.width, self.hidden)
        return tuple(LayerShape(layer, (wide, wide, narrow)) for layer in range(self.layers))


@dataclass(frozen=True, slots=True)
class ExpertFamily:
    """What a store of one family may look like.

    Attributes:
        id: number in the header.
        name: what people call it.
        layer_ids: `contiguous` (id = slot) or `increasing`.
        storages: allowed storage formats.
        types: allowed GGML types with storage GGML.
        affine_block: the block that descriptors state with storage MLX affine.
        geometry: the one exact geometry, or None when relations are all that is known.
        profile: profile name that an artifact states for it; may be empty.
    """

    id: int
    name: str
    layer_ids: Literal["contiguous", "increasing"]
    storages: frozenset[Storage]
    types: frozenset[int] = ROUTED_TYPES
    affine_block: Block = AFFINE4
    geometry: ExpertGeometry | None = None
    profile: str = ""

    @property
    def is_private(self) -> bool:
        """Whether the family exists only behind the private seam."""
        return self.id >= PRIVATE_BASE

    def block(self, type_id: int, storage: int) -> Block | None:
        """Returns the block that a component of this type must use, or None when the type isn't allowed."""
        if storage == Storage.MLX_AFFINE4:
            return self.affine_block if type_id == self.affine_block.type_id else None
        return GGML.get(type_id) if type_id in self.types else None


_GGML_ONLY = frozenset({Storage.GGML})

DEEPSEEK4: Final = ExpertFamily(1, "DEEPSEEK4", "contiguous", _GGML_ONLY)
GLM_DSA: Final = ExpertFamily(2, "GLM_DSA", "increasing", _GGML_ONLY)
QWEN35_MOE: Final = ExpertFamily(3, "QWEN35_MOE", "contiguous", frozenset(Storage), affine_block=AFFINE4_WIDE)
QWEN4EXP: Final = ExpertFamily(
    4,
    "QWEN4EXP",
    "contiguous",
    frozenset({Storage.MLX_AFFINE4}),
    geometry=ExpertGeometry(layers=48, experts=512, used=10, hidden=2560, width=640),
    profile="qwen4exp-base-v1",
)

PUBLIC: Final = {family.id: family for family in (DEEPSEEK4, GLM_DSA, QWEN35_MOE, QWEN4EXP)}
"""The closed list of public families."""


def private_expert_family(number: int, profile: str, geometry: ExpertGeometry | None) -> ExpertFamily:
    """Returns a private family.

    Args:
        number: id, 0x80000000 or above, below 2^32.
        profile: its profile name.
        geometry: its exact geometry; None accepts any that keeps the relations, for a lone file.

    Raises:
        ContractError: expert-store.private-family, for an id below 0x80000000 or beyond 32 bits, or a size that no
            header can hold.
    """
    if integer(number) is None or not PRIVATE_BASE <= number < 1 << 32:
        raise ContractError(
            Finding.of(
                PRIVATE_FAMILY, "expert-store", "family", expected="0x80000000..0xffffffff", got=number
            )
        )
    for name in () if geometry is None else ("layers", "experts", "used", "hidden", "width"):
        size = getattr(geometry, name)
        if integer(size) is None or not 1 <= size < 1 << 32:
            raise ContractError(
                Finding.of(
                    PRIVATE_FAMILY,
                    "expert-store",
                    f"geometry.{name}",
                    expected="an integer in 1..2^32 - 1",
                    got=size,
                )
            )
    return ExpertFamily(
        number,
        f"private {number:#x}",
        "contiguous",
        frozenset(Storage),
        types=ROUTED_TYPES | PLAIN_TYPES,
        geometry=geometry,
        profile=profile,
    )
