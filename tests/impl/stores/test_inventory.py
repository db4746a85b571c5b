"""The index alone says who owns a tensor; copies are named, and the order of files means nothing."""

import json
from itertools import permutations
from pathlib import Path

import pytest

from assay.impl.stores.checkpoint.header_set import HEADER_SET_NAME, read_header_set
from assay.impl.stores.checkpoint.inventory import InventoryRow, gather_inventory, inventory_digest
from assay.impl.stores.checkpoint.safetensors import Header, StoredTensor
from assay.impl.stores.checkpoint.shard_index import INDEX_NAME, ShardIndex, judge_index, read_index

P = Header("P.safetensors", (StoredTensor("ple.0", "U8", (8,), 0, 8), StoredTensor("experts.0.down", "U8", (4,), 8, 12)),
           {}, 8, 12, "")  # fmt: skip
Q = Header("Q.safetensors", (StoredTensor("experts.0.down", "U8", (4,), 0, 4),), {}, 8, 4, "")
TO_Q = ShardIndex({"ple.0": "P.safetensors", "experts.0.down": "Q.safetensors"}, 12)
TO_P = ShardIndex({"ple.0": "P.safetensors", "experts.0.down": "P.safetensors"}, 12)


@pytest.mark.parametrize("order", list(permutations([P, Q])))
def test_the_owner_is_the_indexed_file_in_whatever_order_files_are_read(order: tuple[Header, ...]) -> None:
    """vllm#54230: old expert tensors in a reused shard overwrote the right ones."""
    inventory, findings = gather_inventory(TO_Q, {header.file: header for header in order})
    owner = {row.name: row.shard for row in inventory.rows}
    assert owner == {"ple.0": "P.safetensors", "experts.0.down": "Q.safetensors"}
    assert [(finding.code, finding.where) for finding in findings] == [
        ("inventory.unowned", "P.safetensors: experts.0.down")
    ]


def test_the_finding_names_the_tensor_and_both_files() -> None:
    _, (finding,) = gather_inventory(TO_Q, {"P.safetensors": P, "Q.safetensors": Q})
    assert finding.expected == "only in Q.safetensors, as the index says"
    assert finding.got == "stored in P.safetensors as well"


def test_an_index_that_names_the_other_copy_changes_the_digest() -> None:
    headers = {"P.safetensors": P, "Q.safetensors": Q}
    to_q, _ = gather_inventory(TO_Q, headers)
    to_p, findings = gather_inventory(TO_P, headers)
    assert to_q.digest != to_p.digest
    assert [(finding.code, finding.where) for finding in findings] == [
        ("inventory.unowned", "Q.safetensors: experts.0.down")
    ]


def test_an_indexed_tensor_that_lies_elsewhere_says_where_it_lies() -> None:
    only_p = ShardIndex({"ple.0": "Q.safetensors", "experts.0.down": "P.safetensors"}, 12)
    _, findings = gather_inventory(
        only_p, {"P.safetensors": P, "Q.safetensors": Header("Q.safetensors", (), {}, 8, 0, "")}
    )
    assert [(finding.code, finding.where, finding.got) for finding in findings] == [
        ("inventory.absent", "ple.0", "it lies in P.safetensors"),
    ]


def test_a_tensor_that_never_existed_is_told_from_one_whose_shard_is_absent() -> None:
    index = ShardIndex({"gone": "P.safetensors", "away": "R.safetensors"}, None)
    empty = {"P.safetensors": Header("P.safetensors", (), {}, 8, 0, "")}
    _, findings = gather_inventory(index, empty, absent_files=["R.safetensors"])
    assert [(finding.where, finding.got) for finding in findings] == [
        ("gone", "that file's header has no such tensor")
    ]


def test_an_unindexed_tensor_is_refused() -> None:
    index = ShardIndex({"ple.0": "P.safetensors"}, None)
    _, findings = gather_inventory(index, {"P.safetensors": P})
    assert [(finding.code, finding.where) for finding in findings] == [
        ("inventory.unowned", "P.safetensors: experts.0.down")
    ]


def test_a_total_size_that_is_not_the_sum_is_refused() -> None:
    index = ShardIndex({"experts.0.down": "Q.safetensors"}, 5)
    _, findings = gather_inventory(index, {"Q.safetensors": Q})
    assert [finding.line for finding in findings] == [
        "index.total_size: model.safetensors.index.json: metadata.total_size: expected 4, got 5"
    ]


def test_the_digest_of_one_row_is_that_of_its_fields_between_nuls() -> None:
    row = InventoryRow("a", "BF16", (2, 3), "s", 0, 12)
    # printf 'a\0BF16\0002,3\0s\0000\00012\n' | sha256sum
    assert inventory_digest([row]) == "789f0c42e66c80b4c2f7d28998523ec351da2c712d71f45b048645f3f51190d6"


@pytest.mark.checkpoint
def test_the_real_headers_have_the_published_inventory_digest(checkpoint: Path) -> None:
    found, faults = read_header_set(checkpoint / HEADER_SET_NAME)
    index, more = read_index(checkpoint / INDEX_NAME)
    assert found is not None
    assert (faults, more) == ([], [])
    for headers in (found.headers, dict(reversed(found.headers.items()))):
        inventory, findings = gather_inventory(index, headers)
        assert findings == []
        assert inventory.digest == "a639efc7a5147b04200e870d7e320335527f4361a8327b137feca2683b1dc434"
        assert (len(inventory.rows), inventory.total_bytes) == (1658, 359999963128)


@pytest.mark.checkpoint
def test_one_moved_tensor_changes_the_published_digest(checkpoint: Path) -> None:
    document = json.loads((checkpoint / INDEX_NAME).read_text())
    document["weight_map"]["lm_head.weight"] = "model-00130-of-00131.safetensors"
    index, _ = judge_index(document)
    found, _ = read_header_set(checkpoint / HEADER_SET_NAME)
    assert found is not None
    inventory, findings = gather_inventory(index, found.headers)
    assert inventory.digest != "a639efc7a5147b04200e870d7e320335527f4361a8327b137feca2683b1dc434"
    assert [(finding.code, finding.where) for finding in findings] == [
        ("inventory.absent", "lm_head.weight"),
    ]
