"""JSON, JUnit and Markdown say the same as the HTML, and no text of a run breaks them."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from assay.provenance.catalogue import json_schema
from assay.reports.compare import compare
from assay.reports.render import render, write_reports
from assay.spec.documents.run import GateRecord, Run
from assay.spec.documents.run_comparison import RunComparison


def gate(outcome: str, **more: object) -> GateRecord:
    return GateRecord.model_validate({"id": f"g.{outcome}", "outcome": outcome, "components": ["c"], **more})


def run_of(*gates: GateRecord) -> Run:
    return Run(run="r", outcome="pass", gates=list(gates), report="index.html")


def test_json_is_the_run_itself(mixed_run: Run) -> None:
    assert Run.model_validate_json(render(mixed_run, "json")) == mixed_run


def test_json_follows_its_published_schema(mixed_run: Run, good_run: Run) -> None:
    jsonschema.validate(json.loads(render(mixed_run, "json")), json_schema("assay.run/1"))
    comparison = json.loads(render(compare(good_run, mixed_run), "json"))
    jsonschema.validate(comparison, json_schema("assay.run-comparison/1"))
    assert RunComparison.model_validate_json(json.dumps(comparison)).verdict == "regressed"


def test_a_number_that_is_not_finite_travels_as_text(hostile_run: Run) -> None:
    document = json.loads(render(hostile_run, "json"), parse_constant=pytest.fail)
    assert document["gates"][0]["measurements"]["nan"] == "nan"


@pytest.mark.parametrize(
    ("record", "element"),
    [
        (gate("fail", reason="x"), "failure"),
        (gate("inconclusive", reason="x"), "error"),
        (gate("not-run", reason="x"), "skipped"),
        (gate("not-run", reason="x", required=True), "error"),
    ],
)
def test_junit_never_shows_a_gate_as_passed_that_did_not_pass(record: GateRecord, element: str) -> None:
    case = ET.fromstring(render(run_of(record), "junit")).find("testsuite/testcase")  # noqa: S314 - our own text
    assert case is not None
    assert [child.tag for child in case] == [element]


def test_junit_counts_what_it_holds(mixed_run: Run) -> None:
    suite = ET.fromstring(render(mixed_run, "junit")).find("testsuite")  # noqa: S314 - our own text
    assert suite is not None
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "11", "failures": "3", "errors": "1", "skipped": "2"}


def test_junit_carries_code_place_and_both_values(mixed_run: Run) -> None:
    failures = ET.fromstring(render(mixed_run, "junit")).findall("testsuite/testcase/failure")  # noqa: S314 - our own text
    assert failures[0].get("type") == "config.text.num_experts"
    assert "ple.rows.width: layers.1.ple.embedding: expected 160, got 161" in (failures[0].text or "")


@pytest.mark.parametrize("kind", ["run", "comparison"])
def test_hostile_text_leaves_junit_well_formed(hostile_run: Run, good_run: Run, kind: str) -> None:
    document = hostile_run if kind == "run" else compare(good_run, hostile_run)
    tags = {element.tag for element in ET.fromstring(render(document, "junit")).iter()}  # noqa: S314 - our own text
    assert tags <= {
        "testsuites",
        "testsuite",
        "properties",
        "property",
        "testcase",
        "failure",
        "error",
        "skipped",
    }


@pytest.mark.parametrize("kind", ["run", "comparison"])
def test_hostile_text_starts_no_markdown_of_its_own(hostile_run: Run, good_run: Run, kind: str) -> None:
    text = render(hostile_run if kind == "run" else compare(good_run, hostile_run), "markdown")
    bare = re.sub(r"(?<!\\)(`+)(?!`).+?(?<!`)\1(?!`)", "", text)  # code spans hold anything
    assert not re.search(r"(?<!\\)[<\[]", bare)
    assert not re.search(r"^# forged", text, re.MULTILINE)
    assert not [one for one in text if not one.isprintable() and one != "\n"]


def test_every_markdown_table_row_has_as_many_cells_as_its_head(hostile_run: Run) -> None:
    width = None
    for line in render(hostile_run, "markdown").splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        if cells is not None and width is not None:
            assert cells == width, line
        width = cells


def test_markdown_answers_the_four_questions(mixed_run: Run) -> None:
    text = render(mixed_run, "markdown")
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads[:4] == ["What holds", "What does not hold (6)", "What is not claimed", "What to run next"]
    assert "**first difference**" in text


@pytest.mark.parametrize(("format_", "limit"), [("markdown", 40_000), ("junit", 200_000)])
def test_ten_thousand_findings_are_cut_with_a_count(mixed_run: Run, format_: str, limit: int) -> None:
    many = mixed_run.gates[1].model_copy(update={"findings": [mixed_run.gates[1].findings[0]] * 10_000})
    text = render(mixed_run.model_copy(update={"gates": [many]}), format_)  # type: ignore[arg-type]
    assert len(text) < limit
    assert re.search(r"9,9[68]0 of 10,000 findings are not shown", text)


def test_json_keeps_every_finding(mixed_run: Run) -> None:
    many = mixed_run.gates[1].model_copy(update={"findings": [mixed_run.gates[1].findings[0]] * 10_000})
    document = json.loads(render(mixed_run.model_copy(update={"gates": [many]}), "json"))
    assert len(document["gates"][0]["findings"]) == 10_000


def test_the_files_of_a_run_are_written_and_nothing_else_is_left(mixed_run: Run, tmp_path: Path) -> None:
    written = write_reports(mixed_run, tmp_path / "run")
    assert set(written) == {"json", "junit", "markdown", "html"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "run.json",
        "junit.xml",
        "summary.md",
        "index.html",
    }


def test_a_failed_write_keeps_the_old_file(
    mixed_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reports(mixed_run, tmp_path)
    before = (tmp_path / "index.html").read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_reports(mixed_run.model_copy(update={"run": "other"}), tmp_path)
    assert (tmp_path / "index.html").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("before", "after", "element"),
    [
        ("pass", "pass", None),
        ("pass", "not-run", "failure"),
        ("not-run", "not-run", "skipped"),
        ("fail", "not-run", "skipped"),
        ("fail", "fail", "skipped"),
        ("inconclusive", "inconclusive", "skipped"),
        (None, "not-run", "skipped"),
        (None, "fail", "skipped"),
        ("fail", None, "skipped"),
        ("fail", "pass", None),
    ],
)
def test_a_comparison_never_shows_a_gate_as_passed_that_did_not_pass(
    before: str | None, after: str | None, element: str | None
) -> None:
    a, b = (
        run_of(*([gate(outcome).model_copy(update={"id": "g"})] if outcome else []))
        for outcome in (before, after)
    )
    case = ET.fromstring(render(compare(a, b), "junit")).find("testsuite/testcase")  # noqa: S314 - our own text
    assert case is not None
    assert [child.tag for child in case] == ([element] if element else [])


def test_a_comparison_that_is_not_whole_is_an_error() -> None:
    text = render(compare(run_of(), run_of(), was_cut_off=True), "junit")
    assert len(ET.fromstring(text).findall("testsuite/testcase/error")) == 1  # noqa: S314 - our own text
