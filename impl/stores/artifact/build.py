"""Builds an artifact from a checkpoint: streamed, hashed on the way, verified against its source, then published.

Without a codec every tensor keeps its type and its bits; quantising is always asked for. Memory holds one expert
component, one run of pages and the directory. The file appears whole or not at all: a killed build leaves a temporary
file that nobody opens and that the next build of the same target removes.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
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
from assay.impl.stores.expert_layout import ROLES, Layer, Manifest, Source, plan_manifest
from assay.impl.stores.expert_store import ExpertStore, RecordDigests
from assay.impl.stores.expert_writer import check_written_store, fill_expert_store
from assay.impl.stores.extents import SYSTEM, Extent, Filesystem, StoreFile
from assay.impl.stores.files import file_digest
from assay.impl.stores.gguf import Entry, read_gguf
from assay.impl.stores.gguf_writer import Plan, Planned, plan_gguf, write_gguf
from assay.impl.stores.ple_layout import PAGE_HEADER_BYTES, PleHeader
from assay.impl.stores.ple_store import PleStore
from assay.impl.stores.ple_writer import check_written_ple, fill_ple_store
from assay.impl.stores.publication import Draft
from assay.impl.stores.row_shards import RowShards
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

STAGE: Final = "build"
PAGE_BYTES: Final = 16384
_PAGE: Final = 4096
_SOURCE = "assay: building artifacts; field note AFN-003 for publication"
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
TARGET: Final = declare(
    "build.target",
    Authority.PROCESS,
    "The target doesn't exist, or its replacement was asked for, and it is no file of the source.",
    source=_SOURCE,
    cause="a second run",
    fix="name another file, or say --force",
)
SPACE: Final = declare(
    "build.space",
    Authority.PROCESS,
    "The disk of the target has room for the artifact.",
    source=_SOURCE,
    cause="a full disk",
)
SAME: Final = declare(
    "build.same",
    Authority.RULE,
    "Reopened, the artifact holds the source's bytes, read once more, tensor by tensor.",
    source=_SOURCE,
    cause="a read or a write that lied, or a source that changed while it was read",
)

Report = Callable[[str, int, int], None]
"""Told what is being done, how many bytes are done and how many there are."""


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
    progress: Report | None = None,
    system: Filesystem = SYSTEM,
) -> Built:
    """Builds the private artifact of a checkpoint directory.

    Args:
        folder: the checkpoint.
        target: where the file shall be.
        codec: how experts are encoded; None keeps their type and bits.
        page_bytes: size of a page of rows, a power of two from 4096.
        replace: whether an existing target may be replaced.
        progress: told how many bytes are written, then how many are verified.
        system: the seam for injected faults.

    Raises:
        BuildRefusedError: with every finding of the source, when it can't be built from.
        AssayError: build.*, codec.*, ple-store.*, or what verification finds in the reopened file.
        PublicationError: publish.<step>.
    """
    origin = read_origin(folder)
    check_target(target, (folder / name for name in origin.layout.names), replace=replace)
    work = _Work(origin, target, codec, page_bytes, progress or _silent, system)
    with ExitStack() as stack:
        work.open(stack)
        work.check_buffers()
        write_gguf(target, work.plan, work.fill, verify=work.verify, system=system)
    return Built(work.plan, work.descriptor, work.report(), work.digests[0])


@dataclass(slots=True)
class _Work:
    """One build, from plan to verified file."""

    origin: Origin
    target: Path
    codec: str | None
    page_bytes: int
    progress: Report
    system: Filesystem
    extents: dict[str, Extent] = field(default_factory=dict)
    files: list[StoreFile] = field(default_factory=list)
    written: list[Manifest] = field(default_factory=list)
    digests: list[RecordDigests] = field(default_factory=list)
    header: list[PleHeader] = field(default_factory=list)
    done: int = 0
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
        _check_space(self.target, self.plan.file_bytes)

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
        """Writes one tensor."""
        if index == len(self.descriptor.dense):
            self.written.append(fill_expert_store(draft, start, self.manifest, self._component))
        elif index == len(self.descriptor.dense) + 1:
            self.header.append(fill_ple_store(draft, start, self.descriptor.rows, self._rows()))
        else:
            for piece in self._dense(index):
                draft.write(start, piece)
                start += len(piece)
                self._advance("build", len(piece))

    def verify(self, extent: Extent) -> None:
        """Judges the reopened file: admission, both stores whole, and every byte against the source read anew.

        Raises:
            AdmissionError: the first disagreement.
        """
        self.done = 0
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
        derived = check_written_store(experts, descriptor.family, signed)
        if derived is not None:
            self.digests.append(derived)
        check_written_ple(rows, descriptor.rows, self.header[0])
        for index, one in enumerate(self.descriptor.dense):
            start = self.plan.starts[index]
            for piece in self._dense(index):
                if extent.read(start, len(piece)) != piece:
                    raise _same(one.name)
                start += len(piece)
                self._advance("verify", len(piece))
        self._compare_experts(ExpertStore(experts, signed))
        self._compare_rows(PleStore.open(rows, descriptor.rows, table_budget=0))
        for file in self.files:
            file.check_unchanged()

    def _compare_experts(self, store: ExpertStore) -> None:
        for layer in store.manifest.layers:
            for expert in range(layer.expert_count):
                record = store.read_record(layer.layer_id, expert)
                for role, name in enumerate(ROLES):
                    if record.component(role) != self._component(layer, role, expert, "verify"):
                        raise _same(f"layer {layer.layer_id} {name} expert {expert}")

    def _compare_rows(self, store: PleStore) -> None:
        encode, geometry = self._rows("verify"), self.descriptor.rows
        size = geometry.codec.row_bytes
        for page in range(geometry.page_count):
            first, count = page * geometry.rows_per_page, geometry.valid_rows(page)
            start = geometry.payload_offset + page * geometry.page_stride + PAGE_HEADER_BYTES
            if store.extent.read(start, count * size) != encode(first, count):
                raise _same(f"rows {first}..{first + count - 1}")

    def _dense(self, index: int) -> Iterator[bytes]:
        row = self.origin.mapping.dense[self.descriptor.dense[index].name]
        yield from self.extents[row.name].pieces(0, row.end - row.begin)

    def _component(self, layer: Layer, role: int, expert: int, what: str = "build") -> bytes:
        place: Slice = self.origin.mapping.components[layer.layer_id, role, expert]
        data = self.extents[place.tensor].read(place.begin, place.end - place.begin)
        if self.codec == "mlx-affine4":
            data = _affine4(data, layer.components[role].dimensions)
        self._advance(what, len(data))
        return data

    def _rows(self, what: str = "build") -> Callable[[int, int], bytes]:
        mapping, geometry = self.origin.mapping, self.descriptor.rows
        table = RowShards([self.extents[row.name] for row in mapping.parts], geometry.codec.row_bytes)

        def encode(first: int, count: int) -> bytes:
            data = table.read(first, count)
            self._advance(what, len(data))
            return data

        return encode

    def _advance(self, what: str, more: int) -> None:
        self.done += more
        self.progress(what, self.done, self.plan.file_bytes)

    def _physical(self) -> Physical:
        mapping = self.origin.mapping
        experts = self.codec or EXPERT_DTYPES[mapping.expert_dtype]
        if experts not in EXPERT_CODECS:
            raise _codec(f"one of {', '.join(EXPERT_CODECS)}", experts)
        if self.codec not in {None, "mlx-affine4", EXPERT_DTYPES[mapping.expert_dtype]}:
            raise _codec(
                f"{EXPERT_DTYPES[mapping.expert_dtype]}, which the source has, or mlx-affine4", experts
            )
        if experts == "mlx-affine4" and mapping.expert_dtype != "BF16":
            raise _codec("BF16 experts for mlx-affine4", mapping.expert_dtype)
        rows = ROW_DTYPES[mapping.row_dtype]
        if self.page_bytes < _PAGE or self.page_bytes & (self.page_bytes - 1):
            finding = Finding.of(
                CODEC, STAGE, "page bytes", expected="a power of two from 4096", got=self.page_bytes
            )
            raise AdmissionError(finding)
        # Pages align to 4096 whatever their size: the layout puts the store on the next such boundary, no further.
        row_bytes = self.artifact.rows(Physical(experts, rows, 1, _PAGE)).codec.row_bytes
        fit = (self.page_bytes - PAGE_HEADER_BYTES) // row_bytes
        if fit < 1:
            finding = Finding.of(
                CODEC,
                STAGE,
                "page bytes",
                expected=f"a row of {row_bytes} bytes or more",
                got=self.page_bytes,
            )
            raise AdmissionError(finding)
        return Physical(experts, rows, min(fit, self.artifact.stores.rows.rows), _PAGE)

    def _stated(self) -> Stated:
        digests = []
        for name in TOKENIZER_FILES:
            path = self.origin.folder / name
            digests.append(file_digest(path, where=name)[0] if path.is_file() else NONE)
        first, second, third = digests
        inventory = self.origin.inventory
        return Stated(inventory.digest, len(inventory.rows), inventory.total_bytes, (first, second, third))


def _affine4(data: bytes, dimensions: tuple[int, int, int]) -> bytes:
    """Returns BF16 values as MLX affine 4-bit blocks."""
    import numpy as np

    from assay.impl.stores.affine4 import encode, from_bf16

    width, rows, _ = dimensions
    values = from_bf16(np.frombuffer(data, dtype="<u2")).reshape(rows, width)
    try:
        return encode(values).tobytes()
    except ValueError as error:
        raise _codec("finite values", error) from None


def check_target(target: Path, sources: Iterable[Path], *, replace: bool) -> None:
    """Refuses a target that exists, unless it may be replaced and is none of the sources.

    Raises:
        AdmissionError: build.target.
    """
    if not target.exists():
        return
    expected = "a path that isn't there yet"
    if not replace:
        raise AdmissionError(
            Finding.of(
                TARGET,
                STAGE,
                str(target),
                expected=expected,
                got="an existing file",
                hint="--force replaces it",
            )
        )
    if any(path.exists() and path.samefile(target) for path in sources):
        raise AdmissionError(
            Finding.of(TARGET, STAGE, str(target), expected=expected, got="a file of the source")
        )


def _check_space(target: Path, size: int) -> None:
    folder = target.parent
    if not folder.is_dir():
        return  # publication says so
    free = shutil.disk_usage(folder).free
    if free < size:
        raise AdmissionError(
            Finding.of(
                SPACE, STAGE, os.fspath(folder), expected=f"{size} bytes free", got=f"{free} bytes free"
            )
        )


def _codec(expected: object, got: object) -> AdmissionError:
    return AdmissionError(Finding.of(CODEC, STAGE, "codec", expected=expected, got=got))


def _same(where: str) -> AdmissionError:
    return AdmissionError(Finding.of(SAME, STAGE, where, expected="the source's bytes", got="other bytes"))


def _silent(_what: str, _done: int, _total: int) -> None:
    """Shows nothing."""
