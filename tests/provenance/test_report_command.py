"""`assay report`: finds a run by any of its names, says when it was cut off, and exits 1 when something regressed."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.provenance.cli import main
from assay.provenance.evidence.run_log import RunLogWriter, document_digest
from assay.spec.documents.run import Environment, GateRecord, LabelRecord, Run
from assay.spec.documents.run_comparison import RunComparison
from assay.spec.documents.run_log import Footer, Header

HEAD = "c0" * 32
ENVIRONMENT = Environment(assay="0", python="3", platform="p", machine="m", device="cpu", packages={})

LABEL = LabelRecord(
    component="c", title="C", label="implemented", claim="Holds.", missing=["more"], gates={"g": "pass"}
)


def gate(id_: str, outcome: str, **more: Any) -> GateRecord:
    return GateRecord.model_validate(
        {"id": id_, "outcome": outcome, "components": ["c"], "reason": "why", **more}
    )


def write_run(
    folder: Path, *gates: GateRecord, outcome: str = "pass", asked: tuple[str, ...] = (), ends: bool = True
) -> Path:
    """A run folder as `assay gate` leaves it, or as a kill leaves it when it does not end."""
    folder.mkdir(parents=True)
    header = Header(
        run=folder.name, started="2026-11-29T22:41:07Z", seed=7, seam=None, required=[], head=HEAD,
        gates=list(asked) or [one.id for one in gates], environment=ENVIRONMENT,
    )  # fmt: skip
    run = Run(
        run=folder.name, outcome=outcome, gates=list(gates), report="", head=HEAD, environment=ENVIRONMENT,  # type: ignore[arg-type]
        labels=[LABEL],
    )  # fmt: skip
    with RunLogWriter(folder, header) as log:
        for one in gates:
            log.gate(one)
        if ends:
            log.footer(
                Footer(
                    run=folder.name, outcome=outcome, gates=len(gates), duration_s=1.0, head=HEAD, root=HEAD,  # type: ignore[arg-type]
                    document=document_digest(run),
                )
            )  # fmt: skip
    if ends:
        (folder / "run.json").write_text(run.model_dump_json(by_alias=True), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("named", ["assay-out/r", "assay-out/r/run.json", "assay-out/r/run.jsonl", "r"])
def test_a_run_is_found_by_folder_file_or_name(named: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("assay-out/r"), gate("g", "pass"))
    assert main(["report", named, "--format", "json"]) == 0
    assert Run.model_validate_json(capsys.readouterr().out).run == "r"
    assert (Path("assay-out/r") / "index.html").is_file()


def test_rendering_again_leaves_run_json_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(Path("r"), gate("g", "pass"))
    before = (folder / "run.json").read_bytes()
    main(["report", "r"])
    assert (folder / "run.json").read_bytes() == before
    assert {path.name for path in folder.iterdir()} == {
        "run.jsonl", "run.json", "index.html", "junit.xml", "summary.md"
    }  # fmt: skip


def test_out_says_where_the_report_goes(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(Path("r"), gate("g", "pass"))
    assert main(["report", "r", "--out", "sample"]) == 0
    assert {path.name for path in Path("sample").iterdir()} == {
        "run.jsonl",
        "index.html",
        "run.json",
        "junit.xml",
        "summary.md",
    }
    assert not (folder / "index.html").exists()


@pytest.mark.parametrize(
    ("outcome", "exit_code"), [("pass", 0), ("fail", 1), ("inconclusive", 3), ("not-run", 3)]
)
def test_the_exit_code_is_that_of_the_run(
    outcome: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(Path("r"), gate("g", outcome), outcome=outcome)
    assert main(["report", "r"]) == exit_code


@pytest.mark.parametrize(
    ("format_", "start"),
    [("json", "{"), ("junit", "<?xml"), ("markdown", "# "), ("pretty", "r: 1 of 1 gate passes")],
)
def test_every_format_is_printed(format_: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("r"), gate("g", "pass"))
    main(["report", "r", "--format", format_])
    assert capsys.readouterr().out.startswith(start)


def test_a_run_that_was_cut_off_is_said_so_and_is_inconclusive(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("r"), gate("a", "pass"), asked=("a", "b"), ends=False)
    assert main(["report", "r", "--format", "json"]) == 3
    out, err = capsys.readouterr()
    assert "evidence.run.truncated: run.jsonl: expected a footer, got 1 of 2 gates and no footer" in err
    run = Run.model_validate_json(out)
    assert run.outcome == "inconclusive"
    assert [(one.id, one.outcome) for one in run.gates] == [("a", "pass"), ("b", "not-run")]
    assert run.labels == []


def test_the_folder_of_a_run_that_was_cut_off_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(Path("r"), gate("a", "pass"), asked=("a", "b"), ends=False)
    main(["report", "r"])
    assert [path.name for path in folder.iterdir()] == ["run.jsonl"]


def test_a_failure_before_the_cut_still_fails(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("r"), gate("a", "fail"), asked=("a", "b"), ends=False)
    assert main(["report", "r"]) == 1


def test_a_missing_run_is_a_usage_error_that_lists_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("assay-out/known"), gate("a", "pass"))
    assert main(["report", "unknown"]) == 2
    err = capsys.readouterr().err
    assert "usage.argument: RUN: expected a run folder, a run.json or the name of a run, got unknown" in err
    assert "known" in err.splitlines()[1]


@pytest.mark.parametrize(
    ("content", "code", "where"),
    [
        ("{", "input.json.syntax", "run.json"),
        ("{}", "report.run.form", "run.json: run"),
        ('{"schema": "assay.run/1", "run": 1}', "report.run.form", "run.json: run"),
    ],
)
def test_a_file_that_is_no_run_is_one_line(
    content: str, code: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("r").mkdir()
    (Path("r") / "run.json").write_text(content, encoding="utf-8")
    assert main(["report", "r"]) == 4
    assert capsys.readouterr().err.startswith(f"assay: error: {code}: {where}")


@pytest.mark.parametrize(
    ("field", "value"), [("run", "other"), ("outcome", "fail"), ("head", "00" * 32), ("gates", [])]
)
def test_a_run_json_that_its_log_contradicts_is_refused(
    field: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(Path("r"), gate("g", "pass"))
    document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps({**document, field: value}), encoding="utf-8")
    assert main(["report", "r"]) == 4
    assert f"report.run.disagrees: run.json: {field}: expected" in capsys.readouterr().err


def test_a_regression_is_exit_1_and_names_what_was_lost(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("a"), gate("g", "pass"))
    write_run(Path("b"), gate("g", "inconclusive"), outcome="inconclusive")
    assert main(["report", "a", "b", "--format", "json"]) == 1
    comparison = RunComparison.model_validate_json(capsys.readouterr().out)
    assert comparison.regressions == ["gate g: pass became inconclusive"]
    assert (Path("b") / "against-a" / "index.html").is_file()


def test_no_regression_is_exit_0_also_when_both_runs_fail(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("a"), gate("g", "fail"), outcome="fail")
    write_run(Path("b"), gate("g", "fail"), outcome="fail")
    assert main(["report", "a", "b"]) == 0


def test_a_gate_that_had_not_ended_is_unknown_and_not_regressed(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("a"), gate("g", "pass"), gate("h", "pass"))
    write_run(Path("b"), gate("g", "pass"), asked=("g", "h"), ends=False)
    assert main(["report", "a", "b", "--format", "json"]) == 3
    comparison = RunComparison.model_validate_json(capsys.readouterr().out)
    assert comparison.verdict == "inconclusive"
    assert [(one.id, one.change) for one in comparison.gates] == [("g", "same"), ("h", "changed")]


def test_what_regressed_before_the_cut_regressed(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("a"), gate("g", "pass"), gate("h", "pass"))
    write_run(Path("b"), gate("g", "fail"), asked=("g", "h"), ends=False)
    assert main(["report", "a", "b"]) == 1


def edit(folder: Path, change: dict[str, Any]) -> None:
    document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps({**document, **change}), encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        {"labels": [json.loads(LABEL.model_dump_json()) | {"label": "supported"}]},
        {"labels": [json.loads(LABEL.model_dump_json()) | {"claim": "Everything holds."}]},
        {"labels": []},
        {"support": [{"profile": "p", "state": "supported", "gates": {}}]},
        {"environment": json.loads(ENVIRONMENT.model_dump_json()) | {"device": "M5"}},
        {"not_claimed": ["nothing"]},
        {"next_steps": ["none"]},
        {"seam": "private"},
        {"seed": 1},
        {"duration_s": 2.0},
        {"report": "elsewhere"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_was_edited_in_run_json_is_damage(
    change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(Path("r"), gate("g", "pass"))
    edit(folder, change)
    assert main(["report", "r"]) == 4
    assert "report.run.disagrees: run.json: digest: expected" in capsys.readouterr().err
    for path in ("r", "r/run.json"):
        assert main(["validate", path, "--format", "json"]) == 4
        (finding,) = json.loads(capsys.readouterr().out)["findings"]
        assert (finding["code"], finding["where"]) == ("report.run.disagrees", "run.json: digest")


def test_another_spelling_of_the_same_document_is_no_damage(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(Path("r"), gate("g", "pass"))
    edit(folder, {})
    assert main(["report", "r"]) == 0
    assert main(["validate", "r"]) == 0


def test_a_finished_run_without_its_run_json_is_damage(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(Path("r"), gate("g", "pass"))
    (folder / "run.json").unlink()
    assert main(["report", "r"]) == 4
    assert main(["validate", "r"]) == 4


@pytest.mark.parametrize("log", [None, b"", b'{"line": "hea'])
def test_a_run_without_its_log_claims_nothing(log: bytes | None, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(Path("r"), gate("g", "pass"))
    (folder / "run.jsonl").unlink()
    if log is not None:
        (folder / "run.jsonl").write_bytes(log)
    for path in ("r", "r/run.json"):
        assert main(["report", path, "--format", "json"]) == 3
        out, err = capsys.readouterr()
        assert err.splitlines()[0].startswith("assay: evidence.run.truncated: run.jsonl: expected a log")
        run = Run.model_validate_json(out)
        assert (run.outcome, run.labels, run.support) == ("inconclusive", [], [])
        assert {one.outcome for one in run.gates} == {"not-run"}
        assert main(["validate", path, "--format", "json"]) == 3
        (finding,) = json.loads(capsys.readouterr().out)["findings"]
        assert (finding["code"], finding["where"]) == ("evidence.run.truncated", "run.jsonl")
    assert not (folder / "index.html").exists()


def test_a_copied_run_json_alone_claims_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(Path("r"), gate("g", "pass"))
    Path("copy.json").write_bytes((folder / "run.json").read_bytes())
    assert main(["report", "copy.json", "--format", "json"]) == 3
    assert Run.model_validate_json(capsys.readouterr().out).outcome == "inconclusive"


@pytest.mark.parametrize("log", [None, b"", b"{"])
def test_a_run_that_was_killed_before_its_header_is_one_line_and_exit_3(
    log: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("r").mkdir()
    if log is not None:
        (Path("r") / "run.jsonl").write_bytes(log)
    assert main(["report", "r"]) == 3
    assert capsys.readouterr().err.startswith(
        "assay: error: evidence.run.truncated: run.jsonl: expected a log"
    )
    assert main(["validate", "r"]) == 3


def test_a_report_put_elsewhere_is_believed_there(capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(Path("r"), gate("g", "pass"))
    assert main(["report", "r", "--out", "sample"]) == 0
    assert (Path("sample") / "run.jsonl").read_bytes() == (folder / "run.jsonl").read_bytes()
    assert main(["report", "sample"]) == 0
    assert main(["validate", "sample"]) == 0


def test_a_report_never_overwrites_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("r"), gate("g", "pass"))
    other = write_run(Path("s"), gate("h", "fail"), outcome="fail")
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    assert main(["report", "r", "--out", "s"]) == 2
    assert (
        "usage.argument: --out: expected a folder without a run, or with this one" in capsys.readouterr().err
    )
    assert {path.name: path.read_bytes() for path in other.iterdir()} == before


def test_a_cut_off_report_counts_and_names_every_gate_that_had_not_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("a", *(f"b{number}" for number in range(9)))
    write_run(Path("r"), gate("a", "pass"), asked=asked, ends=False)
    main(["report", "r", "--format", "pretty"])
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "r: Cut off: 1 of 10 gates had ended"
    assert all(f"not ended: b{number}: " in out for number in range(9))
    assert f"`assay gate {' '.join(asked[1:])}` runs what had not ended." in out


def test_a_report_that_cannot_be_written_is_exit_3_and_names_the_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(Path("r"), gate("g", "pass"))
    Path("file").write_text("")
    assert main(["report", "r", "--out", "file"]) == 3
    assert "evidence.unwritable: file: expected a place that can be written" in capsys.readouterr().err
