"""Which checkpoint was judged: every file, header and tensor counts, and hostile ones end nothing."""

import hashlib
import json
from pathlib import Path

import pytest

from assay.provenance.evidence.checkpoint_input import departures, describe_checkpoint, pinned_files
from assay.provenance.paths import checkpoint_directory

HEADER = b'{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


def shard(path: Path, header: bytes, length: int | None = None) -> None:
    path.write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header + b"\0" * 4)


def test_small_files_are_named_by_their_digest_and_others_left_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "notes.txt").write_bytes(b"x")
    (tmp_path / "vocab.json").mkdir()
    found = describe_checkpoint(tmp_path)
    assert found.files == {"config.json": hashlib.sha256(b"{}").hexdigest()}
    assert (found.headers, found.inventory) == (None, None)


def test_headers_count_whether_they_stand_in_shards_or_in_a_header_set(tmp_path: Path) -> None:
    (one := tmp_path / "one").mkdir()
    (two := tmp_path / "two").mkdir()
    shard(one / "a.safetensors", HEADER)
    line = {"shard": "a.safetensors", "header": HEADER.decode(), "header_length_bytes": len(HEADER)}
    (two / "safetensors-headers.partial.jsonl").write_text(json.dumps(line) + "\n")
    first, second = describe_checkpoint(one), describe_checkpoint(two)
    assert first.headers == second.headers
    rows = b"t\0F32\x001\0a.safetensors\x000\x004\n"
    assert first.inventory == second.inventory == hashlib.sha256(rows).hexdigest()
    shard(one / "a.safetensors", HEADER.replace(b"[1]", b"[2]"))
    changed = describe_checkpoint(one)
    assert changed.headers != first.headers
    assert changed.inventory != first.inventory


@pytest.mark.parametrize("header", [b"", b"{", b"[]", b'{"t": 1}', b'{"t":{"dtype":1}}', b"[" * 100_000])
def test_a_header_that_is_none_leaves_the_inventory_unknown(tmp_path: Path, header: bytes) -> None:
    shard(tmp_path / "a.safetensors", header)
    found = describe_checkpoint(tmp_path)
    assert found.inventory is None
    assert found.headers is not None


def test_a_header_length_beyond_reason_is_not_read(tmp_path: Path) -> None:
    shard(tmp_path / "a.safetensors", HEADER, length=1 << 62)
    assert describe_checkpoint(tmp_path).inventory is None


def test_nothing_without_its_configuration_is_the_published_checkpoint(tmp_path: Path) -> None:
    pins = pinned_files()
    assert pins is not None
    assert departures(describe_checkpoint(tmp_path), pins) == ["config.json (absent)"]


@pytest.mark.checkpoint
def test_the_published_description_is_itself() -> None:
    directory, pins = checkpoint_directory(), pinned_files()
    if directory is None or pins is None:
        pytest.skip("the description of the published checkpoint is absent")
    found = describe_checkpoint(directory)
    assert departures(found, pins) == []
    assert found.inventory == pins.inventory_sha256
