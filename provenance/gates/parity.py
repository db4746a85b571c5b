"""Gates of the captures: offline provenance, the oracles against upstream, and upstream against itself.

A gate that could not compare something says how much: what upstream does not expose is no parity.
"""

import json
import platform
from dataclasses import asdict
from typing import Any, Final

from assay.mutations import fixtures
from assay.provenance.captures.geometries import CASES
from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.gates.batteries import battery_result
from assay.provenance.paths import fixture_path
from assay.spec.clauses import Authority, declare
from assay.spec.documents.measurements import LADDER
from assay.spec.errors import AssayError, Finding
from assay.spec.verdicts import Outcome

DIFFERS: Final = declare(
    "parity.oracle-upstream.value", Authority.UPSTREAM,
    "Every array that an oracle and upstream both compute agrees within the tolerance of its operation.",
    source="transformers 5.24.0 models/qwen4_exp; AFN-014", cause="an oracle, or a reading of upstream, that is wrong",
    fix="the first rung in the order of the ladder is the one to look at; later ones follow from it",
)  # fmt: skip
NEAR: Final = declare(
    "parity.oracle-upstream.near", Authority.PROCESS,
    "Selections past the budget are captured with gaps above 1e-4, so that parity is asked of every one of them.",
    source="AFN-017: upstream is no authority for ties", cause="inputs of a case that were changed without a search",
)  # fmt: skip
CUTS: Final = declare(
    "parity.oracle-upstream.cuts", Authority.RULE,
    "The cuts that a fixture states, near ones and ties among them, are those that its scores and logits have.",
    source="AFN-017: upstream is no authority for ties", cause="a record edited by hand, or counted with another budget",
    fix="`assay capture --check` shows what upstream gives",
)  # fmt: skip
SHOWN_FINDINGS: Final = 20
CAPTURED_ON: Final = ("x86_64", "AMD64")
"""Machines whose plain kernels the captures came from; another one agrees in value and not in bits."""
_RUNGS: Final = {
    "ple_rows": "ple-rows",
    "embedding": "embedding",
    "output_head": "final-logits",
    "sampled_id": "sampled-id",
}


def fixtures_provenance(_context: GateContext) -> GateResult:
    """Judges every shipped capture offline: digests, origins, producers, counts, index."""
    from assay.impl.captures.fixtures import set_faults

    faults, facts = set_faults(fixture_path("captures"))
    missing = sorted({case.id for case in CASES} - _shipped())
    if faults or missing:
        reason = f"{len(faults)} faults" + (f"; not shipped: {', '.join(missing)}" if missing else "")
        return GateResult(Outcome.FAIL, facts, tuple(faults[:SHOWN_FINDINGS]), reason)
    return GateResult(Outcome.PASS, facts)


def fixtures_battery(context: GateContext) -> GateResult:
    """Changes shipped captures in every way of the battery `fixtures`; each change must be found."""
    return battery_result(fixtures.BATTERY.name, context)


def oracle_upstream(context: GateContext) -> GateResult:
    """Runs the oracles on the inputs of every capture and compares every array that both have."""
    from assay.provenance.captures.parity import ArrayParity, CaseParity, compare_cases, summary

    cases: list[CaseParity] = list(compare_cases(fixture_path("captures"), [case.id for case in CASES]))
    context.out.mkdir(parents=True, exist_ok=True)
    with (context.out / "parity-arrays.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(array)) + "\n" for case in cases for array in case.arrays)
    figures = summary(cases)
    wrong: list[ArrayParity] = []
    findings: list[Finding] = []
    for case in cases:
        found = [array for array in case.arrays if array.outcome == "differs"]
        wrong += found[:1]  # later rungs of one case follow from the first
        findings += [_finding(array) for array in found[:1]]
        findings += _stated_cuts(case.case)
        selection_near = _near_selections(case.case)
        if selection_near:
            findings.append(
                Finding.of(NEAR, "parity", case.case, expected="no selection within 1e-4", got=selection_near)
            )
    figures[LADDER] = _ladder(cases, wrong)
    if findings:
        reason = f"{len(wrong)} cases differ" if wrong else findings[0].line
        return GateResult(Outcome.FAIL, figures, tuple(findings[:SHOWN_FINDINGS]), reason)
    if not figures["arrays"]:
        return GateResult(Outcome.INCONCLUSIVE, figures, (), "no array was compared")
    return GateResult(Outcome.PASS, figures)


def capture_check(_context: GateContext) -> GateResult:
    """Runs the pinned upstream again and compares every byte with what is shipped; leaves no file behind."""
    from assay.provenance.captures.regenerate import BYTES, check

    try:
        findings, compared = check(fixture_path("captures"), write_rejected=False)
    except AssayError as error:
        return GateResult(Outcome.INCONCLUSIVE, {}, (error.finding,), error.finding.line)
    measurements = {"arraysCompared": compared}
    machine = platform.machine()
    if findings and machine not in CAPTURED_ON and all(one.code == BYTES for one in findings):
        reason = f"the captures were made on {CAPTURED_ON[0]}; {machine} rounds sums in another order"
        return GateResult(Outcome.INCONCLUSIVE, measurements, tuple(findings), reason)
    if findings:
        return GateResult(Outcome.FAIL, measurements, tuple(findings), f"{len(findings)} files differ")
    return GateResult(Outcome.PASS, measurements)


def _shipped() -> set[str]:
    root = fixture_path("captures")
    return {f"{path.parent.name}/{path.name}" for path in root.glob("*/*") if path.is_dir()}


def cut_faults(case: str, fixture: Any, capture: Any) -> list[Finding]:
    """Returns a finding for each kind of cut that a fixture states otherwise than its own arrays have it."""
    from assay.provenance.captures.cuts import other_cuts

    return [
        Finding.of(CUTS, "parity", f"{case}: cuts.{kind}", expected=counted, got=stated)
        for kind, counted, stated in other_cuts(fixture, capture)
    ]


def _stated_cuts(case: str) -> list[Finding]:
    from assay.impl.captures.fixtures import read_fixture
    from assay.provenance.captures.arrays import OpenCapture

    path = fixture_path("captures", *case.split("/"))
    return cut_faults(case, read_fixture(path), OpenCapture(path))


def _near_selections(case: str) -> int:
    from assay.impl.captures.fixtures import read_fixture

    return read_fixture(fixture_path("captures", *case.split("/"))).cuts["selection"].near


def _finding(array: Any) -> Finding:
    where = f"{array.case}: {array.rung}"
    where += f" token {array.token}" if array.token is not None else ""
    where += f" index {array.index}" if array.index else ""
    got = f"{array.oracle}, {array.max_absolute:.3g} at most apart"
    got += f", {array.max_ulp} ulp" if array.max_ulp is not None else ""
    return Finding.of(
        DIFFERS,
        "parity",
        where,
        expected=f"{array.upstream} within rtol {array.rtol:g}, atol {array.atol:g}",
        got=got,
    )


def _ladder(cases: list[Any], wrong: list[Any]) -> dict[str, Any]:
    states: dict[str, str] = {}
    for array in (array for case in cases for array in case.arrays):
        rung = _RUNGS.get(array.stage, "layer-stage")
        state = "differs" if array.outcome == "differs" else "equal"
        if states.get(rung) != "differs":
            states[rung] = state
    first = wrong[0] if wrong else None
    return {
        "rungs": states,
        "where": ""
        if first is None
        else f"{first.case}: {first.rung}, token {first.token}, index {first.index}",
        "detail": "" if first is None else f"upstream {first.upstream}, oracle {first.oracle}",
    }
