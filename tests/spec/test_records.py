"""Decision records: the form is read strictly, and records are judged together."""

import json

import jsonschema
import pytest

from assay.provenance.catalogue import json_schema
from assay.spec.records import FIELDS, ParsedRecord, judge_together, parse_record

VALUES = {
    "Status": "accepted", "Date": "2026-11-29", "Decision": "d", "Invariant": "i", "Failure signature": "f",
    "Minimal safe implementation": "m", "Rejected shortcut": "r", "Evidence": "`a.py::test_b`; gate `g`",
    "Claim boundary": "c", "Prerequisites": "none", "Supersedes": "none",
}  # fmt: skip


def text(number: int = 1, **changes: str) -> str:
    values = {**VALUES, **{name.replace("_", " "): value for name, value in changes.items()}}
    lines = [f"- {name}: {value}".rstrip() for name, value in values.items()]
    return "\n".join([f"# ADR-{number:04}: Title", "", *lines, "", "Free text: with a colon."])


def record(number: int = 1, **changes: str) -> ParsedRecord:
    parsed = parse_record(text(number, **changes), f"ADR-{number:04}-x.md")
    assert parsed.findings == ()
    return parsed


def places(parsed: ParsedRecord) -> list[tuple[str, str]]:
    return [(one.code, one.where) for one in parsed.findings]


def test_a_record_is_read_field_by_field() -> None:
    found = record().record
    assert found is not None
    assert (found.id, found.title, found.status, found.date) == (
        "ADR-0001",
        "Title",
        "accepted",
        "2026-11-29",
    )
    assert found.evidence == ["`a.py::test_b`", "gate `g`"]
    assert (found.prerequisites, found.supersedes) == ([], [])


def test_a_field_may_go_on_over_indented_lines() -> None:
    found = record(Decision="one\n  two\n  three").record
    assert found is not None
    assert found.decision == "one two three"


def test_a_record_follows_its_published_schema() -> None:
    found = record().record
    assert found is not None
    jsonschema.validate(json.loads(found.model_dump_json(by_alias=True)), json_schema("decision-record"))


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_needed(name: str) -> None:
    lines = [line for line in text().splitlines() if not line.startswith(f"- {name}:")]
    parsed = parse_record("\n".join(lines), "ADR-0001-x.md")
    assert places(parsed) == [("record.form.field", f"ADR-0001-x.md: {name}")]
    assert parsed.record is None


@pytest.mark.parametrize("name", FIELDS)
def test_no_field_may_be_empty(name: str) -> None:
    parsed = parse_record(text(**{name.replace(" ", "_"): ""}), "ADR-0001-x.md")
    assert {one for one, _ in places(parsed)} == {"record.form.value"}
    assert {where.split(": ")[1] for _, where in places(parsed)} == {name}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Status", "done"), ("Date", "2026-02-30"), ("Date", "29.11.2026"), ("Prerequisites", "ADR-1"),
        ("Supersedes", "the old one"), ("Evidence", ";"), ("Decision", "x" * 2001),
    ],
)  # fmt: skip
def test_a_value_of_another_form_is_named(name: str, value: str) -> None:
    parsed = parse_record(text(**{name: value}), "ADR-0001-x.md")
    assert places(parsed) == [("record.form.value", f"ADR-0001-x.md: {name}")]


def test_an_unknown_field_is_named() -> None:
    parsed = parse_record(text().replace("- Date:", "- Mood: good\n- Date:"), "ADR-0001-x.md")
    assert places(parsed) == [("record.form.field", "ADR-0001-x.md: Mood")]


def test_a_field_given_twice_is_named() -> None:
    parsed = parse_record(text().replace("- Date:", "- Status: proposed\n- Date:"), "ADR-0001-x.md")
    assert places(parsed) == [("record.form.field", "ADR-0001-x.md: Status")]


def test_fields_in_another_order_are_named_where_the_order_breaks() -> None:
    swapped = text().replace("- Decision: d\n- Invariant: i", "- Invariant: i\n- Decision: d")
    assert places(parse_record(swapped, "ADR-0001-x.md")) == [("record.form.field", "ADR-0001-x.md: field 3")]


@pytest.mark.parametrize("heading", ["", "# Title", "## ADR-0001: Title", "# ADR-1: Title", "# ADR-0001:"])
def test_a_heading_of_another_form_is_named(heading: str) -> None:
    parsed = parse_record("\n".join([heading, *text().splitlines()[1:]]), "ADR-0001-x.md")
    assert places(parsed) == [("record.form.heading", "ADR-0001-x.md: line 1")]


def test_a_file_is_named_after_its_record() -> None:
    assert places(parse_record(text(2), "ADR-0001-x.md")) == [("record.id.file", "ADR-0001-x.md")]


def judged(*records: ParsedRecord) -> list[tuple[str, str, str]]:
    return [(one.code, one.where, one.got) for one in judge_together(records)]


def test_records_that_fit_together_have_no_findings() -> None:
    old = record(1, Status="superseded")
    assert judged(old, record(2, Supersedes="ADR-0001"), record(3, Prerequisites="ADR-0002")) == []


def test_an_id_is_taken_once() -> None:
    assert judged(record(1), record(1)) == [
        ("record.id.unique", "ADR-0001", "ADR-0001-x.md and ADR-0001-x.md")
    ]


@pytest.mark.parametrize("name", ["Prerequisites", "Supersedes"])
def test_a_link_leads_to_a_record(name: str) -> None:
    assert judged(record(1, **{name: "ADR-0009"})) == [
        ("record.link.missing", f"ADR-0001: {name}", "ADR-0009")
    ]


def test_a_superseded_record_is_marked() -> None:
    assert judged(record(1), record(2, Supersedes="ADR-0001")) == [
        ("record.superseded.unmarked", "ADR-0001: Status", "accepted")
    ]


def test_a_proposal_supersedes_nothing_yet() -> None:
    assert judged(record(1), record(2, Status="proposed", Supersedes="ADR-0001")) == []


def test_a_record_is_not_superseded_by_nothing() -> None:
    assert judged(record(1, Status="superseded")) == [
        ("record.superseded.orphan", "ADR-0001: Status", "none")
    ]


def test_a_record_in_force_does_not_lean_on_a_superseded_one() -> None:
    old, new = record(1, Status="superseded"), record(2, Supersedes="ADR-0001")
    assert judged(old, new, record(3, Prerequisites="ADR-0001")) == [
        ("record.link.superseded", "ADR-0003: Prerequisites", "ADR-0001, which is superseded")
    ]


def test_a_cycle_is_named_once_with_all_its_records() -> None:
    circle = [
        record(1, Prerequisites="ADR-0002"),
        record(2, Prerequisites="ADR-0003"),
        record(3, Prerequisites="ADR-0001"),
    ]
    assert judged(*circle, record(4, Prerequisites="ADR-0001")) == [
        ("record.link.cycle", "ADR-0001: Prerequisites", "ADR-0001 and ADR-0002 and ADR-0003")
    ]


def test_a_record_that_needs_itself_is_a_cycle() -> None:
    assert judged(record(1, Prerequisites="ADR-0001")) == [
        ("record.link.cycle", "ADR-0001: Prerequisites", "ADR-0001")
    ]


@pytest.mark.parametrize("words", ["none", "None.", "`none`", "n/a", "-", "TBD", "Nothing"])
@pytest.mark.parametrize("name", ["Claim boundary", "Decision", "Rejected shortcut"])
def test_a_field_that_says_nothing_is_empty(name: str, words: str) -> None:
    parsed = parse_record(text(**{name.replace(" ", "_"): words}), "ADR-0001-x.md")
    assert places(parsed) == [("record.form.value", f"ADR-0001-x.md: {name}")]
    assert parsed.record is None


def test_a_record_whose_form_is_broken_still_exists_for_the_others() -> None:
    broken = parse_record(text(2, Claim_boundary=""), "ADR-0002-x.md")
    unread = parse_record("# Something else", "ADR-0003-x.md")
    assert broken.record is unread.record is None
    leaning = record(1, Prerequisites="ADR-0002, ADR-0003")
    assert judged(leaning, broken, unread) == []
    assert judged(record(1, Status="superseded"), broken) == []


def test_links_and_ids_are_read_from_fields_and_free_text_but_not_from_code() -> None:
    words = "see [x](a.md#part), `[no](code.md)` and ADR-0007"
    parsed = parse_record(
        text(Decision=words, Prerequisites="ADR-0008")
        + "\n\n[gone](<b.md>)\n\n[r]: c.md\n\n```\n[no](d.md) ADR-0009\n```\n",
        "ADR-0001-x.md",
    )
    assert parsed.links == ("a.md#part", "b.md", "c.md")
    assert parsed.mentions == ("ADR-0007",)


def test_a_record_that_a_text_names_must_exist() -> None:
    assert judged(record(1, Decision="as in ADR-0007")) == [
        ("record.link.missing", "ADR-0001: text", "ADR-0007")
    ]
