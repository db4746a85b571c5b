"""`assay generate --stream`: the resident tokens, within the budget as seen from outside, and typed refusals before any work."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.provenance.captures.middle import write_middle
from assay.provenance.cli import main
from assay.provenance.miniature import miniature_artifact, miniature_checkpoint

IDS = ["--ids", "5,6,7,8", "--max-new", "5", "--ignore-eos", "--private", "--format", "json", "-q"]


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(["generate", *arguments])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def test_a_streamed_artifact_gives_the_resident_tokens_and_says_what_it_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(miniature_artifact())
    resident = run(capsys, path, *IDS)
    # The budget counts what this process holds already, which after thousands of other tests is more than a gigabyte.
    wish = ["--memory-budget", "64GiB", "--expert-cache", "16"]
    code, streamed, _ = run(capsys, path, *IDS, "--stream", *wish)
    assert (code, streamed["ids"]) == (0, resident[1]["ids"])
    assert resident[1]["statistics"]["streaming"] is None
    found = streamed["statistics"]["streaming"]
    assert (found["expert_cache_records"], found["policy"], found["verified"]) == (16, "lru", True)
    assert found["budget_bytes"] == 64 << 30
    uses = found["hits"] + found["joined"] + found["misses"]
    assert (
        8 * 4 * (4 + 1) <= uses <= 8 * (4 * 4 + 16)
    )  # four tokens of their own, and the union of the prompt's
    assert found["exact_bytes"] == found["misses"] * 24576  # three BF16 matrices of 64 x 64
    owners = {one["owner"] for one in found["memory"]}
    assert {"process", "dense weights", "expert cache of 16 records", "read buffers"} <= owners


def test_a_trace_of_a_streamed_run_is_accepted_and_holds_every_route(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(capsys, str(miniature_artifact()), *IDS, "--stream", "--trace", "run.jsonl")[0] == 0
    assert main(["validate", "run.jsonl", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["kind"], report["verdict"]) == ("trace", "accepted")
    assert report["report"]["facts"]["lines"]["stage"] >= 8 * 5  # of every layer and chunk
    assert report["report"]["facts"]["lines"]["route"] == 8 * (4 + 4)  # layers by tokens that were run
    routes = [
        json.loads(line) for line in Path("run.jsonl").read_text().splitlines() if '"line":"route"' in line
    ]
    assert all(len(set(one["experts"])) == 4 and abs(sum(one["weights"]) - 1) < 1e-5 for one in routes)


@pytest.mark.parametrize(
    ("arguments", "code", "where"),
    [
        (["--memory-budget", "20MB"], "runtime.budget", "--memory-budget"),
        (["--expert-cache", "3"], "runtime.cache.working-set", "--expert-cache"),
    ],
)
def test_what_cannot_be_held_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, where: str
) -> None:
    exit_code, document, said = run(capsys, str(miniature_artifact()), *IDS, "--stream", *arguments)
    assert (exit_code, document) == (1, {})
    assert said.startswith(f"assay: error: {code}: {where}: expected at least")
    assert not Path(".assay").exists()  # not even digests were derived


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (["--memory-budget", "1GiB"], "usage.argument: --memory-budget: expected --stream beside it"),
        (["--policy", "lfu"], "usage.argument: --policy: expected --stream beside it"),
        (["--trace", "x"], "usage.argument: --trace: expected --stream beside it"),
        (["--expert-cache", "0"], "usage.argument: --expert-cache: expected --stream beside it, got none"),
        (["--stream", "--memory-budget", "1e9"], "runtime.budget.size: --memory-budget: expected a size"),
        (
            ["--stream", "--memory-budget", "1GiB", "--dump", "d"],
            "usage.argument: --dump: expected no --memory-budget beside it, got 1GiB",
        ),
        (["--stream", "--expert-cache", "0"], "usage.argument: --expert-cache: expected at least 1, got 0"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], start: str
) -> None:
    exit_code, document, said = run(capsys, "nothing.gguf", *IDS, *arguments)
    assert (exit_code, document) == (2, {})
    assert said.startswith(f"assay: error: {start}")


def test_a_checkpoint_directory_has_nothing_to_stream_from(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, document, said = run(capsys, str(miniature_checkpoint()), *IDS, "--stream")
    assert (exit_code, document) == (2, {})
    assert "usage.argument: PATH: expected an artifact, to stream from, got a checkpoint directory" in said
    assert "assay build DIR -o model.gguf --private" in said


@pytest.mark.parametrize(("tokens", "chunks"), [(4, {9}), (400, {50, 101, 202})])
def test_memory_stays_within_the_budget_as_seen_from_outside(
    tmp_path: Path, tokens: int, chunks: set[int]
) -> None:
    """The middle-sized model: 12.6 million parameters in 256 records, of which 64 are held.

    A long prompt is computed in smaller chunks than asked for, so that its work fits.
    """
    path, _ = write_middle(tmp_path)
    ids = ["--ids", ",".join(str(10 + one % 300) for one in range(tokens)), *IDS[2:]]
    command = [
        sys.executable, "-m", "assay.provenance.cli", "generate", str(path), *ids, "--stream",
        "--memory-budget", "200MB", "--expert-cache", "64",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _peak_bytes(process.pid))
        time.sleep(0.01)
    assert process.stdout is not None
    with process.stdout as out:
        document = json.loads(out.read())
    assert process.returncode == 0
    assert len(document["ids"]) == 5
    assert document["statistics"]["streaming"]["chunk"] in chunks
    if peak:
        assert 50_000_000 < peak <= 200_000_000


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("model.gguf", "a file of another kind, which stays"),
        ("none/run.jsonl", "no folder none"),
        ("folder", "a folder"),
        ("pipe", "a pipe, socket or disk"),
    ],
)
def test_a_trace_takes_the_place_of_nothing_else_and_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], name: str, got: str
) -> None:
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("model.gguf").write_bytes(miniature_artifact().read_bytes())
    code, document, said = run(capsys, "model.gguf", *IDS, "--stream", "--trace", name)
    assert (code, document) == (2, {})
    assert f"usage.argument: --trace: expected a new file, or an earlier trace to replace, got {got}" in said
    assert Path("model.gguf").read_bytes() == miniature_artifact().read_bytes()
    assert not Path(".assay").exists()


def test_a_full_disk_under_a_trace_is_said_before_the_tokens_are_made(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    code, document, said = run(capsys, str(miniature_artifact()), *IDS, "--stream", "--trace", "/dev/full")
    assert (code, document) == (1, {})
    assert "trace.write: /dev/full: expected a whole trace, got No space left on device" in said


def test_an_earlier_trace_is_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert run(capsys, str(miniature_artifact()), *IDS, "--stream", "--trace", "run.jsonl")[0] == 0
    assert main(["validate", "run.jsonl"]) == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_the_trace_of_a_run_that_did_not_end_is_inconclusive(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def ends(*_: Any) -> None:
        raise error

    monkeypatch.setattr("assay.provenance.commands.generate._print", ends)
    run(capsys, str(miniature_artifact()), *IDS, "--stream", "--trace", "run.jsonl")
    assert main(["validate", "run.jsonl", "--format", "json"]) == 3
    (gap,) = json.loads(capsys.readouterr().out)["findings"]
    assert (gap["code"], gap["where"]) == ("trace.truncated", "run.jsonl")


def test_the_trace_of_a_damaged_store_is_inconclusive_and_the_damage_is_what_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from assay.impl.stores.artifact.opened import Artifact

    with Artifact.open(miniature_artifact(), is_private=True) as artifact:
        start, size = artifact.experts.extent.start, artifact.experts.extent.size
    assert run(capsys, str(miniature_artifact()), *IDS, "--stream")[0] == 0  # leaves the digests
    data = bytearray(miniature_artifact().read_bytes())
    for place in range(start + 8192, start + size, 20000):
        data[place] ^= 1
    Path("damaged.gguf").write_bytes(data)
    code, document, said = run(capsys, "damaged.gguf", *IDS, "--stream", "--trace", "run.jsonl")
    assert (code, document) == (1, {})
    assert said.startswith("assay: error: runtime.read.digest: layer 0 expert ")
    assert main(["validate", "run.jsonl"]) == 3


def test_a_folder_that_digests_cannot_be_kept_in_ends_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path(".assay").mkdir()
    Path(".assay/record-digests").write_text("a file where a folder should be")
    arguments = [one for one in IDS if one != "-q"]
    code, streamed, said = run(capsys, str(miniature_artifact()), *arguments, "--stream")
    assert (code, streamed["statistics"]["streaming"]["verified"]) == (0, True)
    assert "record digests are not kept for the next run: .assay/record-digests" in said


def test_a_probe_of_the_device_decides_depth_and_crossover(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.impl.runtime import streaming

    path = miniature_artifact()
    assert run(capsys, str(path), *IDS, "--stream")[1]["statistics"]["streaming"]["measured"] is False
    monkeypatch.setattr("assay.provenance.streaming.PROBED_FROM_BYTES", 0)
    seen: list[Any] = []
    made = streaming.Stream.__init__

    def noted(self: Any, *arguments: Any) -> None:
        seen.append(arguments[4])
        made(self, *arguments)

    monkeypatch.setattr(streaming.Stream, "__init__", noted)
    first = run(capsys, str(path), *IDS, "--stream")[1]
    assert first["statistics"]["streaming"]["measured"] is True
    (kept,) = list((Path.cwd() / "cache").rglob("device-probe/*.json"))
    choice = json.loads(kept.read_text())["choice"]
    assert (seen[0].readers, seen[0].row_readers) == (choice["expert_readers"], choice["ple_readers"])
    assert seen[0].rates.record == choice["record_mib_per_s"] * (1 << 20)
    assert seen[0].rates.extent == choice["sequential_mib_per_s"] * (1 << 20)
