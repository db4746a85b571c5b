"""Geometry of codecs: how many values and bytes one block has, and whether blocks cover a row exactly.

A codec is an opaque run of blocks here; what the bytes mean is another module's business. A row that isn't a
whole number of blocks is refused with the numbers, never padded: padding would be another physical profile.
"""

from dataclasses import dataclass
from typing import Final

from assay.impl.stores.arguments import integer
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding
from assay.spec.verdicts import Label

COVER: Final = declare(
    "codec.blocks.cover",
    Authority.RULE,
    "The blocks of a codec cover a row exactly; a row is never padded.",
    source="AFN-002, the 640-wide row; bug report A31",
    cause="a codec with 256-value blocks for the 640-wide down projection, or a split that cuts a block",
    fix="choose a block size that divides the width, or keep experts whole and split by expert",
)
UNKNOWN: Final = declare(
    "codec.type.known",
    Authority.FORM,
    "The codec is one of the closed list of its container.",
    source="ExpertMajor v2, storage formats",
    cause="a block type that no runtime of this container admits",
)
RANGE: Final = declare(
    "codec.affine4.range",
    Authority.RULE,
    "Scale and bias of a group, and what they decode to, are finite.",
    source="ExpertMajor v2, storage formats; the range of BF16",
    cause="values near the end of the range of BF16, which no group of 16 levels can hold",
)
SOURCE: Final = declare(
    "codec.affine4.source",
    Authority.FORM,
    "Values to encode are float32 that BF16 holds exactly; blocks to decode are bytes.",
    source="ExpertMajor v2, storage formats: a group keeps its scale and bias in BF16",
    cause="values of a float32 checkpoint, which MLX would give float32 scales, or an array of another type",
    fix="round to BF16 first, and say so",
)


@dataclass(frozen=True, slots=True)
class Block:
    """One codec as the container sees it.

    Attributes:
        type_id: GGML type number; MLX affine has the logical type 12.
        name: what people call it.
        elements: values in one block.
        bytes: bytes of one block.
        status: what evidence allows to say of it; a geometry that parses is structural only.
    """

    type_id: int
    name: str
    elements: int
    bytes: int
    status: Label = Label.STRUCTURAL_ONLY


def _table(*rows: tuple[int, str, int, int]) -> dict[int, Block]:
    return {row[0]: Block(*row) for row in rows}


GGML: Final = _table(
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 40),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
)
"""Block types as the public GGUF reader sizes them."""

CONVERTER: Final = {
    **{key: block for key, block in GGML.items() if key <= 30},
    **_table((19, "IQ1_S", 256, 110), (20, "IQ4_NL", 256, 50)),
}
"""Sizes that the converter of families 1 to 3 uses; two differ from the public ones."""

ROUTED_TYPES: Final = frozenset({10, 12, 13, 14, 16, 17, 18, 23})
"""Types that a runtime of families 1 to 3 admits for routed experts."""

PLAIN_TYPES: Final = frozenset({0, 30})
"""Plain values, F32 and BF16: private families only."""

F32: Final = GGML[0]
BF16: Final = GGML[30]

AFFINE4: Final = Block(12, "MLX affine 4-bit, group 64", 64, 36)
"""4-bit affine, one group a block, as families 4 and private ones write it."""

AFFINE4_WIDE: Final = Block(12, "MLX affine 4-bit, group 64, four groups a block", 256, 144)
"""The same bytes, described in blocks of four groups, as family 3 writes them."""


def uncovered(width: int, block: Block, where: str, *, parts: int = 1) -> Finding | None:
    """Returns why the blocks don't cover a row of `width` values split into equal parts, or None if they do."""
    if integer(width) is None or integer(parts) is None or width <= 0 or parts <= 0 or width % parts:
        return Finding.of(
            COVER, "codec", where, expected=f"a width that splits into {parts}", got=f"{width} values"
        )
    part = width // parts
    left = part % block.elements
    if not left:
        return None
    split = f"{width} / {parts} = {part}" if parts > 1 else f"{width}"
    return Finding.of(
        COVER,
        "codec",
        where,
        expected=f"a multiple of {block.elements} values ({block.name})",
        got=f"{split}, which leaves {left}",
        hint="the row is not padded; choose a block that divides it",
    )


def row_bytes(width: int, block: Block, where: str) -> int:
    """Returns the bytes of one row.

    Raises:
        ContractError: codec.blocks.cover.
    """
    finding = uncovered(width, block, where)
    if finding is not None:
        raise ContractError(finding)
    return width // block.elements * block.bytes
