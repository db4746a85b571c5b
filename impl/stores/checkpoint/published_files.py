"""Judges the small files of a checkpoint by their published digests, and says as far as it can what differs in them.

A digest tells that a file differs and nothing more. Which field it is, the contract knows for some fields of some
files; where it does not, that is said, and never that nothing differs.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from assay.impl.stores.checkpoint.layout import ABSENT_FILE, CONFIG_NAME, Layout
from assay.impl.stores.checkpoint.shard_index import INDEX_NAME
from assay.impl.stores.files import MISSING, file_digest
from assay.impl.stores.strict_json import read_json
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract
from assay.spec.errors import AdmissionError, Finding
from assay.spec.judgement import Judgement
from assay.spec.text import contract_of_profile
from assay.spec.verdicts import Verdict

DIGEST: Final = declare(
    "files.digest", Authority.PIN, "A published file has its published SHA-256.",
    source="the file list of the pinned revision", cause="an edit, a re-save, or other line ends",
    fix="the findings of the later stages say which field differs, where the contract holds the field",
)  # fmt: skip
SIZE: Final = declare(
    "files.size", Authority.PIN, "A shard has its published size.", source="the file list of the pinned revision",
    cause="a truncated download, or a shard of another revision",
)  # fmt: skip
RESAVED: Final = declare(
    "foreign.file", Authority.PIN, "A file that a conversion carries over is the published one.",
    source="the file list of the pinned revision", cause="a converter that re-saves tokenizer and template files",
    fix="what it holds was judged only as far as other findings of its area say; compare it with the published file",
)  # fmt: skip

TOKENIZER_JSON: Final = "tokenizer.json"
"""The one file that is judged by meaning when its bytes differ."""
TOKENIZER_FILES: Final = frozenset(
    {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "chat_template.jinja"}
)
"""The files that make the tokenizer; when one of them differs, the tokenizer is not the accepted one."""

_LARGEST_BYTES: Final = 64 << 20
_SHOWN_FIELDS: Final = 8


def judge_files(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    """Judges every pinned file by its digest; one that differs or can't be read takes the tokenizer's area with it."""
    pins = contract.source_pins
    if pins is None:
        judgement.not_checked.append("files: a private profile pins no file")
        own = contract_of_profile(contract.identity.profile_id).pin(TOKENIZER_JSON)
        if own is not None and TOKENIZER_JSON in layout.names:
            differs = judge_file(layout, TOKENIZER_JSON, own.sha256, own.size_bytes)
            if differs is not None:
                _judge_meaning(judgement, layout, contract, differs)
        return
    faults: list[Finding] = []
    gaps: list[Finding] = []
    for name, pin in pins.files.items():
        finding = judge_file(layout, name, pin.sha256, pin.size_bytes)
        if finding is not None and finding.code == DIGEST and name == TOKENIZER_JSON:
            _judge_meaning(judgement, layout, contract, finding)
        elif finding is not None:
            (gaps if finding.code == ABSENT_FILE else faults).append(finding)
    judgement.judged("files", faults, gaps)


def _judge_meaning(judgement: Judgement, layout: Layout, contract: Contract, digest: Finding) -> None:
    """Judges a tokenizer.json with other bytes by its meaning, as `--kind tokenizer` does.

    Libraries write it anew all the time: when nothing in it differs, nothing wrong was found, and the published file
    was not seen.
    """
    from assay.impl.text.facts import load_file, load_files
    from assay.impl.text.identity import RESAVED as RESAVED_JSON
    from assay.impl.text.identity import judge_meaning

    try:
        data = load_file(layout.folder / TOKENIZER_JSON)
        files = load_files(layout.folder)
    except AdmissionError as error:
        judgement.judged("tokenizer", [error.finding])
        return
    faults, equal = judge_meaning(data, contract_of_profile(contract.identity.profile_id), files)
    judgement.facts["tokenizer_json_equal"] = equal
    gap = Finding.of(
        RESAVED_JSON, "tokenizer", TOKENIZER_JSON, expected=digest.expected, got=digest.got,
        hint="every fact that was compared is equal; take the published file to make this conclusive",
    )  # fmt: skip
    judgement.judged("tokenizer", faults, [] if faults else [gap])


def mark_tokenizer(judgement: Judgement) -> None:
    """Makes the area of the tokenizer follow the digests of its files."""
    if any(finding.stage == "files" and finding.where in TOKENIZER_FILES for finding in judgement.faults):
        judgement.areas["tokenizer"] = Verdict.REJECTED


def judge_file(layout: Layout, name: str, sha256: str, size_bytes: int) -> Finding | None:
    """Returns what is wrong with one published file: `files.missing` where it is absent."""
    if name not in layout.names:
        return _absent(name, size_bytes)
    path = layout.folder / name
    try:
        size = path.stat().st_size
        if path.is_file() and size > _LARGEST_BYTES:
            return Finding.of(SIZE, "files", name, expected=size_bytes, got=size)
    except OSError:
        pass  # opening it says why, in words
    try:
        digest, _ = file_digest(path, where=name)
    except AdmissionError as error:
        return _absent(name, size_bytes) if error.finding.code == MISSING else error.finding
    return Finding.of(DIGEST, "files", name, expected=sha256, got=digest) if digest != sha256 else None


def judge_carried_files(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    """Judges the files that a conversion may carry over unchanged: one that differs leaves its area open."""
    pins = contract.source_pins
    if pins is None:
        return
    same: list[str] = []
    absent: list[str] = []
    for name, pin in pins.files.items():
        if name in {CONFIG_NAME, INDEX_NAME}:
            continue  # a conversion's own
        finding = judge_file(layout, name, pin.sha256, pin.size_bytes)
        area = "tokenizer" if name in TOKENIZER_FILES else "files"
        if finding is None:
            same.append(name)
        elif finding.code == ABSENT_FILE:
            absent.append(name)
        elif finding.code == DIGEST and name == TOKENIZER_JSON:
            _judge_meaning(judgement, layout, contract, finding)
        elif finding.code == DIGEST:
            got = f"{finding.got}: only what other findings name was judged in it"
            judgement.judged(area, gaps=[Finding.of(RESAVED, area, name, expected=finding.expected, got=got)])
        else:
            judgement.judged(area, [replace(finding, stage=area)])
    judgement.facts["published_files"] = same
    if absent:
        judgement.not_checked.append(f"files that are not here: {', '.join(absent)}")


def name_what_differs(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    """Makes each digest finding say which fields differ, or why that can't be said; runs after all stages."""
    others = [finding for finding in judgement.faults if finding.code != DIGEST]
    for number, finding in enumerate(judgement.faults):
        if finding.code == DIGEST:
            judgement.faults[number] = replace(
                finding, hint=_hint(finding.where, finding.expected, layout, contract, others)
            )


def _hint(name: str, sha256: str, layout: Layout, contract: Contract, others: Iterable[Finding]) -> str:
    fields = list(dict.fromkeys(_fields_of(name, others)))
    if fields:
        more = f" and {len(fields) - _SHOWN_FIELDS} more" if len(fields) > _SHOWN_FIELDS else ""
        return f"fields that differ: {', '.join(fields[:_SHOWN_FIELDS])}{more}"
    if not name.endswith(".json"):
        return "only its digest is pinned: what differs in it can't be told without the published file"
    try:
        document = read_json(layout.folder / name, where=name, limit_bytes=_LARGEST_BYTES)
    except AdmissionError as error:
        return f"it can't be read: {error.finding.code}"
    if is_respelled(document, sha256):
        return "no field differs: only the spelling does"
    unjudged = [leaf.path for leaf in contract.config.unjudged] if name == CONFIG_NAME else []
    if unjudged:
        return (
            f"no judged field differs; what only the digest covers does: {', '.join(unjudged)}, the order of the fields,"
            " or the spelling"
        )
    return (
        "no field that the contract holds differs; other fields of this file are covered by its digest alone"
    )


def is_respelled(document: Any, sha256: str) -> bool:
    """Says whether a JSON document in one of the usual spellings has a digest, so that only its spelling differs."""
    return any(
        hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() == sha256 for text in _spellings(document)
    )


def _spellings(document: Any) -> Iterator[str]:
    for indent in (2, 4, None):
        for is_ascii in (False, True):
            text = json.dumps(document, indent=indent, ensure_ascii=is_ascii)
            yield text
            yield f"{text}\n"


def _fields_of(name: str, findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        if finding.where.startswith(f"{name}: "):
            yield finding.where.removeprefix(f"{name}: ")
        elif name == INDEX_NAME and finding.code in {"inventory.absent", "inventory.unowned"}:
            yield finding.where


def _absent(name: str, size_bytes: int) -> Finding:
    return Finding.of(ABSENT_FILE, "files", name, expected=f"{size_bytes} bytes", got="nothing there")
