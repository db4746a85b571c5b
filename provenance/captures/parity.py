"""Compares the oracles with every shipped capture, array by array, and keeps near ties apart from disagreements.

A discrete choice that differs is excused only when its own gap says that it was a tie or rounding; from that token
on, later rungs of the case are not asked, and are counted as such.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.impl.captures.fixtures import read_fixture
from assay.provenance.captures.arrays import OpenCapture, Rung, Stored
from assay.provenance.captures.compare import FILLS
from assay.provenance.captures.numbers import absolute, beyond, ulp_distance
from assay.provenance.captures.oracle_run import OracleRun, aligned, committed_history, run_oracles
from assay.provenance.captures.parity_tolerances import parity_tolerance
from assay.provenance.captures.tolerances import NEAR_CUT
from assay.spec.documents.fixture import Fixture
from assay.spec.origins import UPSTREAM
from assay.spec.stages import rung_name

DISCRETE: Final = {
    ("router", "ids"): ("router", "logits"),
    ("qsa", "selection_mask"): ("qsa", "index_scores"),
}


@dataclass(frozen=True, slots=True)
class ArrayParity:
    """One array: how far the oracle lies from upstream, and where it is farthest.

    `outcome`: `agrees`, `differs`, `tie` or `rounding` (an excused choice), or `not-asked` (after an excused choice).
    """

    case: str
    rung: str
    stage: str
    part: str
    values: int
    max_absolute: float
    max_ulp: int | None
    token: int | None
    index: list[int]
    upstream: float | int | None
    oracle: float | int | None
    rtol: float
    atol: float
    reason: str
    outcome: str
    tokens_asked: int


@dataclass(slots=True)
class CaseParity:
    """One case: its arrays, those that no oracle answers, and its discrete cuts."""

    case: str
    arrays: list[ArrayParity] = field(default_factory=list)
    without_oracle: list[str] = field(default_factory=list)
    cuts: int = 0
    near: int = 0
    excused: int = 0


def compare_cases(root: Path, cases: list[str]) -> Iterator[CaseParity]:
    """Yields the parity of each case; the oracles run once for each geometry and token list."""
    runs: dict[tuple[str, tuple[int, ...]], OracleRun] = {}
    for case in cases:
        fixture, capture = read_fixture(root / case), OpenCapture(root / case)
        tokens = list(capture.document.token_ids or [])
        key = (fixture.geometry, tuple(tokens))
        if key not in runs:
            runs[key] = run_oracles(fixture, tokens)
        yield compare_case(case, fixture, capture, runs[key])


def compare_case(case: str, fixture: Fixture, capture: OpenCapture, oracle: OracleRun) -> CaseParity:
    """Compares every upstream array of one capture with what the oracles say."""
    result = CaseParity(case)
    result.cuts = sum(one.cuts for one in fixture.cuts.values())
    result.near = sum(one.near for one in fixture.cuts.values())
    origins: dict[Rung, str] = {(one.stage, one.layer, one.part): one.origin for one in fixture.arrays}
    asked_below: int | None = None
    for key in capture.rungs():
        if origins.get(key) != UPSTREAM:
            continue
        name = rung_name(*key)
        if key[0] == "state":
            pair = _state_pair(key, fixture, capture, oracle)
            first = 0
        else:
            pair = _token_pair(key, capture, oracle)
            first = capture.segments(key)[0][0]
        if pair is None:
            result.without_oracle.append(name)
            continue
        parity = _array_parity(case, key, capture, *pair, first, asked_below)
        if parity.outcome in {"tie", "rounding"} and parity.token is not None:
            result.excused += 1
            asked_below = parity.token if asked_below is None else min(asked_below, parity.token)
        result.arrays.append(parity)
    return result


def summary(cases: list[CaseParity]) -> dict[str, Any]:
    """Returns the figures of all cases: by operation the farthest array, and the counts of cuts."""
    worst: dict[str, ArrayParity] = {}
    counts: dict[str, int] = {}
    for one in (array for case in cases for array in case.arrays):
        name = f"{one.stage}.{one.part}" if one.part else one.stage
        counts[name] = counts.get(name, 0) + 1
        if name not in worst or one.max_absolute > worst[name].max_absolute:
            worst[name] = one
    outcomes: dict[str, int] = {}
    for array in (array for case in cases for array in case.arrays):
        outcomes[array.outcome] = outcomes.get(array.outcome, 0) + 1
    return {
        "cases": len(cases),
        "arrays": sum(len(case.arrays) for case in cases),
        "values": sum(array.values for case in cases for array in case.arrays),
        "outcomes": outcomes,
        "arraysWithoutOracle": sum(len(case.without_oracle) for case in cases),
        "cuts": sum(case.cuts for case in cases),
        "cutsNear": sum(case.near for case in cases),
        "cutsExcused": sum(case.excused for case in cases),
        "operations": {
            name: {"arrays": counts[name], **_farthest(one)} for name, one in sorted(worst.items())
        },
    }


def _farthest(one: ArrayParity) -> dict[str, Any]:
    kept = asdict(one)
    return {
        name: kept[name]
        for name in kept
        if name not in {"stage", "part", "outcome", "tokens_asked", "values"}
    }


def _token_pair(
    key: Rung, capture: OpenCapture, oracle: OracleRun
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    if key not in oracle.rows:
        return None
    upstream = capture.whole(key)
    first, end = capture.segments(key)[0]
    rows = oracle.rows[key][first:end]
    return upstream, aligned(rows, upstream, FILLS.get((key[0], key[2]), 0))


def _state_pair(
    key: Rung, fixture: Fixture, capture: OpenCapture, oracle: OracleRun
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    if key not in oracle.states:
        return None
    upstream, ours = capture.whole(key), oracle.states[key]
    if key[2] == "gdn_conv":
        upstream = upstream[
            :, -ours.shape[1] :
        ]  # upstream keeps `kernel` columns, the newest `kernel - 1` matter
    if key[2] == "ple_history":
        upstream = np.array(committed_history(upstream, fixture.run.eos_id), np.int64)
        if upstream.size != ours.size:  # a shorter history starts with end of text in upstream's cache
            ours = np.concatenate([np.full(max(0, upstream.size - ours.size), -1, np.int64), ours])
            upstream = np.concatenate([np.full(ours.size - upstream.size, -1, np.int64), upstream])
    return upstream, ours


def _array_parity(
    case: str, key: Rung, capture: OpenCapture, upstream: NDArray[Any], ours: NDArray[Any], first: int,
    asked_below: int | None,
) -> ArrayParity:  # fmt: skip
    is_state, whole = key[0] == "state", upstream
    if asked_below is not None:
        kept = 0 if is_state else max(0, asked_below - first)
        upstream, ours = upstream[:kept], ours[:kept]
    types = ("f32", "f32") if upstream.dtype.kind == "f" else ("i64", "i64")
    chosen = parity_tolerance(key[0], key[2], whole)
    common: dict[str, Any] = {
        "case": case, "rung": rung_name(*key), "stage": key[0], "part": key[2], "values": int(upstream.size),
        "rtol": chosen.rtol, "atol": chosen.atol, "reason": chosen.reason,
        "tokens_asked": 0 if is_state else len(upstream),
    }  # fmt: skip
    if upstream.size == 0:
        outcome = "agrees" if asked_below is None and upstream.shape == ours.shape else "not-asked"
        return ArrayParity(
            **common, max_absolute=0.0, max_ulp=None, token=None, index=[], upstream=None, oracle=None,
            outcome=outcome,
        )  # fmt: skip
    ours = ours.reshape(upstream.shape).astype(upstream.dtype)
    wrong, distance = beyond(upstream, ours, chosen.rtol, chosen.atol), absolute(upstream, ours)
    far = np.where(np.isnan(distance), np.inf, distance)
    flat = int(np.flatnonzero(wrong)[0]) if wrong.any() else int(far.argmax())
    place = [int(axis) for axis in np.unravel_index(flat, upstream.shape)]
    token = None if is_state else first + place[0]
    ulps = (
        ulp_distance(Stored(upstream, "f32"), Stored(ours.astype(np.float32), "f32"))
        if types[0] == "f32"
        else None
    )
    outcome = "agrees"
    if wrong.any():
        outcome = "differs"
        if (key[0], key[2]) in DISCRETE and token is not None:
            outcome = _judge_choice(key, capture, token)
    return ArrayParity(
        **common,
        max_absolute=float(far.max()),
        max_ulp=None if ulps is None else int(ulps.max()),
        token=token,
        index=place if is_state else place[1:],
        upstream=upstream.ravel()[flat].item(),
        oracle=ours.ravel()[flat].item(),
        outcome=outcome,
    )


def _judge_choice(key: Rung, capture: OpenCapture, token: int) -> str:
    """Says what a differing choice was, by the gaps between neighbours in upstream's own scores around its cut."""
    stage, part = DISCRETE[(key[0], key[2])]
    first = capture.segments(key)[0][0]
    scores = capture.whole((stage, key[1], part))[token - first].astype(np.float64)
    row = capture.whole(key)[token - first]
    ranked = np.sort(scores[scores >= 0] if key[0] == "qsa" else scores)[::-1]
    taken = int((row != 0).sum()) // 4 if key[0] == "qsa" else len(row)
    if not 0 < taken < ranked.size:
        return "differs"
    # A cut of a set lies between two ranks; ids in rank order can also swap inside the set.
    gaps = ranked[:taken] - ranked[1 : taken + 1]
    gap = float(gaps[-1]) if key[0] == "qsa" else float(gaps.min())
    return "tie" if gap == 0 else "rounding" if gap <= NEAR_CUT else "differs"
