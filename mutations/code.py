"""Battery `code`: every operator, constant and argument of the oracles' source, changed one at a time by mutmut.

It needs a checkout (the tests) and the extra `dev` (mutmut), so it is no part of an installed package's batteries.
The rooms are laid out below a build folder as the wheel lays them out, since mutmut takes a module's name from its
path; only the tests of the oracles run there.
"""

import difflib
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay.mutations.code_reasons import FUNCTIONS, SINGLE, TEXT, kind_of
from assay.spec.clauses import Authority, declare
from assay.spec.documents.mutation_run import (
    AreaCounts,
    BatteryCounts,
    BatteryDetail,
    Excused,
    MutationRecord,
    MutationRun,
)
from assay.spec.errors import EvidenceError, Finding

NAME: Final = "code"
TITLE: Final = (
    "Every operator, constant and argument of the oracles' source, changed by mutmut; a test must fail."
)
ROOMS: Final = ("spec", "oracles", "fixtures", "impl", "mutations", "provenance", "reports")
KILLED: Final = frozenset({1, 3, 36, 24, -24, 152, 255})
"""Exit codes of mutmut for a mutant that a test failed or that ran out of time."""

NO_TESTS: Final = frozenset({5, 33})
SWEEPS: Final = (
    "every_character",
    "for_every_code_point",
    "made_up_conversations",
    "hostile",
    "a_rewind_continues_as_a_fresh_run",
    "chunks_give_the_same_bytes",
)
"""Tests left out: sweeps that take seconds for each mutant where quick literal tests hold the same code."""

FIRST: Final = "assay.oracles.arithmetic.x_narrow__mutmut_1"
UNAVAILABLE: Final = declare(
    "mutations.code.unavailable", Authority.PROCESS, "Battery `code` runs in a checkout with the extra `dev`.",
    source="design: packaging", cause="an installed package has no tests, and mutmut is a development tool",
    fix="pip install -e '.[dev]' in a checkout",
)  # fmt: skip
FAILED: Final = declare(
    "mutations.code.run", Authority.PROCESS, "mutmut generates the mutants and runs the tests without a failure.",
    source="design: packaging", cause="a test of the oracles fails before anything is mutated",
    fix="run the tests of the oracles, and read the log that is named",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutant as it stands on disk.

    Attributes:
        name: mutmut's own.
        module: of the oracles.
        function: with its class, if it has one.
        original: source of the function.
        mutated: source after the change.
        exit_code: of its last run; None when it was never run.
    """

    name: str
    module: str
    function: str
    original: str
    mutated: str
    exit_code: int | None

    @property
    def diff(self) -> str:
        """The changed lines, without their context."""
        lines = difflib.unified_diff(self.original.splitlines(), self.mutated.splitlines(), n=0, lineterm="")
        changed = [one for one in lines if one[:1] in "+-" and one[:3] not in ("+++", "---")]
        return "\n".join(one for one in changed if "__mutmut_" not in one)

    @property
    def key(self) -> str:
        """What a written reason is filed under."""
        digest = hashlib.sha256(self.diff.encode()).hexdigest()[:16]
        return f"{self.module}.{self.function}:{digest}"


def checkout() -> Path | None:
    """Returns the root of the checkout that this package runs from; None when it is installed."""
    root = Path(__file__).resolve().parent.parent
    return root if (root / "tests" / "oracles").is_dir() and (root / "pyproject.toml").is_file() else None


def unavailable() -> str:
    """Returns why the battery can't run here; empty when it can."""
    if checkout() is None:
        return "needs a checkout: the tests are not part of the package"
    if importlib.util.find_spec("mutmut") is None:
        return "needs the extra `dev`: mutmut is not installed"
    return ""


def run_code(sample: int | None, seed: int, jobs: int, build: Path | None = None) -> MutationRun:
    """Mutates the oracles' source and runs their tests on each mutant.

    Args:
        sample: how many mutants, drawn with `seed`; None runs all that are in scope.
        seed: of the draw.
        jobs: tests that run at once.
        build: folder for the stage; `build/mutmut` of the checkout when absent. What a stage already decided stands
            unless its source has changed, so that a whole run can be continued.

    Raises:
        EvidenceError: mutations.code.unavailable or mutations.code.run.
    """
    root, reason = checkout(), unavailable()
    if root is None or reason:
        raise EvidenceError(
            Finding.of(UNAVAILABLE, "mutation", NAME, expected="a checkout with mutmut", got=reason)
        )
    folder = build or root / "build" / "mutmut"
    stage(root, folder)
    if not (folder / "mutants" / "mutmut-stats.json").is_file():
        # A generation that was killed leaves half a module behind, which mutmut would take for a whole one.
        shutil.rmtree(folder / "mutants", ignore_errors=True)
        _mutmut(folder, [FIRST], jobs)
    everything = list(mutants(folder))
    asked = [one for one in everything if _is_asked(one)]
    left = len(everything) - len(asked)
    if sample is not None:
        asked = sorted(asked, key=lambda one: _lot(seed, one))[:sample]
    waiting = [one.name for one in asked if sample is not None or one.exit_code is None]
    if waiting:
        _mutmut(folder, waiting, jobs)
    names = {one.name for one in asked}
    fates = [one for one in mutants(folder) if one.name in names]
    return summary(fates, len(everything), left, sample, seed)


def not_run(reason: str) -> MutationRun:
    """Returns the document of a battery that could not look: no count, and why."""
    none = BatteryCounts(total=0, killed=0, killed_elsewhere=0, survived=0, equivalent=0, invalid=0)
    detail = BatteryDetail(areas={}, not_run=[reason])
    return MutationRun(batteries={NAME: none}, survivors=[], details={NAME: detail})


def stage(root: Path, folder: Path) -> None:
    """Lays out the rooms as the wheel does, with the tests of the oracles; a stage of the same source stays."""
    digest = hashlib.sha256()
    for path in sorted([*(root / "oracles").rglob("*.py"), *(root / "tests" / "oracles").rglob("*.py")]):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    stamp = folder / "source.sha256"
    if stamp.is_file() and stamp.read_text(encoding="ascii") == digest.hexdigest():
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
    stamp.write_text(digest.hexdigest(), encoding="ascii")


def mutants(folder: Path) -> Iterator[Mutant]:
    """Yields every mutant of a stage, with what became of it."""
    for meta in sorted((folder / "mutants" / "src" / "assay" / "oracles").glob("*.py.meta")):
        codes: dict[str, int | None] = json.loads(meta.read_bytes())["exit_code_by_key"]
        spans: dict[str, list[int]] = json.loads(meta.with_suffix(".spans").read_bytes())["spans"]
        lines = meta.with_suffix("").read_text(encoding="utf-8").splitlines()
        sources = {name: "\n".join(lines[first - 1 : last]) for name, (first, last) in spans.items()}
        module = meta.name.partition(".")[0]
        for name, code in codes.items():
            short = name.rpartition(".")[2]
            stem = short.rpartition("__mutmut_")[0]
            function = stem.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
            yield Mutant(name, module, function, sources[f"{stem}__mutmut_orig"], sources[short], code)


def _lot(seed: int, one: Mutant) -> str:
    """The order of the draw: by what is changed and not by place, so that a change elsewhere keeps the sample."""
    return hashlib.sha256(f"{seed}:{one.key}:{one.name.rpartition('__mutmut_')[0]}".encode()).hexdigest()


def _is_asked(one: Mutant) -> bool:
    if f"{one.module}.{one.function}" in FUNCTIONS:
        return False
    return kind_of(one.original, one.mutated) is not TEXT


def summary(fates: list[Mutant], generated: int, left: int, sample: int | None, seed: int) -> MutationRun:
    """Counts what became of the mutants; a survivor with a written reason counts as equivalent."""
    total: Counter[str] = Counter(one.module for one in fates)
    killed: Counter[str] = Counter(one.module for one in fates if one.exit_code in KILLED)
    excused: dict[str, list[str]] = {}
    survivors: list[MutationRecord] = []
    strange = 0  # neither killed nor survived: a crash of the worker, or interrupted
    for one in fates:
        if one.exit_code in KILLED:
            continue
        kind = kind_of(one.original, one.mutated)
        reason = SINGLE.get(one.key) or ("" if kind is None else kind.reason)
        if reason and (one.exit_code == 0 or one.exit_code in NO_TESTS):
            excused.setdefault(reason, []).append(one.name)
            continue
        strange += one.exit_code != 0 and one.exit_code not in NO_TESTS
        survivors.append(_record(one))
    equivalent = sum(map(len, excused.values()))
    drawn = (
        "" if sample is None else f"{len(fates)} drawn with seed {seed} out of {generated - left}: the rest"
    )
    counts = BatteryCounts(
        total=len(fates),
        killed=sum(killed.values()),
        killed_elsewhere=0,
        survived=len(survivors) - strange,
        equivalent=equivalent,
        invalid=strange,
    )
    detail = BatteryDetail(
        areas={
            module: AreaCounts(
                total=count, killed=killed[module], by_rule=killed[module], by_upstream=0, by_pin=0, by_form=0
            )
            for module, count in sorted(total.items())
        },
        controls={"clean pass": True, "forced failure": True},
        not_run=[
            *([drawn] if drawn else []),
            f"{left} of {generated} mutants: {TEXT.reason}; or the function says why in code_reasons",
        ],
        excused=[
            Excused(mutations=sorted(names), reason=reason) for reason, names in sorted(excused.items())
        ],
    )
    return MutationRun(batteries={NAME: counts}, survivors=survivors, details={NAME: detail})


def _record(one: Mutant) -> MutationRecord:
    why = {0: "survived", None: "not run"}.get(one.exit_code, f"exit code {one.exit_code}")
    if one.exit_code in NO_TESTS:
        why = "no test reaches it"
    return MutationRecord(
        battery=NAME,
        id=one.name,
        area=one.module,
        field=f"{one.module}.{one.function}",
        change=one.diff,
        expected_code="a failing test",
        got_codes=[],
        reason=f"{why}; a reason would be filed under {one.key}",
    )


def _mutmut(folder: Path, names: list[str], jobs: int) -> None:
    log = folder / "mutmut.log"
    with log.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "mutmut", "run", "--max-children", str(max(1, jobs)), *names],
            cwd=folder, stdout=file, stderr=subprocess.STDOUT, check=False, env=_environment(),
        )  # fmt: skip
    if done.returncode:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise EvidenceError(
            Finding.of(
                FAILED,
                "mutation",
                str(log),
                expected="exit 0",
                got=f"exit {done.returncode}: {' '.join(last)[:200]}",
            )
        )


def _environment() -> dict[str, str]:
    import os

    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


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
"""
"""forkserver and not fork: a library that has started threads does not survive a fork."""


def merged(first: MutationRun, second: MutationRun) -> MutationRun:
    """Returns one document of two runs of different batteries."""
    parts: dict[str, Any] = {
        "batteries": {**first.batteries, **second.batteries},
        "survivors": [*first.survivors, *second.survivors],
        "killed_elsewhere": [*first.killed_elsewhere, *second.killed_elsewhere],
        "details": {**first.details, **second.details},
    }
    return MutationRun(**parts)
