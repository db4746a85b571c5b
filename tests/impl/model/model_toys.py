"""What the tests of the MLX model share: models, token ids and refusals. MLX is imported when a test runs."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.impl.stores.checkpoint.writer import PlannedTensor, write_checkpoint
from assay.provenance.captures.geometries import GEOMETRIES, counter_tokens
from assay.spec.errors import AssayError


@cache
def made(name: str) -> Any:
    """The MLX model of a geometry of the captures, in deterministic mode."""
    from assay.impl.model.numerics import Numerics
    from assay.provenance.captures.mlx_run import rule_model

    return rule_model(GEOMETRIES[name], Numerics(is_deterministic=True), by_role=name == "contract-fixture")


def ids(geometry: str, count: int, salt: int = 4) -> list[int]:
    """Token ids of a geometry by the counter rule, without its end-of-text id."""
    text = GEOMETRIES[geometry]
    return list(counter_tokens(salt, count, text["vocab_size"], avoid=text["eos_token_id"]))


def assert_refused(code: str, where: str, work: Callable[[], object]) -> None:
    """The work is refused under this clause, at this place."""
    with pytest.raises(AssayError) as caught:
        work()
    assert (caught.value.finding.code, caught.value.finding.where) == (code, where)


def fault_on_two_streams(kind: Any, at: int) -> list[str]:
    """Runs a chunk of the fast mode, with enough rows for two streams, into a fault; returns what went wrong."""
    from assay.impl.model import backend
    from assay.impl.model.bank import Bank
    from assay.impl.model.faults import Fault, InjectedError
    from assay.impl.model.graph import Model
    from assay.impl.model.numerics import PLAIN
    from assay.spec.errors import ContractError

    exact = made("small")
    model, tokens = Model(exact.geometry, exact.weights, PLAIN), ids("small", 140)
    bank, alone = Bank(model), Bank(model)
    digest, wrong = bank.digest(), []
    try:
        bank.advance({0: tokens}, Fault(kind, at))
        wrong.append("no failure")
    except (ContractError, InjectedError):
        wrong += [] if bank.digest() == digest else ["a public state changed"]
    if not backend.two_streams.cache_info().currsize:
        wrong.append("no second stream")
    for one in (bank, alone):
        one.advance({0: tokens})
    return wrong + ([] if bank.digest() == alone.digest() else ["a retry is not a fresh run"])


def write_form(folder: Path, name: str, form: str) -> Path:
    """Writes a geometry of the captures as a checkpoint directory in one of the forms that exist.

    Forms: `published` (nested names, fused experts, table in parts, three shards, bf16), `saved` (one tensor an
    expert, table in parts, one file, f32) and `whole` (fused experts, table in one, f32, hash buffers left out).
    """
    from assay.provenance.captures.mlx_run import rule_tensors

    config = GEOMETRIES[name]
    tensors = rule_tensors(config)
    if form != "whole":
        tensors = _with_parts(tensors, config)
    if form == "saved":
        tensors = _with_single_experts(tensors)
    prefix = "model.language_model." if form == "published" else "model."
    named = {
        f"{prefix}{key.removeprefix('model.')}" if key.startswith("model.") else key: one
        for key, one in tensors.items()
    }
    dtype = "BF16" if form == "published" else "F32"
    plans = [
        PlannedTensor(key, "I64" if one.dtype.kind == "i" else dtype, one.shape) for key, one in named.items()
    ]
    shards = [plans[start::3] for start in range(3)] if form == "published" else [plans]
    text = {"text_config": config} if form == "published" else config
    write_checkpoint(
        folder,
        shards,
        files={"config.json": json.dumps(text).encode()},
        fill=lambda one: [_bytes(named[one.name], one.dtype)],
    )
    if form != "published":
        (folder / "model-00001-of-00001.safetensors").rename(folder / "model.safetensors")
        (folder / "model.safetensors.index.json").unlink()
    return folder


def _bytes(array: np.ndarray, dtype: str) -> bytes:
    if dtype == "BF16":  # the rule's values are bf16 values already
        return (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return array.astype("<i8" if dtype == "I64" else "<f4").tobytes()


def _with_parts(tensors: dict[str, np.ndarray], config: dict[str, Any]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for key, one in tensors.items():
        if not key.endswith("ngram_embedding.weight"):
            found[key] = one
            continue
        stem = key.removesuffix("weight")
        for part, rows in enumerate(np.split(one, config["split_ngram_parts"])):
            found[f"{stem}shard_{part}.weight"] = rows
    return found


def _with_single_experts(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for key, one in tensors.items():
        stem, _, part = key.rpartition(".")
        if part == "gate_up_proj":
            half = one.shape[1] // 2
            for expert, both in enumerate(one):
                found[f"{stem}.{expert}.gate_proj.weight"] = both[:half]
                found[f"{stem}.{expert}.up_proj.weight"] = both[half:]
        elif part == "down_proj":
            found |= {f"{stem}.{expert}.down_proj.weight": matrix for expert, matrix in enumerate(one)}
        else:
            found[key] = one
    return found
