"""Decision records: how they stand on disk, and the rules that several of them obey together.

On disk a record is Markdown that a person reads as it is: a heading, then one fixed list, then free text.

    # ADR-0001: Title

    - Status: accepted
    - Date: 2026-11-29
    - Decision: ...
      (more lines of the same field are indented by two spaces)
    - Evidence: `tests/test_layout.py::test_name`; `path/to/file`; gate `contract.rules`
    - Prerequisites: none
    - Supersedes: ADR-0003

The list is read strictly: every field once, in this order, none empty. Links and record ids in any text of the file
lead to something that exists.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from assay.spec.clauses import Authority, declare
from assay.spec.documents.decision_record import DecisionRecord
from assay.spec.errors import Finding

FIELDS: Final[tuple[str, ...]] = (
    "Status",
    "Date",
    "Decision",
    "Invariant",
    "Failure signature",
    "Minimal safe implementation",
    "Rejected shortcut",
    "Evidence",
    "Claim boundary",
    "Prerequisites",
    "Supersedes",
)
"""The fields of the list, in their order; lower case with underscores they are the fields of the document."""

_LISTS: Final = ("Prerequisites", "Supersedes")
_FORMS: Final[Mapping[str, str]] = {
    "status": "proposed, accepted or superseded",
    "date": "a day as 2026-11-29",
    "evidence": "at least one item, divided by semicolons",
    "prerequisites": "ids as ADR-0001, divided by commas, or none",
    "supersedes": "ids as ADR-0001, divided by commas, or none",
    "claim_boundary": "what the evidence does not show, in a sentence",
}
_EMPTY_WORDS: Final = frozenset(
    {"none", "nothing", "n/a", "na", "nil", "-", "--", "\u2013", "\u2014", "tbd", "?", "..."}
)
"""Words that fill a field and say nothing; only prerequisites and supersedes may be `none`."""
_STAGE: Final = "record"
_SOURCE: Final = "AFN-009, AFN-015: the recovery capsule"
_HEADING: Final = re.compile(r"# (?P<id>ADR-[0-9]{4}): (?P<title>\S.*)")
_ID: Final = re.compile(r"\bADR-[0-9]{4}\b")
_FENCED: Final = re.compile(r"^(```+|~~~+).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK_TARGET: Final = re.compile(r"\]\(\s*<?([^)\s>]+)|^\s{0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
_FIELD: Final = re.compile(r"- (?P<name>[A-Z][A-Za-z ]*?):(?: (?P<text>.*))?")

HEADING = declare(
    "record.form.heading", Authority.FORM, "A record starts with `# ADR-nnnn: title`.",
    source=_SOURCE, cause="a file of another kind, or a heading written by hand",
)  # fmt: skip
FIELD = declare(
    "record.form.field", Authority.FORM, "The list after the heading holds every field once, in the fixed order.",
    source=_SOURCE, cause="a field left out because nothing came to mind: then the decision is not understood yet",
    fix="write `none` for prerequisites or supersedes; every other field needs a sentence",
)  # fmt: skip
VALUE = declare(
    "record.form.value", Authority.FORM, "Every field has a value of its form.",
    source=_SOURCE, cause="an empty field, a date that does not exist, a status that is not in use",
)  # fmt: skip
UNIQUE = declare(
    "record.id.unique", Authority.RULE, "No two records have the same id.",
    source=_SOURCE, cause="two branches that both took the next number",
    fix="give the later one a new number",
)  # fmt: skip
FILE = declare(
    "record.id.file", Authority.RULE, "A record's file name starts with its id.",
    source=_SOURCE, cause="a copied file whose heading was not changed",
)  # fmt: skip
LINK = declare(
    "record.link.missing", Authority.RULE, "Every prerequisite and every superseded record exists.",
    source=_SOURCE, cause="a record that was renamed or deleted; ids are never reused and records never deleted",
)  # fmt: skip
CYCLE = declare(
    "record.link.cycle", Authority.RULE, "No record comes before itself by prerequisites or by superseding.",
    source=_SOURCE, cause="two decisions that were meant to be one",
)  # fmt: skip
UNMARKED = declare(
    "record.superseded.unmarked", Authority.RULE, "A record that another one supersedes has the status superseded.",
    source=_SOURCE, cause="the older record was not edited, so that it still reads as authority",
)  # fmt: skip
ORPHAN = declare(
    "record.superseded.orphan", Authority.RULE, "A superseded record is superseded by some record that is in force.",
    source=_SOURCE, cause="a decision was dropped without a record that says what holds instead",
)  # fmt: skip
LEANING = declare(
    "record.link.superseded", Authority.RULE, "A record in force does not need a superseded one.",
    source=_SOURCE, cause="the record was not looked at again when its prerequisite was replaced",
    fix="name the record that supersedes it, once the decision still holds under that one",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """One file: the record, unless its form is broken, and what is wrong with it.

    Attributes:
        file: its name.
        record: what it says; None when its form is broken.
        findings: what is wrong with the file by itself.
        id: the id that its heading or, without one, its name gives; a record with a broken form still exists.
        links: targets of the Markdown links anywhere in the file, outside code.
        mentions: ids of records named anywhere in the file but in prerequisites and supersedes.
    """

    file: str
    record: DecisionRecord | None
    findings: tuple[Finding, ...]
    id: str | None = None
    links: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()


def parse_record(text: str, file: str) -> ParsedRecord:
    """Reads one file; `file` is its name, for findings and for the rule that it starts with the id."""
    lines = text.splitlines()
    heading = _HEADING.fullmatch(lines[0].rstrip()) if lines else None
    links, mentions = _references(text)
    if heading is None:
        got = lines[0] if lines else "an empty file"
        finding = Finding.of(HEADING, _STAGE, f"{file}: line 1", expected="# ADR-nnnn: title", got=got)
        return ParsedRecord(file, None, (finding,), id_of_name(file), links, mentions)
    id_ = heading["id"]
    fields, findings = _fields(lines[1:], file)
    record = None
    if not findings:
        try:
            record = _record(id_, heading["title"], fields)
        except ValidationError as error:
            findings = _value_findings(error, file)
        findings += [
            Finding.of(
                VALUE, _STAGE, f"{file}: {name}", expected=_FORMS.get(_key(name), "a sentence"), got=said
            )
            for name, said in fields.items()
            if name not in _LISTS and said.strip("`*_. ").lower() in _EMPTY_WORDS and said
        ]
    if findings:
        return ParsedRecord(file, None, tuple(findings), id_, links, mentions)
    if not file.startswith(id_):
        findings.append(Finding.of(FILE, _STAGE, file, expected=f"a name that starts with {id_}", got=file))
    return ParsedRecord(file, record, tuple(findings), id_, links, mentions)


def id_of_name(file: str) -> str | None:
    """Returns the id that a file name starts with."""
    found = _ID.match(file)
    return found[0] if found else None


def judge_together(parsed: Iterable[ParsedRecord]) -> list[Finding]:
    """Returns what is wrong with records as a whole: ids, links, superseding and cycles.

    A record whose form is broken exists: what it says of others is unknown, and no finding is made of that.
    """
    findings: list[Finding] = []
    by_id: dict[str, DecisionRecord] = {}
    files: dict[str, str] = {}
    parsed = list(parsed)
    known = {one.id for one in parsed if one.id}
    is_whole = all(one.record for one in parsed)
    for one in parsed:
        if one.record is None:
            continue
        if one.record.id in by_id:
            got = f"{files[one.record.id]} and {one.file}"
            findings.append(Finding.of(UNIQUE, _STAGE, one.record.id, expected="one file", got=got))
            continue
        by_id[one.record.id] = one.record
        files[one.record.id] = one.file
    mentioned = [
        Finding.of(LINK, _STAGE, f"{one.id or one.file}: text", expected="a record that exists", got=id_)
        for one in parsed
        for id_ in one.mentions
        if id_ not in known
    ]
    return [*findings, *_links(by_id, known), *mentioned, *_superseding(by_id, is_whole), *_cycles(by_id)]


def _references(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the targets of all links, and all record ids outside code, the heading and the two lists of ids."""
    bare = _CODE.sub(" ", _FENCED.sub("", text))
    links = [one or other for one, other in _LINK_TARGET.findall(bare)]
    rest = re.sub(r"^(# .*|- (?:Prerequisites|Supersedes):.*(?:\n  .*)*)$", "", bare, flags=re.MULTILINE)
    rest = re.sub(r"\]\([^)]*\)", "]", rest)
    return tuple(dict.fromkeys(links)), tuple(dict.fromkeys(_ID.findall(rest)))


def _key(name: str) -> str:
    return name.lower().replace(" ", "_")


def _fields(lines: list[str], file: str) -> tuple[dict[str, str], list[Finding]]:
    """Reads the list up to the first blank line after it; says of each field what is wrong with its place."""
    found: list[tuple[str, str]] = []
    for line in lines:
        match = _FIELD.fullmatch(line.rstrip())
        if match:
            found.append((match["name"], (match["text"] or "").strip()))
        elif found and line.startswith("  ") and line.strip():
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}".strip())
        elif found or line.strip():
            break
    names = [name for name, _ in found]
    findings = [
        Finding.of(FIELD, _STAGE, f"{file}: {name}", expected="the field once", got=f"{names.count(name)} times")
        for name in FIELDS if names.count(name) != 1
    ]  # fmt: skip
    findings += [
        Finding.of(FIELD, _STAGE, f"{file}: {name}", expected=f"one of {', '.join(FIELDS)}", got=name)
        for name in dict.fromkeys(names) if name not in FIELDS
    ]  # fmt: skip
    if not findings and names != list(FIELDS):
        first = next(at for at, name in enumerate(names) if name != FIELDS[at])
        findings.append(
            Finding.of(FIELD, _STAGE, f"{file}: field {first + 1}", expected=FIELDS[first], got=names[first])
        )
    return dict(found), findings


def _record(id_: str, title: str, fields: Mapping[str, str]) -> DecisionRecord:
    values: dict[str, object] = {_key(name): text for name, text in fields.items()}
    values["evidence"] = [part for part in map(str.strip, fields["Evidence"].split(";")) if part]
    for name in _LISTS:
        text = fields[name]
        values[name.lower()] = [] if text == "none" else [part.strip() for part in text.split(",")]
    return DecisionRecord.model_validate({"id": id_, "title": title, **values})


def _value_findings(error: ValidationError, file: str) -> list[Finding]:
    findings = []
    for fault in error.errors():
        field = str(fault["loc"][0]) if fault["loc"] else "record"
        where = f"{file}: {field.replace('_', ' ').capitalize()}"
        expected = _FORMS.get(field, "1 to 2000 characters")
        findings.append(
            Finding.of(VALUE, _STAGE, where, expected=expected, got=fault.get("input") or "nothing")
        )
    return findings


def _links(by_id: Mapping[str, DecisionRecord], known: Collection[str]) -> list[Finding]:
    findings = []
    for record in by_id.values():
        for name, ids in (("Prerequisites", record.prerequisites), ("Supersedes", record.supersedes)):
            findings += [
                Finding.of(LINK, _STAGE, f"{record.id}: {name}", expected="a record that exists", got=id_)
                for id_ in ids if id_ not in known
            ]  # fmt: skip
        if record.status != "superseded":
            findings += [
                Finding.of(LEANING, _STAGE, f"{record.id}: Prerequisites", expected="a record in force",
                           got=f"{id_}, which is superseded")
                for id_ in record.prerequisites if id_ in by_id and by_id[id_].status == "superseded"
            ]  # fmt: skip
    return findings


def _superseding(by_id: Mapping[str, DecisionRecord], is_whole: bool) -> list[Finding]:
    """A proposal supersedes nothing yet; a record that can't be read may supersede any."""
    findings = []
    in_force = {id_: one for id_, one in by_id.items() if one.status != "proposed"}
    for id_, record in by_id.items():
        by = [one.id for one in in_force.values() if id_ in one.supersedes]
        if by and record.status != "superseded":
            expected = f"superseded (by {', '.join(by)})"
            findings.append(
                Finding.of(UNMARKED, _STAGE, f"{id_}: Status", expected=expected, got=record.status)
            )
        if is_whole and not by and record.status == "superseded":
            findings.append(
                Finding.of(
                    ORPHAN, _STAGE, f"{id_}: Status", expected="a record that supersedes it", got="none"
                )
            )
    return findings


def _cycles(by_id: Mapping[str, DecisionRecord]) -> list[Finding]:
    """One finding a cycle, named from its smallest id."""
    after: dict[str, set[str]] = {}
    for id_ in by_id:
        reached: set[str] = set()
        ahead = [*by_id[id_].prerequisites, *by_id[id_].supersedes]
        while ahead:
            one = ahead.pop()
            if one in by_id and one not in reached:
                reached.add(one)
                ahead += [*by_id[one].prerequisites, *by_id[one].supersedes]
        after[id_] = reached
    findings = []
    named: set[str] = set()
    for id_ in sorted(by_id):
        if id_ in after[id_] and id_ not in named:
            circle = sorted(one for one in after[id_] if id_ in after[one])
            named.update(circle)
            findings.append(
                Finding.of(
                    CYCLE, _STAGE, f"{id_}: Prerequisites", expected="no cycle", got=" and ".join(circle)
                )
            )
    return findings
