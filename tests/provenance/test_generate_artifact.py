"""`assay generate` on artifacts: the checkpoint's tokens, and no token from what may not compute."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.artifact.build import build_artifact
from assay.impl.stores.artifact.structural import write_structural
from assay.impl.text.miniature import write_tokenizer
from assay.provenance.cli import main
from assay.provenance.miniature import miniature_artifact, miniature_checkpoint

IDS = ["--ids", "5,6,7", "--max-new", "4", "--temperature", "0", "--ignore-eos", "--format", "json"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(["generate", *arguments])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def test_an_artifact_gives_the_tokens_of_its_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    artifact = miniature_artifact()
    of_artifact = run(capsys, str(artifact), "--private", *IDS)
    of_checkpoint = run(capsys, str(miniature_checkpoint()), "--private", *IDS)
    assert (of_artifact[0], of_artifact[1]["ids"]) == (0, of_checkpoint[1]["ids"])
    assert (len(of_artifact[1]["ids"]), of_artifact[1]["seam"]) == (4, "private")


def test_experts_in_affine_codes_stay_in_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_artifact(miniature_checkpoint(), tmp_path / "four.gguf", codec="mlx-affine4")
    code, said, _ = run(capsys, str(tmp_path / "four.gguf"), "--private", *IDS)
    plain = run(capsys, str(miniature_artifact()), "--private", *IDS)[1]
    assert (code, len(said["ids"]), said["seam"]) == (0, 4, "private")
    values = (
        8 * 16 * 3 * 64 * 64
    )  # each four bytes as a matrix; half a byte and an eighth for scale and bias in codes
    saved = plain["statistics"]["weight_bytes"] - said["statistics"]["weight_bytes"]
    assert saved == values * 27 // 8


def test_a_prompt_finds_the_tokenizer_that_the_artifact_names(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        str(miniature_artifact()),
        "--private",
        "--prompt",
        "hello",
        "--max-new",
        "2",
        "--format",
        "json",
    ]
    code, document, _ = run(capsys, *arguments)
    assert (code, document["seam"]) == (0, "private")
    assert document["text"] is not None
    assert document["statistics"]["prompt_tokens"] > 20


def test_a_tokenizer_that_is_another_one_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "tokenizer"
    write_tokenizer(folder)
    arguments = [str(miniature_artifact()), "--private", "--tokenizer", str(folder), *IDS]
    assert run(capsys, *arguments)[0] == 0
    with (folder / "chat_template.jinja").open("a") as file:
        file.write(" ")
    code, _, said = run(capsys, *arguments)
    assert code == 1
    assert said.startswith(f"assay: error: artifact.tokenizer: {folder / 'chat_template.jinja'}: expected")


def test_an_artifact_without_a_tokenizer_takes_ids_only(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from assay.provenance.miniature import rule_weights, write_miniature

    write_miniature(tmp_path / "source", fill=rule_weights)
    build_artifact(tmp_path / "source", tmp_path / "bare.gguf")
    assert run(capsys, str(tmp_path / "bare.gguf"), "--private", *IDS)[0] == 0
    code, document, said = run(capsys, str(tmp_path / "bare.gguf"), "--private", "--prompt", "hello")
    assert (code, document) == (2, {})
    assert "usage.argument: --tokenizer" in said


def test_a_structural_fixture_is_refused_even_through_the_seam_and_its_report_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_structural(tmp_path / "s.gguf")
    code, document, said = run(capsys, str(tmp_path / "s.gguf"), "--private", *IDS)
    assert code == 1
    assert "structural admission-only" in said
    report = document["report"]["facts"]["ownership"]
    assert (len(report), report["admitted"], report["runtimeSupported"]) == (30, True, False)
    assert document["seam"] == "private"


def test_a_rejected_artifact_computes_nothing_and_says_where_it_stopped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = miniature_artifact().read_bytes()
    path = tmp_path / "bad.gguf"
    path.write_bytes(data.replace(b"SplitMix64-Assay-v1", b"SplitMix64-Assay-v2"))
    code, document, said = run(capsys, str(path), "--private", *IDS)
    assert (code, document["stage"]) == (1, "metadata")
    assert "artifact.metadata.value: qwen4exp.ple.hash_id" in said


@pytest.mark.parametrize("kind", ["miniature", "structural", "checkpoint"])
def test_nothing_generates_on_the_public_route(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if kind == "structural":
        write_structural(tmp_path / "s.gguf")
    path = {
        "miniature": miniature_artifact,
        "structural": lambda: tmp_path / "s.gguf",
        "checkpoint": miniature_checkpoint,
    }[kind]()
    code, document, said = run(capsys, str(path), *IDS)
    assert (code, document) == (1, {})
    assert said.startswith(f"assay: error: generate.unsupported: {path}")


def test_a_tokenizer_beside_a_checkpoint_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, said = run(capsys, str(miniature_checkpoint()), "--private", "--tokenizer", str(tmp_path), *IDS)
    assert code == 2
    assert "usage.argument: --tokenizer" in said


def test_an_artifact_stops_at_its_profiles_ids_however_the_prompt_was_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It has no generation_config.json; the end of a turn, 322, is not the end of a text, 320."""
    arguments = ["--private", "--ids", "5", "--max-new", "20", "--format", "json"]
    code, document, _ = run(capsys, str(miniature_artifact()), *arguments)
    assert (code, document["ended_by"], document["ids"][-1]) == (0, "stop-token", 322)


def test_without_its_tokenizer_the_profile_decides_what_is_chosen_and_where_it_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug report A2: 384 rows, 353 ids; the rows between are never sampled, tokenizer or not."""
    from assay.impl.model import sampler
    from assay.provenance import miniature

    path, valid, shipped = str(miniature_artifact()), set(), sampler.choose
    monkeypatch.setattr(miniature, "_digests", lambda _folder: {})

    def choosing(logits: Any, valid_ids: int, *more: Any) -> int:
        valid.add(valid_ids)
        return shipped(logits, valid_ids, *more)

    monkeypatch.setattr(sampler, "choose", choosing)
    code, document, _ = run(capsys, path, "--private", "--ids", "5", "--max-new", "20", "--format", "json")
    assert (code, document["text"], document["ended_by"], document["ids"][-1]) == (0, None, "stop-token", 322)
    assert valid == {353}
    code, _, said = run(capsys, path, "--private", "--prompt", "hello")
    assert (code, said.startswith("assay: error: usage.argument: --tokenizer: ")) == (2, True)
