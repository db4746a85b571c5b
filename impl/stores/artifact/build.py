"""Builds an artifact from a checkpoint: streamed, hashed on the way, verified against its source, then published.

Without a codec every tensor keeps its type and its bits; quantising is always asked for. Memory holds one expert
component, one run of pages and the directory. The file appears whole or not at all: a killed build leaves a temporary
file that nobody opens and that the next build of the same target removes.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.artifact.admission import admit
from assay.impl.stores.artifact.conversion import conversion_report
from assay.impl.stores.artifact.descriptor import EXPERT_TENSOR, I8, PLE_TENSOR, ArtifactDescriptor
from assay.impl.stores.artifact.geometry import hash_values
from assay.impl.stores.artifact.origin import Origin, read_origin
from assay.impl.stores.artifact.private import (
    EXPERT_CODECS,
    NONE,
    Physical,
    PrivateArtifact,
    Stated,
    read_private,
)
from assay.impl.stores.artifact.source import EXPERT_DTYPES, GGML_TYPES, ROW_DTYPES, Slice
from assay.impl.stores.checkpoint.row_shards import RowShards
from assay.impl.stores.expert_major.layout import ROLES, Layer, Manifest, Source, plan_manifest
from assay.impl.stores.expert_major.store import ExpertStore, RecordDigests
from assay.impl.stores.expert_major.writer import check_written_store, fill_expert_store
from assay.impl.stores.extents import PIECE_BYTES, SYSTEM, Extent, Filesystem, StoreFile
from assay.impl.stores.files import file_digest
from assay.impl.stores.gguf.reader import Entry, read_gguf
from assay.impl.stores.gguf.writer import Plan, Planned, plan_gguf, write_gguf
from assay.impl.stores.overlap import in_order
from assay.impl.stores.ple_rows.layout import PAGE_HEADER_BYTES, PleHeader
from assay.impl.stores.ple_rows.store import PleStore
from assay.impl.stores.ple_rows.writer import check_written_ple, fill_ple_store
from assay.impl.stores.publication import Draft, sweep
from assay.impl.stores.steps import Progress, Steps
from assay.impl.stores.target import STAGE, check_space, check_target
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, ContractError, Finding

PAGE_BYTES: Final = 16384
MOST_PAGE_BYTES: Final = 1 << 24
"""A page is held whole while it is written."""
_PAGE: Final = 4096
_RUN_BYTES: Final = 1 << 20
_OVERLAPPED_BYTES: Final = 8 << 20
"""Below it, starting threads costs more than they save."""
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

BUFFERS: Final = declare(
    "build.hash-buffers",
    Authority.RULE,
    "The checkpoint's hash buffers are those that its configuration derives: only these become metadata.",
    source="the derivation of the hash; bug report A6",
    cause="buffers of another vocabulary size or seed; every row would be another one",
)
CODEC: Final = declare(
    "build.codec",
    Authority.PROCESS,
    "A codec is one of the closed list, and takes values that it can represent as they are given.",
    source="ExpertMajor v2, storage formats",
    cause="a codec name of another tool, or float32 experts for a BF16 codec",
)
SAME: Final = declare(
    "build.same",
    Authority.RULE,
    "Reopened, the artifact holds the source's bytes, read once more, tensor by tensor.",
    source="assay: building artifacts; field note AFN-003 for publication",
    cause="a read or a write that lied, or a source that changed while it was read",
)


@dataclass(frozen=True, slots=True)
class Built:
    """What a build wrote.

    Attributes:
        plan: the layout of the file.
        descriptor: what it was admitted as.
        report: the conversion report.
        digests: digest of every expert record, for verified reads on this machine.
    """

    plan: Plan
    descriptor: ArtifactDescriptor
    report: dict[str, Any]
    digests: RecordDigests


def build_artifact(
    folder: Path,
    target: Path,
    *,
    codec: str | None = None,
    page_bytes: int = PAGE_BYTES,
    replace: bool = False,
    progress: Progress | None = None,
    system: Filesystem = SYSTEM,
) -> Built:
    """Builds the private artifact of a checkpoint directory.

    Args:
        folder: the checkpoint.
        target: where the file shall be.
        codec: how experts are encoded; None keeps their type and bits.
        page_bytes: size of a page of rows, a power of two from 4096.
        replace: whether an existing target may be replaced, also one that appears while the build runs.
        progress: told the steps `build`, `verify` and `compare` with their bytes.
        system: the seam for injected faults.

    Raises:
        BuildRefusedError: with every finding of the source, when it can't be built from.
        AssayError: build.*, codec.*, ple-store.*, or what verification finds in the reopened file.
        PublicationError: publish.<step>.
    """
    sweep(target, system)
    origin = read_origin(folder)
    check_target(target, (folder / name for name in origin.layout.names), replace=replace)
    work = _Work(origin, codec, page_bytes, Steps(progress), system)
    check_space(target, work.plan.file_bytes)
    with ExitStack() as stack:
        work.open(stack)
        work.check_buffers()
        write_gguf(target, work.plan, work.fill, verify=work.verify, system=system, replace=replace)
    return Built(work.plan, work.descriptor, work.report(), work.digests[0])


@dataclass(slots=True)
class _Work:
    """One build, from plan to verified file."""

    origin: Origin
    codec: str | None
    page_bytes: int
    steps: Steps
    system: Filesystem
    extents: dict[str, Extent] = field(default_factory=dict)
    files: list[StoreFile] = field(default_factory=list)
    written: list[Manifest] = field(default_factory=list)
    digests: list[RecordDigests] = field(default_factory=list)
    header: list[PleHeader] = field(default_factory=list)
    pieces: Iterator[bytes] = field(default_factory=lambda: iter(()))
    artifact: PrivateArtifact = field(init=False)
    descriptor: ArtifactDescriptor = field(init=False)
    manifest: Manifest = field(init=False)
    plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        self.artifact = PrivateArtifact.of(self.origin.config)
        physical = self._physical()
        self.descriptor = self.artifact.descriptor(physical, self._stated())
        block, storage = EXPERT_CODECS[physical.expert_codec]
        geometry = self.descriptor.family.geometry
        if geometry is None:
            raise ValueError("a private family has an exact geometry")
        source = self.descriptor.source
        self.manifest = plan_manifest(
            self.descriptor.family.id,
            storage,
            experts=geometry.experts,
            used=geometry.used,
            layers=geometry.shapes(block),
            source=Source(source.tensor_count or 0, source.size_bytes or 0, source.sha256 or b""),
        )
        types = self.origin.mapping.dense
        planned = [
            Planned(one.name, one.dimensions, GGML_TYPES[types[one.name].dtype])
            for one in self.descriptor.dense
        ]
        planned += [
            Planned(EXPERT_TENSOR, (self.manifest.header.store_bytes,), I8, _PAGE),
            Planned(PLE_TENSOR, (self.descriptor.rows.store_bytes,), I8, _PAGE),
        ]
        entries = [Entry(key, value) for key, value in self.descriptor.entries.items()]
        self.plan = plan_gguf(entries, planned)

    def report(self) -> dict[str, Any]:
        """Returns the conversion report."""
        return conversion_report(
            self.origin.mapping.destinations,
            kind="qwen4exp-conversion",
            profile_id=self.descriptor.profile_id,
            inventory_sha256=self.origin.inventory.digest,
            contract_sha256=None,
            components=len(self.manifest.layers) * len(ROLES),
            is_private=True,
        )

    def open(self, stack: ExitStack) -> None:
        """Opens every shard once; a shard that isn't there ends the build."""
        starts = {header.file: header.data_start for header in self.origin.layout.headers.values()}
        opened: dict[str, StoreFile] = {}
        for row in self.origin.inventory.rows:
            if row.shard not in opened:
                opened[row.shard] = stack.enter_context(
                    StoreFile.open(self.origin.folder / row.shard, self.system)
                )
            begin = starts[row.shard] + row.begin
            self.extents[row.name] = opened[row.shard].extent(begin, row.end - row.begin, row.name)
        self.files = list(opened.values())
        places = list(self._dense_places())
        self.pieces = stack.enter_context(
            closing(in_order(self._read_dense, places, _threads(sum(place[2] for place in places))))
        )

    def check_buffers(self) -> None:
        """Compares the hash buffers with what the configuration derives.

        Raises:
            AdmissionError: build.hash-buffers.
        """
        for name, values in hash_values(self.artifact.geometry).items():
            row = self.origin.mapping.buffers[name]
            wanted = b"".join(value.to_bytes(8, "little", signed=True) for value in values)
            got = self.extents[row.name].read(0, row.end - row.begin)
            if got != wanted:
                numbers = [
                    int.from_bytes(got[place : place + 8], "little", signed=True)
                    for place in range(0, len(got), 8)
                ]
                raise AdmissionError(Finding.of(BUFFERS, STAGE, row.name, expected=list(values), got=numbers))

    def fill(self, draft: Draft, index: int, start: int) -> None:
        """Writes one tensor; tensors are asked for in their order."""
        if index == 0:
            self.steps.begin("build", self._moved_bytes())
        if index == len(self.descriptor.dense):
            self.written.append(self._fill_experts(draft, start))
        elif index == len(self.descriptor.dense) + 1:
            self.header.append(fill_ple_store(draft, start, self.descriptor.rows, self._rows()))
        else:
            end = start + self.plan.sizes[index]
            while start < end:
                piece = next(self.pieces)
                draft.write(start, piece)
                start += len(piece)
                self.steps.advance(len(piece))

    def verify(self, extent: Extent) -> None:
        """Judges the reopened file: admission, both stores whole, and every byte against the source read anew.

        Raises:
            AdmissionError: the first disagreement.
        """
        gguf = read_gguf(extent)
        descriptor, findings = read_private(gguf)
        if descriptor is None:
            raise AdmissionError(findings[0])
        found = admit(gguf, extent, descriptor, (self.descriptor.physical_profile_id,))
        if found.first is not None:
            raise AdmissionError(found.first)
        experts, rows = (extent.part(self.plan.starts[at], self.plan.sizes[at], self.plan.tensors[at].name)
                         for at in (-2, -1))  # fmt: skip
        signed = self.written[0]
        self.steps.begin("verify", signed.data_bytes + descriptor.rows.payload_bytes)
        derived = check_written_store(experts, descriptor.family, signed, progress=self.steps.part())
        if derived is not None:
            self.digests.append(derived)
        check_written_ple(rows, descriptor.rows, self.header[0], progress=self.steps.part())
        self.steps.begin("compare", self._moved_bytes())
        self._compare_dense(extent)
        self._compare_experts(ExpertStore(experts, signed))
        self._compare_rows(PleStore.open(rows, descriptor.rows, table_budget=0))
        for file in self.files:
            file.check_unchanged()

    def _fill_experts(self, draft: Draft, start: int) -> Manifest:
        """Writes the expert store; quantising overlaps with it, while plain reading would only add threads."""
        asked = (
            (layer, role, expert)
            for layer in self.manifest.layers
            for expert in range(layer.expert_count)
            for role in range(len(ROLES))
        )
        threads = 1 if self.codec != "mlx-affine4" else _threads(self.manifest.data_bytes)
        with closing(in_order(lambda one: self._component(*one), asked, threads)) as components:

            def supply(_layer: Layer, _role: int, _expert: int) -> bytes:
                data = next(components)
                self.steps.advance(len(data))
                return data

            return fill_expert_store(draft, start, self.manifest, supply)

    def _compare_dense(self, extent: Extent) -> None:
        def compare(place: tuple[int, int, int]) -> tuple[int, int, bool]:
            index, offset, size = place
            return index, size, extent.read(self.plan.starts[index] + offset, size) == self._read_dense(place)

        places = list(self._dense_places())
        for index, size, is_same in in_order(compare, places, _threads(sum(place[2] for place in places))):
            if not is_same:
                raise _same(self.descriptor.dense[index].name)
            self.steps.advance(size)

    def _compare_experts(self, store: ExpertStore) -> None:
        def compare(place: tuple[Layer, int]) -> tuple[Layer, int, str]:
            layer, expert = place
            record = store.read_record(layer.layer_id, expert)
            for role, name in enumerate(ROLES):
                if record.component(role) != self._component(layer, role, expert):
                    return layer, expert, name
            return layer, expert, ""

        places = ((layer, expert) for layer in self.manifest.layers for expert in range(layer.expert_count))
        for layer, expert, wrong in in_order(compare, places, _threads(self.manifest.data_bytes)):
            if wrong:
                raise _same(_component_words(layer, wrong, expert))
            self.steps.advance(layer.record_bytes)

    def _compare_rows(self, store: PleStore) -> None:
        encode, geometry = self._rows(is_told=False), self.descriptor.rows
        size = geometry.codec.row_bytes
        for page in range(geometry.page_count):
            first, count = page * geometry.rows_per_page, geometry.valid_rows(page)
            start = geometry.payload_offset + page * geometry.page_stride + PAGE_HEADER_BYTES
            if store.extent.read(start, count * size) != encode(first, count):
                raise _same(f"rows {first}..{first + count - 1}")
            self.steps.advance(count * size)

    def _moved_bytes(self) -> int:
        """Returns the bytes that come from the source."""
        rows = self.descriptor.rows
        dense = sum(self.plan.sizes[: len(self.descriptor.dense)])
        return dense + self.manifest.record_bytes + rows.table.rows * rows.codec.row_bytes

    def _dense_places(self) -> Iterator[tuple[int, int, int]]:
        """Yields (index, offset, size) of each piece of the dense tensors, in their order."""
        for index, size in enumerate(self.plan.sizes[: len(self.descriptor.dense)]):
            for offset in range(0, size, PIECE_BYTES):
                yield index, offset, min(PIECE_BYTES, size - offset)

    def _read_dense(self, place: tuple[int, int, int]) -> bytes:
        index, offset, size = place
        row = self.origin.mapping.dense[self.descriptor.dense[index].name]
        return self.extents[row.name].read(offset, size)

    def _component(self, layer: Layer, role: int, expert: int) -> bytes:
        place: Slice = self.origin.mapping.components[layer.layer_id, role, expert]
        data = self.extents[place.tensor].read(place.begin, place.end - place.begin)
        if self.codec != "mlx-affine4":
            return data
        try:
            return _affine4(data, layer.components[role].dimensions)
        except ContractError as error:
            found = error.finding
            where = _component_words(layer, ROLES[role], expert)
            raise _codec(found.expected, f"{found.got} in {found.where}", where) from None

    def _rows(self, *, is_told: bool = True) -> Callable[[int, int], bytes | memoryview]:
        """Returns what hands over rows: asked for a page at a time, it reads a run of them at once."""
        mapping, geometry = self.origin.mapping, self.descriptor.rows
        size = geometry.codec.row_bytes
        table = RowShards([self.extents[row.name] for row in mapping.parts], size)
        run, run_first = memoryview(b""), 0

        def encode(first: int, count: int) -> memoryview:
            nonlocal run, run_first
            if not run_first <= first <= first + count <= run_first + len(run) // size:
                rows = min(max(count, _RUN_BYTES // (count * size) * count), table.rows - first)
                run, run_first = memoryview(table.read(first, rows)), first
            if is_told:
                self.steps.advance(count * size)
            return run[(first - run_first) * size : (first - run_first + count) * size]

        return encode

    def _physical(self) -> Physical:
        mapping = self.origin.mapping
        plain = EXPERT_DTYPES[mapping.expert_dtype]
        experts = plain if self.codec is None else self.codec
        if experts not in EXPERT_CODECS:
            raise _codec(f"one of {', '.join(EXPERT_CODECS)}", experts)
        if experts == "mlx-affine4" and mapping.expert_dtype != "BF16":
            raise _codec("BF16 experts for mlx-affine4", mapping.expert_dtype)
        if experts not in {plain, "mlx-affine4"}:
            also = " or mlx-affine4" if plain == "bf16" else ""
            raise _codec(f"{plain}, which the source has,{also}".rstrip(","), experts)
        rows = ROW_DTYPES[mapping.row_dtype]
        if not _PAGE <= self.page_bytes <= MOST_PAGE_BYTES or self.page_bytes & (self.page_bytes - 1):
            raise _codec(f"a power of two in {_PAGE}..{MOST_PAGE_BYTES}", self.page_bytes, "page bytes")
        # Pages align to 4096 whatever their size: the layout puts the store on the next such boundary, no further.
        row_bytes = self.artifact.rows(Physical(experts, rows, 1, _PAGE)).codec.row_bytes
        fit = (self.page_bytes - PAGE_HEADER_BYTES) // row_bytes
        if fit < 1:
            raise _codec(f"a row of {row_bytes} bytes or more", self.page_bytes, "page bytes")
        return Physical(experts, rows, min(fit, self.artifact.stores.rows.rows), _PAGE)

    def _stated(self) -> Stated:
        digests = []
        for name in TOKENIZER_FILES:
            path = self.origin.folder / name
            # A link that leads nowhere, or a pipe, is not an absent file: reading it says what it is.
            digests.append(file_digest(path, where=name)[0] if os.path.lexists(path) else NONE)
        first, second, third = digests
        inventory = self.origin.inventory
        return Stated(inventory.digest, len(inventory.rows), inventory.total_bytes, (first, second, third))


def _affine4(data: bytes, dimensions: tuple[int, int, int]) -> bytes:
    """Returns BF16 values as MLX affine 4-bit blocks."""
    import numpy as np

    from assay.impl.stores.expert_major.affine4 import encode, from_bf16

    width, rows, _ = dimensions
    return encode(from_bf16(np.frombuffer(data, dtype="<u2")).reshape(rows, width)).tobytes()


def _threads(size: int) -> int:
    """Returns how many threads are worth their start for this many bytes."""
    return 2 if size > _OVERLAPPED_BYTES else 1


def _component_words(layer: Layer, role: str, expert: int) -> str:
    return f"layer {layer.layer_id} {role} expert {expert}"


def _codec(expected: object, got: object, where: str = "codec") -> AdmissionError:
    return AdmissionError(Finding.of(CODEC, STAGE, where, expected=expected, got=got))


def _same(where: str) -> AdmissionError:
    return AdmissionError(Finding.of(SAME, STAGE, where, expected="the source's bytes", got="other bytes"))
