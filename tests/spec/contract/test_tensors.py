"""The tensor roles expand to what upstream published."""

import json
from collections import Counter
from pathlib import Path

import pytest

from assay.provenance.paths import checkpoint_directory
from assay.spec.contract import expand_tensors
from assay.spec.profiles import load_profile

checkpoint = pytest.mark.checkpoint


def real_directory() -> Path:
    directory = checkpoint_directory()
    if directory is None:
        pytest.skip("the description of the real checkpoint is absent")
    return directory


def test_the_public_roles_expand_to_1294_names_each_once() -> None:
    names = [one.name for one in expand_tensors(load_profile("qwen4exp"))]
    assert len(names) == len(set(names)) == 1294


def test_the_public_groups_count_as_published() -> None:
    groups = Counter(one.group for one in expand_tensors(load_profile("qwen4exp")))
    assert groups == {"dense": 1061, "routed": 96, "ple-compute": 6, "ple-shard": 128, "ple-hash": 3}


def test_the_public_bytes_count_as_the_published_dry_run() -> None:
    sizes: Counter[str] = Counter()
    for one in expand_tensors(load_profile("qwen4exp")):
        sizes[one.classification if one.group != "routed" else "routed"] += one.size_bytes
    assert sizes == {"base": 9_829_717_760, "ple": 102_466_171_160, "routed": 241_591_910_400}


def test_the_miniature_roles_expand_to_210_names_each_once() -> None:
    names = [one.name for one in expand_tensors(load_profile("miniature"))]
    # 5 global + 8 layers x 15 + 6 linear x 9 + 2 full x 9 + 9 + 4 shards
    assert len(names) == len(set(names)) == 210


@checkpoint
def test_every_public_name_dtype_and_shape_equals_the_real_headers() -> None:
    real: dict[str, tuple[str, tuple[int, ...]]] = {}
    with (real_directory() / "safetensors-headers.partial.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            header = json.loads(json.loads(line)["header"])
            real.update(
                {
                    name: (entry["dtype"], tuple(entry["shape"]))
                    for name, entry in header.items()
                    if name != "__metadata__" and not name.startswith(("model.visual.", "mtp."))
                }
            )
    assert {one.name: (one.dtype, one.shape) for one in expand_tensors(load_profile("qwen4exp"))} == real


@checkpoint
def test_the_pinned_config_equals_the_real_file_leaf_by_leaf() -> None:
    contract = load_profile("qwen4exp")
    real = json.loads((real_directory() / "config.json").read_text(encoding="utf-8"))
    for leaf in contract.config.unjudged:
        real.pop(leaf.path)
    assert json.dumps(contract.config.as_file(), sort_keys=True) == json.dumps(real, sort_keys=True)
