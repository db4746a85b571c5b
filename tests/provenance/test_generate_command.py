"""`assay generate`: the public route refuses, the private seam says what its output is worth, tokens are the model's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "impl" / "model"))

from model_toys import ids, made, write_form

from assay.provenance.cli import main


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


def oracle_greedy(geometry: str, prompt: list[int], new: int) -> list[int]:
    """Greedy tokens of the independent oracle, with the weights of the rule."""
    from assay.oracles.geometry import from_config
    from assay.oracles.model import Model
    from assay.oracles.tensors import RuleWeights
    from assay.provenance.captures.geometries import GEOMETRIES

    own = from_config(GEOMETRIES[geometry])
    model = Model(own, RuleWeights(own))
    tokens, state, chosen = list(prompt), None, []
    for _ in range(new):
        done = model.run(tokens, state)
        state = done.state
        tokens = [int(np.argmax(done.logits[-1]))]
        chosen += tokens
    return chosen


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_form(tmp_path / "checkpoint", "small", "saved")


def test_tokens_are_those_of_the_oracle(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--ids", "5,6,7", "--max-new", "24", "--temperature", "0", "--private", "--ignore-eos"]
    assert main(["generate", str(checkpoint), *arguments, "--format", "json"]) == 0
    assert answer(capsys)["ids"] == oracle_greedy("small", [5, 6, 7], 24)


def test_the_output_is_of_its_schema_and_says_what_it_is_worth(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.spec.documents.generation import Generation

    main(["generate", str(checkpoint), "--ids", "5,6,7", "--max-new", "4", "--private", "--format", "json"])
    text = capsys.readouterr().out
    found = Generation.model_validate_json(text)
    assert (found.seam, found.numerics, found.statistics.prompt_tokens) == ("private", "deterministic", 3)
    assert "no profile is supported" in found.worth


def test_the_public_route_refuses(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(checkpoint), "--ids", "5,6,7"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"assay: error: generate.unsupported: {checkpoint}: ")


@pytest.mark.parametrize("name", ["ASSAY_PRIVATE", "PRIVATE", "ASSAY_SEAM"])
def test_no_environment_opens_the_seam(
    name: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "1")
    assert main(["generate", str(checkpoint), "--ids", "5"]) == 1
    assert "generate.unsupported" in capsys.readouterr().err


def test_the_refusal_does_not_import_mlx(checkpoint: Path) -> None:
    code = (
        "import sys\n"
        "from assay.provenance.cli import main\n"
        f"code = main(['generate', {str(checkpoint)!r}, '--ids', '5'])\n"
        "sys.exit(code if 'mlx.core' not in sys.modules else 99)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 1


def test_a_stop_token_ends_the_run_and_is_shown(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    greedy = oracle_greedy("small", [5, 6, 7], 12)
    (checkpoint / "generation_config.json").write_text(json.dumps({"eos_token_id": [greedy[4], 63]}))
    stop = greedy.index(greedy[4]) + 1
    main(["generate", str(checkpoint), "--ids", "5,6,7", "--max-new", "12", "--private", "--format", "json"])
    found = answer(capsys)
    assert (found["ids"], found["ended_by"]) == (greedy[:stop], "stop-token")
    main(
        [
            "generate",
            str(checkpoint),
            "--ids",
            "5,6,7",
            "--max-new",
            "12",
            "--private",
            "--ignore-eos",
            "--format",
            "json",
        ]
    )
    assert answer(capsys)["ids"] == greedy


def test_the_end_of_the_context_ends_the_run(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": 6}))
    main(
        [
            "generate",
            str(checkpoint),
            "--ids",
            "5,6,7",
            "--max-new",
            "12",
            "--private",
            "--ignore-eos",
            "--format",
            "json",
        ]
    )
    found = answer(capsys)
    assert (len(found["ids"]), found["ended_by"]) == (4, "context")


def test_a_seed_repeats_its_tokens_and_another_changes_them(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for seed in ("1", "1", "2"):
        arguments = ["--max-new", "16", "--temperature", "1.5", "--top-k", "40", "--seed", seed, "--private"]
        main(["generate", str(checkpoint), "--ids", "5,6", *arguments, "--ignore-eos", "--format", "json"])
        found.append(answer(capsys)["ids"])
    assert found[0] == found[1] != found[2]


def test_chunks_of_a_prefill_change_nothing(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = ",".join(map(str, ids("small", 41)))
    found = []
    for chunk in ("1", "7", "512"):
        main(["generate", str(checkpoint), "--ids", prompt, "--max-new", "6", "--chunk", chunk, "--private",
              "--ignore-eos", "--format", "json"])  # fmt: skip
        found.append(answer(capsys)["ids"])
    assert found[0] == found[1] == found[2]


def test_a_dump_is_a_capture_that_diff_compares(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, chunk in (("a", "512"), ("b", "2")):
        main(["generate", str(checkpoint), "--ids", "5,6,7,8,9", "--max-new", "8", "--private", "--ignore-eos",
              "--chunk", chunk, "--dump", str(tmp_path / name), "--format", "json"])  # fmt: skip
    capsys.readouterr()
    assert main(["validate", str(tmp_path / "a")]) == 0
    capsys.readouterr()
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--format", "json"]) == 0
    found = answer(capsys)
    assert (found["verdict"], found["counts"]["differs"], found["counts"]["within"]) == ("equal", 0, 0)


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["--ids", "5,x"], "--ids"),
        (["--ids", "5", "--max-new", "0"], "--max-new"),
        (["--ids", "5", "--temperature", "-1"], "--temperature"),
        (["--ids", "5", "--top-p", "2"], "--top-p"),
        (["--ids", "5", "--chunk", "0"], "--chunk"),
        (["--ids", "5", "--system", "x"], "--system"),
        (["--ids", "1_0"], "--ids"),
        (["--ids", "\u0665"], "--ids"),
        (["--ids", "5", "--temperature", "nan"], "--temperature"),
        (["--ids", "5", "--min-p", "nan"], "--min-p"),
        (["--ids", "5", "--format", "junit"], "--format"),
        (["--ids", "5", "--format", "markdown"], "--format"),
        (["--ids", "5", "--dump", __file__], "--dump"),
        (["--prompt", "hello"], "PATH"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(
    arguments: list[str], where: str, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(checkpoint), *arguments, "--private"]) == 2
    assert capsys.readouterr().err.startswith(f"assay: error: usage.argument: {where}: ")


@pytest.mark.parametrize(
    ("asked", "where"), [("64", "sequences[0].tokens[0]"), ("-1", "sequences[0].tokens[0]")]
)
def test_an_id_without_a_row_is_refused(
    asked: str, where: str, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(checkpoint), f"--ids={asked}", "--private"]) == 1
    assert f"model.tokens: {where}: " in capsys.readouterr().err


def test_rows_beyond_the_tokenizer_are_never_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug report A2: the miniature has 384 rows for 353 ids; its greedy tokens stay below."""
    from assay.impl.text.miniature import write_tokenizer

    folder = write_form(tmp_path / "m", "miniature", "published")
    write_tokenizer(folder)
    main(
        [
            "generate",
            str(folder),
            "--ids",
            "5,6,7",
            "--max-new",
            "40",
            "--private",
            "--ignore-eos",
            "--format",
            "json",
        ]
    )
    found = answer(capsys)
    assert max(found["ids"]) < 353
    logits = np.array(_logits("miniature", [5, 6, 7]))
    assert found["ids"][0] == int(np.argmax(logits[:353]))


def _logits(geometry: str, tokens: list[int]) -> Any:
    from assay.impl.model.graph import Chunk
    from assay.impl.model.state import fresh

    model = made(geometry)
    return model.run([Chunk(fresh(model.geometry), tokens)]).logits[0]


def test_a_chat_prompt_is_rendered_tokenized_and_answered_with_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.impl.text.engine import Tokenizer
    from assay.impl.text.miniature import write_tokenizer

    folder = write_form(tmp_path / "m", "miniature", "published")
    write_tokenizer(folder)
    arguments = ["--prompt", "hello there", "--system", "be brief", "--max-new", "12", "--private"]
    main(["generate", str(folder), *arguments, "--dump", str(tmp_path / "d"), "--format", "json"])
    found = answer(capsys)
    tokenizer = Tokenizer.of_directory(folder)
    assert found["text"] == tokenizer.decode(found["ids"], skip_special=True)
    capture = json.loads((tmp_path / "d" / "capture.json").read_text())
    assert b"hello there" in bytes.fromhex(capture["prompt_hex"])
    assert len(capture["token_ids"]) == found["statistics"]["prompt_tokens"] + len(found["ids"]) - 1


def test_text_streams_on_the_pretty_route(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from assay.impl.text.miniature import write_tokenizer

    folder = write_form(tmp_path / "m", "miniature", "published")
    write_tokenizer(folder)
    arguments = ["--prompt", "hello", "--max-new", "12", "--private"]
    main(["generate", str(folder), *arguments, "--format", "json"])
    text = answer(capsys)["text"]
    main(["generate", str(folder), *arguments, "--format", "pretty"])
    told = capsys.readouterr()
    assert told.out.rstrip("\n") == text.rstrip("\n")
    assert "seam: private" in told.err


@pytest.mark.parametrize("style", ["pretty", "json"])
def test_a_closed_stdout_is_told(
    style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.impl.text.miniature import write_tokenizer

    folder = write_form(tmp_path / "m", "miniature", "published")
    write_tokenizer(folder)
    monkeypatch.setattr(sys, "stdout", None)
    assert (
        main(["generate", str(folder), "--ids", "5", "--max-new", "3", "--private", "--format", style]) == 1
    )
    assert capsys.readouterr().err.startswith("assay: error: output.write: standard output: ")


def test_an_interrupt_that_mlx_swallows_ends_the_run_all_the_same(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import signal

    from assay.impl.model import rope

    turned = rope.turns

    def swallowing(*arguments: Any) -> Any:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return turned(*arguments)
        pytest.fail("no interrupt came")

    monkeypatch.setattr(rope, "turns", swallowing)
    assert main(["generate", str(checkpoint), "--ids", "5,6,7", "--private"]) == 130
    assert capsys.readouterr().out == ""


def test_a_lying_context_and_a_bold_length_take_no_memory(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Caches for 2^31 tokens would be terabytes; where MLX can't have them, the process ends."""
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": 2**31}))
    (checkpoint / "generation_config.json").write_text(json.dumps({"eos_token_id": list(range(64))}))
    arguments = ["--ids", "5,6,7", "--max-new", str(2**31), "--private", "--format", "json"]
    assert main(["generate", str(checkpoint), *arguments]) == 0
    assert answer(capsys)["ended_by"] == "stop-token"
