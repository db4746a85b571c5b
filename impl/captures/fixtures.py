"""Judges shipped captures offline: every array's digest, origin and producer, the counts, and the index of all.

Needs neither torch nor NumPy: what upstream once said is compared with its record, not computed again.
"""

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from assay.impl.captures.reading import (
    DESCRIPTION,
    CaptureFolder,
    open_capture,
    parse_document,
    span_digest,
    whole_file_digest,
)
from assay.impl.stores.files import folder_names, read_bounded
from assay.impl.stores.strict_json import read_json_object
from assay.spec.clauses import Authority, declare
from assay.spec.documents.fixture import ORIGINS, ArrayProvenance, Fixture, ProducerPin
from assay.spec.errors import AdmissionError, Finding
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.origins import SOURCES, UPSTREAM, UPSTREAM_NAMES
from assay.spec.stages import rung_name
from assay.spec.upstream_pins import PINS

PROVENANCE: Final = "fixture.json"
INDEX: Final = "index.tsv"
INDEX_HEAD: Final = "assay-fixtures\t1"
STAGE: Final = "fixture"
_INDEX_LIMIT_BYTES: Final = 8 << 20

FORM: Final = declare(
    "fixture.form", Authority.FORM, "fixture.json has the fields and types of assay.fixture/1, and no others.",
    source="AFN-014", cause="a fixture edited by hand",
)  # fmt: skip
ARRAY_DIGEST: Final = declare(
    "fixture.array.digest", Authority.PIN, "Every array has the SHA-256 that its provenance states.",
    source="AFN-014", cause="an array that was changed after it was captured",
    fix="`assay capture --check` shows what upstream says; never edit a captured array",
)  # fmt: skip
ARRAY_MISSING: Final = declare(
    "fixture.array.missing", Authority.RULE, "Every array that has provenance stands in the capture.",
    source="AFN-014", cause="an array that was removed from capture.json",
)  # fmt: skip
ARRAY_UNLISTED: Final = declare(
    "fixture.array.unlisted", Authority.RULE, "Every array of the capture has provenance of its own.",
    source="AFN-014", cause="an array that was added beside captured ones and would borrow their authority",
)  # fmt: skip
ARRAY_SHAPE: Final = declare(
    "fixture.array.shape", Authority.RULE, "Dtype and shape in the provenance are those of the capture.",
    source="AFN-014", cause="a changed shape or dtype in one of the two documents",
)  # fmt: skip
COUNT: Final = declare(
    "fixture.counts", Authority.RULE, "The counts of arrays, in all and by origin, are those of the list.",
    source="AFN-014", cause="an array that was added or removed without its count",
)  # fmt: skip
ORIGIN_WORD: Final = declare(
    "fixture.origin.word", Authority.FORM, f"An origin is one of {', '.join(ORIGINS)}.",
    source="AFN-014", cause="a renamed origin",
)  # fmt: skip
ORIGIN_PRODUCER: Final = declare(
    "fixture.origin.producer", Authority.RULE,
    "upstream-capture is claimed only for a value that an object of the pinned upstream package held, and "
    "upstream's values claim nothing else.",
    source="AFN-014", cause="an array made here that borrows upstream's name, or the reverse",
    fix="see assay.spec.origins for what upstream exposes",
)  # fmt: skip
ORIGIN_STAGE: Final = declare(
    "fixture.origin.stage", Authority.RULE,
    "The origin, producer and qualified name of an array are the ones that its stage can have.",
    source="AFN-014", cause="a derived array relabelled, or an array filed under another stage",
)  # fmt: skip
PRODUCER_PIN: Final = declare(
    "fixture.producer.pin", Authority.PIN, "Every upstream package has the pinned version, wheel and source digests.",
    source="AFN-014", cause="a capture made with another release", fix="install the extra `capture` and capture again",
)  # fmt: skip
INPUTS: Final = declare(
    "fixture.array.inputs", Authority.RULE,
    "Every array names the digests it was made from: the token ids and the weights, or the array it derives from.",
    source="AFN-014", cause="token ids or weights changed without a new capture",
)  # fmt: skip
FILE_DIGEST: Final = declare(
    "fixture.file.digest", Authority.PIN, "Every file of the fixture has the SHA-256 that fixture.json states.",
    source="AFN-014", cause="a file edited after the capture",
)  # fmt: skip
FILE_EXTRA: Final = declare(
    "fixture.file.extra", Authority.RULE, "A fixture's folder holds its own files and nothing else.",
    source="AFN-014", cause="a leftover, such as a .rej file of a failed check",
)  # fmt: skip
INDEX_FORM: Final = declare(
    "fixture.index.form", Authority.FORM, "index.tsv has its head line and rows of the stated number of fields.",
    source="assay: an index that a C program can read", cause="an index edited by hand or cut short",
)  # fmt: skip
INDEX_ROW: Final = declare(
    "fixture.index.row", Authority.RULE, "index.tsv says the same as the fixtures' own documents, row by row.",
    source="assay: an index that a C program can read", cause="a fixture changed without writing the index again",
    fix="`assay capture` writes the index",
)  # fmt: skip
SET: Final = declare(
    "fixture.set", Authority.RULE, "The folders of fixtures are those that index.tsv lists.",
    source="AFN-014", cause="a fixture that was removed, or added by hand",
)  # fmt: skip


def judge_fixture(path: Path, _options: JudgeOptions) -> Judgement:
    """Judges one fixture (a folder with fixture.json) or a set of them (a folder with index.tsv)."""
    judgement = Judgement("fixture")
    if (path / INDEX).is_file():
        faults, facts = set_faults(path)
        judgement.judged("index", faults)
        judgement.facts = facts
    else:
        judgement.judged("fixture", fixture_faults(path))
    judgement.not_checked.append(
        "whether upstream says the same today: `assay capture --check` (extra capture)"
    )
    return judgement


def judge_capture(path: Path, _options: JudgeOptions) -> Judgement:
    """Judges a capture of any runtime: form, sizes, stated digests."""
    from assay.impl.captures.reading import digest_faults

    judgement = Judgement("capture")
    folder = open_capture(path)
    judgement.judged("form", folder.faults)
    if folder.document is not None:
        judgement.judged("digests", digest_faults(folder))
        without = sum(1 for entry in folder.document.entries if entry.sha256 is None)
        judgement.facts = {
            "producer": folder.document.producer.name,
            "arrays": len(folder.document.entries),
            "arraysWithoutDigest": without,
            "bytes": sum(span.size for span in folder.spans),
        }
        if without:
            judgement.not_checked.append(f"{without} arrays state no SHA-256")
    return judgement


def read_fixture(path: Path) -> Fixture:
    """Returns the provenance of a fixture.

    Raises:
        AdmissionError: `fixture.form`, `input.file.*`, `input.json.*`.
    """
    faults: list[Finding] = []
    value = read_json_object(path / PROVENANCE, stage=STAGE, where=PROVENANCE)
    fixture = parse_document(Fixture, value, FORM, STAGE, PROVENANCE, faults)
    if fixture is None:
        raise AdmissionError(faults[0])
    return fixture


def fixture_faults(path: Path) -> list[Finding]:
    """Returns every fault of one fixture."""
    faults: list[Finding] = []
    value = read_json_object(path / PROVENANCE, stage=STAGE, where=PROVENANCE)
    fixture = parse_document(Fixture, value, FORM, STAGE, PROVENANCE, faults)
    folder = open_capture(path)
    faults += folder.faults
    if fixture is None or folder.document is None:
        return faults
    faults += _file_faults(path, fixture)
    faults += _array_faults(fixture, folder)
    faults += _count_faults(fixture)
    for name, pin in fixture.producers.items():
        faults += _pin_faults(name, pin)
    for array in fixture.arrays:
        faults += _origin_faults(array, fixture)
    return faults


def set_faults(root: Path) -> tuple[list[Finding], dict[str, Any]]:
    """Returns every fault of a set of fixtures and its index, with counts of what was judged."""
    faults: list[Finding] = []
    listed = _index_rows(root, faults)
    found = sorted(
        f"{outer}/{inner}"
        for outer in folder_names(root)
        if (root / outer).is_dir()
        for inner in folder_names(root / outer)
    )
    faults += [
        Finding.of(SET, STAGE, f"{INDEX}: {case}", got="none",
                   expected="its folder" if case in listed else "rows in the index")
        for case in sorted({*listed} ^ {*found})
    ]  # fmt: skip
    origins: Counter[str] = Counter()
    for case in found:
        try:
            faults += [_of_case(one, case) for one in fixture_faults(root / case)]
            if case in listed:
                faults += _row_faults(case, index_lines(root / case, case), listed[case])
            origins.update(array.origin for array in read_fixture(root / case).arrays)
        except AdmissionError as error:
            faults.append(_of_case(error.finding, case))
    return faults, {"fixtures": len(found), "arraysByOrigin": dict(sorted(origins.items()))}


def index_lines(path: Path, case: str) -> list[str]:
    """Returns the rows of the index for one fixture: one `case` row, then one `array` row for each array.

    Fields are separated by tabs. `case`: id, SHA-256 of fixture.json, number of arrays. `array`: id, stage, layer
    (-1 for none), part (- for none), origin, first token, tokens, dtype, shape as 3x4, file, offset, bytes, SHA-256.
    """
    fixture = read_fixture(path)
    origins = {(array.stage, array.layer, array.part): array.origin for array in fixture.arrays}
    folder = open_capture(path)
    digest = hashlib.sha256((path / PROVENANCE).read_bytes()).hexdigest()
    lines = ["\t".join(["case", case, digest, str(len(folder.spans))])]
    for span in folder.spans:
        one = span.entry
        lines.append(
            "\t".join(
                [
                    "array", case, one.stage, str(-1 if one.layer is None else one.layer), one.part or "-",
                    origins.get((one.stage, one.layer, one.part), "-"), str(one.first_token), str(one.tokens),
                    one.dtype, "x".join(map(str, one.shape)) or "1", f"{case}/{one.file}", str(one.offset),
                    str(span.size), one.sha256 or "-",
                ]
            )
        )  # fmt: skip
    return lines


def token_digest(tokens: list[int]) -> str:
    """Returns the SHA-256 of token ids as little-endian int32."""
    return hashlib.sha256(b"".join(token.to_bytes(4, "little") for token in tokens)).hexdigest()


def _index_rows(root: Path, faults: list[Finding]) -> dict[str, list[str]]:
    text = read_bounded(root / INDEX, _INDEX_LIMIT_BYTES, stage=STAGE, where=INDEX).decode("utf-8", "replace")
    lines = text.split("\n")
    if lines[0] != INDEX_HEAD or lines[-1] != "":
        faults.append(
            Finding.of(
                INDEX_FORM, STAGE, INDEX, expected=f"{INDEX_HEAD} first, a line end last", got=lines[0]
            )
        )
    listed: dict[str, list[str]] = {}
    for number, line in enumerate(lines[1:-1], start=2):
        fields = line.split("\t")
        if len(fields) != {"case": 4, "array": 14}.get(fields[0]):
            faults.append(
                Finding.of(INDEX_FORM, STAGE, f"{INDEX}:{number}", expected="a case or array row", got=line)
            )
            continue
        listed.setdefault(fields[1], []).append(line)
    return listed


def _row_faults(case: str, rows: list[str], said: list[str]) -> list[Finding]:
    """Returns one finding for each row that is missing, too many, or says something else; rows have an order."""
    where = f"{INDEX}: {case}"
    made, stated = {_place(row): row for row in rows}, {_place(row): row for row in said}
    faults = [
        Finding.of(
            INDEX_ROW,
            STAGE,
            f"{where}: {place}",
            expected=made.get(place, "no row"),
            got=stated.get(place, "no row"),
        )
        for place in {**made, **stated}
        if made.get(place) != stated.get(place)
    ]
    if not faults and rows != said:
        got = f"{len(said)} rows" if len(said) != len(rows) else "the same rows in another order"
        faults.append(
            Finding.of(INDEX_ROW, STAGE, where, expected=f"{len(rows)} rows in their order", got=got)
        )
    return faults


def _of_case(finding: Finding, case: str) -> Finding:
    return replace(finding, where=f"{case}: {finding.where}")


def _place(row: str) -> str:
    fields = row.split("\t")
    if fields[0] == "case":
        return "case"
    layer = None if fields[3] == "-1" else int(fields[3])
    return rung_name(fields[2], layer, "" if fields[4] == "-" else fields[4])


def _file_faults(path: Path, fixture: Fixture) -> list[Finding]:
    present = set(folder_names(path))
    faults = [
        Finding.of(FILE_EXTRA, STAGE, name, expected=sorted(fixture.files), got=name)
        for name in sorted(present - set(fixture.files) - {PROVENANCE})
    ]
    for name, digest in sorted(fixture.files.items()):
        if name not in present:
            faults.append(Finding.of(FILE_DIGEST, STAGE, name, expected=digest, got="no such file"))
        elif (got := whole_file_digest(path / name)) != digest:
            faults.append(Finding.of(FILE_DIGEST, STAGE, name, expected=digest, got=got))
    if DESCRIPTION not in fixture.files:
        faults.append(Finding.of(FILE_DIGEST, STAGE, DESCRIPTION, expected="a stated digest", got="none"))
    return faults


def _array_faults(fixture: Fixture, folder: CaptureFolder) -> list[Finding]:
    faults = []
    spans = {(span.entry.stage, span.entry.layer, span.entry.part): span for span in folder.spans}
    stated = {(array.stage, array.layer, array.part): array for array in fixture.arrays}
    for key, array in stated.items():
        span, name = spans.get(key), rung_name(*key)
        if span is None:
            faults.append(Finding.of(ARRAY_MISSING, STAGE, name, expected="an array", got="none"))
            continue
        if (span.entry.dtype, span.entry.shape) != (array.dtype, array.shape):
            faults.append(
                Finding.of(
                    ARRAY_SHAPE, STAGE, name, expected=f"{array.dtype} {array.shape}",
                    got=f"{span.entry.dtype} {span.entry.shape}",
                )
            )  # fmt: skip
        if (got := span_digest(span)) != array.sha256:
            faults.append(Finding.of(ARRAY_DIGEST, STAGE, name, expected=array.sha256, got=got))
    faults += [
        Finding.of(ARRAY_UNLISTED, STAGE, rung_name(*key), expected="provenance", got="none")
        for key in spans
        if key not in stated
    ]
    document = folder.document
    tokens = [] if document is None or document.token_ids is None else list(document.token_ids)
    made_from = sorted([token_digest(tokens), fixture.weights.sha256])
    digests = {array.sha256 for array in fixture.arrays}
    for key, array in stated.items():
        expected = made_from if array.origin == UPSTREAM else None
        fits = (
            sorted(array.inputs) == made_from if expected else set(array.inputs) <= digests and array.inputs
        )
        if not fits:
            faults.append(
                Finding.of(
                    INPUTS, STAGE, rung_name(*key), expected=expected or "digests of arrays of this fixture",
                    got=list(array.inputs),
                )
            )  # fmt: skip
    return faults


def _count_faults(fixture: Fixture) -> list[Finding]:
    counted = {"arrays": len(fixture.arrays), **Counter(array.origin for array in fixture.arrays)}
    return [
        Finding.of(
            COUNT, STAGE, f"counts.{name}", expected=counted.get(name, 0), got=fixture.counts.get(name, 0)
        )
        for name in sorted({*counted, *fixture.counts})
        if counted.get(name, 0) != fixture.counts.get(name, 0)
    ]


def _pin_faults(name: str, pin: ProducerPin) -> list[Finding]:
    expected = PINS.get(pin.package)
    if expected is None:
        return []
    sources = {source.path: source.sha256 for source in pin.sources}
    pairs: list[tuple[str, Any, Any]] = [("version", expected.version, pin.version)]
    if expected.is_pure:
        pairs += [
            ("wheel_sha256", expected.wheel_sha256, pin.wheel_sha256),
            ("distribution_sha256", expected.distribution_sha256, pin.distribution_sha256),
        ]
    pairs += [(path, digest, sources.get(path)) for path, digest in expected.sources.items()]
    return [
        Finding.of(PRODUCER_PIN, STAGE, f"producers.{name}.{what}", expected=want, got=got)
        for what, want, got in pairs
        if want != got
    ]


def _origin_faults(array: ArrayProvenance, fixture: Fixture) -> list[Finding]:
    name = rung_name(array.stage, array.layer, array.part)
    if array.origin not in ORIGINS:
        return [
            Finding.of(ORIGIN_WORD, STAGE, name, expected=f"one of {', '.join(ORIGINS)}", got=array.origin)
        ]
    pin = fixture.producers.get(array.producer)
    is_upstream = pin is not None and pin.package in PINS and array.qualified_name in UPSTREAM_NAMES
    if (array.origin == UPSTREAM) != is_upstream:
        expected = (
            "an object of a pinned upstream package"
            if array.origin == UPSTREAM
            else f"{UPSTREAM}, as {array.qualified_name} emitted it"
        )
        got = f"{array.origin} by {array.producer} {array.qualified_name}"
        return [Finding.of(ORIGIN_PRODUCER, STAGE, name, expected=expected, got=got)]
    source = SOURCES.get((array.stage, array.part))
    want = None if source is None else (source.origin, source.producer, source.qualified_name)
    got_all = (array.origin, array.producer, array.qualified_name)
    if want != got_all:
        return [Finding.of(ORIGIN_STAGE, STAGE, name, expected=want, got=got_all)]
    return []
