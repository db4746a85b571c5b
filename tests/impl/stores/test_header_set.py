"""A header set stands in for shards that are not at hand, and its own statements are checked."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.checkpoint.header_set import read_header_set

HEADER = '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
LINE: dict[str, Any] = {
    "shard": "m.safetensors",
    "file_size": 8 + len(HEADER) + 4,
    "header_length_bytes": len(HEADER),
    "header_sha256": hashlib.sha256(HEADER.encode()).hexdigest(),
    "header": HEADER,
}


def told(path: Path, *lines: dict[str, Any] | str) -> list[tuple[str, str]]:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    _, findings = read_header_set(path)
    return [(finding.code, finding.where) for finding in findings]


def test_a_line_that_agrees_with_its_header_is_accepted(tmp_path: Path) -> None:
    assert told(tmp_path / "h.jsonl", LINE) == []


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        ({"header_sha256": "0" * 64}, "header_set.agreement", "m.safetensors: header_sha256"),
        ({"header_length_bytes": 1}, "header_set.agreement", "m.safetensors: header_length_bytes"),
        ({"tensor_count": 2}, "header_set.agreement", "m.safetensors: tensor_count"),
        ({"file_size": 8 + len(HEADER) + 5}, "safetensors.span.trailing", "m.safetensors"),
        ({"file_size": 9}, "header_set.agreement", "m.safetensors: file_size"),
        ({"shard": "../m.safetensors"}, "header_set.line", "h.jsonl:1"),
        ({"header": 3}, "header_set.line", "h.jsonl:1"),
        ({"header": "{"}, "input.json.syntax", "m.safetensors:1:2"),
    ],
)
def test_a_line_that_lies_is_refused_where_it_lies(
    tmp_path: Path, change: dict[str, Any], code: str, where: str
) -> None:
    assert told(tmp_path / "h.jsonl", {**LINE, **change}) == [(code, where)]


def test_a_shard_given_twice_and_a_broken_line_are_both_named(tmp_path: Path) -> None:
    assert told(tmp_path / "h.jsonl", LINE, LINE, '{"shard"') == [
        ("header_set.duplicate", "h.jsonl:2"),
        ("input.json.syntax", "h.jsonl:3:9"),
    ]


def test_an_empty_set_is_an_empty_file(tmp_path: Path) -> None:
    assert told(tmp_path / "h.jsonl") == [("input.file.empty", "h.jsonl")]
