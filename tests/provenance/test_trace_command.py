"""`assay trace` speaks of valid traces only, in its schemas, and leaves the right exit code."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from assay.mutations.trace import sample
from assay.mutations.trace_sample import sample_lines
from assay.provenance.catalogue import json_schema
from assay.provenance.cli import main


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(sample_lines()))
    return path


def edited(path: Path, kind: str, **fields: Any) -> Path:
    lines = sample()
    next(line for line in lines if line["line"] == kind).update(fields)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(one) for one in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_summary_is_of_its_schema(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "trace", "summarise", trace, "--format", "json")
    summary = json.loads(out)
    jsonschema.validate(summary, json_schema("assay.trace-summary/1"))
    assert (code, summary["verdict"], summary["seam"], summary["start"]) == (
        0,
        "accepted",
        "private",
        "cold-process",
    )


def test_two_equal_runs_compare_as_equal(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "trace", "compare", trace, trace, "--format", "json")
    found = json.loads(out)
    jsonschema.validate(found, json_schema("assay.trace-comparison/1"))
    assert (code, found["routes_compared"], found["first_other_route"]) == (0, 1, "")


def test_another_route_is_a_failure(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = edited(tmp_path / "other.jsonl", "route", experts=[0, 3])
    code, out, _ = told(capsys, "trace", "compare", trace, other, "--format", "pretty")
    assert code == 1
    assert "routes: lane 0 layer 0 token 0: [0, 1] against [0, 3]" in out


def test_a_trace_that_can_not_have_been_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = edited(tmp_path / "wrong.jsonl", "route", experts=[1, 1])
    code, out, err = told(capsys, "trace", "summarise", wrong)
    assert (code, out) == (1, "")
    assert "trace.route: line 19: route of lane 0 layer 0 token 0" in err


def test_a_trace_without_its_end_is_inconclusive(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace.write_bytes(b"".join(sample_lines()[:20]))
    code, out, _ = told(capsys, "trace", "summarise", trace, "--format", "json")
    assert (code, json.loads(out)["verdict"]) == (3, "inconclusive")


def test_a_picture_is_written_as_svg_or_as_a_page(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = told(capsys, "trace", "timeline", trace)
    assert (code, out[:21]) == (0, '<svg class="timeline"')
    page = tmp_path / "page.html"
    code, out, err = told(
        capsys, "trace", "timeline", trace, "--from", "0.01", "--for", "0.02", "--page", page
    )
    assert (code, out) == (0, "")
    assert "wrote" in err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["summarise", "a", "b"], "TRACE"),
        (["compare", "a"], "TRACE"),
        (["timeline", "a", "--from", "-1"], "--from"),
        (["timeline", "a", "--for", "nan"], "--for"),
    ],
)
def test_arguments_that_can_not_be_used_are_named(
    arguments: list[str], where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = told(capsys, "trace", *arguments)
    assert code == 2
    assert f"usage.argument: {where}: expected" in err


def test_a_page_takes_the_place_of_an_earlier_page_and_of_nothing_else(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = trace.read_bytes()
    code, _, err = told(capsys, "trace", "timeline", trace, "--page", trace)
    assert code == 2
    assert "usage.argument: --page: expected a new file, or an earlier page to replace, got a file of" in err
    assert trace.read_bytes() == before
    for _ in range(2):
        assert told(capsys, "trace", "timeline", trace, "--page", tmp_path / "page.html")[0] == 0


def test_a_time_in_which_nothing_happened_is_no_picture(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = told(capsys, "trace", "timeline", trace, "--from", "1e11", "--for", "1")
    assert (code, out) == (2, "")
    assert "usage.argument: --from and --for: expected a time in which something happened, got nothing" in err


def test_every_line_of_the_sample_is_of_its_schema() -> None:
    schema = json_schema("assay.trace/1")
    for line in sample():
        jsonschema.validate(line, schema)
