"""Judges decision records: their form, how they fit together, and whether the evidence they name exists."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote

from assay.impl.stores.files import folder_names, read_bounded
from assay.provenance.gates.registry import all_gates
from assay.spec.clauses import Authority, declare
from assay.spec.documents.decision_record import DecisionRecord
from assay.spec.errors import AdmissionError, Finding
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.records import VALUE, ParsedRecord, id_of_name, judge_together, parse_record

RECORD_NAME: Final = re.compile(r"ADR-[0-9]{4}.*\.md")
SIZE_LIMIT_BYTES: Final = 1 << 18
_STAGE: Final = "record"
_SOURCE: Final = "AFN-009, AFN-015: the recovery capsule"
_FILE: Final = re.compile(r"`(?P<path>[^`:]+)(?:::(?P<name>[A-Za-z_]\w*))?`")
_GATE: Final = re.compile(r"gate `(?P<id>[^`]+)`")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LINK: Final = re.compile(r"<?https://\S+>?")

EVIDENCE_FORM = declare(
    "record.evidence.form", Authority.FORM,
    "Evidence is `path`, `path::name`, gate `id` or an https address, several divided by semicolons.",
    source=_SOURCE, cause="evidence told as a story, which nobody can look up",
)  # fmt: skip
EVIDENCE_MISSING = declare(
    "record.evidence.missing", Authority.RULE, "Every file, test and gate that a record names exists.",
    source=_SOURCE, cause="a test that was renamed or removed: the decision may no longer be held by anything",
    fix="name the test that holds the decision now, or write one",
)  # fmt: skip
EVIDENCE_ROOT = declare(
    "record.evidence.root", Authority.PROCESS, "The project that a record's paths belong to can be found.",
    source=_SOURCE, cause="records copied out of their checkout",
    fix="judge the records where they lie: below a folder with pyproject.toml or .git",
)  # fmt: skip
LINK_TARGET = declare(
    "record.link.target", Authority.RULE, "Every Markdown link in a record leads to a file that exists.",
    source=_SOURCE, cause="a file that was renamed, or a link written from memory",
)  # fmt: skip


def judge_records(path: Path, options: JudgeOptions) -> Judgement:
    """Judges a folder of records, or one record among the others of its folder."""
    del options
    judgement = Judgement("record")
    folder = path if path.is_dir() else path.parent
    names = [name for name in folder_names(folder) if RECORD_NAME.fullmatch(name)]
    asked = names if path.is_dir() else [path.name]
    parsed = [_read(folder / name) for name in dict.fromkeys([*names, *asked])]
    ours = [one for one in parsed if one.file in asked]
    judgement.judged("form", [finding for one in ours for finding in one.findings])
    ids = {one.record.id for one in ours if one.record}
    named = {one.id or one.file for one in ours}
    together = judge_together(parsed)
    judgement.judged("links", [one for one in together if one.where.split(":")[0] in named])
    judgement.judged("links", [finding for one in ours for finding in _dangling(one, folder)])
    faults, gaps, unchecked = _evidence([one.record for one in ours if one.record], folder)
    judgement.judged("evidence", faults, gaps)
    judgement.not_checked += unchecked
    judgement.facts["records"] = sorted(ids)
    if not asked:
        empty = Finding.of(EVIDENCE_ROOT, _STAGE, str(path), expected="files named ADR-nnnn-*.md", got="none")
        judgement.judged("form", gaps=[empty])
    return judgement


def _read(path: Path) -> ParsedRecord:
    try:
        text = read_bounded(path, SIZE_LIMIT_BYTES, stage=_STAGE, where=path.name).decode("utf-8")
    except AdmissionError as error:
        return ParsedRecord(path.name, None, (error.finding,), id_of_name(path.name))
    except UnicodeDecodeError as error:
        got = f"byte {error.object[error.start]:#04x} at {error.start}"
        finding = Finding.of(VALUE, _STAGE, f"{path.name}: encoding", expected="UTF-8", got=got)
        return ParsedRecord(path.name, None, (finding,), id_of_name(path.name))
    return parse_record(text, path.name)


def _dangling(parsed: ParsedRecord, folder: Path) -> list[Finding]:
    """Returns the links that lead nowhere; addresses with a scheme are not fetched, places on a page not looked for."""
    findings = []
    for target in parsed.links:
        path = unquote(target.partition("#")[0])
        if path and not _SCHEME.match(target) and not _exists(folder, path):
            findings.append(
                Finding.of(LINK_TARGET, _STAGE, f"{parsed.id or parsed.file}: text",
                           expected="a link to a file that exists", got=target)
            )  # fmt: skip
    return findings


def _exists(folder: Path, path: str) -> bool:
    try:
        return (folder / path).exists()
    except (OSError, ValueError):
        return False


def _evidence(
    records: Iterable[DecisionRecord], folder: Path
) -> tuple[list[Finding], list[Finding], list[str]]:
    root = next(
        (
            one
            for one in (folder.resolve(), *folder.resolve().parents)
            if (one / "pyproject.toml").is_file() or (one / ".git").exists()
        ),
        None,
    )
    gates = {gate.id for gate in all_gates()}
    faults: list[Finding] = []
    gaps: list[Finding] = []
    unchecked: list[str] = []
    for record in records:
        where = f"{record.id}: Evidence"
        for text in record.evidence:
            if gate := _GATE.fullmatch(text):
                if gate["id"] not in gates:
                    faults.append(
                        Finding.of(
                            EVIDENCE_MISSING, _STAGE, where, expected="a registered gate", got=gate["id"]
                        )
                    )
            elif _LINK.fullmatch(text):
                unchecked.append(f"{record.id}: {text} (addresses are not fetched)")
            elif not (file := _FILE.fullmatch(text)) or _escapes(file["path"]):
                expected = "`path in the project`, `path::name`, gate `id` or an https address"
                faults.append(Finding.of(EVIDENCE_FORM, _STAGE, where, expected=expected, got=text))
            elif root is None:
                gaps.append(
                    Finding.of(EVIDENCE_ROOT, _STAGE, where, expected="a project root above", got="none")
                )
            elif problem := _missing(root, file["path"], file["name"]):
                faults.append(Finding.of(EVIDENCE_MISSING, _STAGE, where, expected=text, got=problem))
    return faults, gaps, unchecked


def _escapes(path: str) -> bool:
    pure = PurePosixPath(path)
    return pure.is_absolute() or ".." in pure.parts


def _missing(root: Path, path: str, name: str | None) -> str:
    """Returns what is missing of a file and a name defined in it; empty when both are there."""
    place = root / path
    if not place.exists():
        return "no such file"
    if name is None:
        return ""
    try:
        tree = ast.parse(read_bounded(place, 16 * SIZE_LIMIT_BYTES))
    except (SyntaxError, ValueError, AdmissionError):
        return "a file that is not Python"
    defined = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    return "" if name in defined else f"no {name} in it"
