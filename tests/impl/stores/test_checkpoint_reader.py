"""Values are read from the file that owns them, in pieces, and from nothing doubtful."""

import json
from pathlib import Path

import pytest

from assay.impl.stores.checkpoint.reader import CheckpointReader
from assay.impl.stores.checkpoint.writer import PlannedTensor, write_safetensors
from assay.spec.errors import AdmissionError

DOWN, TABLE = PlannedTensor("experts.0.down", "U8", (8,)), PlannedTensor("ple.0", "U8", (8,))


def index(folder: Path, owners: dict[str, str], total: int = 16) -> Path:
    document = {"metadata": {"total_size": total}, "weight_map": owners}
    (folder / "model.safetensors.index.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("stale", ["a.safetensors", "z.safetensors"])
def test_a_stale_copy_is_refused_whatever_file_it_lies_in(tmp_path: Path, stale: str) -> None:
    """vllm#54230, as bytes: the reused shard sorts before or after the owner; neither is loaded last."""
    write_safetensors(tmp_path / stale, [TABLE, DOWN], fill=lambda _: [b"\x11" * 8])
    write_safetensors(tmp_path / "m.safetensors", [DOWN], fill=lambda _: [b"\x22" * 8])
    index(tmp_path, {"ple.0": stale, "experts.0.down": "m.safetensors"})
    with pytest.raises(AdmissionError) as caught:
        CheckpointReader.open(tmp_path)
    assert caught.value.finding.line == (
        f"inventory.unowned: {stale}: experts.0.down: expected only in m.safetensors, as the index says, "
        f"got stored in {stale} as well"
    )


@pytest.mark.parametrize("other", ["a.safetensors", "z.safetensors"])
def test_the_owner_of_the_index_gives_the_value_in_every_order_of_files(tmp_path: Path, other: str) -> None:
    write_safetensors(tmp_path / other, [TABLE], fill=lambda _: [b"\x11" * 8])
    write_safetensors(tmp_path / "m.safetensors", [DOWN], fill=lambda _: [b"\x22" * 8])
    reader = CheckpointReader.open(index(tmp_path, {"ple.0": other, "experts.0.down": "m.safetensors"}))
    assert reader.read("experts.0.down") == b"\x22" * 8
    assert reader.read("ple.0") == b"\x11" * 8


def test_large_tensors_come_in_pieces_of_a_mebibyte(tmp_path: Path) -> None:
    size = (2 << 20) + 5
    big = PlannedTensor("big", "U8", (size,))
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    write_safetensors(tmp_path / "m.safetensors", [big], fill=lambda _: [content])
    reader = CheckpointReader.open(index(tmp_path, {"big": "m.safetensors"}, size))
    pieces = list(reader.pieces("big"))
    assert [len(piece) for piece in pieces] == [1 << 20, 1 << 20, 5]
    assert pieces[-1] == bytes((2 * (1 << 20) + k) % 251 for k in range(5))
    assert b"".join(reader.pieces("big", begin=250, end=253)) == bytes([250, 0, 1])


@pytest.mark.parametrize(("begin", "end"), [(-1, 4), (0, 9), (5, 4)])
def test_a_range_outside_a_tensor_is_refused(tmp_path: Path, begin: int, end: int) -> None:
    write_safetensors(tmp_path / "m.safetensors", [DOWN], fill=lambda _: [b"\x22" * 8])
    reader = CheckpointReader.open(index(tmp_path, {"experts.0.down": "m.safetensors"}, 8))
    with pytest.raises(AdmissionError) as caught:
        list(reader.pieces("experts.0.down", begin=begin, end=end))
    assert (caught.value.finding.code, caught.value.finding.where) == ("checkpoint.tensor", "experts.0.down")


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", [DOWN], fill=lambda _: [b"\x22" * 8])
    reader = CheckpointReader.open(index(tmp_path, {"experts.0.down": "m.safetensors"}, 8))
    with pytest.raises(AdmissionError) as caught:
        reader.read("experts.1.down")
    assert (caught.value.finding.code, caught.value.finding.where) == ("checkpoint.tensor", "experts.1.down")


def test_a_fill_of_the_wrong_length_is_our_own_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="8 bytes expected of its fill, got 7"):
        write_safetensors(tmp_path / "m.safetensors", [DOWN], fill=lambda _: [b"\x22" * 7])
    assert not (tmp_path / "m.safetensors").exists()
