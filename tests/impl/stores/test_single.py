"""One file of a checkpoint alone is judged as far as it goes, and says how far that is."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.checkpoint_writer import PlannedTensor, write_safetensors
from assay.impl.stores.single import judge_config_file, judge_index_file, judge_safetensors_file
from assay.provenance.miniature import write_miniature
from assay.spec.judgement import Judgement, JudgeOptions

PRIVATE = JudgeOptions(is_private=True)


def told(judgement: Judgement) -> list[tuple[str, str]]:
    return [(finding.code, finding.where) for finding in judgement.findings]


@pytest.fixture
def miniature(tmp_path: Path) -> Path:
    write_miniature(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("judge", "name"),
    [
        (judge_config_file, "config.json"),
        (judge_index_file, "model.safetensors.index.json"),
        (judge_safetensors_file, "model-00003-of-00003.safetensors"),
    ],
)
def test_a_file_of_a_private_profile_is_refused_on_the_public_route(
    miniature: Path, judge: Callable[[Path, JudgeOptions], Judgement], name: str
) -> None:
    assert told(judge(miniature / name, JudgeOptions())) == [("profile.private", "assay-miniature-v1")]
    assert told(judge(miniature / name, PRIVATE)) == []


def test_the_names_of_an_index_are_judged(miniature: Path) -> None:
    path = miniature / "model.safetensors.index.json"
    document = json.loads(path.read_text())
    document["weight_map"]["mtp.fc.weight"] = document["weight_map"]["head.weight"] = document[
        "weight_map"
    ].pop("lm_head.weight")
    path.write_text(json.dumps(document))
    assert told(judge_index_file(path, PRIVATE)) == [
        ("inventory.missing", "lm_head.weight"),
        ("inventory.unexpected", "head.weight"),
        ("inventory.classes", "mtp (mtp.*)"),
    ]


def test_a_shard_alone_is_judged_by_its_tensors_and_not_by_what_it_lacks(miniature: Path) -> None:
    judgement = judge_safetensors_file(miniature / "model-00003-of-00003.safetensors", PRIVATE)
    assert (judgement.verdict, told(judgement)) == ("accepted", [])
    assert any(text.startswith("totals and absent tensors") for text in judgement.not_checked)


def test_a_wrong_type_in_a_shard_alone_is_named(miniature: Path) -> None:
    path = miniature / "model-00003-of-00003.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = data[8 : 8 + length].replace(
        b'"lm_head.weight":{"dtype":"BF16"', b'"lm_head.weight":{"dtype":"F16" '
    )
    path.write_bytes(data[:8] + header + data[8 + length :])
    assert told(judge_safetensors_file(path, PRIVATE)) == [
        ("inventory.dtype", f"{path.name}: lm_head.weight")
    ]


def test_a_file_of_another_model_is_judged_as_a_file_and_says_so(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", [PlannedTensor("transformer.h.0.w", "F32", (2,))])
    judgement = judge_safetensors_file(tmp_path / "m.safetensors", JudgeOptions())
    assert (judgement.verdict, told(judgement)) == ("accepted", [])
    assert any(text.startswith("roles: no tensor of it") for text in judgement.not_checked)


def edit(source: Path, target: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    document = json.loads(source.read_text())
    change(document)
    target.write_text(json.dumps(document))
    return target


@pytest.mark.checkpoint
def test_the_total_of_the_real_index_is_judged(checkpoint: Path, tmp_path: Path) -> None:
    source = checkpoint / "model.safetensors.index.json"
    path = edit(
        source,
        tmp_path / "model.safetensors.index.json",
        lambda index: index["metadata"].update(total_size=1),
    )
    assert told(judge_index_file(path, JudgeOptions())) == [
        ("index.total_size", "model.safetensors.index.json: metadata.total_size")
    ]


@pytest.mark.checkpoint
def test_a_config_that_was_spelled_anew_is_accepted_and_said_not_to_be_the_published_file(
    checkpoint: Path, tmp_path: Path
) -> None:
    path = edit(checkpoint / "config.json", tmp_path / "config.json", lambda _: None)
    judgement = judge_config_file(path, JudgeOptions())
    assert (judgement.verdict, judgement.facts["is_published_file"]) == ("accepted", False)
    assert judge_config_file(checkpoint / "config.json", JudgeOptions()).facts["is_published_file"] is True


@pytest.mark.checkpoint
def test_the_real_header_set_alone_is_judged_with_its_totals_and_digest(
    checkpoint: Path, tmp_path: Path
) -> None:
    lines = (checkpoint / "safetensors-headers.partial.jsonl").read_text().splitlines()
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    whole.write_text("\n".join(lines))
    cut.write_text("\n".join(lines[:-1]))
    assert told(judge_safetensors_file(whole, JudgeOptions())) == []
    judgement = judge_safetensors_file(cut, JudgeOptions())
    assert told(judgement) == []
    assert any(text.startswith("totals and absent tensors") for text in judgement.not_checked)
    first = json.loads(lines[0])
    for key in ("header_sha256", "header_length_bytes", "file_size", "data_start"):
        del first[key]
    first["header"] = first["header"].replace('"BF16"', '"F16"', 1)
    whole.write_text("\n".join([json.dumps(first), *lines[1:]]))
    assert {code for code, _ in told(judge_safetensors_file(whole, JudgeOptions()))} == {
        "inventory.dtype", "inventory.totals", "inventory.digest",
    }  # fmt: skip
