"""Where battery `code` runs: what makes a stage anew, that one run holds it, and that nothing outlives a run."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.mutations import code, code_stage
from assay.spec.errors import EvidenceError

TREE = ("spec", "oracles", "fixtures", "impl/text", "mutations", "provenance", "tests/oracles")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout of one empty file for everything that is read."""
    for name in TREE:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "one.py").write_text("")
    for name in ("mutations/vectors.py", "provenance/paths.py", "tests/conftest.py"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.fixture(autouse=True)
def _versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_stage.metadata, "version", lambda name: f"{name} 1")
    monkeypatch.setattr(code_stage, "POLL_SECONDS", 0.02)


@pytest.mark.parametrize(
    "name",
    ["oracles/one.py", "spec/one.py", "fixtures/one.py", "impl/text/one.py", "mutations/vectors.py",
     "provenance/paths.py", "tests/conftest.py", "tests/oracles/one.py"],
)  # fmt: skip
def test_what_the_tests_read_makes_a_stage_anew(root: Path, name: str) -> None:
    before = code_stage._read_digest(root)
    (root / name).write_text("changed")
    assert code_stage._read_digest(root) != before


@pytest.mark.parametrize("name", ["mutations/one.py", "provenance/one.py", "oracles/__pycache__/one.pyc"])
def test_what_they_do_not_read_does_not(root: Path, name: str) -> None:
    before = code_stage._read_digest(root)
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("changed")
    assert code_stage._read_digest(root) == before


def test_another_version_of_a_tool_makes_a_stage_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_stage._read_digest(root)
    monkeypatch.setattr(code_stage.metadata, "version", lambda name: f"{name} 2")
    assert code_stage._read_digest(root) != before


def test_one_run_holds_the_folder_and_the_next_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "mutmut"
    with code_stage.alone(folder), pytest.raises(EvidenceError) as caught, code_stage.alone(folder):
        pass
    found = caught.value.finding
    assert (found.code, found.where) == ("mutations.code.busy", str(tmp_path / "mutmut"))
    with code_stage.alone(tmp_path / "mutmut"):
        pass


@pytest.mark.parametrize("text", [None, "{", '{"a": 1}'])
def test_a_generation_counts_when_its_last_record_is_whole(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "mutants").mkdir()
    if text is not None:
        (tmp_path / "mutants" / "mutmut-stats.json").write_text(text)
    assert code_stage.is_generated(tmp_path) is (text == '{"a": 1}')


def test_a_failed_run_is_a_finding_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_stage, "_LIMITED", "print('a'); print('Failed to run clean test'); exit(1)")
    with pytest.raises(EvidenceError) as caught:
        code_stage.run_mutmut(tmp_path, ["one"], 1, lambda: None)
    found = caught.value.finding
    assert (found.code, found.where) == ("mutations.code.run", str(tmp_path / "mutmut.log"))
    assert found.got == "exit 1: Failed to run clean test"


SLEEPER = (
    "import os, subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"
    "time.sleep(60)\n"
)


def ended(pid: int) -> bool:
    """Whether a process is gone, or is a corpse that nobody collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("how", ["interrupt", "terminate"])
def test_nothing_outlives_a_run_that_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(code_stage, "_LIMITED", SLEEPER)

    def leave() -> None:
        if (tmp_path / "pids").is_file() and (tmp_path / "pids").read_text().count(" "):
            if how == "interrupt":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises((KeyboardInterrupt, SystemExit)):
        code_stage.run_mutmut(tmp_path, ["one"], 1, leave)
    pids = [int(one) for one in (tmp_path / "pids").read_text().split()]
    end = time.monotonic() + 20
    while not all(map(ended, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert all(map(ended, pids))


def test_the_three_changes_to_mutmut_fit_the_one_that_is_installed(tmp_path: Path) -> None:
    if importlib.util.find_spec("mutmut") is None:
        pytest.skip("not-run: needs the extra `dev` (mutmut)")
    (tmp_path / "pyproject.toml").write_text(code_stage._CONFIGURATION)
    (tmp_path / "src").mkdir()
    command = [sys.executable, "-c", code_stage._LIMITED, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "run" in done.stdout


def stage_of(folder: Path, codes: dict[str, int | None]) -> None:
    """A stage whose only module holds one function and its mutants."""
    place = folder / "mutants" / "src" / "assay" / "oracles"
    place.mkdir(parents=True)
    (folder / "mutants" / "mutmut-stats.json").write_text("{}")
    lines, spans = ["def x_f__mutmut_orig():", "    return 1 + 2"], {"x_f__mutmut_orig": [1, 2]}
    for number, name in enumerate(codes):
        lines += [f"def {name}():", f"    return 1 + {number + 3}"]
        spans[name] = [len(lines) - 1, len(lines)]
    (place / "norms.py").write_text("\n".join(lines) + "\n")
    (place / "norms.py.spans").write_text(json.dumps({"version": 1, "spans": spans}))
    keys = {f"assay.oracles.norms.{name}": one for name, one in codes.items()}
    (place / "norms.py.meta").write_text(json.dumps({"exit_code_by_key": keys}))


@pytest.mark.parametrize("sample", [None, 6])
def test_a_run_goes_on_where_another_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: int | None
) -> None:
    """What was decided stands; what waits, ran out of time or ended strangely is asked."""
    codes = {f"x_f__mutmut_{n}": one for n, one in enumerate([1, 0, 33, None, -24, -11], start=1)}
    stage_of(tmp_path / "build", codes)
    asked: list[str] = []
    monkeypatch.setattr(code, "unavailable", lambda: "")
    monkeypatch.setattr(code, "checkout", lambda: tmp_path)
    monkeypatch.setattr(code, "stage", lambda _root, _folder: None)
    shown: list[tuple[str, int, int]] = []

    def pretend(_folder: Path, names: list[str], _jobs: int, show: object) -> None:
        asked.extend(names)
        assert callable(show)
        show()

    monkeypatch.setattr(code, "run_mutmut", pretend)
    run = code.run_code(sample, 0, 1, tmp_path / "build", lambda *one: shown.append(one))
    assert sorted(asked) == [f"assay.oracles.norms.x_f__mutmut_{n}" for n in (4, 5, 6)]
    assert shown == [("mutants", 0, 3)]
    counts = run.batteries["code"]
    assert (counts.total, counts.killed, counts.survived, counts.invalid) == (6, 2, 2, 2)
    assert run.details["code"].timed_out == 1
