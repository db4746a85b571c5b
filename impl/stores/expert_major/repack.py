"""From a canonical GGUF of families 1 to 3 to a native one: routed tensors become one ExpertMajor store.

Metadata is copied byte for byte; other tensors keep order, type and bytes; the store is the last tensor. Routed
blocks are opaque: not one bit of them is interpreted.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from assay.impl.stores.expert_major.blocks import CONVERTER
from assay.impl.stores.expert_major.families import DEEPSEEK4, GLM_DSA, QWEN35_MOE, ExpertFamily
from assay.impl.stores.expert_major.layout import (
    MAX_EXPERTS,
    MAX_LAYER_ID,
    MAX_LAYERS,
    ROLES,
    Layer,
    LayerShape,
    Manifest,
    Source,
    Storage,
    plan_manifest,
)
from assay.impl.stores.expert_major.store import ExpertStore, RecordDigests
from assay.impl.stores.expert_major.writer import check_plan, check_written_store, fill_expert_store
from assay.impl.stores.extents import SYSTEM, Extent, Filesystem, StoreFile
from assay.impl.stores.gguf.reader import Gguf, Tensor, read_gguf
from assay.impl.stores.gguf.rules import judge_gguf
from assay.impl.stores.gguf.writer import GGML_I8, Plan, Planned, plan_gguf, write_gguf
from assay.impl.stores.publication import Draft, sweep
from assay.impl.stores.steps import Progress, Steps
from assay.impl.stores.target import check_space, check_target
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

STORE_NAME: Final = "ds4.expert_major.v2"
STAGE: Final = "repack"
ARCHITECTURES: Final = {"deepseek4": DEEPSEEK4, "glm-dsa": GLM_DSA, "qwen35moe": QWEN35_MOE}
_ROUTED: Final = re.compile(r"blk\.(0|[1-9][0-9]{0,3})\.ffn_(gate|up|down)_exps\.weight")


def _clause(name: str, meaning: str, cause: str) -> str:
    return declare(f"repack.{name}", Authority.FORM, meaning, source="ExpertMajor v2, builder", cause=cause)


ARCHITECTURE: Final = _clause(
    "architecture",
    "The architecture is one whose routed codec is released: families 1 to 3.",
    "another model",
)
METADATA: Final = _clause(
    "metadata",
    "Block and expert counts are stated as UINT32, are not zero, and fit a store.",
    "a file without them",
)
ROUTED: Final = _clause(
    "routed", "Each expert layer has gate, up and down of rank 3, and no other layer has one.",
    "a file with some expert tensors missing or left over",
)  # fmt: skip
CANONICAL: Final = _clause(
    "canonical", "The file has no expert store yet.", "a file that was repacked before"
)
TARGET: Final = _clause("target", "The target doesn't exist and isn't the source.", "a second run")


@dataclass(frozen=True, slots=True)
class Repacked:
    """What a repack wrote."""

    manifest: Manifest
    digests: RecordDigests
    plan: Plan


def repack(
    source: Path,
    target: Path,
    *,
    replace: bool = False,
    progress: Progress | None = None,
    system: Filesystem = SYSTEM,
) -> Repacked:
    """Writes the native form of a canonical GGUF, verified before it is published.

    Args:
        source: canonical GGUF of family 1, 2 or 3.
        target: where the native file shall be.
        replace: whether an existing target may be replaced.
        progress: told the steps `hash`, `build`, `verify`, `compare` and `hash again` with their bytes.
        system: the seam for injected faults.

    Raises:
        AdmissionError: what is wrong with the source, repack.* or build.space.
        ContractError: codec.blocks.cover.
        PublicationError: publish.<step>.
    """
    sweep(target, system)
    check_target(target, [source], replace=replace, code=TARGET, stage=STAGE)
    steps = Steps(progress)
    with StoreFile.open(source, system) as file:
        extent = file.extent()
        gguf = _read(source, extent)
        family, experts, used, layers = _arrangement(gguf)
        if gguf.tensor(STORE_NAME) is not None:
            _fail(CANONICAL, STORE_NAME, "a canonical file", "a native one, which is what repacking makes")
        routed = _routed(gguf, layers, experts)
        digest = _digest(extent, steps, "hash")
        manifest = plan_manifest(
            family.id,
            Storage.GGML,
            experts=experts,
            used=used,
            layers=[_shape(layer, routed, family) for layer in layers],
            source=Source(len(gguf.tensors), extent.size, digest),
        )
        check_plan(manifest, family)
        kept = [tensor for tensor in gguf.tensors if not _ROUTED.fullmatch(tensor.name)]
        planned = [Planned(one.name, one.dimensions, one.type_id) for one in kept]
        planned.append(Planned(STORE_NAME, (manifest.header.store_bytes,), GGML_I8))
        metadata = extent.read(gguf.metadata_start, gguf.directory_start - gguf.metadata_start)
        plan = plan_gguf(gguf.entries, planned, blocks=CONVERTER, metadata=metadata)
        check_space(target, plan.file_bytes)
        given = _Input(extent, gguf, kept, routed)
        return _write(target, plan, (manifest, family), given, steps, system, replace=replace)


def _read(source: Path, extent: Extent) -> Gguf:
    """Returns the directory of the source; what is wrong with it names the file."""
    try:
        gguf = read_gguf(extent, blocks=CONVERTER)
        findings = judge_gguf(gguf, extent)
    except AdmissionError as error:
        findings = [error.finding]
    if findings:
        first = findings[0]
        raise AdmissionError(
            Finding.of(
                first.code, first.stage, f"{source}: {first.where}", expected=first.expected, got=first.got,
                hint=first.hint,
            )
        )  # fmt: skip
    return gguf


@dataclass(frozen=True, slots=True)
class _Input:
    extent: Extent
    gguf: Gguf
    kept: list[Tensor]
    routed: dict[tuple[int, int], Tensor]

    def component(self, layer: Layer, role: int, expert: int) -> bytes:
        size = layer.components[role].expert_bytes
        start = self.gguf.data_start + self.routed[layer.layer_id, role].offset
        return self.extent.read(start + expert * size, size)


def _write(
    target: Path,
    plan: Plan,
    planned: tuple[Manifest, ExpertFamily],
    given: _Input,
    steps: Steps,
    system: Filesystem,
    *,
    replace: bool,
) -> Repacked:
    manifest, family = planned
    written: list[Manifest] = []
    digests: list[RecordDigests] = []
    moved_bytes = sum(plan.sizes[:-1]) + manifest.record_bytes

    def component(layer: Layer, role: int, expert: int) -> bytes:
        data = given.component(layer, role, expert)
        steps.advance(len(data))
        return data

    def fill(draft: Draft, index: int, start: int) -> None:
        if index == 0:
            steps.begin("build", moved_bytes)
        if index == len(given.kept):
            written.append(fill_expert_store(draft, start, manifest, component))
            return
        offset = given.gguf.data_start + given.kept[index].offset
        for piece in given.extent.pieces(offset, plan.sizes[index]):
            draft.write(start, piece)
            start += len(piece)
            steps.advance(len(piece))

    def verify(extent: Extent) -> None:
        signed = written[0]
        store = extent.part(plan.starts[-1], plan.sizes[-1], STORE_NAME)
        steps.begin("verify", signed.data_bytes)
        derived = check_written_store(store, family, signed, progress=steps.part())
        if derived is not None:
            digests.append(derived)
        steps.begin("compare", moved_bytes)
        _compare(ExpertStore(store, signed), given, steps)
        for index, tensor in enumerate(given.kept):
            start, size = given.gguf.data_start + tensor.offset, plan.sizes[index]
            wanted = given.extent.pieces(start, size)
            found = extent.pieces(plan.starts[index], size)
            for one, other in zip(wanted, found, strict=True):
                if one != other:
                    _fail("publish.verify", tensor.name, "the source's bytes", "other bytes")
                steps.advance(len(one))
        # The source is read a second time: a read that lied the first time is in the store or in its digest.
        if _digest(given.extent, steps, "hash again") != signed.header.source_sha256:
            _fail("publish.verify", given.extent.name, "the source's digest in the header", "another")
        given.extent.file.check_unchanged()

    write_gguf(target, plan, fill, verify=verify, blocks=CONVERTER, system=system, replace=replace)
    return Repacked(written[0], digests[0], plan)


def _compare(store: ExpertStore, given: _Input, steps: Steps) -> None:
    """Raises unless each component has the bytes of its slice of the source."""
    for layer in store.manifest.layers:
        for expert in range(layer.expert_count):
            record = store.read_record(layer.layer_id, expert)
            for role, name in enumerate(ROLES):
                if record.component(role) != given.component(layer, role, expert):
                    where = f"layer {layer.layer_id} {name} expert {expert}"
                    _fail("publish.verify", where, "the source's bytes", "other bytes")
            steps.advance(layer.record_bytes)


def _digest(extent: Extent, steps: Steps, name: str) -> bytes:
    digest = hashlib.sha256()
    steps.begin(name, extent.size)
    for piece in extent.pieces(0, extent.size):
        digest.update(piece)
        steps.advance(len(piece))
    return digest.digest()


def _arrangement(gguf: Gguf) -> tuple[ExpertFamily, int, int, range]:
    """Returns family, experts, experts used and the layers that have experts."""
    value = gguf.value("general.architecture")
    name = value.python() if value is not None and value.type.name == "STRING" else None
    family = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if family is None:
        _fail(ARCHITECTURE, "general.architecture", f"one of {', '.join(ARCHITECTURES)}", name)
    first, extra = 0, 0
    if family is GLM_DSA:
        first = _number(gguf, f"{name}.leading_dense_block_count", least=0)
        extra = _number(gguf, f"{name}.nextn_predict_layers", least=0)
    blocks = _number(gguf, f"{name}.block_count")
    if not first < blocks or extra >= blocks:
        _fail(METADATA, f"{name}.block_count", f"more than {max(first, extra)}", blocks)
    # Bounded before they size anything: a header may state four billion layers.
    if blocks > MAX_LAYER_ID + 1 or blocks - first > MAX_LAYERS:
        most = min(MAX_LAYER_ID + 1, first + MAX_LAYERS)
        _fail(METADATA, f"{name}.block_count", f"at most {most}, the layers of a store", blocks)
    experts, used = _number(gguf, f"{name}.expert_count"), _number(gguf, f"{name}.expert_used_count")
    if experts > MAX_EXPERTS:
        _fail(METADATA, f"{name}.expert_count", f"at most {MAX_EXPERTS}, the experts of a layer", experts)
    return family, experts, used, range(first, blocks)


def _number(gguf: Gguf, key: str, least: int = 1) -> int:
    value = gguf.value(key)
    number = value.python() if value is not None and value.type.name == "UINT32" else None
    if not isinstance(number, int) or number < least:
        _fail(METADATA, key, f"a UINT32, at least {least}", value.shown() if value else "nothing")
    return number


def _routed(gguf: Gguf, layers: range, experts: int) -> dict[tuple[int, int], Tensor]:
    found: dict[tuple[int, int], Tensor] = {}
    for tensor in gguf.tensors:
        match = _ROUTED.fullmatch(tensor.name)
        if match is not None:
            found[int(match[1]), ROLES.index(match[2])] = tensor
    wanted = {(layer, role) for layer in layers for role in range(len(ROLES))}
    for layer, role in sorted(wanted ^ found.keys()):
        where = f"blk.{layer}.ffn_{ROLES[role]}_exps.weight"
        have, need = ("nothing", "a tensor") if (layer, role) in wanted else ("a tensor", "nothing")
        _fail(ROUTED, where, need, have)
    for tensor in found.values():
        if len(tensor.dimensions) != 3:
            _fail(ROUTED, f"{tensor.name}.rank", 3, len(tensor.dimensions))
        if tensor.dimensions[2] != experts:
            _fail(ROUTED, f"{tensor.name}.dim[2]", experts, tensor.dimensions[2])
    return found


def _shape(layer: int, routed: dict[tuple[int, int], Tensor], family: ExpertFamily) -> LayerShape:
    roles = []
    for role in range(len(ROLES)):
        tensor = routed[layer, role]
        block = family.block(tensor.type_id, Storage.GGML)
        if block is None:
            _fail("codec.type.known", tensor.name, f"a type of family {family.id}", tensor.type_id)
        roles.append((block, tensor.dimensions[0], tensor.dimensions[1]))
    gate, up, down = roles
    return LayerShape(layer, (gate, up, down))


def _fail(code: str, where: str, expected: object, got: object) -> NoReturn:
    raise AdmissionError(Finding.of(code, STAGE, where, expected=expected, got=got))
