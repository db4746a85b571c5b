"""Where battery `code` runs: the rooms laid out as the wheel lays them out, and mutmut over them.

What mutmut decided stays in the stage, so that a run can be killed and continued; anything that the tests read and that
changes makes the stage anew.
"""

import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from assay.spec.clauses import Authority, declare
from assay.spec.errors import EvidenceError, Finding

ROOMS: Final = ("spec", "oracles", "fixtures", "impl", "mutations", "provenance", "reports")
READ: Final = ("spec", "oracles", "fixtures", "impl/text", "mutations/vectors.py", "provenance/paths.py")
"""What the tests of the oracles read, themselves apart: a change of it leaves nothing decided."""

SWEEPS: Final = (
    "every_character",
    "for_every_code_point",
    "made_up_conversations",
    "hostile",
    "a_rewind_continues_as_a_fresh_run",
    "chunks_give_the_same_bytes",
)
"""Tests left out: sweeps that take seconds for each mutant where quick literal tests hold the same code."""

BUSY: Final = declare(
    "mutations.code.busy", Authority.PROCESS, "One run at a time mutates the code of a checkout.",
    source="design: packaging", cause="another `assay mutate code` runs in this checkout",
    fix="wait for it, or end it; what it decided stands",
)  # fmt: skip
FAILED: Final = declare(
    "mutations.code.run", Authority.PROCESS, "mutmut generates the mutants and runs the tests without a failure.",
    source="design: packaging", cause="a test of the oracles fails before anything is mutated",
    fix="run the tests of the oracles, and read the log that is named",
)  # fmt: skip


def stage(root: Path, folder: Path) -> None:
    """Lays out the rooms as the wheel does, with the tests of the oracles; a stage of the same source stays."""
    digest = _read_digest(root)
    stamp = folder / "source.sha256"
    if stamp.is_file() and stamp.read_text(encoding="ascii") == digest:
        return
    shutil.rmtree(folder, ignore_errors=True)
    skip = shutil.ignore_patterns("__pycache__", "out", "sample")
    package = folder / "src" / "assay"
    for room in ROOMS:
        shutil.copytree(root / room, package / room, ignore=skip)
    for name in ("__init__.py", "py.typed"):
        shutil.copy(root / ".dev" / "assay" / name, package / name)
    shutil.copytree(root / "tests" / "oracles", folder / "tests" / "oracles", ignore=skip)
    shutil.copy(root / "tests" / "conftest.py", folder / "tests" / "conftest.py")
    (folder / "pyproject.toml").write_text(_CONFIGURATION, encoding="utf-8")
    stamp.write_text(digest, encoding="ascii")


def _read_digest(root: Path) -> str:
    """Returns a digest of everything that decides a mutant's fate: sources, tests, fixtures, versions, configuration."""
    tests = [root / "tests" / "conftest.py", *(root / "tests" / "oracles").rglob("*.py")]
    read = [one for name in READ for one in ([root / name, *(root / name).rglob("*")])]
    digest = hashlib.sha256(f"{platform.python_version()} {_CONFIGURATION}".encode())
    for name in ("mutmut", "pytest", "hypothesis", "numpy", "pydantic"):
        digest.update(f"{name} {_version(name)}\n".encode())
    for path in sorted({one for one in (*tests, *read) if one.is_file() and "__pycache__" not in one.parts}):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"  # laying out needs no package; running says what it needs


def is_generated(folder: Path) -> bool:
    """Whether the mutants are there and the tests of each are known; the record of those is written last."""
    try:
        json.loads((folder / "mutants" / "mutmut-stats.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True


def decided_so_far(folder: Path) -> Iterator[tuple[str, int | None]]:
    """Yields every mutant's name with its exit code, None while it waits."""
    for meta in (folder / "mutants" / "src" / "assay" / "oracles").glob("*.py.meta"):
        yield from json.loads(meta.read_bytes())["exit_code_by_key"].items()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the build folder for one run; the lock goes with the process, however it ends."""
    import fcntl  # mutmut forks: there is no other system to serve

    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EvidenceError(
                Finding.of(
                    BUSY, "mutation", str(folder), expected="no other run", got="one that holds the folder"
                )
            ) from None
        yield


def run_mutmut(folder: Path, names: list[str], jobs: int, show: Callable[[], None]) -> None:
    """Runs mutmut on the named mutants in a process group of its own, which ends with this function however it ends."""
    log = folder / "mutmut.log"
    with log.open("wb") as file, _terminable():
        child = subprocess.Popen(
            [sys.executable, "-c", _LIMITED, "run", "--max-children", str(max(1, jobs)), *names],
            cwd=folder, stdout=file, stderr=subprocess.STDOUT, env=_environment(), start_new_session=True,
        )  # fmt: skip
        try:
            while _is_running(child):
                show()
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if child.returncode:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise EvidenceError(
            Finding.of(
                FAILED,
                "mutation",
                str(log),
                expected="exit 0",
                got=f"exit {child.returncode}: {' '.join(last)[-200:]}",
            )
        )


def _is_running(child: "subprocess.Popen[bytes]") -> bool:
    try:
        child.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


@contextmanager
def _terminable() -> Iterator[None]:
    """Turns SIGTERM into an exception, so that what was started is ended too."""

    def leave(_number: int, _frame: Any) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # another thread than the main one sets no handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


POLL_SECONDS: Final = 5.0
STUCK_SECONDS: Final = 900
"""Wall time after which a mutant that neither ends nor computes is given up."""

_LIMITED: Final = f"""\
import os, sys
from mutmut.__main__ import cli
from mutmut.mutation.data import SourceFileMutationData
from mutmut.workers import isolation

given = isolation.register_timeout
def register(pid, timeout_s):
    given(pid, max(timeout_s, {STUCK_SECONDS}))
isolation.register_timeout = register

written = SourceFileMutationData.save
def save(self):
    place = self.meta_path
    self.meta_path = place.with_name(place.name + ".part")
    try:
        written(self)
        os.replace(self.meta_path, place)
    finally:
        self.meta_path = place
SourceFileMutationData.save = save

if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
sys.exit(cli())
"""
"""mutmut with three changes: its limits are of CPU time, for a wall clock makes kills of a busy or a stopped machine;
its records are replaced as a whole, so that a kill leaves none in half; and it ends when its parent does."""

_DESELECTED: Final = "not slow and not upstream and not checkpoint"
_CONFIGURATION: Final = f"""\
[tool.pytest.ini_options]
testpaths = ["tests"]
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider"]
filterwarnings = ["error"]
markers = ["slow", "fuzz", "sign", "upstream", "checkpoint", "metal"]

[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/assay/oracles/*"]
pytest_add_cli_args_test_selection = [
  "tests/oracles", "-m", "{_DESELECTED}", "-k", "not {" and not ".join(SWEEPS)}",
]
process_isolation = "forkserver"
timeout_multiplier = 5.0
timeout_constant = 1.0
"""
"""forkserver and not fork: a library that has started threads does not survive a fork."""
