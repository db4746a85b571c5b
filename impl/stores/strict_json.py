"""JSON as the grammar has it and nothing else, within bounds; each refusal is one typed line.

The standard parser takes NaN, duplicate keys, numbers that overflow and any depth that the stack bears. A
description whose meaning depends on the reader is refused here, before a field of it is judged.
"""

import json
import re
from pathlib import Path
from typing import Any, Final, NoReturn

from assay.impl.stores.files import EMPTY, read_bounded
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

SYNTAX: Final = declare(
    "input.json.syntax", Authority.INPUT, "The file is one JSON value and nothing after it.",
    source="RFC 8259", cause="a truncated download, or an edit by hand", fix="fetch the file again",
)  # fmt: skip
ENCODING: Final = declare(
    "input.json.encoding", Authority.INPUT, "JSON is UTF-8 without a byte order mark, and its strings are Unicode.",
    source="RFC 8259 section 8.1", cause="a file saved in another encoding, or a lone surrogate escape",
)  # fmt: skip
DUPLICATE: Final = declare(
    "input.json.duplicate_key", Authority.INPUT, "No object holds a key twice.",
    source="RFC 8259 section 4: readers differ in which one they keep", cause="a file merged by hand or by a script",
)  # fmt: skip
NUMBER: Final = declare(
    "input.json.number", Authority.INPUT, "Numbers are finite, and integers fit 64 bits.",
    source="RFC 8259 section 6; every stored field of the formats judged here is at most 64 bits wide",
    cause="a writer that prints NaN or Infinity, or a corrupted size",
)  # fmt: skip
DEPTH: Final = declare(
    "input.json.depth", Authority.INPUT, "Values are nested no deeper than the reader allows.",
    source="assay: bounded memory", cause="a hostile or corrupted file",
)  # fmt: skip
OBJECT: Final = declare(
    "input.json.object", Authority.INPUT, "The file's top level is an object.",
    source="assay: every description judged here is an object", cause="another file under this name",
)  # fmt: skip

DEPTH_LIMIT: Final = 64
SIZE_LIMIT_BYTES: Final = 64 << 20
_INTEGER_DIGITS: Final = 20
_INTEGER_LOW, _INTEGER_HIGH = -(1 << 63), (1 << 64) - 1
_STRING_OR_BRACKET: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


def read_json(
    path: Path, *, stage: str = "files", where: str | None = None, limit_bytes: int = SIZE_LIMIT_BYTES
) -> Any:
    """Returns the value of a JSON file.

    Raises:
        AdmissionError: `input.file.*` or `input.json.*`.
    """
    name = path.name if where is None else where
    return parse_json(read_bounded(path, limit_bytes, stage=stage, where=name), stage=stage, where=name)


def read_json_object(
    path: Path, *, stage: str = "files", where: str | None = None, limit_bytes: int = SIZE_LIMIT_BYTES
) -> dict[str, Any]:
    """Returns the object that a JSON file holds.

    Raises:
        AdmissionError: `input.file.*` or `input.json.*`.
    """
    name = path.name if where is None else where
    return require_object(
        read_json(path, stage=stage, where=name, limit_bytes=limit_bytes), stage=stage, where=name
    )


def require_object(value: Any, *, stage: str, where: str) -> dict[str, Any]:
    """Returns `value` if it is an object.

    Raises:
        AdmissionError: `input.json.object`.
    """
    if isinstance(value, dict):
        return value
    raise AdmissionError(Finding.of(OBJECT, stage, where, expected="an object", got=json_type(value)))


def parse_json(
    data: bytes, *, stage: str = "files", where: str = "JSON", depth_limit: int = DEPTH_LIMIT
) -> Any:
    """Returns the value of JSON bytes; integers stay `int`, decimals become `float`.

    Raises:
        AdmissionError: `input.json.*`, with the line and column where that is known.
    """

    def refuse(code: str, expected: str, got: str, at: str = "") -> NoReturn:
        raise AdmissionError(Finding.of(code, stage, f"{where}{at}", expected=expected, got=got))

    def whole(digits: str) -> int:
        if (
            len(digits.lstrip("-")) <= _INTEGER_DIGITS
            and _INTEGER_LOW <= (value := int(digits)) <= _INTEGER_HIGH
        ):
            return value
        return refuse(NUMBER, "an integer of at most 64 bits", f"{digits[:24]} ({len(digits)} characters)")

    def decimal(digits: str) -> float:
        value = float(digits)
        return value if abs(value) != float("inf") else refuse(NUMBER, "a finite number", digits[:40])

    def constant(name: str) -> NoReturn:
        refuse(NUMBER, "a finite number", name)

    def closed_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            refuse(DUPLICATE, "each key once in its object", f"key {twice!r} twice")
        return value

    if not data:
        refuse(EMPTY, "a JSON value", "0 bytes")
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        refuse(ENCODING, "UTF-8 without a byte order mark", f"it starts with {data[:3].hex(' ')}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        refuse(ENCODING, "UTF-8", f"byte 0x{data[error.start]:02x} at offset {error.start}")
    if (depth := _deepest(data, depth_limit)) > depth_limit:
        refuse(DEPTH, f"at most {depth_limit} levels", f"{depth} or more")
    try:
        value = json.loads(
            text,
            parse_int=whole,
            parse_float=decimal,
            parse_constant=constant,
            object_pairs_hook=closed_object,
        )
    except json.JSONDecodeError as error:
        ends = error.pos >= len(text.rstrip())
        got = "the end of the file" if ends else f"{text[error.pos : error.pos + 24]!r} ({error.msg})"
        refuse(SYNTAX, "one JSON value", got, f":{error.lineno}:{error.colno}")
    if b"\\u" in data:
        _refuse_lone_surrogates(value, stage, where)
    return value


def json_type(value: Any) -> str:
    """Returns the JSON name of a value's type; `1`, `1.0` and `true` have different ones."""
    names = {bool: "boolean", int: "integer", float: "decimal", str: "text", list: "array", dict: "object"}
    return names.get(type(value), "null" if value is None else type(value).__name__)


def same_json(left: Any, right: Any) -> bool:
    """Says whether two JSON values are equal in value and type; Python alone has `1 == 1.0 == True`."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right)


def _deepest(data: bytes, limit: int) -> int:
    """Returns the depth of nesting, or the first depth beyond the limit; strings are skipped."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return 0
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        token = data[match.start()]
        if token in b"[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > limit:
                break
        elif token in b"]}":
            depth -= 1
    return deepest


def _refuse_lone_surrogates(value: Any, stage: str, where: str) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        finding = Finding.of(
            ENCODING,
            stage,
            where,
            expected="Unicode text",
            got=f"a lone surrogate U+{ord(error.object[error.start]):04X}",
        )
        raise AdmissionError(finding) from error
