"""The part of the battery `contract` that mutates the real headers and the real index, tensor by tensor."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.checkpoint.contract_inventory import judge_inventory
from assay.impl.stores.checkpoint.inventory import gather_inventory
from assay.impl.stores.checkpoint.layout import Layout, read_layout
from assay.impl.stores.checkpoint.safetensors import Header, parse_header
from assay.impl.stores.checkpoint.shard_index import judge_index
from assay.mutations.battery import InvalidMutationError, Mutation
from assay.mutations.json_edits import Edit, another_type, another_value, apply_edits
from assay.spec.errors import Finding
from assay.spec.leaves import leaves, path_text
from assay.spec.profiles import load_profile

PROFILE: Final = "qwen4exp"
PIN_REASON: Final = (
    "An entry of an excluded tensor (vision, draft head), or two entries whose order in the payload is free: no role "
    "gives their shape or place, so only the recorded digest of the inventory can tell."
)


@dataclass(frozen=True, slots=True)
class HeaderEdit:
    """Edits of one shard's header, as a JSON object."""

    shard: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class IndexEdit:
    """Edits of the index, as a JSON object."""

    edits: tuple[Edit, ...]


def list_mutations(checkpoint: Path) -> list[Mutation]:
    """Lists mutations of every leaf of every header entry and of every entry of the index."""
    return [*_of_headers(_header_objects(checkpoint)), *_of_index(checkpoint)]


def judge(payload: HeaderEdit | IndexEdit | None, checkpoint: Path) -> list[Finding]:
    """Judges the real headers and index with one edit, or unchanged for None."""
    layout = _layout(checkpoint)
    headers, index = layout.headers, layout.index
    found: list[Finding] = []
    if isinstance(payload, HeaderEdit):
        changed = apply_edits(_header_objects(checkpoint)[payload.shard], payload.edits)
        header, found = _parsed(changed, headers[payload.shard])
        if found or header is None:
            # The header alone has told. Each stage ends here, though validation goes on: the rest costs an inventory.
            return found
        headers = {**headers, payload.shard: header}
    elif isinstance(payload, IndexEdit):
        index, found = judge_index(apply_edits(_index_object(checkpoint), payload.edits))
        if found:
            return found
    inventory, found = gather_inventory(index, headers)
    return found or judge_inventory(inventory, load_profile(PROFILE), is_complete=True)


def _of_headers(headers: dict[str, dict[str, Any]]) -> Iterator[Mutation]:
    for shard, header in headers.items():
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            for edit, kind in _entry_edits(name, entry):
                where = f"{shard}: {path_text(edit.path)}"
                yield Mutation(
                    f"headers:{where}:{kind}", "real headers", where, edit.text,
                    payload=("inventory", HeaderEdit(shard, (edit,))),
                )  # fmt: skip
            renamed = (Edit("remove", (name,)), Edit("add", (f"{name}_renamed",), entry))
            yield Mutation(
                f"headers:{shard}: {name}:renamed", "real headers", f"{shard}: {name}", f"{name} renamed",
                payload=("inventory", HeaderEdit(shard, renamed)),
            )  # fmt: skip


def _entry_edits(name: str, entry: dict[str, Any]) -> Iterator[tuple[Edit, str]]:
    for path, value in leaves(entry, (name,)):
        yield (
            Edit("set", path, _another_dtype(value) if path[-1] == "dtype" else another_value(value)),
            "value",
        )
        yield Edit("set", path, another_type(value)), "type"
        yield Edit("remove", path), "missing"
    yield Edit("remove", (name,)), "missing"
    yield Edit("add", (name, "unknown_field"), 1), "extra"
    shape = entry["shape"]
    for index in range(len(shape) - 1):
        if shape[index] != shape[index + 1]:
            # The product, and so the span, stays the same: only the role's shape can tell.
            yield Edit("swap", (name, "shape", index)), "order"


def _of_index(checkpoint: Path) -> Iterator[Mutation]:
    document = _index_object(checkpoint)
    shards = sorted(set(document["weight_map"].values()))
    for name, shard in document["weight_map"].items():
        path = ("weight_map", name)
        other = shards[(shards.index(shard) + 1) % len(shards)]
        for edit, kind in (
            (Edit("set", path, other), "owner"),
            (Edit("set", path, [shard]), "type"),
            (Edit("remove", path), "missing"),
        ):
            yield Mutation(
                f"index:{path_text(path)}:{kind}", "real index", path_text(path), edit.text,
                payload=("inventory", IndexEdit((edit,))),
            )  # fmt: skip
    for shard in shards:
        edit = Edit("add", ("weight_map", f"unknown.{shard}"), shard)
        yield Mutation(
            f"index:{shard}:extra", "real index", shard, edit.text, payload=("inventory", IndexEdit((edit,)))
        )
    total = document["metadata"]["total_size"]
    for value, kind in ((total + 2, "value"), (str(total), "type")):
        edit = Edit("set", ("metadata", "total_size"), value)
        yield Mutation(
            f"index:metadata.total_size:{kind}", "real index", "metadata.total_size", edit.text,
            payload=("inventory", IndexEdit((edit,))),
        )  # fmt: skip


def _another_dtype(value: Any) -> str:
    # Another type of the same width, so that the span stays right and only the role can tell.
    return {"BF16": "F16", "I64": "U64"}.get(value, "BF16")


def _parsed(changed: Any, old: Header) -> tuple[Header | None, list[Finding]]:
    raw = json.dumps(changed, separators=(",", ":")).encode("utf-8")
    return parse_header(raw, file=old.file, payload_bytes=old.payload_bytes)


def _header_object(header: Header) -> dict[str, Any]:
    entries: dict[str, Any] = {"__metadata__": dict(header.metadata)}
    for tensor in header.tensors:
        span = [tensor.begin, tensor.end]
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": span}
    return entries


@cache
def _header_objects(checkpoint: Path) -> dict[str, dict[str, Any]]:
    return {shard: _header_object(header) for shard, header in _layout(checkpoint).headers.items()}


@cache
def _layout(checkpoint: Path) -> Layout:
    layout = read_layout(checkpoint)
    if not layout.is_complete or layout.index is None:
        raise InvalidMutationError("the real headers or the real index are incomplete")
    return layout


@cache
def _index_object(checkpoint: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (checkpoint / "model.safetensors.index.json").read_text(encoding="utf-8")
    )
    return found
