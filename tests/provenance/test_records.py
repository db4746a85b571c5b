"""`assay validate` judges decision records: those of this project hold, and lost evidence is named."""

from pathlib import Path

import pytest

from assay.provenance.kinds import judge_path
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.verdicts import Verdict

DECISIONS = Path(__file__).resolve().parents[2] / "docs" / "decisions"
RECORD = """# ADR-0001: Title

- Status: accepted
- Date: 2026-11-29
- Decision: d
- Invariant: i
- Failure signature: f
- Minimal safe implementation: m
- Rejected shortcut: r
- Evidence: {evidence}
- Claim boundary: c
- Prerequisites: none
- Supersedes: none
"""


def judge(path: Path) -> Judgement:
    return judge_path(path, JudgeOptions())


def places(judgement: Judgement) -> list[tuple[str, str]]:
    return [(one.code, one.where) for one in judgement.findings]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one test and room for one record."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "docs").mkdir()
    (tmp_path / "test_a.py").write_text("def test_there() -> None: ...\nABSENT = 'test_not_there'\n")
    return tmp_path


def write(project: Path, evidence: str, name: str = "ADR-0001-x.md") -> Path:
    path = project / "docs" / name
    path.write_text(RECORD.format(evidence=evidence), encoding="utf-8")
    return path


def test_the_decisions_of_this_project_hold() -> None:
    judgement = judge(DECISIONS)
    assert places(judgement) == []
    assert judgement.verdict is Verdict.ACCEPTED
    assert len(judgement.facts["records"]) == len(list(DECISIONS.glob("ADR-*.md"))) >= 6


def test_one_record_is_judged_among_its_neighbours() -> None:
    judgement = judge(next(DECISIONS.glob("ADR-0006*")))
    assert judgement.facts["records"] == ["ADR-0006"]
    assert judgement.verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(
    "evidence",
    ["`test_a.py`", "`test_a.py::test_there`", "gate `provenance.ledger-detects-damage`", "`docs`"],
)
def test_evidence_that_exists_is_accepted(project: Path, evidence: str) -> None:
    assert judge(write(project, evidence)).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(
    "evidence",
    ["`test_b.py`", "`test_a.py::test_not_there`", "gate `no.such-gate`", "`pyproject.toml::there`"],
)
def test_evidence_that_does_not_exist_is_named(project: Path, evidence: str) -> None:
    judgement = judge(write(project, f"`test_a.py`; {evidence}"))
    assert places(judgement) == [("record.evidence.missing", "ADR-0001: Evidence")]
    assert judgement.verdict is Verdict.REJECTED


@pytest.mark.parametrize(
    "evidence", ["all tests pass", "`/etc/passwd`", "`../secret`", "`docs/../../secret`"]
)
def test_evidence_is_something_to_look_up_inside_the_project(project: Path, evidence: str) -> None:
    assert places(judge(write(project, evidence))) == [("record.evidence.form", "ADR-0001: Evidence")]


def test_an_address_is_said_not_to_be_checked(project: Path) -> None:
    judgement = judge(write(project, "https://example.org/x"))
    assert judgement.verdict is Verdict.ACCEPTED
    assert judgement.not_checked == ["ADR-0001: https://example.org/x (addresses are not fetched)"]


def test_records_outside_a_project_are_inconclusive(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    judgement = judge(write(tmp_path, "`test_a.py`"))
    assert places(judgement) == [("record.evidence.root", "ADR-0001: Evidence")]
    assert judgement.verdict is Verdict.INCONCLUSIVE


def test_every_broken_file_of_a_folder_is_named(project: Path) -> None:
    write(project, "`test_a.py`")
    (project / "docs" / "ADR-0002-x.md").write_text("# Something else\n", encoding="utf-8")
    (project / "docs" / "ADR-0003-x.md").write_bytes(b"# ADR-0003: \xff\n")
    (project / "docs" / "ADR-0004-x.md").touch()
    assert places(judge(project / "docs")) == [
        ("record.form.heading", "ADR-0002-x.md: line 1"),
        ("record.form.value", "ADR-0003-x.md: encoding"),
        ("input.file.empty", "ADR-0004-x.md"),
    ]


def test_a_copy_under_another_number_is_found_in_both_ways(project: Path) -> None:
    write(project, "`test_a.py`")
    write(project, "`test_a.py`", "ADR-0002-copy.md")
    assert places(judge(project / "docs")) == [
        ("record.id.file", "ADR-0002-copy.md"),
        ("record.id.unique", "ADR-0001"),
    ]


@pytest.mark.parametrize(
    "link", ["[x](nowhere.md)", "[gone](ADR-9999-x.md)", "![x](no.png)", "[x][r]\n\n[r]: no.md"]
)
@pytest.mark.parametrize("place", ["field", "text"])
def test_a_link_that_leads_nowhere_is_named(project: Path, link: str, place: str) -> None:
    path = write(project, "`test_a.py`")
    inline, _, definition = link.partition("\n\n")
    whole = path.read_text()
    whole = (
        whole.replace("Decision: d", f"Decision: {inline}") if place == "field" else f"{whole}\n{inline}\n"
    )
    path.write_text(f"{whole}\n{definition}\n")
    assert places(judge(path)) == [("record.link.target", "ADR-0001: text")]


@pytest.mark.parametrize(
    "link", ["[x](../test_a.py)", "[x](#part)", "[x](https://example.org)", "[x](ADR-0001-x.md#y)"]
)
def test_a_link_to_a_file_that_exists_is_accepted(project: Path, link: str) -> None:
    path = write(project, "`test_a.py`")
    path.write_text(f"{path.read_text()}\n{link}\n")
    assert judge(path).verdict is Verdict.ACCEPTED


def test_a_missing_field_is_one_finding_and_makes_no_false_link(project: Path) -> None:
    path = write(project, "`test_a.py`")
    path.write_text(path.read_text().replace("Prerequisites: none", "Prerequisites: ADR-0002"))
    other = write(project, "`test_a.py`", "ADR-0002-x.md")
    text = other.read_text().replace("ADR-0001", "ADR-0002").replace("- Claim boundary: c\n", "")
    other.write_text(text)
    assert places(judge(project / "docs")) == [("record.form.field", "ADR-0002-x.md: Claim boundary")]
