"""An index names plain files, once each, and says an exact size."""

from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.checkpoint.shard_index import is_plain_file_name, judge_index, read_index

GOOD: dict[str, Any] = {"metadata": {"total_size": 8}, "weight_map": {"a": "m.safetensors"}}


@pytest.mark.parametrize("size", [359999963128, 359999963128.0])
def test_a_whole_decimal_is_a_size_as_upstream_prints_it(size: float) -> None:
    index, findings = judge_index({**GOOD, "metadata": {"total_size": size}})
    assert findings == []
    assert index is not None
    assert index.total_size == 359999963128


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "no metadata": ({"weight_map": GOOD["weight_map"]}, "index.form", "i: metadata.total_size"),
    "a fraction": ({**GOOD, "metadata": {"total_size": 8.5}}, "index.total_size", "i: metadata.total_size"),
    "a decimal beyond 2^53": ({**GOOD, "metadata": {"total_size": 1e17}}, "index.total_size", "i: metadata.total_size"),
    "a negative size": ({**GOOD, "metadata": {"total_size": -1}}, "index.total_size", "i: metadata.total_size"),
    "a boolean size": ({**GOOD, "metadata": {"total_size": True}}, "index.total_size", "i: metadata.total_size"),
    "a text size": ({**GOOD, "metadata": {"total_size": "8"}}, "index.total_size", "i: metadata.total_size"),
    "no map": ({"metadata": {"total_size": 8}}, "index.form", "i: weight_map"),
    "an empty map": ({**GOOD, "weight_map": {}}, "index.form", "i: weight_map"),
    "a list": ({**GOOD, "weight_map": ["a"]}, "index.form", "i: weight_map"),
    "another key": ({**GOOD, "extra": 1}, "index.form", "i: extra"),
    "a number for a file": ({**GOOD, "weight_map": {"a": 1}}, "index.form", "i: weight_map[a]"),
    "a path": ({**GOOD, "weight_map": {"a": "../m.safetensors"}}, "index.file_name", "i: weight_map[a]"),
    "an absolute path": ({**GOOD, "weight_map": {"a": "/m.safetensors"}}, "index.file_name", "i: weight_map[a]"),
    "a windows path": ({**GOOD, "weight_map": {"a": "c:\\m.safetensors"}}, "index.file_name", "i: weight_map[a]"),
    "another suffix": ({**GOOD, "weight_map": {"a": "m.bin"}}, "index.file_name", "i: weight_map[a]"),
    "a nul in a file name": ({**GOOD, "weight_map": {"a": "m\0.safetensors"}}, "index.file_name", "i: weight_map[a]"),
    "an empty tensor name": ({**GOOD, "weight_map": {"": "m.safetensors"}}, "index.tensor_name", "i: weight_map[]"),
    "a line end in a name": ({**GOOD, "weight_map": {"a\n": "m.safetensors"}}, "index.tensor_name", "i: weight_map[a\\n]"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_an_index_of_the_wrong_form_is_refused_where_it_is_wrong(name: str) -> None:
    document, code, where = BAD[name]
    _, findings = judge_index(document, where="i")
    assert [(finding.code, finding.where) for finding in findings] == [(code, where)]


def test_every_bad_entry_is_named_and_the_good_one_is_kept() -> None:
    index, findings = judge_index(
        {**GOOD, "weight_map": {"a": "../x.safetensors", "b": 2, "c": "m.safetensors"}}
    )
    assert [finding.code for finding in findings] == ["index.file_name", "index.form"]
    assert index is not None
    assert index.owners == {"c": "m.safetensors"}


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a\\b", "a\0", "x" * 256, "nul:"])
def test_a_name_that_could_leave_its_folder_is_not_plain(name: str) -> None:
    assert not is_plain_file_name(name)


def test_a_name_given_twice_in_the_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(
        '{"metadata": {"total_size": 1}, "weight_map": {"a": "p.safetensors", "a": "q.safetensors"}}'
    )
    index, findings = read_index(path)
    assert index is None
    assert [(finding.code, finding.where, finding.stage) for finding in findings] == [
        ("input.json.duplicate_key", "model.safetensors.index.json", "index")
    ]
