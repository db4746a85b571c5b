"""Asks any copy of the whole-model oracle for what the shipped upstream captures hold, in the captures' own chunks.

Only arrays that upstream itself held are asked. The weights come from the shipped rule, so that a mutated oracle is
run on the tensors that upstream ran on. The comparison is written here and shares nothing with the parity gate's.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.impl.captures.fixtures import read_fixture
from assay.impl.captures.reading import require_capture
from assay.mutations.vectors import CAPTURED, RAISED, STAGE
from assay.oracles import fixture as shipped_fixture
from assay.oracles import geometry as shipped_geometry
from assay.oracles import tensors as shipped_tensors
from assay.oracles.rungs import TAPS
from assay.spec.errors import AssayError, Finding
from assay.spec.origins import UPSTREAM
from assay.spec.stages import rung, rung_name

CASES: Final = (
    "small/short-row-alone",
    "contract-fixture/tokens",
    "small/chunks",
    "small/end-of-text-inside",
    "two-ple/chunks",
)
"""Cheapest first; together they hold every mechanism, chunks, an end of text and a history past the budget."""

TOLERANCE: Final = 2e-5
"""Relative and absolute, of the published fixtures: float32 sums in another order."""

SCORE_TOLERANCE: Final = 5e-5
"""Absolute, for index scores: sums over heads that are not averaged."""

SHARE: Final = 6e-5
"""Of the root mean square of upstream's array: the absolute part is never more, for a small array's error is small too."""

Key = tuple[str, int | None, str]
Rows = dict[Key, list[NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class Case:
    """A shipped capture, read: what upstream held, and what it was asked."""

    id: str
    tokens: list[int]
    partition: list[int]
    configuration: dict[str, Any]
    weights: Any
    arrays: dict[Key, tuple[int, NDArray[Any]]]


def findings(case_id: str, module: Callable[[str], Any]) -> Iterator[Finding]:
    """Yields at most one finding: the first rung of the case that the model of these modules gives otherwise.

    Args:
        case_id: a folder of the shipped captures.
        module: gives a module of the oracles, or of a copy of them, by name.
    """
    case = read_case(case_id)
    rows, error = _run(case, module)
    found = first_difference(case, rows)
    if found is not None:
        yield found
    elif isinstance(error, AssayError):
        said = f"{error.finding.code} at {error.finding.where}"
        yield Finding.of(CAPTURED, STAGE, case_id, expected="logits of every token", got=said)
    elif error is not None:
        said = f"{type(error).__name__}: {error}"
        yield Finding.of(RAISED, STAGE, case_id, expected="logits of every token", got=said)
    else:
        yield from _unanswered(case, rows)


@cache
def read_case(case_id: str) -> Case:
    """Reads one shipped capture whole; the cases named here are a few hundred kilobytes each."""
    folder = Path(str(resources.files("assay").joinpath("fixtures", "captures"))) / case_id
    fixture, capture = read_fixture(folder), require_capture(folder)
    if capture.document is None or capture.document.token_ids is None:
        raise AssertionError(case_id)
    upstream = {(one.stage, one.layer, one.part) for one in fixture.arrays if one.origin == UPSTREAM}
    arrays: dict[Key, tuple[int, NDArray[Any]]] = {}
    for span in capture.spans:
        entry = span.entry
        key = (entry.stage, entry.layer, entry.part)
        if key in upstream and entry.stage != "state":
            kind = {"f32": "<f4", "i32": "<i4", "i64": "<i8"}[entry.dtype]
            flat = np.fromfile(span.path, kind, math.prod(entry.shape), offset=span.start)
            arrays[key] = (entry.first_token, flat.reshape(entry.shape[0], -1))
    own = shipped_geometry.from_config(fixture.configuration)
    named = fixture.weights.rule == "counter-by-name"
    weights = shipped_tensors.RuleWeights(own) if named else shipped_fixture.FixtureWeights()
    partition = list(fixture.run.partition)
    tokens = list(capture.document.token_ids)
    if sum(partition) != len(tokens):  # a padded batch was cut otherwise; one sequence runs whole
        partition = [len(tokens)]
    return Case(case_id, tokens, partition, fixture.configuration, weights, arrays)


def _run(case: Case, module: Callable[[str], Any]) -> tuple[Rows, Exception | None]:
    rows: Rows = {}

    def tap(stage: str, layer: int | None, _token: int, array: Any) -> None:
        if stage in TAPS:
            name, part = TAPS[stage]
            rows.setdefault((name, layer, part), []).append(np.array(array).reshape(-1))

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a wrong oracle may overflow; its numbers are judged
            model = module("model").Model(module("geometry").from_config(case.configuration), case.weights)
            state, start = None, 0
            for size in case.partition:
                state = model.run(case.tokens[start : start + size], state, tap).state
                start += size
    except Exception as error:  # noqa: BLE001 - whatever a wrong oracle raises is a result
        return rows, error
    return rows, None


def first_difference(case: Case, rows: Rows) -> Finding | None:
    """Returns the first token of the first rung that differs from what upstream held, or None."""
    for key in sorted(case.arrays, key=lambda one: rung(*one)):
        source = ("qsa", key[1], "selected") if key[2] == "selection_mask" else key
        first, upstream = case.arrays[key]
        absolute = SCORE_TOLERANCE if key[2] == "index_scores" else TOLERANCE
        if upstream.dtype.kind == "f":
            absolute = min(absolute, SHARE * float(np.sqrt(np.square(upstream.astype(np.float64)).mean())))
        for place, line in enumerate(rows.get(source, [])[first : first + len(upstream)]):
            wanted = upstream[place]
            if key[2] == "selection_mask":
                got = np.isin(np.arange(wanted.size), line).astype(wanted.dtype)
            else:
                got = line
            if key[2] == "index_scores":  # places beyond the complete groups hold a fill
                wanted = wanted[: got.size]
            where = f"{case.id}: {rung_name(*key)} token {first + place}"
            found = _difference(wanted, got, where, absolute)
            if found is not None:
                return found
    return None


def _unanswered(case: Case, rows: Rows) -> Iterator[Finding]:
    """Yields the first rung that upstream held and a run without an error gave no rows of: silence is no agreement."""
    for key in sorted(case.arrays, key=lambda one: rung(*one)):
        source = ("qsa", key[1], "selected") if key[2] == "selection_mask" else key
        first, upstream = case.arrays[key]
        wanted, got = first + len(upstream), len(rows.get(source, []))
        if got < wanted:
            where = f"{case.id}: {rung_name(*key)}"
            yield Finding.of(CAPTURED, STAGE, where, expected=f"{wanted} rows", got=f"{got} rows")
            return


def _difference(wanted: NDArray[Any], line: NDArray[Any], where: str, absolute: float) -> Finding | None:
    if wanted.size != line.size:
        said = f"{line.size} values"
        return Finding.of(CAPTURED, STAGE, where, expected=f"{wanted.size} values", got=said)
    if wanted.dtype.kind in "iu":
        wrong = wanted != line
    else:
        far = np.abs(wanted.astype(np.float64) - line)
        limit = absolute + TOLERANCE * np.maximum(np.abs(wanted), np.abs(line))
        wrong = ~(far <= limit)  # a NaN is wrong
    if not wrong.any():
        return None
    index = int(np.flatnonzero(wrong)[0])
    return Finding.of(CAPTURED, STAGE, f"{where} index {index}", expected=wanted[index], got=line[index])
