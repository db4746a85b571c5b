"""Reads the description of a capture and finds the bytes of every array, without reading the arrays.

Every size comes from a checked product and is compared with the file before anything is mapped or read.
"""

import hashlib
import itertools
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from assay.impl.captures.npy import NPY, npy_header
from assay.impl.stores.files import CHUNK_BYTES, file_digest, open_regular
from assay.impl.stores.strict_json import read_json_object
from assay.spec.clauses import Authority, declare
from assay.spec.documents.capture import Capture, CaptureEntry
from assay.spec.errors import AdmissionError, Finding
from assay.spec.stages import LAYERED, rung_name

_Model = TypeVar("_Model", bound=BaseModel)

DESCRIPTION: Final = "capture.json"
STAGE: Final = "capture"
ITEM_BYTES: Final = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4, "i64": 8}

FORM: Final = declare(
    "capture.form", Authority.FORM, "capture.json has the fields and types of assay.capture/1, and no others.",
    source="assay: captures from any runtime", cause="a misspelt field, or a number written as text",
    fix="`assay schema capture` prints the schema; docs/captures.md has a small writer in C and in Python",
)  # fmt: skip
PATH: Final = declare(
    "capture.file.path", Authority.FORM, "An entry names a file inside the capture's own folder, by a relative path.",
    source="assay: captures from any runtime", cause="an absolute path, or `..` in a path",
)  # fmt: skip
MISSING: Final = declare(
    "capture.file.missing", Authority.INPUT, "Every file that an entry names is there.",
    source="assay: captures from any runtime", cause="a capture that was copied in part, or a run that was killed",
)  # fmt: skip
EXTENT: Final = declare(
    "capture.file.extent", Authority.RULE,
    "The arrays of a file cover it from its first byte to its last, without overlap and without a hole.",
    source="assay: captures from any runtime", cause="a truncated file, a wrong shape or dtype, or a wrong offset",
    fix="compare shape, dtype and offset of the entry with what was written",
)  # fmt: skip
DIGEST: Final = declare(
    "capture.file.digest", Authority.RULE, "An array that states its SHA-256 has it.",
    source="assay: captures from any runtime", cause="an array that was written again after its entry",
)  # fmt: skip
SHAPE: Final = declare(
    "capture.entry.shape", Authority.RULE, "The first axis of every array but a state counts the entry's tokens.",
    source="assay: captures from any runtime", cause="a batch axis that was left in, or an array stored transposed",
    fix="one capture holds one sequence: write one folder for each row of a batch",
)  # fmt: skip
LAYER: Final = declare(
    "capture.entry.layer", Authority.RULE, "Stages of a layer name their layer; the other stages name none.",
    source="assay: the ladder", cause="a layer index left out",
)  # fmt: skip
OVERLAP: Final = declare(
    "capture.entry.overlap", Authority.RULE, "No token of a rung is stated twice.",
    source="assay: captures from any runtime", cause="first_token counted from the chunk and not from the sequence",
    fix="first_token is the place in the whole sequence",
)  # fmt: skip
RANGE: Final = declare(
    "capture.entry.range", Authority.RULE, "Entries lie inside the token ids that the capture states.",
    source="assay: captures from any runtime", cause="token ids of the prompt alone beside arrays of generated tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes of one array.

    Attributes:
        entry: its entry.
        path: the file.
        start: first byte of the array's data.
        size: bytes of the array.
    """

    entry: CaptureEntry
    path: Path
    start: int
    size: int

    @property
    def name(self) -> str:
        """The rung, with its token range."""
        return entry_name(self.entry)


@dataclass(slots=True)
class CaptureFolder:
    """A capture as found: its description, the arrays that can be used, and every fault."""

    directory: Path
    document: Capture | None = None
    spans: list[Span] = field(default_factory=list)
    faults: list[Finding] = field(default_factory=list)


def open_capture(directory: Path) -> CaptureFolder:
    """Reads a capture's description and sizes; faults are collected, arrays are not read.

    Raises:
        AdmissionError: `input.file.*` or `input.json.*` when capture.json can't be read at all.
    """
    folder = CaptureFolder(directory)
    value = read_json_object(directory / DESCRIPTION, stage=STAGE, where=DESCRIPTION)
    folder.document = parse_document(Capture, value, FORM, STAGE, DESCRIPTION, folder.faults)
    if folder.document is None:
        return folder
    sizes: dict[str, int | None] = {}
    for entry in folder.document.entries:
        folder.faults += _entry_faults(entry, folder.document)
        span = _span(directory, entry, sizes, folder.faults)
        if span is not None:
            folder.spans.append(span)
    folder.faults += _overlaps(folder.document.entries)
    folder.faults += _extents(folder.spans, sizes)
    return folder


def require_capture(directory: Path) -> CaptureFolder:
    """Opens a capture for use.

    Raises:
        AdmissionError: the first fault of the capture.
    """
    folder = open_capture(directory)
    if folder.faults:
        raise AdmissionError(folder.faults[0])
    return folder


def digest_faults(folder: CaptureFolder) -> list[Finding]:
    """Compares every stated SHA-256 with the bytes, read in pieces."""
    faults = []
    for span in folder.spans:
        if span.entry.sha256 is None:
            continue
        got = span_digest(span)
        if got != span.entry.sha256:
            faults.append(Finding.of(DIGEST, STAGE, span.name, expected=span.entry.sha256, got=got))
    return faults


def span_digest(span: Span) -> str:
    """Returns the SHA-256 of an array's bytes, in one MiB pieces."""
    digest, left = hashlib.sha256(), span.size
    with open_regular(span.path, stage=STAGE, where=span.entry.file) as file:
        os.lseek(file.fileno(), span.start, os.SEEK_SET)
        while left > 0 and (piece := file.read(min(left, CHUNK_BYTES))):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


def whole_file_digest(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    return file_digest(path, stage=STAGE, where=path.name)[0]


def parse_document(
    model: type[_Model], value: dict[str, Any], code: str, stage: str, where: str, faults: list[Finding]
) -> _Model | None:
    """Returns the document that a JSON object holds, or None with one finding for each field that is wrong."""
    try:
        return model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        for one in error.errors(include_url=False):
            place = ".".join(map(str, one["loc"])) or where
            expected, got = one["msg"].removeprefix("Input should be "), one.get("input")
            if one["type"] == "missing":
                expected, got = "this field", "none"
            elif one["type"] == "extra_forbidden":
                expected = "no such field"
            faults.append(Finding.of(code, stage, place, expected=expected, got=got))
    return None


def entry_name(entry: CaptureEntry) -> str:
    """Returns how an entry is named in findings, such as `layers.3.qsa [0, 41)`."""
    end = entry.first_token + entry.tokens
    return f"{rung_name(entry.stage, entry.layer, entry.part)} [{entry.first_token}, {end})"


def _entry_faults(entry: CaptureEntry, document: Capture) -> list[Finding]:
    name, faults = entry_name(entry), []
    if (entry.layer is not None) != (entry.stage in LAYERED):
        expected = "a layer" if entry.stage in LAYERED else "no layer"
        faults.append(Finding.of(LAYER, STAGE, name, expected=expected, got=entry.layer))
    if entry.stage != "state" and entry.shape[:1] != [entry.tokens]:
        faults.append(
            Finding.of(SHAPE, STAGE, name, expected=f"first axis {entry.tokens}", got=list(entry.shape))
        )
    if document.token_ids is not None and entry.first_token + entry.tokens > len(document.token_ids):
        faults.append(
            Finding.of(
                RANGE, STAGE, name, expected=f"at most {len(document.token_ids)} tokens",
                got=entry.first_token + entry.tokens,
            )
        )  # fmt: skip
    return faults


def _span(
    directory: Path, entry: CaptureEntry, sizes: dict[str, int | None], faults: list[Finding]
) -> Span | None:
    relative = PurePosixPath(entry.file)
    if relative.is_absolute() or not relative.parts or ".." in relative.parts or "\0" in entry.file:
        faults.append(Finding.of(PATH, STAGE, entry_name(entry), expected="a path inside", got=entry.file))
        return None
    path = directory / relative
    if entry.file not in sizes:
        sizes[entry.file] = _size(directory, path, entry, faults)
    size = sizes[entry.file]
    if size is None:
        return None
    start, length = entry.offset, math.prod(entry.shape) * ITEM_BYTES[entry.dtype]
    if entry.file.endswith(".npy"):
        header = npy_header(path, entry.file)
        if (header.dtype, list(header.shape)) != (entry.dtype, list(entry.shape)) or entry.offset:
            faults.append(
                Finding.of(
                    NPY, STAGE, entry_name(entry), expected=f"{entry.dtype} {list(entry.shape)} at offset 0",
                    got=f"{header.dtype} {list(header.shape)} at offset {entry.offset}",
                )
            )  # fmt: skip
            return None
        start = header.start
    if start + length > size:
        faults.append(
            Finding.of(
                EXTENT, STAGE, entry_name(entry), expected=f"{start + length} bytes", got=f"{size} bytes"
            )
        )
        return None
    return Span(entry, path, start, length)


def _size(directory: Path, path: Path, entry: CaptureEntry, faults: list[Finding]) -> int | None:
    if not path.resolve().is_relative_to(directory.resolve()):
        faults.append(
            Finding.of(PATH, STAGE, entry_name(entry), expected="a path inside", got="a link that leads out")
        )
        return None
    try:
        with open_regular(path, stage=STAGE, where=entry.file) as file:
            return os.fstat(file.fileno()).st_size
    except AdmissionError as error:
        faults.append(
            Finding.of(MISSING, STAGE, entry.file, expected="a readable file", got=error.finding.got)
        )
    return None


def _overlaps(entries: list[CaptureEntry]) -> list[Finding]:
    rungs: dict[tuple[str, int | None, str], list[CaptureEntry]] = {}
    for entry in entries:
        rungs.setdefault((entry.stage, entry.layer, entry.part), []).append(entry)
    faults = []
    for found in rungs.values():
        found.sort(key=lambda entry: entry.first_token)
        for before, after in itertools.pairwise(found):
            end = before.first_token + before.tokens
            if after.first_token < end and before.stage != "state":
                faults.append(
                    Finding.of(
                        OVERLAP, STAGE, entry_name(after), expected=f"first_token from {end} on",
                        got=after.first_token,
                    )
                )  # fmt: skip
    return faults


def _extents(spans: list[Span], sizes: dict[str, int | None]) -> list[Finding]:
    faults = []
    for name, size in sizes.items():
        inside = sorted(
            (span for span in spans if span.entry.file == name), key=lambda span: (span.start, span.size)
        )
        if size is None or not inside:
            continue
        at = inside[0].start if name.endswith(".npy") else 0
        for span in inside:
            if span.start != at:
                faults.append(
                    Finding.of(EXTENT, STAGE, span.name, expected=f"{name} from byte {at} on", got=span.start)
                )
            at = max(at, span.start + span.size)
        if at != size:
            faults.append(Finding.of(EXTENT, STAGE, name, expected=f"{at} bytes", got=f"{size} bytes"))
    return faults
