"""A private artifact is held to everything that its own configuration gives; what it states of itself is no excuse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.stores.artifact.build import build_artifact
from assay.impl.stores.artifact.judge import judge_artifact
from assay.impl.stores.artifact.private import CONFIG_KEY, PHYSICAL_JSON_KEY
from assay.impl.stores.gguf.reader import Entry, Gguf, read_gguf
from assay.impl.stores.gguf.values import ValueType, scalar
from assay.impl.stores.gguf.writer import Planned, plan_gguf
from assay.mutations.store_memory import memory_extent
from assay.spec.canonical import canonical_json
from assay.spec.errors import AdmissionError, Finding
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.verdicts import Verdict


@pytest.fixture(scope="module")
def artifact(miniature: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    target = tmp_path_factory.mktemp("private") / "miniature.gguf"
    build_artifact(miniature, target)
    return target.read_bytes()


def judged(data: bytes) -> Judgement:
    extent = memory_extent(data)
    return judge_artifact(read_gguf(extent), extent, JudgeOptions(is_private=True))


def rewritten(data: bytes, change: Callable[[list[Entry]], None]) -> bytes:
    """Returns the artifact with other metadata: the same tensors, laid out anew."""
    gguf: Gguf = read_gguf(memory_extent(data))
    entries = list(gguf.entries)
    change(entries)
    stores = {"ds4.expert_major.v2", "ds4.ple_rows.v1"}
    plan = plan_gguf(
        entries,
        [
            Planned(one.name, one.dimensions, one.type_id, 4096 if one.name in stores else None)
            for one in gguf.tensors
        ],
    )
    found = bytearray(plan.file_bytes)
    found[: len(plan.head)] = plan.head
    for tensor, start, size in zip(gguf.tensors, plan.starts, plan.sizes, strict=True):
        begin = gguf.data_start + tensor.offset
        found[start : start + size] = data[begin : begin + size]
    return bytes(found)


def set_text(key: str, text: str) -> Callable[[list[Entry]], None]:
    def change(entries: list[Entry]) -> None:
        place = next(index for index, one in enumerate(entries) if one.key == key)
        entries[place] = Entry(key, scalar(ValueType.STRING, text))

    return change


def config_of(data: bytes) -> dict[str, Any]:
    value = read_gguf(memory_extent(data)).value(CONFIG_KEY)
    assert value is not None
    found: dict[str, Any] = json.loads(str(value.python()))
    return found


def test_the_artifact_rewritten_without_a_change_is_accepted(artifact: bytes) -> None:
    assert rewritten(artifact, lambda _: None) == artifact
    assert judged(artifact).verdict is Verdict.ACCEPTED


def test_a_changed_configuration_is_another_profile_with_other_entries(artifact: bytes) -> None:
    config = config_of(artifact)
    config["text_config"]["rms_norm_eps"] = 1e-5
    found = judged(rewritten(artifact, set_text(CONFIG_KEY, canonical_json(config).decode())))
    assert (found.stage, found.faults[0].where) == ("identity", "ds4.model.profile_id")


@pytest.mark.parametrize(
    ("key", "value", "stage", "where"),
    [
        ("ds4.model.tensor_inventory_digest", "0" * 64, "expert_store", "ds4.expert_major.v2: source_sha256"),
        ("ds4.model.tensor_inventory_digest", "short", "identity", "ds4.model.tensor_inventory_digest"),
        ("ds4.model.source_revision", "main", "identity", "ds4.model.source_revision"),
        ("ds4.model.physical_profile_id", "assay-physical-f32-bf16-v1", "physical_profile",
         "ds4.model.physical_profile_id"),
        ("qwen4exp.text.hidden_act", "gelu", "metadata", "qwen4exp.text.hidden_act"),
        ("qwen4exp.ple.hash_id", "SplitMix64-Qwen4Exp-v1", "metadata", "qwen4exp.ple.hash_id"),
        ("ds4.tokenizer.digest", "somewhere", "tokenizer", "ds4.tokenizer.digest"),
        ("ds4.expert_store.codec", "f32", "expert_store", "ds4.expert_store.codec"),
        ("ds4.ple_store.profile", "qwen4exp-base-v1", "ple_store", "ds4.ple_store.profile"),
    ],
)  # fmt: skip
def test_an_entry_that_differs_from_the_configuration_stops_at_its_stage(
    artifact: bytes, key: str, value: str, stage: str, where: str
) -> None:
    found = judged(rewritten(artifact, set_text(key, value)))
    assert (found.stage, found.faults[0].where) == (stage, where)


@pytest.mark.parametrize(
    ("key", "text", "where"),
    [
        (CONFIG_KEY, "{", CONFIG_KEY),
        (CONFIG_KEY, "", CONFIG_KEY),
        (CONFIG_KEY, "[]", CONFIG_KEY),
        (CONFIG_KEY, '{"b":1, "a":2}', CONFIG_KEY),
        (CONFIG_KEY, '{"a":1}', f"{CONFIG_KEY}: text_config.vocab_size"),
        (CONFIG_KEY, '{"a":1,"a":2}', CONFIG_KEY),
        (CONFIG_KEY, '{"a":99999999999999999}', CONFIG_KEY),
        (PHYSICAL_JSON_KEY, '{"expertCodec":"q4_k"}', f"{PHYSICAL_JSON_KEY}: expertCodec"),
        (PHYSICAL_JSON_KEY, '{"expertCodec":["bf16"]}', f"{PHYSICAL_JSON_KEY}: expertCodec"),
        (PHYSICAL_JSON_KEY, '{"expertCodec":"bf16","rowCodec":"q8"}', f"{PHYSICAL_JSON_KEY}: rowCodec"),
        (PHYSICAL_JSON_KEY, '{"expertCodec":"bf16","rowCodec":{}}', f"{PHYSICAL_JSON_KEY}: rowCodec"),
        (PHYSICAL_JSON_KEY, '{"expertCodec":"bf16","pageAlignment":0,"rowCodec":"bf16","rowsPerPage":1}',
         PHYSICAL_JSON_KEY),
        (PHYSICAL_JSON_KEY, '{"expertCodec":"bf16","pageAlignment":5000,"rowCodec":"bf16","rowsPerPage":1}',
         f"{CONFIG_KEY}: page_alignment"),
    ],
)  # fmt: skip
def test_hostile_descriptions_are_refused_at_identity(
    artifact: bytes, key: str, text: str, where: str
) -> None:
    found = judged(rewritten(artifact, set_text(key, text)))
    assert found.verdict is Verdict.REJECTED
    assert (found.stage, found.faults[0].where.startswith(where)) == ("identity", True)
    assert found.facts["ownership"]["admitted"] is False


def test_a_public_profile_can_not_be_claimed_through_a_private_configuration(artifact: bytes) -> None:
    found = judged(rewritten(artifact, set_text("ds4.model.profile_id", "qwen4exp-base-v1")))
    assert (found.stage, found.faults[0].where) == ("identity", "ds4.model.profile_id")


def test_no_entry_is_free(artifact: bytes) -> None:
    """Changing the last byte of any entry's value is found at a stage and at that key."""
    entries = read_gguf(memory_extent(artifact)).entries
    free = []
    for place, entry in enumerate(entries):

        def change(found: list[Entry], place: int = place) -> None:
            old = found[place].value
            data = old.data[:-1] + bytes([old.data[-1] ^ 1])
            found[place] = Entry(found[place].key, type(old)(old.type, old.element, old.count, data))

        if not judged(rewritten(artifact, change)).faults:
            free.append(entry.key)
    # Nobody can derive these from the file: their form is all that can be judged.
    assert free == ["ds4.tokenizer.digest", "ds4.tokenizer_config.digest", "ds4.chat_template.digest"]


@settings(max_examples=150)
@given(
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6),
    length=st.floats(0, 1),
)
def test_no_damage_ends_in_anything_but_a_finding(
    artifact: bytes, edits: list[tuple[float, int]], length: float
) -> None:
    data = bytearray(artifact)
    head = read_gguf(memory_extent(artifact)).data_start
    for place, value in edits:
        data[int(place * (head - 1))] = value
    if length < 0.2:
        del data[int(length * 5 * len(data)) :]
    found = findings_of(bytes(data))
    assert found or bytes(data) == artifact or _is_free_digest(artifact, bytes(data))


def findings_of(data: bytes) -> list[Finding]:
    try:
        return judged(data).findings
    except AdmissionError as error:  # the directory itself can't be read
        return [error.finding]


def _is_free_digest(before: bytes, after: bytes) -> bool:
    """Says whether two artifacts differ in nothing but digests of a tokenizer, which no file can derive."""
    one, other = (
        {entry.key: entry.value for entry in read_gguf(memory_extent(data)).entries}
        for data in (before, after)
    )
    return len(before) == len(after) and {key for key in one if one[key] != other.get(key)} <= {
        "ds4.tokenizer.digest", "ds4.tokenizer_config.digest", "ds4.chat_template.digest"
    }  # fmt: skip
