"""The middle-sized model as an artifact: weights by the counter rule, BF16, 256 expert records of 96 KiB.

With other dimensions it is a model of its own; that with records of megabytes is what streaming is measured on.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.artifact.build import build_artifact
from assay.impl.stores.artifact.geometry import (
    dense_shapes,
    hash_values,
    read_geometry,
    routed_shapes,
    table_stem,
)
from assay.impl.stores.checkpoint.writer import PlannedTensor, write_checkpoint
from assay.impl.stores.expert_major.store import RecordDigests
from assay.provenance.captures.mlx_speed import MIDDLE
from assay.provenance.miniature import rule_weights

CHECKPOINT: Final = "middle-checkpoint"


def write_middle(folder: Path, changes: Mapping[str, Any] | None = None) -> tuple[Path, RecordDigests]:
    """Writes checkpoint and artifact into a folder; returns the artifact's path and the digests of its records.

    Args:
        folder: an existing one.
        changes: keys of the text config that differ from the middle-sized model's.
    """
    text: dict[str, Any] = {**MIDDLE, **(changes or {})}
    config = {
        "architectures": ["Qwen4ExpForCausalLM"], "model_type": "qwen4_exp",
        "text_config": {**text, "model_type": "qwen4_exp_text", "make_ngram_vocab_size_divisible_by": 128},
    }  # fmt: skip
    geometry = read_geometry(config)
    buffers = {name: struct.pack(f"<{len(one)}q", *one) for name, one in hash_values(geometry).items()}
    plans = [PlannedTensor(name, "BF16", shape) for name, shape in dense_shapes(geometry).items()]
    plans += [PlannedTensor(name, "BF16", shape) for name, shape in routed_shapes(geometry).items()]
    plans += [PlannedTensor(name, "I64", (len(data) // 8,)) for name, data in buffers.items()]
    rows, width = geometry.hash_buffers().padded_rows, text["ple_embed_dim"] // geometry.heads
    plans.append(PlannedTensor(f"{table_stem(geometry)}weight", "BF16", (rows, width)))

    def fill(tensor: PlannedTensor) -> Iterable[bytes]:
        return (buffers[tensor.name],) if tensor.name in buffers else rule_weights(tensor)

    checkpoint, target = folder / CHECKPOINT, folder / "middle.gguf"
    write_checkpoint(checkpoint, [plans], files={"config.json": json.dumps(config).encode()}, fill=fill)
    return target, build_artifact(checkpoint, target).digests
