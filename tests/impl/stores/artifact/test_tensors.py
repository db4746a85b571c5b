"""An artifact read as a checkpoint gives the checkpoint's names, shapes and bytes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.impl.stores.artifact.build import build_artifact
from assay.impl.stores.artifact.opened import Artifact
from assay.impl.stores.artifact.tensors import ArtifactTensors
from assay.impl.stores.checkpoint.reader import CheckpointReader
from assay.impl.stores.expert_major.affine4 import decode, encode, from_bf16
from assay.spec.errors import AdmissionError

STEM = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding."


@pytest.fixture(scope="module")
def tensors(miniature: Path, tmp_path_factory: pytest.TempPathFactory) -> ArtifactTensors:
    target = tmp_path_factory.mktemp("tensors") / "miniature.gguf"
    build_artifact(miniature, target)
    return ArtifactTensors(Artifact.open(target, is_private=True))


def test_every_tensor_has_the_checkpoints_shape_and_bytes(tensors: ArtifactTensors, miniature: Path) -> None:
    reader = CheckpointReader.open(miniature)
    shards = [f"{STEM}shard_{part}.weight" for part in range(4)]
    for name, row in reader.rows.items():
        if name not in shards:
            assert (tensors.rows[name].shape, tensors.rows[name].dtype) == (row.shape, row.dtype)
            assert tensors.read(name) == reader.read(name), name
    assert tensors.rows[f"{STEM}weight"].shape == (8864, 4)
    assert tensors.read(f"{STEM}weight") == b"".join(reader.read(one) for one in shards)
    assert set(tensors.rows) == set(reader.rows) - set(shards) | {f"{STEM}weight"}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_range_of_any_tensor_is_the_slice_of_the_whole(
    tensors: ArtifactTensors, data: st.DataObject
) -> None:
    names = [
        f"{STEM}weight", "model.language_model.layers.3.mlp.experts.gate_up_proj",
        "model.language_model.layers.3.mlp.experts.down_proj", "lm_head.weight",
        "model.language_model.layers.1.ple.ple_embedding.ngram_heads_offsets",
    ]  # fmt: skip
    name = data.draw(st.sampled_from(names))
    size = tensors.rows[name].end
    begin = data.draw(st.integers(0, size))
    end = data.draw(st.integers(begin, size))
    assert b"".join(tensors.pieces(name, begin=begin, end=end)) == tensors.read(name)[begin:end]


@pytest.mark.parametrize(
    ("name", "end", "got"), [("odd", None, "none"), ("lm_head.weight", 1 << 40, f"[0, {1 << 40})")]
)
def test_what_is_not_there_is_refused_by_name(
    tensors: ArtifactTensors, name: str, end: int | None, got: str
) -> None:
    with pytest.raises(AdmissionError) as caught:
        list(tensors.pieces(name, end=end))
    assert (caught.value.finding.code, caught.value.finding.where) == ("checkpoint.tensor", name)
    assert caught.value.finding.got == got


def test_quantised_experts_come_as_the_values_of_their_codec(miniature: Path, tmp_path: Path) -> None:
    build_artifact(miniature, tmp_path / "four.gguf", codec="mlx-affine4")
    name = "model.language_model.layers.6.mlp.experts.down_proj"
    stored = np.frombuffer(CheckpointReader.open(miniature).read(name), dtype="<u2").reshape(16, 64, 64)
    with Artifact.open(tmp_path / "four.gguf", is_private=True) as artifact:
        found = ArtifactTensors(artifact)
        assert found.rows[name].dtype == "F32"
        values = np.frombuffer(found.read(name), dtype="<f4").reshape(16, 64, 64)
    assert np.array_equal(values, decode(encode(from_bf16(stored)), "f32").reshape(16, 64, 64))


def test_a_damaged_page_is_found_when_its_rows_are_read(miniature: Path, tmp_path: Path) -> None:
    target = tmp_path / "damaged.gguf"
    build_artifact(miniature, target)
    data = bytearray(target.read_bytes())
    data[-8000] ^= 1
    target.write_bytes(data)
    with Artifact.open(target, is_private=True) as artifact, pytest.raises(AdmissionError) as caught:
        ArtifactTensors(artifact).read(f"{STEM}weight")
    assert caught.value.finding.code == "ple-store.page.digest"
