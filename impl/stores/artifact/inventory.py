"""Stage `inventory`: exactly the expected tensors, each once, with its type, dimensions and alignment."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from assay.impl.stores.artifact.descriptor import EXPERT_TENSOR, I8, PLE_TENSOR, ArtifactDescriptor
from assay.impl.stores.expert_major.blocks import GGML
from assay.impl.stores.gguf.reader import Gguf, Tensor
from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding

STAGE: Final = "inventory"
_SOURCE = "field note AFN-004; one tensor, one role, one owner"


def _clause(name: str, meaning: str, cause: str, authority: Authority = Authority.RULE) -> str:
    return declare(f"artifact.tensor.{name}", authority, meaning, source=_SOURCE, cause=cause)


COUNT: Final = _clause(
    "count", "The file holds the dense tensors of the profile and two stores, no more and no fewer.",
    "tensors added, merged or lost", Authority.PIN,
)  # fmt: skip
UNIQUE: Final = _clause("unique", "Every tensor name stands once.", "two files merged, or a second store")
POLICY: Final = _clause(
    "policy", "No vision, draft-head, routed or embedding-table tensor stands beside the stores that own those values.",
    "a converter that kept excluded or replaced tensors",
)  # fmt: skip
MISSING: Final = _clause(
    "missing", "Every tensor that the profile expands to is there.", "a dropped or renamed tensor"
)
TYPE: Final = _clause("type", "A tensor has the type of its owner.", "a tool that re-saved in its own types")
RANK: Final = _clause("rank", "A tensor has the rank of its role.", "dimensions squeezed or added")
DIMENSION: Final = _clause(
    "dimension", "A tensor's dimensions are its role's shape, reversed.", "another size, or a transposed tensor"
)  # fmt: skip
ALIGNED: Final = _clause("aligned", "A tensor starts on the file's alignment.", "an edited offset")
UNEXPECTED: Final = _clause(
    "unexpected", "No tensor is there that no role explains.", "a converter with names of its own"
)

FORBIDDEN: Final = re.compile(
    r"^model\.visual\.|^mtp\.|\.mlp\.experts\.|\.ple\.ple_embedding\.|^blk\.\d+\.ffn_(gate|up|down)_exps\.weight$"
)
"""Names whose values belong to a store, or to no text artifact at all."""
_SHOWN: Final = 32


def judge_inventory(gguf: Gguf, descriptor: ArtifactDescriptor) -> list[Finding]:
    """Returns every disagreement between the directory and the expected tensors, in the loader's order."""
    return list(_findings(gguf, descriptor))


def _findings(gguf: Gguf, descriptor: ArtifactDescriptor) -> Iterator[Finding]:
    if len(gguf.tensors) != descriptor.tensor_count:
        yield _finding(COUNT, "physical tensor count", descriptor.tensor_count, len(gguf.tensors))
    counts = Counter(tensor.name for tensor in gguf.tensors)
    for name, count in counts.items():
        if count > 1:
            yield _finding(UNIQUE, name, "one record", f"{count} records")
    forbidden = [name for name in counts if FORBIDDEN.search(name)]
    yield from _limited(
        POLICY, [f"tensor policy: {name}" for name in forbidden], "no such tensor in a text artifact"
    )
    by_name: dict[str, Tensor] = {}
    for tensor in gguf.tensors:
        by_name.setdefault(tensor.name, tensor)
    bound = 0
    for one in descriptor.dense:
        found = by_name.get(one.name)
        if found is None:
            yield _finding(MISSING, one.name, f"a tensor of {list(one.dimensions)}", "no such tensor")
            continue
        bound += 1
        if found.type_id not in one.types:
            yield _finding(TYPE, f"{one.name}.type", _types(one.types), _types(frozenset({found.type_id})))
        yield from _dimensions(found, one.dimensions)
        yield from _aligned(found, gguf.alignment)
    if bound != len(descriptor.dense):
        yield _finding(MISSING, "dense tensor count", len(descriptor.dense), bound)
    for name in (EXPERT_TENSOR, PLE_TENSOR):
        store = by_name.get(name)
        if store is None:
            yield _finding(MISSING, name, "an opaque store", "no such tensor")
            continue
        bound += 1
        if store.type_id != I8:
            yield _finding(TYPE, f"{name}.type", _types(frozenset({I8})), _types(frozenset({store.type_id})))
        if len(store.dimensions) != 1:
            yield _finding(RANK, f"{name}.rank", 1, len(store.dimensions))
        yield from _aligned(store, gguf.alignment)
    if bound != descriptor.tensor_count:
        yield _finding(MISSING, "bound tensor count", descriptor.tensor_count, bound)
    known = {one.name for one in descriptor.dense} | {EXPERT_TENSOR, PLE_TENSOR}
    strange = [name for name in counts if name not in known and not FORBIDDEN.search(name)]
    yield from _limited(UNEXPECTED, [f"tensor inventory: {name}" for name in strange], "no such tensor")


def _dimensions(found: Tensor, expected: tuple[int, ...]) -> Iterator[Finding]:
    if len(found.dimensions) != len(expected):
        yield _finding(RANK, f"{found.name}.rank", len(expected), len(found.dimensions))
    for axis, (wanted, got) in enumerate(zip(expected, found.dimensions, strict=False)):
        if wanted != got:
            yield _finding(DIMENSION, f"{found.name}.dim[{axis}]", wanted, got)


def _aligned(found: Tensor, alignment: int) -> Iterator[Finding]:
    if found.offset % alignment:
        yield _finding(ALIGNED, f"{found.name}.offset", f"a multiple of {alignment}", found.offset)


def _limited(code: str, places: list[str], expected: str) -> Iterator[Finding]:
    """Yields a finding a place up to a limit: a hostile directory may hold a million strange names."""
    for where in places[:_SHOWN]:
        yield _finding(code, where, expected, "a tensor")
    if len(places) > _SHOWN:
        yield _finding(code, places[0].split(":")[0], expected, f"{len(places) - _SHOWN} more")


def _types(numbers: frozenset[int]) -> str:
    return " or ".join(
        GGML[number].name if number in GGML else f"type {number}" for number in sorted(numbers)
    )


def _finding(code: str, where: str, expected: object, got: object) -> Finding:
    return Finding.of(code, STAGE, where, expected=expected, got=got)
