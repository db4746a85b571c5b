"""A checkpoint directory is judged stage by stage; every finding names its field, tensor or file."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.checkpoint.judge import judge_checkpoint
from assay.impl.stores.checkpoint.writer import PlannedTensor, write_checkpoint, write_sparse_checkpoint
from assay.provenance.miniature import plan_shards, write_miniature
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.profiles import load_profile

PRIVATE = JudgeOptions(is_private=True)


@pytest.fixture
def miniature(tmp_path: Path) -> Path:
    write_miniature(tmp_path / "m")
    return tmp_path / "m"


def edit_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.unlink()  # it may be a link to a file that is not ours
    path.write_text(json.dumps(document))


def edit_header(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    fields = json.loads(data[8 : 8 + length])
    change(fields)
    header = json.dumps(fields).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])


def told(judgement: Judgement) -> list[tuple[str, str, str]]:
    return [(finding.stage, finding.code, finding.where) for finding in judgement.findings]


def test_the_miniature_is_accepted_through_the_private_seam_and_stamped(miniature: Path) -> None:
    judgement = judge_checkpoint(miniature, PRIVATE)
    assert (judgement.verdict, told(judgement)) == ("accepted", [])
    assert judgement.document("m")["seam"] == "private"
    assert judgement.facts["profile"] == "assay-miniature-v1"


def test_the_miniature_is_refused_on_the_public_route(miniature: Path) -> None:
    judgement = judge_checkpoint(miniature, JudgeOptions())
    assert told(judgement) == [("profile", "profile.private", "assay-miniature-v1")]
    assert (judgement.verdict, judgement.document("m")["seam"]) == ("rejected", None)


CONFIG_EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str, str]] = {
    "value": (lambda c: c["text_config"].update(hc_lowrank=17), "config.value", "text_config.hc_lowrank"),
    "integer to decimal": (lambda c: c["text_config"].update(hc_lowrank=16.0), "config.type", "text_config.hc_lowrank"),
    "decimal to integer": (lambda c: c["text_config"].update(attention_dropout=0), "config.type",
                           "text_config.attention_dropout"),
    "one to true": (lambda c: c["text_config"].update(indexer_kv_heads=True), "config.type",
                    "text_config.indexer_kv_heads"),
    "null to zero": (lambda c: c["text_config"].update(pad_token_id=0), "config.type", "text_config.pad_token_id"),
    "missing": (lambda c: c["text_config"].pop("output_gate_type"), "config.missing", "text_config.output_gate_type"),
    "extra": (lambda c: c["text_config"].update(sliding_window=None), "config.extra", "text_config.sliding_window"),
    "array item": (lambda c: c["text_config"]["layer_types"].__setitem__(3, "linear_attention"), "config.value",
                   "text_config.layer_types[3]"),
    "array length": (lambda c: c["text_config"]["layer_types"].pop(), "config.value", "text_config.layer_types"),
    "deep": (lambda c: c["text_config"]["rope_parameters"].update(rope_theta=1), "config.value",
             "text_config.rope_parameters.rope_theta"),
    "vision": (lambda c: c["vision_config"].update(depth=2), "config.value", "vision_config.depth"),
    "family": (lambda c: c.update(model_type="qwen3_5_moe"), "config.family", "model_type"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIG_EDITS)
def test_each_field_of_the_config_is_judged_with_its_type(miniature: Path, name: str) -> None:
    change, code, where = CONFIG_EDITS[name]
    edit_json(miniature / "config.json", change)
    judgement = judge_checkpoint(miniature, PRIVATE)
    assert told(judgement) == [("config", code, f"config.json: {where}")]


def test_a_vocabulary_of_tokenizer_size_is_told_as_field_and_as_multipliers(miniature: Path) -> None:
    edit_json(miniature / "config.json", lambda config: config["text_config"].update(vocab_size=353))
    assert told(judge_checkpoint(miniature, PRIVATE)) == [
        ("config", "config.value", "config.json: text_config.vocab_size"),
        ("hash", "checkpoint.hash.multipliers", "derived from config.json: layer_multipliers"),
    ]


TABLE = "model-00002-of-00003.safetensors"
HASHES = "model.language_model.layers.1.ple.ple_embedding."


def test_integers_of_32_bits_are_refused_by_type_even_where_the_values_fit(miniature: Path) -> None:
    """llama.cpp#13557: a metadata tool rewrote every integer array as 32 bits."""

    def narrow(fields: dict[str, Any]) -> None:
        entry = fields[f"{HASHES}ngram_heads_vocab_sizes"]
        entry["dtype"] = "I32"
        entry["shape"] = [32]

    edit_header(miniature / TABLE, narrow)
    where = f"{TABLE}: {HASHES}ngram_heads_vocab_sizes"
    judgement = judge_checkpoint(miniature, PRIVATE)
    assert told(judgement) == [
        ("inventory", "inventory.dtype", where),
        ("inventory", "inventory.shape", where),
    ]
    assert (judgement.faults[0].expected, judgement.faults[0].got) == ("I64", "I32")


def test_a_transposed_tensor_is_a_wrong_shape(miniature: Path) -> None:
    name = "model.language_model.embed_tokens.weight"
    edit_header(
        miniature / "model-00003-of-00003.safetensors", lambda fields: fields[name].update(shape=[64, 384])
    )
    judgement = judge_checkpoint(miniature, PRIVATE)
    assert [finding.line for finding in judgement.findings] == [
        f"inventory.shape: model-00003-of-00003.safetensors: {name}: expected [384, 64], got [64, 384]"
    ]


def test_a_renamed_tensor_is_missing_and_unexpected(miniature: Path) -> None:
    def rename(fields: dict[str, Any]) -> None:
        fields["head.weight"] = fields.pop("lm_head.weight")

    edit_header(miniature / "model-00003-of-00003.safetensors", rename)
    edit_json(
        miniature / "model.safetensors.index.json",
        lambda index: index["weight_map"].update({"head.weight": index["weight_map"].pop("lm_head.weight")}),
    )
    assert told(judge_checkpoint(miniature, PRIVATE)) == [
        ("inventory", "inventory.missing", "lm_head.weight"),
        ("inventory", "inventory.unexpected", "model-00003-of-00003.safetensors: head.weight"),
    ]


def test_an_excluded_tensor_that_the_profile_does_not_count_is_refused(tmp_path: Path) -> None:
    contract = load_profile("miniature")
    shards = [*plan_shards(contract), [PlannedTensor("mtp.fc.weight", "BF16", (2, 2))]]
    config = json.dumps(contract.config.as_file()).encode()
    write_checkpoint(tmp_path, shards, files={"config.json": config})
    (finding,) = judge_checkpoint(tmp_path, PRIVATE).findings
    assert (
        finding.line
        == "inventory.classes: mtp (mtp.*): expected 0 tensors of 0 bytes, got 1 tensors of 8 bytes"
    )


def test_a_truncated_shard_names_the_tensors_that_lie_beyond_its_end(miniature: Path) -> None:
    path = miniature / "model-00003-of-00003.safetensors"
    os.truncate(path, path.stat().st_size - 1)
    assert told(judge_checkpoint(miniature, PRIVATE)) == [
        ("headers", "safetensors.span.inside",
         "model-00003-of-00003.safetensors: model.language_model.hyper_connection_mixer.input_mix_weight_up.weight"),
    ]  # fmt: skip


def test_an_absent_shard_leaves_the_verdict_open_and_says_how_many_tensors_it_owns(miniature: Path) -> None:
    (miniature / "model-00003-of-00003.safetensors").unlink()
    judgement = judge_checkpoint(miniature, PRIVATE)
    assert judgement.verdict == "inconclusive"
    assert [(finding.code, finding.where, finding.expected) for finding in judgement.findings] == [
        ("files.missing", "model-00003-of-00003.safetensors", "a shard that owns 5 tensors"),
        ("checkpoint.unjudged", "inventory", "something to judge"),
    ]


def test_an_unindexed_shard_is_read_and_its_tensors_are_unowned(miniature: Path) -> None:
    os.link(miniature / "model-00003-of-00003.safetensors", miniature / "old.safetensors")
    judgement = judge_checkpoint(miniature, PRIVATE)
    assert {finding.code for finding in judgement.findings} == {"inventory.unowned"}
    assert "old.safetensors: lm_head.weight" in {finding.where for finding in judgement.findings}
    assert len(judgement.findings) == 5


def test_an_absent_config_leaves_config_and_hash_open(miniature: Path) -> None:
    (miniature / "config.json").unlink()
    judgement = judge_checkpoint(miniature, PRIVATE)
    assert judgement.areas["config"] == "inconclusive"
    assert judgement.areas["hash"] == "inconclusive"


def test_a_broken_config_is_one_finding_and_the_headers_are_still_judged(miniature: Path) -> None:
    (miniature / "config.json").write_text('{"model_type": "qwen4_exp", ')
    judgement = judge_checkpoint(miniature, PRIVATE)
    assert told(judgement)[0] == ("config", "input.json.syntax", "config.json:1:29")
    assert judgement.areas["headers"] == "accepted"


def test_a_folder_in_the_place_of_a_shard_is_one_line(miniature: Path) -> None:
    (miniature / TABLE).unlink()
    (miniature / TABLE).mkdir()
    assert ("headers", "input.file.directory", TABLE) in told(judge_checkpoint(miniature, PRIVATE))


@pytest.fixture
def real(checkpoint: Path, tmp_path: Path) -> Path:
    """The real description, as links that a test may replace."""
    folder = tmp_path / "real"
    folder.mkdir()
    for entry in checkpoint.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


@pytest.mark.checkpoint
def test_nothing_is_wrong_with_the_real_description_and_what_is_absent_is_named(real: Path) -> None:
    judgement = judge_checkpoint(real, JudgeOptions())
    absent = {finding.where for finding in judgement.gaps}
    assert judgement.faults == []
    assert absent == {name for name in ("LICENSE", "tokenizer.json") if not (real / name).exists()} | {
        "*.safetensors"
    }
    assert (judgement.verdict, judgement.stage) == ("inconclusive", "files")
    assert any(text.startswith("payload") for text in judgement.not_checked)


@pytest.mark.checkpoint
def test_a_digest_finding_names_the_field_and_stops_no_stage(real: Path) -> None:
    edit_json(real / "config.json", lambda config: config["text_config"].update(num_experts_per_tok=8))
    edit_json(real / "model.safetensors.index.json", lambda index: index["weight_map"].pop("lm_head.weight"))
    judgement = judge_checkpoint(real, JudgeOptions())
    codes = [(finding.code, finding.where) for finding in judgement.faults]
    assert codes[:3] == [
        ("files.digest", "config.json"),
        ("files.digest", "model.safetensors.index.json"),
        ("config.value", "config.json: text_config.num_experts_per_tok"),
    ]
    assert judgement.faults[0].hint == "fields that differ: text_config.num_experts_per_tok"
    assert ("inventory.missing", "lm_head.weight") in codes
    assert ("inventory.digest", "inventory") in codes


@pytest.mark.checkpoint
def test_another_spelling_of_the_same_config_differs_in_the_digest_only(real: Path) -> None:
    edit_json(real / "config.json", lambda config: config)
    judgement = judge_checkpoint(real, JudgeOptions())
    assert [(finding.code, finding.where) for finding in judgement.faults] == [
        ("files.digest", "config.json")
    ]
    assert judgement.faults[0].hint == "no field differs: only the spelling does"


@pytest.mark.checkpoint
def test_the_vocabulary_of_the_tokenizer_gives_other_multipliers(real: Path) -> None:
    """The literal comes from the public bug reports, not from this code."""
    edit_json(real / "config.json", lambda config: config["text_config"].update(vocab_size=248077))
    judgement = judge_checkpoint(real, JudgeOptions())
    finding = next(finding for finding in judgement.faults if finding.stage == "hash")
    assert finding.code == "checkpoint.hash.multipliers"
    assert finding.expected.startswith("(23703573157769, 20109073645365, 8052911324071")
    assert finding.got.startswith("(12984081294479, ")


@pytest.mark.checkpoint
def test_an_added_token_with_another_id_is_named(real: Path) -> None:
    def swap(config: dict[str, Any]) -> None:
        tokens = config["added_tokens_decoder"]
        tokens["248045"], tokens["248046"] = tokens["248046"], tokens["248045"]

    edit_json(real / "tokenizer_config.json", swap)
    edit_json(real / "generation_config.json", lambda config: config.update(eos_token_id=248044))
    faults = judge_checkpoint(real, JudgeOptions()).faults
    assert [(finding.code, finding.where) for finding in faults if finding.stage == "tokenizer"] == [
        ("tokenizer.added_tokens", "tokenizer_config.json: added_tokens_decoder.248045"),
        ("tokenizer.added_tokens", "tokenizer_config.json: added_tokens_decoder.248046"),
        ("tokenizer.declared_ids", "generation_config.json: eos_token_id"),
    ]


@pytest.mark.checkpoint
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="not-run: reads /proc of a process")
def test_at_true_size_nothing_is_wrong_and_no_payload_is_read(checkpoint: Path, tmp_path: Path) -> None:
    """131 sparse files of 360 GB; a process of its own counts the bytes it reads and the memory it takes."""
    write_sparse_checkpoint(checkpoint, tmp_path / "s")
    shards = list((tmp_path / "s").glob("*.safetensors"))
    assert (len(shards), sum(path.stat().st_size for path in shards)) == (131, 360000192888)
    code = (
        "import json, re, sys\n"
        "from pathlib import Path\n"
        "from assay.impl.stores.checkpoint.judge import judge_checkpoint\n"
        "from assay.spec.judgement import JudgeOptions\n"
        "from assay.spec.profiles import load_profile\n"
        "load_profile('qwen4exp'), load_profile('miniature')\n"
        "read = lambda: int(Path('/proc/self/io').read_text().split()[1])\n"
        # VmHWM and not ru_maxrss: the latter starts at what the parent held when it forked.
        "peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "before = read()\n"
        "judged = judge_checkpoint(Path(sys.argv[1]), JudgeOptions(jobs=2))\n"
        "print(json.dumps([read() - before, peak(),\n"
        "                  [f.line for f in judged.faults], sorted(f.where for f in judged.gaps)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True, text=True, check=True
    )
    bytes_read, peak_kib, faults, gaps = json.loads(done.stdout)
    assert faults == []
    assert set(gaps) <= {"LICENSE", "tokenizer.json"}
    pinned = sum((tmp_path / "s" / name).stat().st_size for name in load_profile("qwen4exp").source_pins.files
                 if (tmp_path / "s" / name).exists())  # fmt: skip
    assert bytes_read < 2 * pinned + 1_000_000
    assert peak_kib * 1024 < 256 << 20


@pytest.mark.checkpoint
def test_a_shard_one_byte_short_is_a_wrong_size_and_a_tensor_beyond_its_end(
    checkpoint: Path, tmp_path: Path
) -> None:
    write_sparse_checkpoint(checkpoint, tmp_path / "s")
    name = "model-00131-of-00131.safetensors"
    os.truncate(tmp_path / "s" / name, (tmp_path / "s" / name).stat().st_size - 1)
    faults = judge_checkpoint(tmp_path / "s", JudgeOptions()).faults
    assert [(finding.code, finding.where) for finding in faults] == [
        ("safetensors.span.inside", f"{name}: lm_head.weight"),
        ("files.size", name),
    ]


@pytest.mark.checkpoint
def test_a_shard_under_another_name_is_told_by_the_index_and_the_digest(real: Path) -> None:
    old, new = "model-00131-of-00131.safetensors", "model-00132-of-00131.safetensors"
    edit_json(
        real / "model.safetensors.index.json",
        lambda index: index["weight_map"].update(
            {k: new for k, v in index["weight_map"].items() if v == old}
        ),
    )
    codes = {(finding.code, finding.where) for finding in judge_checkpoint(real, JudgeOptions()).faults}
    assert {("index.shards", old), ("index.shards", new)} <= codes


@pytest.mark.checkpoint
def test_a_tensor_that_is_gone_everywhere_shows_in_the_totals(real: Path) -> None:
    index = real / "model.safetensors.index.json"
    edit_json(index, lambda document: document["weight_map"].pop("model.visual.pos_embed.weight"))
    codes = {(finding.code, finding.where) for finding in judge_checkpoint(real, JudgeOptions()).faults}
    assert ("inventory.totals", "tensors") in codes
    assert ("inventory.classes", "vision (model.visual.*)") in codes


def test_an_entry_that_cannot_be_read_is_not_said_to_be_absent_as_well(miniature: Path) -> None:
    name = f"{HASHES}ngram_heads_vocab_sizes"
    edit_header(miniature / TABLE, lambda fields: fields[name].update(dtype=3))
    judgement = judge_checkpoint(miniature, PRIVATE)
    assert [finding.code for finding in judgement.faults] == ["safetensors.tensor.form"]
    assert judgement.areas["inventory"] == "inconclusive"


def test_without_an_index_no_finding_speaks_of_one(miniature: Path) -> None:
    (miniature / "model.safetensors.index.json").unlink()
    (miniature / "copy.safetensors").write_bytes((miniature / TABLE).read_bytes())
    found = [one for one in judge_checkpoint(miniature, PRIVATE).faults if one.code == "inventory.unowned"]
    assert found
    assert [one.line for one in found if "as the index says" in one.line] == []
