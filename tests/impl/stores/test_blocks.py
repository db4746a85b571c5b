"""Blocks cover a row exactly or the codec is refused with the numbers."""

import gguf
import pytest

from assay.impl.stores.expert_major.blocks import AFFINE4, CONVERTER, GGML, Block, row_bytes, uncovered
from assay.spec.errors import ContractError
from assay.spec.verdicts import Label


def block(elements: int) -> Block:
    return Block(12, f"{elements}-value blocks", elements, elements)


@pytest.mark.parametrize(
    ("width", "parts", "elements", "left"),
    [
        (640, 1, 256, 128),
        (640, 1, 128, None),
        (640, 1, 64, None),
        (640, 1, 32, None),
        (640, 2, 128, 64),
        (640, 2, 64, None),
        (640, 4, 64, 32),
        (640, 4, 32, None),
        (160, 1, 64, 32),
        (160, 1, 32, None),
    ],
)
def test_a_width_is_covered_exactly_or_refused_with_what_is_left(
    width: int, parts: int, elements: int, left: int | None
) -> None:
    """Bug report A31."""
    finding = uncovered(width, block(elements), "row", parts=parts)
    if left is None:
        assert finding is None
    else:
        assert finding is not None
        assert (finding.code, finding.where) == ("codec.blocks.cover", "row")
        assert finding.got.endswith(f"which leaves {left}")


def test_a_split_that_is_not_even_is_refused() -> None:
    finding = uncovered(640, block(1), "row", parts=3)
    assert finding is not None
    assert (finding.code, finding.got) == ("codec.blocks.cover", "640 values")


def test_a_row_that_is_not_whole_blocks_has_no_size() -> None:
    with pytest.raises(ContractError) as caught:
        row_bytes(640, GGML[12], "down")
    assert (caught.value.finding.code, caught.value.finding.where) == ("codec.blocks.cover", "down")
    assert row_bytes(640, AFFINE4, "down") == 360


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    theirs = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    ours = {kind: (one.elements, one.bytes) for kind, one in GGML.items()}
    assert ours.keys() - theirs.keys() <= {40, 41}  # an older package lacks the newest
    assert {kind: size for kind, size in ours.items() if kind in theirs} == {
        kind: theirs[kind] for kind in ours.keys() & theirs.keys()
    }


def test_the_converter_sizes_two_types_as_its_project_does() -> None:
    assert (CONVERTER[19].bytes, CONVERTER[20].bytes) == (110, 50)


def test_every_codec_is_structural_only() -> None:
    assert {one.status for one in [*GGML.values(), AFFINE4]} == {Label.STRUCTURAL_ONLY}
