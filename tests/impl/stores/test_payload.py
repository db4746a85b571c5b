"""Payload digests are checked shard by shard, in parallel, and a killed run goes on where it was."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.impl.stores.checkpoint import payload
from assay.impl.stores.checkpoint.judge import judge_checkpoint
from assay.impl.stores.checkpoint.writer import PlannedTensor
from assay.provenance.miniature import write_miniature
from assay.spec.judgement import Judgement, JudgeOptions

SHARDS = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]


def ones(tensor: PlannedTensor) -> Iterator[bytes]:
    yield b"\x80\x3f" * (tensor.size_bytes // 2)


@pytest.fixture
def miniature(tmp_path: Path) -> Path:
    write_miniature(tmp_path / "m", fill=ones)
    return tmp_path / "m"


def judge(folder: Path, state: Path | None) -> Judgement:
    return judge_checkpoint(folder, JudgeOptions(is_private=True, with_payload=True, jobs=2, state=state))


def test_the_manifest_holds_the_digests_of_what_was_written(miniature: Path) -> None:
    manifest = json.loads((miniature / "checkpoint-manifest.json").read_text())
    digests = {name: hashlib.sha256((miniature / name).read_bytes()).hexdigest() for name in SHARDS}
    assert {name: row["sha256"] for name, row in manifest["shards"].items()} == digests


def test_a_whole_payload_is_accepted(miniature: Path, tmp_path: Path) -> None:
    judgement = judge(miniature, tmp_path / "state")
    assert (judgement.verdict, judgement.findings) == ("accepted", [])
    assert judgement.facts["payload"]["shards_hashed"] == 3


def test_one_flipped_bit_names_its_shard(miniature: Path) -> None:
    path = miniature / SHARDS[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    judgement = judge(miniature, None)
    assert [(finding.stage, finding.code, finding.where) for finding in judgement.findings] == [
        ("payload", "payload.digest", SHARDS[0])
    ]


def test_digests_that_nobody_published_leave_the_payload_open(miniature: Path) -> None:
    (miniature / "checkpoint-manifest.json").unlink()
    judgement = judge(miniature, None)
    assert judgement.areas["payload"] == "inconclusive"
    assert [(finding.code, finding.where) for finding in judgement.findings] == [
        ("payload.unknown", name) for name in SHARDS
    ]


def stop_after_the_first_shard(folder: Path, state: Path) -> None:
    """Leaves what a run leaves that is interrupted within its second shard."""
    left = (folder / SHARDS[0]).stat().st_size

    @contextmanager
    def interrupted(_title: str, _total: int) -> Iterator[Callable[[int], None]]:
        def advance(done: int) -> None:
            nonlocal left
            left -= done
            if left < 0:
                raise KeyboardInterrupt

        yield advance

    options = JudgeOptions(is_private=True, with_payload=True, jobs=1, state=state, progress=interrupted)
    with pytest.raises(KeyboardInterrupt):
        judge_checkpoint(folder, options)


def counts(judgement: Judgement) -> tuple[int, int]:
    return judgement.facts["payload"]["shards_hashed"], judgement.facts["payload"]["shards_resumed"]


def test_a_run_after_an_unfinished_one_hashes_what_is_left(miniature: Path, tmp_path: Path) -> None:
    stop_after_the_first_shard(miniature, tmp_path / "state")
    again = judge(miniature, tmp_path / "state")
    assert (again.verdict, counts(again)) == ("accepted", (2, 1))


def test_a_run_that_came_to_its_end_leaves_no_state_and_the_next_hashes_all(
    miniature: Path, tmp_path: Path
) -> None:
    stop_after_the_first_shard(miniature, tmp_path / "state")
    assert judge(miniature, tmp_path / "state").facts["payload"]["state"] == "dropped"
    assert list((tmp_path / "state").iterdir()) == []
    assert counts(judge(miniature, tmp_path / "state")) == (3, 0)


def test_a_fresh_run_takes_nothing_over(miniature: Path, tmp_path: Path) -> None:
    stop_after_the_first_shard(miniature, tmp_path / "state")
    options = JudgeOptions(is_private=True, with_payload=True, is_fresh=True, state=tmp_path / "state")
    assert counts(judge_checkpoint(miniature, options)) == (3, 0)


def test_a_changed_shard_with_its_old_size_and_time_is_not_taken_from_the_state(
    miniature: Path, tmp_path: Path
) -> None:
    stop_after_the_first_shard(miniature, tmp_path / "state")
    path = miniature / SHARDS[0]
    times = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x7f")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    judgement = judge(miniature, tmp_path / "state")
    assert [(finding.code, finding.where) for finding in judgement.findings] == [
        ("payload.digest", SHARDS[0])
    ]


def test_a_damaged_state_is_no_state(miniature: Path, tmp_path: Path) -> None:
    stop_after_the_first_shard(miniature, tmp_path / "state")
    (path,) = (tmp_path / "state").iterdir()
    path.write_text(path.read_text()[:-20])
    assert counts(judge(miniature, tmp_path / "state")) == (3, 0)


def test_a_state_folder_that_cannot_be_made_costs_only_the_resumption_and_is_said(
    miniature: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    judgement = judge(miniature, tmp_path / "file" / "state")
    assert judgement.verdict == "accepted"
    assert judgement.facts["payload"]["state"] == "unsaved"


def test_buffers_that_were_never_written_are_named_with_their_values(tmp_path: Path) -> None:
    contract = write_miniature(tmp_path)
    path = tmp_path / SHARDS[1]
    data = path.read_bytes()
    stored = b"".join(value.to_bytes(8, "little") for value in contract.ple_hash.layer_multipliers)
    assert data.count(stored) == 1
    path.write_bytes(data.replace(stored, bytes(24)))
    (finding,) = judge(tmp_path, None).faults
    assert finding.code == "payload.hash_buffers"
    assert finding.where == f"{SHARDS[1]}: model.language_model.layers.1.ple.ple_embedding.layer_multipliers"
    assert finding.got == "(0, 0, 0)"


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_shards_that_are_left(miniature: Path, tmp_path: Path) -> None:
    """The run is killed after its first shard; a pause between pieces keeps the others open until then."""
    state = tmp_path / "state"
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from contextlib import nullcontext\n"
        "from assay.impl.stores.checkpoint.judge import judge_checkpoint\n"
        "from assay.spec.judgement import JudgeOptions\n"
        "slow = lambda title, total: nullcontext(lambda done: time.sleep(0.2))\n"
        "judge_checkpoint(Path(sys.argv[1]), JudgeOptions(is_private=True, with_payload=True, jobs=1,\n"
        "                 state=Path(sys.argv[2]), progress=slow))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(miniature), str(state)]) as run:
        while run.poll() is None and not list(state.glob("*.json")):
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    judgement = judge(miniature, state)
    assert judgement.verdict == "accepted"
    assert judgement.facts["payload"]["shards_resumed"] in {1, 2}
    assert judgement.facts["payload"]["shards_hashed"] == 3 - judgement.facts["payload"]["shards_resumed"]


def test_a_shard_that_the_manifest_names_and_nobody_has_leaves_the_payload_open(miniature: Path) -> None:
    (miniature / SHARDS[0]).unlink()
    judgement = judge(miniature, None)
    assert judgement.areas["payload"] == "inconclusive"
    assert ("payload.unread", SHARDS[0]) in [(finding.code, finding.where) for finding in judgement.gaps]


def test_an_interrupt_ends_the_run_without_hashing_the_rest(miniature: Path) -> None:
    """With one worker, the interrupt comes with the first piece; the third shard must never begin."""
    pieces: list[int] = []

    @contextmanager
    def interrupted(_title: str, _total: int) -> Iterator[Callable[[int], None]]:
        def advance(done: int) -> None:
            pieces.append(done)
            if len(pieces) > 1:
                time.sleep(1)  # the shard that had begun already; the interrupt is seen meanwhile
            raise KeyboardInterrupt

        yield advance

    options = JudgeOptions(is_private=True, with_payload=True, jobs=1, progress=interrupted)
    with pytest.raises(KeyboardInterrupt):
        judge_checkpoint(miniature, options)
    assert len(pieces) <= 2


def test_a_stopped_worker_ends_at_its_next_piece() -> None:
    stop = threading.Event()
    told: list[int] = []
    step = payload._watched(told.append, stop)
    step(5)
    stop.set()
    with pytest.raises(payload._StoppedError):
        step(6)
    assert told == [5]
