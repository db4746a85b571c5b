"""The spans of a safetensors file partition its payload, and every lie in a header is named."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.stores.checkpoint.safetensors import DTYPE_BITS, Header, parse_header, read_header, span_bytes
from assay.spec.errors import Finding


def entry(begin: int, end: int, shape: list[int] | None = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def judge(fields: dict[str, Any], payload: int | None = 128) -> list[tuple[str, str]]:
    _, findings = parse_header(json.dumps(fields).encode(), file="f", payload_bytes=payload)
    return [(finding.code.removeprefix("safetensors."), finding.where) for finding in findings]


def write(path: Path, header: bytes, payload: bytes = b"", length: int | None = None) -> Path:
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + payload)
    return path


def test_overlapping_spans_and_the_bytes_left_over_are_both_named() -> None:
    """h3.c#48, lattice#752 case a: [0, 64) twice over 128 bytes."""
    _, findings = parse_header(
        json.dumps({"a": entry(0, 64), "b": entry(0, 64)}).encode(), file="f", payload_bytes=128
    )
    assert [finding.line for finding in findings] == [
        "safetensors.span.overlap: f: b: expected a begin of at least 64, the end of a, got [0, 64)",
        "safetensors.span.trailing: f: expected a payload of 64 bytes, got 128: 64 unowned bytes",
    ]


def test_a_hole_is_named_with_its_size() -> None:
    _, findings = parse_header(
        json.dumps({"a": entry(0, 64), "b": entry(72, 128)}).encode(), file="f", payload_bytes=128
    )
    assert [finding.line for finding in findings] == [
        "safetensors.span.hole: f: b: expected a begin of 64, the end of a, got 72: a hole of 8 bytes"
    ]


def test_the_order_of_a_header_means_nothing() -> None:
    assert judge({"b": entry(64, 128), "a": entry(0, 64)}) == []


def test_one_trailing_byte_is_refused() -> None:
    assert judge({"a": entry(0, 64), "b": entry(64, 128)}, payload=129) == [("span.trailing", "f")]


def test_a_shape_of_32_floats_does_not_fit_64_bytes() -> None:
    assert judge({"a": entry(0, 64, [32], "F32"), "b": entry(64, 128)}) == [("span.bytes", "f: a")]


@pytest.mark.parametrize(
    ("offset", "codes"),
    [
        (4032, []),
        (4064, [("span.inside", "f: t")]),
        (2**40, [("span.inside", "f: t")]),
        (0xFFFFFFFFFFFFF000, [("span.inside", "f: t")]),
    ],
)
def test_an_offset_beyond_the_payload_never_wraps_back_into_it(
    offset: int, codes: list[tuple[str, str]]
) -> None:
    """mlx#4136: 8,192 bytes, data at 4,096, a tensor of 64 bytes behind a filler."""
    end = offset + 64
    fields = {"filler": entry(0, 4032), "t": entry(offset, end, [64])}
    assert judge(fields, payload=4096) == codes


def test_dimensions_whose_product_wraps_to_nothing_are_refused() -> None:
    assert judge({"t": entry(0, 0, [2**33, 2**31])}, payload=0) == [("shape.product", "f: t.shape")]


def test_an_end_before_its_begin_is_refused() -> None:
    fields = {"t": {"dtype": "U8", "shape": [64], "data_offsets": [0xFFFFFFFFFFFFFFC0, 0]}}
    assert judge(fields, payload=4096) == [("span.order", "f: t.data_offsets")]


def test_one_bad_tensor_of_two_is_an_error_and_the_other_is_still_judged() -> None:
    fields = {"bad": {"dtype": "U8"}, "worse": entry(0, 8, [3])}
    assert judge(fields, payload=8) == [("tensor.form", "f: bad"), ("span.bytes", "f: worse")]


FORMS: dict[str, tuple[Any, tuple[str, str]]] = {
    "a number": (3, ("tensor.form", "f: t")),
    "an extra field": ({**entry(0, 4), "strides": [1]}, ("tensor.form", "f: t")),
    "dtype a number": ({**entry(0, 4), "dtype": 1}, ("tensor.form", "f: t.dtype")),
    "an unknown dtype": ({**entry(0, 4), "dtype": "F128"}, ("dtype.known", "f: t.dtype")),
    "a negative dimension": ({**entry(0, 4), "shape": [-4]}, ("tensor.form", "f: t.shape")),
    "a decimal dimension": ({**entry(0, 4), "shape": [4.0]}, ("tensor.form", "f: t.shape")),
    "a boolean dimension": ({**entry(0, 1), "shape": [True]}, ("tensor.form", "f: t.shape")),
    "one offset": ({**entry(0, 4), "data_offsets": [0]}, ("tensor.form", "f: t.data_offsets")),
    "a text offset": ({**entry(0, 4), "data_offsets": ["0", 4]}, ("tensor.form", "f: t.data_offsets")),
}


@pytest.mark.parametrize("name", FORMS)
def test_an_entry_of_the_wrong_form_is_refused_where_it_is_wrong(name: str) -> None:
    value, expected = FORMS[name]
    assert judge({"t": value}, payload=4) == [expected]


def test_names_and_metadata_are_judged() -> None:
    fields = {"": entry(0, 4), "a\nb": entry(4, 8), "__metadata__": {"format": "pt", "n": 1}}
    assert judge(fields, payload=8) == [
        ("metadata.form", "f: __metadata__.n"),
        ("tensor.name", "f: "),
        ("tensor.name", "f: a\\nb"),
    ]


def test_a_header_length_of_two_gigabytes_is_refused_by_the_size_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", b"{}", length=2 << 30)
    header, findings = read_header(path)
    assert header is None
    assert [finding.line for finding in findings] == [
        "safetensors.header.length: m.safetensors: expected 2 to 2 bytes of header, got 2147483648"
    ]


def test_a_header_length_of_two_gigabytes_is_refused_in_a_sparse_file_of_that_size(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", b"{}", length=2 << 30)
    with path.open("r+b") as file:
        file.truncate(3 << 30)
    header, findings = read_header(path)
    assert header is None
    assert findings[0].line.endswith("expected 2 to 100000000 bytes of header, got 2147483648")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "input.file.empty"),
        (b"\x02\0\0", "safetensors.header.length"),
        (b"\0" * 8, "safetensors.header.length"),
        (b"\xff" * 16, "safetensors.header.length"),
        (struct.pack("<Q", 2) + b"[]", "safetensors.header.form"),
        (struct.pack("<Q", 3) + b" {}", "safetensors.header.form"),
        (struct.pack("<Q", 3) + b"{}\n", "safetensors.header.form"),
        (struct.pack("<Q", 4) + b"{\x22a\x22", "input.json.syntax"),
    ],
)
def test_bytes_that_are_no_header_are_refused(tmp_path: Path, data: bytes, code: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    _, findings = read_header(path)
    assert [(finding.code, finding.where.split(":")[0]) for finding in findings] == [(code, "m.safetensors")]


def test_padding_of_spaces_is_part_of_the_header(tmp_path: Path) -> None:
    header, findings = read_header(write(tmp_path / "m.safetensors", b"{}      "))
    assert findings == []
    assert header is not None
    assert header.data_start == 16


@pytest.mark.parametrize(("dtype", "shape", "expected"), [
    ("BF16", (2500012, 160), 800003840), ("I64", (16,), 128), ("F4", (3,), None), ("F6_E2M3", (4,), 3), ("F32", (), 4),
    ("U8", (0, 2**63), 0),
])  # fmt: skip
def test_the_bytes_of_a_shape(dtype: str, shape: tuple[int, ...], expected: int | None) -> None:
    assert span_bytes(dtype, shape) == expected


def foreign(header: Header | None, findings: list[Finding], path: Path) -> None:
    """Compares with the safetensors package: what it opens we accept, and we say the same of every tensor."""
    safetensors = pytest.importorskip("safetensors")
    try:
        with safetensors.safe_open(path, "numpy") as file:
            names = set(file.keys())
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except Exception:  # noqa: BLE001 - the package's own error type, and what Rust hands on
        assert findings
        return
    assert findings == []
    assert header is not None
    assert {tensor.name: tensor.shape for tensor in header.tensors} == shapes


SPANS = st.lists(st.tuples(st.sampled_from(["U8", "F32", "BF16", "I64"]), st.integers(0, 5)), max_size=4)


@settings(max_examples=120, deadline=None)
@given(
    spans=SPANS,
    edit=st.tuples(st.integers(0, 3), st.integers(-8, 8)),
    extra=st.integers(0, 2),
    seed=st.randoms(),
)
def test_we_and_the_safetensors_package_agree_on_what_is_a_file(
    tmp_path_factory: pytest.TempPathFactory,
    spans: list[tuple[str, int]],
    edit: tuple[int, int],
    extra: int,
    seed: Any,
) -> None:
    fields: list[tuple[str, Any]] = []
    cursor = 0
    for number, (dtype, count) in enumerate(spans):
        end = cursor + count * DTYPE_BITS[dtype] // 8
        fields.append((f"t{number}", entry(cursor, end, [count], dtype)))
        cursor = end
    if edit[0] < len(fields):
        fields[edit[0]][1]["data_offsets"][1] += edit[1]
    seed.shuffle(fields)
    path = tmp_path_factory.mktemp("s") / "m.safetensors"
    raw = json.dumps(dict(fields)).encode()
    write(path, raw, b"\0" * (cursor + extra))
    header, findings = read_header(path)
    if not findings:
        assert extra == 0
        assert edit[0] >= len(fields) or edit[1] == 0
    foreign(header, findings, path)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=120))
def test_any_header_bytes_end_in_a_header_or_typed_findings(raw: bytes) -> None:
    header, findings = parse_header(b"{" + raw, file="f", payload_bytes=64)
    assert header is not None or findings
    assert all(finding.code.startswith(("safetensors.", "input.json.")) for finding in findings)
