"""JSON that two readers could read differently is refused, at a stated place."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.stores.strict_json import parse_json, require_object, same_json
from assay.spec.errors import AdmissionError

BAD = {
    "truncated": (b'{"a": [1, 2', "input.json.syntax", "f:1:12"),
    "two values": (b'{"a": 1} {"b": 2}', "input.json.syntax", "f:1:10"),
    "trailing comma": (b'{"a": 1,}', "input.json.syntax", "f:1:"),  # 3.13 points at the comma itself
    "bare word": (b'{"a":\n nul}', "input.json.syntax", "f:2:2"),
    "control character": (b'{"a": "\x01"}', "input.json.syntax", "f:1:8"),
    "only spaces": (b"  \n ", "input.json.syntax", "f:2:2"),
    "empty": (b"", "input.file.empty", "f"),
    "duplicate key": (b'{"a": {"b": 1, "b": 2}}', "input.json.duplicate_key", "f"),
    "duplicate key by escape": (b'{"a": 1, "\\u0061": 2}', "input.json.duplicate_key", "f"),
    "not a number": (b'{"a": NaN}', "input.json.number", "f"),
    "infinity": (b'{"a": -Infinity}', "input.json.number", "f"),
    "overflow": (b'{"a": 1e999}', "input.json.number", "f"),
    "65 bits": (b'{"a": 18446744073709551616}', "input.json.number", "f"),
    "negative 65 bits": (b'{"a": -9223372036854775809}', "input.json.number", "f"),
    "ten thousand digits": (b'{"a": ' + b"9" * 10_000 + b"}", "input.json.number", "f"),
    "byte order mark": (b'\xef\xbb\xbf{"a": 1}', "input.json.encoding", "f"),
    "utf-16": ('{"a": 1}'.encode("utf-16"), "input.json.encoding", "f"),
    "latin-1": (b'{"a": "\xe9"}', "input.json.encoding", "f"),
    "lone surrogate": (b'{"a": "\\ud800"}', "input.json.encoding", "f"),
    "too deep": (b"[" * 65 + b"]" * 65, "input.json.depth", "f"),
    "a hundred thousand deep": (b"[" * 100_000, "input.json.depth", "f"),
    "deep objects": (b'{"a":' * 70 + b"1" + b"}" * 70, "input.json.depth", "f"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_json_must_not_hold_is_refused_with_one_line(name: str) -> None:
    data, code, where = BAD[name]
    with pytest.raises(AdmissionError) as caught:
        parse_json(data, where="f")
    assert caught.value.finding.code == code
    assert caught.value.finding.where.startswith(where)
    assert "\n" not in str(caught.value)


def test_sixty_four_levels_and_brackets_inside_strings_are_accepted() -> None:
    assert parse_json(b"[" * 64 + b"]" * 64)
    text = json.dumps({"a": "[" * 500 + '\\"' + "{" * 500}).encode()
    assert parse_json(text) == json.loads(text)


def test_the_extremes_of_64_bits_are_accepted() -> None:
    assert parse_json(b"[18446744073709551615, -9223372036854775808]") == [2**64 - 1, -(2**63)]


def test_a_top_level_array_is_not_an_object() -> None:
    with pytest.raises(AdmissionError) as caught:
        require_object(parse_json(b"[]"), stage="files", where="f")
    assert caught.value.finding.line == "input.json.object: f: expected an object, got array"


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, 1.0), (1, True), (0, False), (1.0, True), (None, False), ([1], [1.0]), ({"a": 1}, {"a": True})],
)
def test_json_types_are_part_of_a_value(left: object, right: object) -> None:
    assert left == right or left is None
    assert not same_json(left, right)
    assert same_json(left, left)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_every_json_value_is_read_back(value: object) -> None:
    assert same_json(parse_json(json.dumps(value).encode()), value)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode()[:-1]))
def test_any_bytes_are_read_or_refused_in_one_typed_line(data: bytes) -> None:
    finding = None
    try:
        parse_json(data)
    except AdmissionError as error:
        finding = error.finding
    if finding is not None:
        assert finding.code.startswith(("input.json.", "input.file.empty"))
        assert finding.line.isprintable()
