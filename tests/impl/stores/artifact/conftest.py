"""Checkpoints to build from: the miniature with weights, and small ones in other spellings."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.impl.stores.artifact.geometry import (
    PREFIX,
    dense_shapes,
    hash_values,
    read_geometry,
    routed_shapes,
    table_stem,
)
from assay.impl.stores.checkpoint.writer import PlannedTensor, write_checkpoint
from assay.provenance.captures.geometries import GEOMETRIES
from assay.provenance.miniature import miniature_checkpoint


@pytest.fixture(scope="session")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The miniature's checkpoint with weights and tokenizer; tests only read it."""
    return miniature_checkpoint(tmp_path_factory.mktemp("miniature") / "checkpoint")


def value_bytes(tensor: PlannedTensor) -> bytes:
    """Bytes that name their tensor: no two tensors start alike."""
    import hashlib

    seed = hashlib.sha256(tensor.name.encode()).digest()
    # BF16 and F32 stay finite: every other byte is small.
    pattern = bytes(one & 0x3F for one in seed)
    return (pattern * (tensor.size_bytes // 32 + 1))[: tensor.size_bytes]


Spell = Callable[[str, tuple[int, ...], str], list[PlannedTensor]]


def as_is(name: str, shape: tuple[int, ...], dtype: str) -> list[PlannedTensor]:
    """The published spelling."""
    return [PlannedTensor(name, dtype, shape)]


def as_saved(name: str, shape: tuple[int, ...], dtype: str) -> list[PlannedTensor]:
    """The spelling of `save_pretrained`: `model.` and one tensor an expert."""
    short = name.replace(PREFIX, "model.")
    if short.endswith("experts.gate_up_proj"):
        stem, half = short.removesuffix("gate_up_proj"), (shape[1] // 2, shape[2])
        return [
            PlannedTensor(f"{stem}{expert}.{role}_proj.weight", dtype, half)
            for expert in range(shape[0])
            for role in ("gate", "up")
        ]
    if short.endswith("experts.down_proj"):
        stem = short.removesuffix("down_proj")
        return [
            PlannedTensor(f"{stem}{expert}.down_proj.weight", dtype, shape[1:]) for expert in range(shape[0])
        ]
    return [PlannedTensor(short, dtype, shape)]


def write_small(
    folder: Path,
    *,
    spell: Spell = as_is,
    dtype: str = "F32",
    parts: int = 4,
    name: str = "small",
    change: Callable[[list[PlannedTensor]], None] | None = None,
    config_change: Callable[[dict[str, object]], None] | None = None,
) -> Path:
    """Writes a checkpoint of a small geometry in some spelling, in two shards."""
    text = dict(GEOMETRIES[name])
    config: dict[str, object] = {
        "architectures": ["Qwen4ExpForCausalLM"],
        "model_type": "qwen4_exp_text",
        **text,
    }
    if config_change is not None:
        config_change(config)
    geometry = read_geometry({**config, **text})
    heads = geometry.heads
    width = geometry.sizes["ple_embed_dim"] // heads
    rows = geometry.hash_buffers().padded_rows
    tensors: list[PlannedTensor] = []
    for tensor, shape in {**dense_shapes(geometry), **routed_shapes(geometry)}.items():
        tensors += spell(tensor, shape, dtype)
    stem = table_stem(geometry)
    names = [f"{stem}shard_{part}.weight" for part in range(parts)] if parts > 1 else [f"{stem}weight"]
    for part in names:
        tensors += spell(part, (rows // parts, width), dtype)
    buffers = {
        spell(one, (len(values),), "I64")[0].name: values for one, values in hash_values(geometry).items()
    }
    tensors += [PlannedTensor(one, "I64", (len(values),)) for one, values in buffers.items()]
    if change is not None:
        change(tensors)

    def fill(tensor: PlannedTensor) -> list[bytes]:
        if tensor.name in buffers and tensor.dtype == "I64":
            return [b"".join(value.to_bytes(8, "little", signed=True) for value in buffers[tensor.name])]
        return [value_bytes(tensor)]

    half = len(tensors) // 2
    write_checkpoint(
        folder,
        [tensors[:half], tensors[half:]],
        files={"config.json": json.dumps(config).encode()},
        fill=fill,
    )
    return folder
