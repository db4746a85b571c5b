"""A small file that differs from the published one is told by digest, with the fields where the contract holds them."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.checkpoint.judge import judge_checkpoint
from assay.spec.errors import Finding
from assay.spec.judgement import Judgement, JudgeOptions

pytestmark = pytest.mark.checkpoint


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    for path in checkpoint.iterdir():
        if path.suffix in {".json", ".jinja", ".txt", ".jsonl"}:
            shutil.copyfile(path, tmp_path / path.name)
    return tmp_path


def judge(folder: Path) -> Judgement:
    return judge_checkpoint(folder, JudgeOptions())


def digest_of(judgement: Judgement, name: str) -> Finding:
    (found,) = [one for one in judgement.faults if (one.code, one.where) == ("files.digest", name)]
    return found


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=2))


UNJUDGED = (
    "no judged field differs; what only the digest covers does: transformers_version, the order of the fields,"
    " or the spelling"
)
HINTS: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
    "unjudged field": ("config.json", lambda it: it.update(transformers_version="9"), UNJUDGED),
    "judged field": ("config.json", lambda it: it["text_config"].update(hidden_size=1), "fields that differ: text_config.hidden_size"),
    "stop ids": ("generation_config.json", lambda it: it.update(eos_token_id=[1]), "fields that differ: eos_token_id"),
    "free field": ("generation_config.json", lambda it: it.update(top_k=1),
                   "no field that the contract holds differs; other fields of this file are covered by its digest alone"),
    "split pattern": ("tokenizer_config.json", lambda it: it.update(pretokenize_regex="x"),
                      "fields that differ: pretokenize_regex"),
    "owner": ("model.safetensors.index.json",
              lambda it: it["weight_map"].update({"lm_head.weight": "model-00001-of-00131.safetensors"}),
              "fields that differ: lm_head.weight"),
}  # fmt: skip


@pytest.mark.parametrize("name", HINTS)
def test_the_hint_of_a_digest_says_what_is_known_to_differ(copy: Path, name: str) -> None:
    file, change, hint = HINTS[name]
    edit(copy / file, change)
    assert digest_of(judge(copy), file).hint == hint


def test_a_file_that_is_only_spelled_anew_is_said_to_be(copy: Path) -> None:
    document = json.loads((copy / "generation_config.json").read_text())
    (copy / "generation_config.json").write_text(json.dumps(document))
    assert digest_of(judge(copy), "generation_config.json").hint == "no field differs: only the spelling does"


@pytest.mark.parametrize("name", ["merges.txt", "chat_template.jinja", "vocab.json"])
def test_an_edited_file_of_the_tokenizer_rejects_the_tokenizer(copy: Path, name: str) -> None:
    with (copy / name).open("a") as file:
        file.write(" ")
    judgement = judge(copy)
    assert digest_of(judgement, name).stage == "files"
    assert judgement.areas["tokenizer"] == "rejected"


@pytest.mark.parametrize("claim", [{"quantization_config": {"quant_method": "fp8"}}, {"quantization": {}}])
def test_a_claim_of_packed_weights_hides_nothing_when_the_tensors_contradict_it(
    copy: Path, claim: dict[str, Any]
) -> None:
    edit(copy / "config.json", lambda config: config.update(claim))
    (copy / "merges.txt").write_text("a b")
    judgement = judge(copy)
    (key,) = claim
    told = {(one.code, one.where) for one in judgement.faults}
    assert {("foreign.contradicted", f"config.json: {key}"), ("config.extra", f"config.json: {key}"),
            ("files.digest", "merges.txt")} <= told  # fmt: skip
    assert judgement.areas["tokenizer"] == "rejected"


def test_a_conversion_with_an_edited_template_leaves_its_tokenizer_open(copy: Path) -> None:
    edit(copy / "config.json", lambda config: config.update(quantization={"bits": 4}))
    lines = (
        (copy / "safetensors-headers.partial.jsonl").read_text().replace("lm_head.weight", "lm_head.scales")
    )
    lines = lines.replace("model.language_model.norm.weight", "model.language_model.norm.biases")
    (copy / "safetensors-headers.partial.jsonl").write_text(lines)
    (copy / "chat_template.jinja").write_text("x")
    judgement = judge(copy)
    assert judgement.facts["conversion"] == "an MLX conversion"
    assert ("foreign.file", "chat_template.jinja") in {(one.code, one.where) for one in judgement.gaps}
    assert "merges.txt" in judgement.facts["published_files"]
    assert judgement.areas["tokenizer"] == "inconclusive"


def link(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "code"),
    [(Path.mkdir, "input.file.directory"), (os.mkfifo, "input.file.irregular"), (link, "input.file.symlink_loop"),
     (lambda _: None, "files.missing")],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_told_once(copy: Path, make: Callable[[Path], Any], code: str) -> None:
    (copy / "config.json").unlink()
    make(copy / "config.json")
    judgement = judge(copy)
    assert [one.code for one in judgement.findings if one.where == "config.json"] == [code]
    assert judgement.areas["config"] != "accepted"


def test_a_moved_tensor_is_one_finding_about_its_owner(copy: Path) -> None:
    edit(copy / "model.safetensors.index.json", HINTS["owner"][1])
    codes = [one.code for one in judge(copy).faults if "lm_head.weight" in one.where]
    assert codes == ["inventory.absent"]


def test_a_wrong_total_rejects_the_index_and_not_the_inventory(copy: Path) -> None:
    edit(copy / "model.safetensors.index.json", lambda index: index["metadata"].update(total_size=1))
    judgement = judge(copy)
    assert (judgement.areas["index"], judgement.areas["inventory"]) == ("rejected", "accepted")
