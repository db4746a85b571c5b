"""Whatever a description says, it is judged: findings in one line each, and never an exception.

One node of one JSON file is replaced by an arbitrary value; the files around it stay those of the miniature, with a
tokenizer's and generation's own files beside them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.impl.stores.checkpoint.judge import judge_checkpoint
from assay.impl.stores.checkpoint.reader import CheckpointReader
from assay.provenance.miniature import write_miniature
from assay.spec.documents.validation import Validation
from assay.spec.errors import AdmissionError
from assay.spec.judgement import JudgeOptions
from assay.spec.profiles import load_profile

OPTIONS = JudgeOptions(is_private=True, with_payload=True)
FILES = (
    "config.json", "model.safetensors.index.json", "tokenizer_config.json", "generation_config.json",
    "checkpoint-manifest.json",
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["qwen4_exp", "../x.safetensors", "model-00001-of-00003.safetensors", "a\nb", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    write_miniature(folder)
    vocabulary = load_profile("miniature").vocabulary
    tokens = {str(t.id): {"content": t.content, "special": t.special} for t in vocabulary.added_tokens}
    tokenizer = {
        "added_tokens_decoder": tokens,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    generation = {"bos_token_id": 320, "eos_token_id": [322, 320], "pad_token_id": 320}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in nodes(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def test_the_description_itself_is_accepted_but_for_unknown_digests(described: Path) -> None:
    judgement = judge_checkpoint(described, OPTIONS)
    assert judgement.faults == []
    assert {finding.code for finding in judgement.gaps} == {"payload.unknown"}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_value_in_any_place_is_judged_without_an_exception(described: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILES))
    original = (described / name).read_text()
    document = json.loads(original)
    path = data.draw(st.sampled_from(nodes(document)))
    (described / name).write_text(json.dumps(replaced(document, path, data.draw(VALUES))))
    try:
        judgement = judge_checkpoint(described, OPTIONS)
        assert all(finding.line.isprintable() for finding in judgement.findings)
        Validation.model_validate(json.loads(json.dumps(judgement.document("d"))))
    finally:
        (described / name).write_text(original)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_changed_leaf_of_the_config_is_never_accepted(described: Path, data: st.DataObject) -> None:
    original = (described / "config.json").read_text()
    document = json.loads(original)
    path = data.draw(st.sampled_from([node for node in nodes(document) if node]))
    old = document
    for key in path:
        old = old[key]
    new = data.draw(VALUES.filter(lambda value: json.dumps(value) != json.dumps(old)))
    (described / "config.json").write_text(json.dumps(replaced(document, path, new)))
    try:
        assert judge_checkpoint(described, OPTIONS).faults
    finally:
        (described / "config.json").write_text(original)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_reader_opens_a_checkpoint_or_refuses_it(described: Path, data: st.DataObject) -> None:
    path = described / "model-00003-of-00003.safetensors"
    original = path.read_bytes()
    position = data.draw(st.integers(0, 900))
    flipped = bytearray(original)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(flipped)
    refusal = None
    try:
        CheckpointReader.open(described)
    except AdmissionError as error:
        refusal = error.finding
    finally:
        path.write_bytes(original)
    assert refusal is None or refusal.line.isprintable()
