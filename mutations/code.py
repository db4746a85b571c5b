"""Battery `code`: every operator, constant and argument of the oracles' source, changed one at a time by mutmut.

It needs a checkout (the tests) and the extra `dev` (mutmut), so it is no part of an installed package's batteries.
The rooms are laid out below a build folder as the wheel lays them out, since mutmut takes a module's name from its
path; only the tests of the oracles run there. What is decided stands until something changes that the tests read, so
that a run can be killed and continued.
"""

import difflib
import hashlib
import importlib.util
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay.mutations.code_reasons import FUNCTIONS, SINGLE, TEXT, kind_of
from assay.mutations.code_stage import alone, decided_so_far, is_generated, run_mutmut, stage
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
FAILED_TEST: Final = frozenset({1, 3})
TIMED_OUT: Final = frozenset({36, 24, -24, 152, 255})
KILLED: Final = FAILED_TEST | TIMED_OUT
"""Exit codes of mutmut for a mutant that failed a test, or that ran out of CPU time."""

NO_TESTS: Final = frozenset({5, 33})
DECIDED: Final = FAILED_TEST | NO_TESTS | {0}
"""What need not be asked again."""

FIRST: Final = "assay.oracles.arithmetic.x_narrow__mutmut_1"
UNAVAILABLE: Final = declare(
    "mutations.code.unavailable", Authority.PROCESS, "Battery `code` runs in a checkout with the extra `dev`.",
    source="design: packaging", cause="an installed package has no tests, and mutmut is a development tool",
    fix="pip install -e '.[dev]' in a checkout",
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


def run_code(
    sample: int | None,
    seed: int,
    jobs: int,
    build: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> MutationRun:
    """Mutates the oracles' source and runs their tests on each mutant.

    Args:
        sample: how many mutants, drawn with `seed`; None runs all that are in scope.
        seed: of the draw.
        jobs: tests that run at once.
        build: folder for the stage; `build/mutmut` of the checkout when absent. What a stage already decided stands
            until something changes that the tests read, so that a run can be continued; only what ran out of time
            or ended strangely is asked again.
        progress: called with what is done.

    Raises:
        EvidenceError: mutations.code.unavailable, mutations.code.busy or mutations.code.run.
    """
    root, reason = checkout(), unavailable()
    if root is None or reason:
        raise EvidenceError(
            Finding.of(UNAVAILABLE, "mutation", NAME, expected="a checkout with mutmut", got=reason)
        )
    folder = build or root / "build" / "mutmut"
    with alone(folder):
        stage(root, folder)
        if not is_generated(folder):
            # A generation that was killed leaves half a module behind, which mutmut would take for a whole one.
            shutil.rmtree(folder / "mutants", ignore_errors=True)
            run_mutmut(folder, [FIRST], jobs, lambda: None)
        everything = list(mutants(folder))
        asked = [one for one in everything if _is_asked(one)]
        left = len(everything) - len(asked)
        if sample is not None:
            asked = sorted(asked, key=lambda one: _lot(seed, one))[:sample]
        waiting = [one.name for one in asked if one.exit_code not in DECIDED]
        if waiting:
            names = set(waiting)

            def show() -> None:
                if progress is not None:
                    done = sum(code in DECIDED for name, code in decided_so_far(folder) if name in names)
                    progress("mutants", done, len(names))

            run_mutmut(folder, waiting, jobs, show)
        names = {one.name for one in asked}
        fates = [one for one in mutants(folder) if one.name in names]
    return summary(fates, len(everything), left, sample, seed)


def no_verdict(run: MutationRun) -> str:
    """Returns why the kills prove nothing: too few of them are of a failing test; empty when they do."""
    counts, detail = run.batteries.get(NAME), run.details.get(NAME)
    if counts is None or detail is None:
        return ""
    by_test = counts.killed - detail.timed_out
    if counts.total and by_test <= detail.timed_out:
        return f"no verdict: {by_test} mutants failed a test, {detail.timed_out} ran out of time"
    return ""


def not_run(reason: str) -> MutationRun:
    """Returns the document of a battery that could not look: no count, and why."""
    none = BatteryCounts(total=0, killed=0, killed_elsewhere=0, survived=0, equivalent=0, invalid=0)
    detail = BatteryDetail(areas={}, not_run=[reason])
    return MutationRun(batteries={NAME: none}, survivors=[], details={NAME: detail})


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
    timed_out = sum(one.exit_code in TIMED_OUT for one in fates)
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
        timed_out=timed_out,
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


def merged(first: MutationRun, second: MutationRun) -> MutationRun:
    """Returns one document of two runs of different batteries."""
    parts: dict[str, Any] = {
        "batteries": {**first.batteries, **second.batteries},
        "survivors": [*first.survivors, *second.survivors],
        "killed_elsewhere": [*first.killed_elsewhere, *second.killed_elsewhere],
        "details": {**first.details, **second.details},
    }
    return MutationRun(**parts)
