"""Comparing two runs: losing is regressing, and nothing that is merely no longer run counts as better."""

from typing import Any

import pytest

from assay.reports.compare import compare
from assay.spec.documents.run import Run


def run(*gates: dict[str, Any], **more: Any) -> Run:
    records = [{"id": "g", "components": ["c"], **gate} for gate in gates]
    return Run.model_validate({"run": "r", "outcome": "pass", "gates": records, "report": "", **more})


def label(rung: str, **more: Any) -> dict[str, Any]:
    return {"component": "c", "title": "", "label": rung, "claim": "", "missing": [], "gates": {}, **more}


def battery(**counts: int) -> dict[str, Any]:
    zero = dict.fromkeys(("total", "killed", "killed_elsewhere", "survived", "equivalent", "invalid"), 0)
    document = {"schema": "assay.mutation-run/1", "batteries": {"b": {**zero, **counts}}, "survivors": []}
    return {"outcome": "pass", "measurements": {"battery": document}}


def finding(code: str) -> dict[str, str]:
    return {"code": code, "stage": "s", "where": "w", "expected": "1", "got": "2"}


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("pass", "pass", "same"), ("pass", "fail", "regressed"), ("pass", "inconclusive", "regressed"),
        ("pass", "not-run", "regressed"), ("fail", "pass", "improved"), ("fail", "not-run", "changed"),
        ("fail", "inconclusive", "changed"), ("inconclusive", "fail", "regressed"), ("not-run", "fail", "regressed"),
        ("not-run", "pass", "improved"), ("not-run", "inconclusive", "changed"),
    ],
)  # fmt: skip
def test_a_gate_moves_as_its_outcome_does(before: str, after: str, change: str) -> None:
    result = compare(run({"outcome": before}), run({"outcome": after}))
    assert result.gates[0].change == change
    assert result.verdict == ("regressed" if change == "regressed" else "not-regressed")


def test_leaving_out_a_gate_that_passed_is_a_regression() -> None:
    result = compare(run({"outcome": "pass"}), run())
    assert result.regressions == ["gate g: was pass, is missing from the second run"]


def test_leaving_out_a_gate_that_failed_is_no_improvement() -> None:
    assert compare(run({"outcome": "fail"}), run()).gates[0].change == "removed"


def test_a_failing_gate_that_finds_something_new_regressed() -> None:
    before = run({"outcome": "fail", "findings": [finding("a")]})
    after = run({"outcome": "fail", "findings": [finding("a"), finding("b")]})
    result = compare(before, after)
    assert result.gates[0].change == "regressed"
    assert [(one.code, one.where) for one in result.gates[0].new_findings] == [("b", "w")]


def test_a_failing_gate_that_finds_less_changed_and_still_fails() -> None:
    before = run({"outcome": "fail", "findings": [finding("a"), finding("b")]})
    after = run({"outcome": "fail", "findings": [finding("a")]})
    result = compare(before, after)
    assert result.gates[0].change == "changed"
    assert [one.code for one in result.gates[0].gone_findings] == ["b"]


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("implemented", "correctness-fixture", "improved"), ("correctness-fixture", "implemented", "regressed"),
        ("qualified", "qualified", "same"), ("supported", "hypothesis", "regressed"),
    ],
)  # fmt: skip
def test_a_label_moves_along_the_ladder(before: str, after: str, change: str) -> None:
    assert compare(run(labels=[label(before)]), run(labels=[label(after)])).labels[0].change == change


def test_a_label_that_vanished_regressed_unless_it_claimed_nothing() -> None:
    assert compare(run(labels=[label("implemented")]), run()).verdict == "regressed"
    assert compare(run(labels=[label("hypothesis")]), run()).verdict == "not-regressed"


def test_evidence_that_became_stale_is_named() -> None:
    after = run(labels=[label("implemented", stale=["g: changed since: code"])])
    reasons = compare(run(labels=[label("implemented")]), after).labels[0].reasons
    assert reasons == ["now stale: g: changed since: code"]


def test_evidence_that_stays_stale_for_another_reason_has_not_moved() -> None:
    before = run(labels=[label("implemented", stale=["g: changed since: code"])])
    after = run(labels=[label("implemented", stale=["g: changed since: code, fixtures"])])
    assert compare(before, after).labels[0].change == "same"


def test_losing_support_is_a_regression() -> None:
    before = run(support=[{"profile": "p", "state": "supported", "gates": {}}])
    after = run(support=[{"profile": "p", "state": "pinned-not-supported", "gates": {}}])
    assert compare(before, after).regressions == ["support p: supported became pinned-not-supported"]


@pytest.mark.parametrize(
    ("after", "change"),
    [
        ({"total": 10, "killed": 10}, "same"), ({"total": 10, "killed": 9, "survived": 1}, "regressed"),
        ({"total": 10, "killed": 9, "killed_elsewhere": 1}, "regressed"), ({"total": 8, "killed": 8}, "regressed"),
        ({"total": 12, "killed": 12}, "changed"), ({"total": 11, "killed": 10, "survived": 1}, "regressed"),
    ],
)  # fmt: skip
def test_a_battery_that_kills_less_regressed(after: dict[str, int], change: str) -> None:
    assert compare(run(battery(total=10, killed=10)), run(battery(**after))).batteries[0].change == change


def test_measured_values_are_shown_and_not_judged() -> None:
    before = run({"outcome": "pass", "measurements": {"a": {"b": 1}, "same": 2}})
    after = run({"outcome": "pass", "measurements": {"a": {"b": 3}, "same": 2}})
    result = compare(before, after)
    assert [(one.name, one.before, one.after) for one in result.measurements] == [("a.b", "1", "3")]
    assert result.verdict == "not-regressed"


def test_a_difference_of_seam_is_cautioned() -> None:
    result = compare(run(), run(seam="private"))
    assert any("private" in caution for caution in result.cautions)
    assert [(one.name, one.before, one.after) for one in result.settings] == [("seam", "public", "private")]


def test_a_run_compared_with_itself_has_not_moved(mixed_run: Run) -> None:
    result = compare(mixed_run, mixed_run)
    assert result.verdict == "not-regressed"
    assert {one.change for one in (*result.gates, *result.labels, *result.support, *result.batteries)} == {
        "same"
    }
    assert result.measurements == []
