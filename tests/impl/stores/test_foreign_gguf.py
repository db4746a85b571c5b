"""A llama.cpp conversion at the real geometry (sparse, so that it takes a few KiB) is judged by its standard keys.

The expected numbers are those of the published config, written out here.
"""

from pathlib import Path

import pytest

from assay.impl.stores.checkpoint.judge import judge_checkpoint
from assay.impl.stores.gguf.reader import Entry
from assay.impl.stores.gguf.values import ValueType, array, scalar
from assay.impl.stores.gguf.writer import Planned, plan_gguf
from assay.spec.judgement import Judgement, JudgeOptions

Q8_0, Q4_0, F32 = 8, 2, 0
KEYS: dict[str, int | float | str] = {
    "general.architecture": "qwen4exp",
    "qwen4exp.block_count": 48,
    "qwen4exp.embedding_length": 2560,
    "qwen4exp.attention.head_count": 24,
    "qwen4exp.attention.head_count_kv": 2,
    "qwen4exp.attention.key_length": 256,
    "qwen4exp.attention.value_length": 256,
    "qwen4exp.expert_count": 512,
    "qwen4exp.expert_used_count": 10,
    "qwen4exp.expert_feed_forward_length": 640,
    "qwen4exp.expert_shared_feed_forward_length": 640,
    "qwen4exp.context_length": 262144,
    "qwen4exp.rope.freq_base": 10000000.0,
    "qwen4exp.vocab_size": 248320,
    "tokenizer.ggml.eos_token_id": 248046,
    "tokenizer.ggml.padding_token_id": 248044,
}


def tensors() -> list[Planned]:
    found = [
        Planned("token_embd.weight", (2560, 248320), Q8_0),
        Planned("output.weight", (2560, 248320), Q8_0),
    ]
    for layer in range(48):
        found += [
            Planned(f"blk.{layer}.ffn_gate_inp.weight", (2560, 512), F32),
            Planned(f"blk.{layer}.ffn_gate_exps.weight", (2560, 640, 512), Q4_0),
            Planned(f"blk.{layer}.ffn_up_exps.weight", (2560, 640, 512), Q4_0),
            Planned(f"blk.{layer}.ffn_down_exps.weight", (640, 2560, 512), Q4_0),
        ]
    return found


def write(
    folder: Path,
    keys: dict[str, int | float | str | None] | None = None,
    planned: list[Planned] | None = None,
    tokens: int = 248077,
    name: str = "model-Q4_0.gguf",
) -> Path:
    values = {key: value for key, value in {**KEYS, **(keys or {})}.items() if value is not None}
    kinds = {int: ValueType.UINT32, float: ValueType.FLOAT32, str: ValueType.STRING}
    entries = [Entry(key, scalar(kinds[type(value)], value)) for key, value in values.items()]
    entries.append(Entry("tokenizer.ggml.tokens", array(ValueType.STRING, ["t"] * tokens)))
    plan = plan_gguf(entries, tensors() if planned is None else planned)
    with (folder / name).open("wb") as file:
        file.write(plan.head)
        file.truncate(plan.file_bytes)
    return folder


def told(folder: Path) -> tuple[Judgement, list[tuple[str, str]]]:
    judgement = judge_checkpoint(folder, JudgeOptions())
    return judgement, [(finding.code, finding.where) for finding in judgement.faults]


def test_a_conversion_that_agrees_is_open_for_what_it_cannot_say(tmp_path: Path) -> None:
    judgement, faults = told(write(tmp_path))
    assert faults == []
    assert judgement.facts["conversion"] == "a llama.cpp GGUF conversion"
    assert judgement.areas == {
        "headers": "accepted", "config": "accepted", "hash": "inconclusive", "inventory": "accepted",
        "tokenizer": "accepted",
    }  # fmt: skip
    assert [(finding.code, finding.stage) for finding in judgement.gaps] == [
        ("foreign.conversion", "identity"), ("checkpoint.unjudged", "hash"),
    ]  # fmt: skip


def test_the_codecs_and_real_bits_are_counted(tmp_path: Path) -> None:
    """Q4_0 has 18 bytes for 32 weights, which is 4.5 bits; the two 8.5-bit tables lift it a little."""
    judgement, _ = told(write(tmp_path))
    assert judgement.facts["codecs"] == {"Q8_0": 2, "F32": 48, "Q4_0": 144}
    assert 4.5 < judgement.facts["bits_per_weight"] < 4.6


@pytest.mark.parametrize(
    ("keys", "code", "where"),
    [
        ({"general.architecture": "qwen35moe"}, "foreign.gguf.architecture", "general.architecture"),
        ({"qwen4exp.expert_used_count": 8}, "foreign.gguf.key", "qwen4exp.expert_used_count"),
        ({"qwen4exp.rope.freq_base": 10000.0}, "foreign.gguf.key", "qwen4exp.rope.freq_base"),
        ({"qwen4exp.vocab_size": 248077}, "foreign.gguf.key", "qwen4exp.vocab_size"),
        ({"tokenizer.ggml.eos_token_id": 248044}, "foreign.gguf.tokens", "tokenizer.ggml.eos_token_id"),
    ],
)
def test_a_wrong_key_is_named(
    tmp_path: Path, keys: dict[str, int | float | str | None], code: str, where: str
) -> None:
    _, faults = told(write(tmp_path, keys))
    assert faults == [(code, where)]


def test_a_key_that_is_not_there_is_open_and_not_wrong(tmp_path: Path) -> None:
    judgement, faults = told(write(tmp_path, {"qwen4exp.expert_count": None}))
    assert faults == []
    assert judgement.areas["config"] == "inconclusive"
    assert any(finding.got == "no key qwen4exp.expert_count" for finding in judgement.gaps)


def test_a_table_cut_to_the_tokenizer_is_a_wrong_shape(tmp_path: Path) -> None:
    cut = [
        Planned("output.weight", (2560, 248077), Q8_0) if t.name == "output.weight" else t for t in tensors()
    ]
    _, faults = told(write(tmp_path, planned=cut))
    assert faults == [("foreign.gguf.tensor", "output.weight")]


def test_a_lost_layer_is_named(tmp_path: Path) -> None:
    """ggml-org/llama.cpp#24737: a block count that includes the draft layer, or leaves one out."""
    cut = [tensor for tensor in tensors() if not tensor.name.startswith("blk.47.")]
    judgement, faults = told(write(tmp_path, planned=cut))
    assert faults == [("foreign.gguf.tensor", "blk.*")]
    assert judgement.faults[0].got == "47, to 46"


def test_a_token_list_of_another_length_is_named(tmp_path: Path) -> None:
    _, faults = told(write(tmp_path, tokens=248000))
    assert faults == [("foreign.gguf.tokens", "tokenizer.ggml.tokens")]


def test_the_parts_of_a_split_conversion_are_judged_together(tmp_path: Path) -> None:
    found = tensors()
    write(tmp_path, planned=found[:100], name="m-00001-of-00002.gguf")
    second = plan_gguf([Entry("split.no", scalar(ValueType.UINT16, 1))], found[100:])
    with (tmp_path / "m-00002-of-00002.gguf").open("wb") as file:
        file.write(second.head)
        file.truncate(second.file_bytes)
    judgement, faults = told(tmp_path)
    assert faults == []
    assert (judgement.areas["inventory"], judgement.facts["tensors"]) == ("accepted", 194)


def test_a_file_without_an_architecture_leaves_every_area_open(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03\0\0\0" + bytes(24))
    judgement, faults = told(tmp_path)
    assert faults == []
    assert {area for area, verdict in judgement.areas.items() if verdict == "inconclusive"} == {
        "config", "hash", "inventory", "tokenizer",
    }  # fmt: skip


def test_a_damaged_file_is_one_finding(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x02\0\0\0" + bytes(16))
    _, faults = told(tmp_path)
    assert faults == [("gguf.version", "version")]
