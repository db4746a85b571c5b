"""Maps every tensor of a checkpoint to its one destination in the artifact; what has none, or two, is a finding.

Checkpoints differ in spelling only: text-only ones start their names with `model.` instead of
`model.language_model.`, a re-save may hold one tensor an expert instead of fused ones, and the row table may lie in any
number of parts. The artifact has one spelling, so that nothing downstream knows which of them it came from.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

from assay.impl.stores.artifact.geometry import (
    PREFIX,
    Geometry,
    dense_shapes,
    hash_values,
    routed_shapes,
    table_stem,
)
from assay.impl.stores.checkpoint.inventory import InventoryRow
from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding

STAGE: Final = "source"
_SOURCE = "field note AFN-004: every source identity is consumed exactly once"


def _clause(name: str, meaning: str, cause: str, fix: str = "") -> str:
    return declare(f"build.source.{name}", Authority.RULE, meaning, source=_SOURCE, cause=cause, fix=fix)


MISSING: Final = _clause("missing", "Every tensor that the configuration asks for is in the checkpoint.",
                         "a partial download, or a configuration of another model")  # fmt: skip
UNEXPECTED: Final = _clause("unexpected", "Every tensor of the checkpoint has a destination or a named exclusion.",
                            "a conversion with names or codecs of its own")  # fmt: skip
TWICE: Final = _clause("twice", "No two tensors of the checkpoint have the same destination.",
                       "fused and split experts side by side, or two spellings of one name")  # fmt: skip
SHAPE: Final = _clause("shape", "A tensor has the shape that the configuration gives.",
                       "a configuration of another size")  # fmt: skip
DTYPE: Final = _clause("dtype", "A tensor has a plain floating type that its owner can keep bit by bit.",
                       "a quantised release", "build from the checkpoint that it was made from")  # fmt: skip
MIXED: Final = _clause("mixed", "All experts have one type, and all rows of the table have one.",
                       "a checkpoint that was put together from two")  # fmt: skip

GGML_TYPES: Final = {"F32": 0, "F16": 1, "BF16": 30}
EXPERT_DTYPES: Final = {"F32": "f32", "BF16": "bf16"}
ROW_DTYPES: Final = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_EXCLUDED: Final = {"model.visual.": "excluded-vision", "mtp.": "excluded-mtp"}
_SPLIT: Final = re.compile(r"^(.*\.mlp\.experts\.)(\d{1,4})\.(gate|up|down)_proj\.weight$")
_PART: Final = re.compile(r"^shard_(\d{1,5})\.weight$")
_SHOWN: Final = 32


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes [begin, end) of one source tensor."""

    tensor: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one source tensor goes.

    Attributes:
        row: the source tensor.
        owner: `dense`, `dense-control`, `ple-rows`, `ple-metadata`, `routed-experts`, `excluded-vision` or
            `excluded-mtp`.
        targets: names in the artifact; empty for an exclusion.
    """

    row: InventoryRow
    owner: str
    targets: tuple[str, ...]


@dataclass(slots=True)
class SourceMap:
    """A checkpoint's tensors by what they become.

    Attributes:
        geometry: the configuration's geometry.
        destinations: one for each source tensor, by name.
        dense: artifact name -> source tensor.
        components: (layer, role, expert) -> where the component's bytes lie.
        parts: parts of the row table, in order.
        buffers: artifact name of a hash buffer -> source tensor.
        findings: everything that is wrong.
    """

    geometry: Geometry
    destinations: list[Destination] = field(default_factory=list)
    dense: dict[str, InventoryRow] = field(default_factory=dict)
    components: dict[tuple[int, int, int], Slice] = field(default_factory=dict)
    parts: list[InventoryRow] = field(default_factory=list)
    buffers: dict[str, InventoryRow] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    expert_dtype: str = ""
    row_dtype: str = ""


def map_source(rows: Sequence[InventoryRow], geometry: Geometry, width: int, padded_rows: int) -> SourceMap:
    """Returns where every tensor goes, with every finding.

    Args:
        rows: the checkpoint's inventory.
        geometry: what its configuration asks for.
        width: values in a row of the table.
        padded_rows: rows of the table.
    """
    found = SourceMap(geometry)
    named = _by_artifact_name(rows, found)
    _take_dense(named, found)
    _take_buffers(named, found)
    _take_experts(named, found)
    _take_table(named, found, width, padded_rows)
    strange = list(named)
    for name in strange[:_SHOWN]:
        row = named[name]
        found.findings.append(
            _finding(UNEXPECTED, f"{row.shard}: {row.name}", "a role of the configuration", _words(row))
        )
    if len(strange) > _SHOWN:
        found.findings.append(
            _finding(UNEXPECTED, "checkpoint", "no other tensor", f"{len(strange) - _SHOWN} more")
        )
    found.destinations.sort(key=lambda one: one.row.name)
    return found


def artifact_name(name: str) -> str:
    """Returns a source name in the artifact's spelling."""
    if name.startswith((PREFIX, "lm_head.", "mtp.", "model.visual.")) or not name.startswith("model."):
        return name
    return PREFIX + name.removeprefix("model.")


def _by_artifact_name(rows: Iterable[InventoryRow], found: SourceMap) -> dict[str, InventoryRow]:
    named: dict[str, InventoryRow] = {}
    for row in rows:
        excluded = next((owner for prefix, owner in _EXCLUDED.items() if row.name.startswith(prefix)), None)
        if excluded is not None:
            found.destinations.append(Destination(row, excluded, ()))
            continue
        name = artifact_name(row.name)
        if name in named:
            found.findings.append(_finding(TWICE, name, f"only {named[name].name}", row.name))
            continue
        named[name] = row
    return named


def _take_dense(named: dict[str, InventoryRow], found: SourceMap) -> None:
    for name, shape in dense_shapes(found.geometry).items():
        row = named.pop(name, None)
        if row is None:
            found.findings.append(_finding(MISSING, name, list(shape), "no such tensor"))
            continue
        found.findings += _judge(row, shape, GGML_TYPES)
        owner = "dense-control" if ".ple." in name else "dense"
        found.dense[name] = row
        found.destinations.append(Destination(row, owner, (name,)))


def _take_buffers(named: dict[str, InventoryRow], found: SourceMap) -> None:
    for name, values in hash_values(found.geometry).items():
        row = named.pop(name, None)
        if row is None:
            found.findings.append(_finding(MISSING, name, [len(values)], "no such tensor"))
            continue
        found.findings += _judge(row, (len(values),), ("I64",))
        found.buffers[name] = row
        found.destinations.append(Destination(row, "ple-metadata", (name,)))


def _take_experts(named: dict[str, InventoryRow], found: SourceMap) -> None:
    taken: list[InventoryRow] = []
    split: dict[str, dict[tuple[int, str], InventoryRow]] = {}
    for name in [one for one in named if _SPLIT.match(one)]:
        match = _SPLIT.match(name)
        if match is not None:
            split.setdefault(match[1], {})[int(match[2]), match[3]] = named.pop(name)
    for name, shape in routed_shapes(found.geometry).items():
        stem, kind = name.rsplit(".", 1)
        layer = int(stem.removeprefix(f"{PREFIX}layers.").split(".")[0])
        row, apart = named.pop(name, None), split.get(f"{stem}.", {})
        roles = ("gate", "up") if kind == "gate_up_proj" else ("down",)
        mine = {key: one for key, one in apart.items() if key[1] in roles}
        if row is not None and mine:
            found.findings.append(_finding(TWICE, name, "fused or split experts", "both"))
        if row is not None:
            taken.append(row)
            found.findings += _judge(row, shape, EXPERT_DTYPES)
            _fused(row, layer, roles, shape, found)
        elif mine:
            taken += mine.values()
            _apart(mine, stem, layer, roles, shape, found)
        else:
            found.findings.append(_finding(MISSING, name, list(shape), "no such tensor"))
        for key in mine:
            del apart[key]
    for apart in split.values():
        for row in apart.values():
            named[row.name] = row  # an expert of a layer that the configuration lacks
    found.expert_dtype = _one_dtype(taken, "experts", found)


def _fused(
    row: InventoryRow, layer: int, roles: tuple[str, ...], shape: tuple[int, ...], found: SourceMap
) -> None:
    experts = shape[0]
    size, left = divmod(row.end - row.begin, experts * len(roles))
    targets = tuple(f"blk.{layer}.ffn_{role}_exps.weight" for role in roles)
    found.destinations.append(Destination(row, "routed-experts", targets))
    if left:
        return  # the shape was refused
    for expert in range(experts):
        for place, role in enumerate(roles):
            begin = (expert * len(roles) + place) * size
            number = ("gate", "up", "down").index(role)
            found.components[layer, number, expert] = Slice(row.name, begin, begin + size)


def _apart(
    mine: Mapping[tuple[int, str], InventoryRow],
    stem: str,
    layer: int,
    roles: tuple[str, ...],
    shape: tuple[int, ...],
    found: SourceMap,
) -> None:
    experts = shape[0]
    one_shape = (shape[1] // len(roles), shape[2])
    for expert in range(experts):
        for role in roles:
            row = mine.get((expert, role))
            where = f"{stem}.{expert}.{role}_proj.weight"
            if row is None:
                found.findings.append(_finding(MISSING, where, list(one_shape), "no such tensor"))
                continue
            found.findings += _judge(row, one_shape, EXPERT_DTYPES)
            number = ("gate", "up", "down").index(role)
            found.components[layer, number, expert] = Slice(row.name, 0, row.end - row.begin)
            target = (f"blk.{layer}.ffn_{role}_exps.weight",)
            found.destinations.append(Destination(row, "routed-experts", target))
    for (expert, _), row in mine.items():
        if expert >= experts:
            found.findings.append(
                _finding(UNEXPECTED, f"{row.shard}: {row.name}", f"{experts} experts", expert)
            )


def _take_table(named: dict[str, InventoryRow], found: SourceMap, width: int, padded_rows: int) -> None:
    stem = table_stem(found.geometry)
    whole = named.pop(f"{stem}weight", None)
    parts = {
        int(match[1]): named.pop(name)
        for name in [one for one in named if one.startswith(stem)]
        if (match := _PART.match(name.removeprefix(stem)))
    }
    if whole is not None and parts:
        found.findings.append(_finding(TWICE, f"{stem}weight", "one table or its parts", "both"))
    if whole is not None:
        parts = {0: whole}
    if sorted(parts) != list(range(len(parts))) or not parts:
        absent = next(number for number in range(len(parts) + 1) if number not in parts)
        found.findings.append(
            _finding(MISSING, f"{stem}shard_{absent}.weight", "parts without a gap", f"{len(parts)} parts")
        )
        return
    found.parts = [parts[number] for number in range(len(parts))]
    for row in found.parts:
        rows = row.shape[0] if row.shape else 0
        found.findings += _judge(row, (rows, width), ROW_DTYPES)
        found.destinations.append(Destination(row, "ple-rows", ("ds4.ple_rows.v1",)))
    total = sum(row.shape[0] for row in found.parts if row.shape)
    if total != padded_rows:
        found.findings.append(_finding(SHAPE, f"{stem}*", f"{padded_rows} rows", f"{total} rows"))
    found.row_dtype = _one_dtype(found.parts, "rows", found)


def _one_dtype(rows: Iterable[InventoryRow], what: str, found: SourceMap) -> str:
    counts = Counter(row.dtype for row in rows)
    if len(counts) > 1:
        words = ", ".join(f"{count} of {dtype}" for dtype, count in counts.most_common())
        found.findings.append(_finding(MIXED, what, "one type", words))
    return next(iter(counts), "")


def _judge(row: InventoryRow, shape: tuple[int, ...], dtypes: Iterable[str]) -> Iterator[Finding]:
    where = f"{row.shard}: {row.name}"
    if row.dtype not in dtypes:
        yield _finding(DTYPE, where, " or ".join(dtypes), row.dtype)
    if row.shape != shape:
        yield _finding(SHAPE, where, list(shape), list(row.shape))


def _words(row: InventoryRow) -> str:
    return f"{row.dtype} of {prod(row.shape)} values"


def _finding(code: str, where: str, expected: object, got: object) -> Finding:
    return Finding.of(code, STAGE, where, expected=expected, got=got)
