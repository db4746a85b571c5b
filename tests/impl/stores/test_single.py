"""One file of a checkpoint alone is judged as far as it goes, and says how far that is."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.checkpoint.single import judge_config_file, judge_index_file, judge_safetensors_file
from assay.impl.stores.checkpoint.writer import PlannedTensor, write_safetensors
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


@pytest.mark.parametrize("tensors", [[PlannedTensor("transformer.h.0.w", "F32", (2,))], []])
def test_a_file_of_another_model_leaves_its_inventory_open(
    tmp_path: Path, tensors: list[PlannedTensor]
) -> None:
    write_safetensors(tmp_path / "m.safetensors", tensors)
    judgement = judge_safetensors_file(tmp_path / "m.safetensors", JudgeOptions())
    assert (judgement.verdict, told(judgement)) == ("inconclusive", [("checkpoint.unjudged", "inventory")])
    assert judgement.areas == {"headers": "accepted", "inventory": "inconclusive"}


def test_a_tensor_of_a_role_in_a_layer_that_is_not_there_is_unexpected(tmp_path: Path) -> None:
    name = "model.language_model.layers.99.mlp.gate.weight"
    write_safetensors(tmp_path / "m.safetensors", [PlannedTensor(name, "I32", (3,))])
    assert told(judge_safetensors_file(tmp_path / "m.safetensors", JudgeOptions())) == [
        ("inventory.unexpected", f"m.safetensors: {name}")
    ]


def test_an_inventory_of_an_unreadable_file_is_not_accepted(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0[]")
    judgement = judge_safetensors_file(tmp_path / "m.safetensors", JudgeOptions())
    assert judgement.areas == {"headers": "rejected", "inventory": "inconclusive"}


def test_an_index_of_another_model_leaves_its_inventory_open(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"metadata": {"total_size": 4}, "weight_map": {"h.0.w": "m.safetensors"}}')
    assert told(judge_index_file(path, JudgeOptions())) == [("checkpoint.unjudged", "inventory")]


@pytest.mark.checkpoint
def test_a_lone_index_with_another_owner_is_open_and_one_that_is_respelled_is_not(
    checkpoint: Path, tmp_path: Path
) -> None:
    source, path = checkpoint / "model.safetensors.index.json", tmp_path / "mine.json"
    edit(source, path, lambda _: None)
    assert told(judge_index_file(path, JudgeOptions())) == []
    edit(
        source,
        path,
        lambda index: index["weight_map"].update(
            {"model.language_model.layers.16.mlp.gate.weight": "model-00099-of-00131.safetensors"}
        ),
    )
    judgement = judge_index_file(path, JudgeOptions())
    assert (judgement.verdict, told(judgement)) == (
        "inconclusive", [("index.owners", "mine.json: weight_map")],
    )  # fmt: skip


def test_another_key_in_the_metadata_of_an_index_is_named(miniature: Path) -> None:
    path = miniature / "model.safetensors.index.json"
    edit(path, path, lambda index: index["metadata"].update(total_parameters=1))
    assert told(judge_index_file(path, PRIVATE)) == [
        ("index.form", f"{path.name}: metadata.total_parameters")
    ]


def test_a_config_under_another_name_is_told_under_that_name(miniature: Path) -> None:
    path = edit(
        miniature / "config.json",
        miniature / "mine.json",
        lambda config: config["text_config"].update(vocab_size=353),
    )
    assert told(judge_config_file(path, PRIVATE)) == [
        ("config.value", "mine.json: text_config.vocab_size"),
        ("checkpoint.hash.multipliers", "derived from mine.json: layer_multipliers"),
    ]


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
        ("index.total_size", "model.safetensors.index.json: metadata.total_size"),
        ("index.owners", "model.safetensors.index.json: weight_map"),
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
        "headers.digest", "inventory.dtype", "inventory.totals", "inventory.digest",
    }  # fmt: skip


@pytest.mark.checkpoint
def test_other_metadata_in_a_published_header_and_another_stated_digest_are_named(
    checkpoint: Path, tmp_path: Path
) -> None:
    lines = [
        json.loads(line)
        for line in (checkpoint / "safetensors-headers.partial.jsonl").read_text().splitlines()
    ]
    last = lines[-1]
    last["header"] = last["header"].replace('"pt"', '"tp"', 1)
    del last["header_sha256"]
    lines[3]["file_sha256"] = "0" * 64
    (tmp_path / "h.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert told(judge_safetensors_file(tmp_path / "h.jsonl", JudgeOptions())) == [
        ("headers.digest", last["shard"]),
        ("header_set.file_digest", f"{lines[3]['shard']}: file_sha256"),
    ]
