"""Writes the miniature's checkpoint: config, index, shards with real headers, and payload as far as it is given.

The miniature is the private profile on which everything that the real checkpoint can do takes seconds.
"""

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from assay.impl.stores.checkpoint_writer import Fill, PlannedTensor, write_checkpoint
from assay.impl.stores.payload import hash_buffer_values
from assay.spec.contract import Contract, expand_tensors
from assay.spec.profiles import load_profile

MINIATURE: Final = "miniature"
SHARDS: Final = 3


def write_miniature(folder: Path, *, fill: Fill | None = None) -> Contract:
    """Writes the miniature's checkpoint into a folder and returns its contract.

    The hash buffers always hold their contract's values. Layers go to three shards, so that the table of the
    per-layer embedding and the two global tables lie apart, as in the real checkpoint.

    Args:
        folder: made if absent.
        fill: payload of all other tensors; without it they are holes.
    """
    contract = load_profile(MINIATURE)
    buffers = {
        name: struct.pack(f"<{len(values)}q", *values)
        for name, values in hash_buffer_values(contract).items()
    }

    def filled(tensor: PlannedTensor) -> Iterable[bytes] | None:
        if tensor.name in buffers:
            return (buffers[tensor.name],)
        return fill(tensor) if fill is not None else None

    config = contract.config.as_file()
    write_checkpoint(folder, plan_shards(contract), files={"config.json": _config_bytes(config)}, fill=filled)
    return contract


def plan_shards(contract: Contract) -> list[list[PlannedTensor]]:
    """Returns the tensors of each shard: layers, the embedding's table, and the global tables."""
    shards: list[list[PlannedTensor]] = [[] for _ in range(SHARDS)]
    for spec in sorted(expand_tensors(contract), key=lambda one: one.name):
        number = 2 if spec.layer is None else 1 if spec.group in {"ple-shard", "ple-hash"} else 0
        shards[number].append(PlannedTensor(spec.name, spec.dtype, spec.shape))
    return shards


def _config_bytes(config: dict[str, object]) -> bytes:
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
