"""Judges a single store file: an expert store or a row store, as `assay validate` asks for it.

A lone store names its own family. A public family has its closed descriptor; a private one is accepted only through
the private seam, and then only by relations, since nothing here says what its configuration was.
"""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.checkpoint.payload_state import UNSAVED
from assay.impl.stores.expert_major.families import PRIVATE_BASE, PUBLIC, ExpertFamily, private_expert_family
from assay.impl.stores.expert_major.layout import HEADER_BYTES as EXPERT_HEADER_BYTES
from assay.impl.stores.expert_major.layout import MAGIC as EXPERT_MAGIC
from assay.impl.stores.expert_major.layout import NO_DIGEST, Manifest, Storage, unpack_header
from assay.impl.stores.expert_major.record_digests import damaged_records
from assay.impl.stores.expert_major.rules import FAMILY as EXPERT_FAMILY
from assay.impl.stores.expert_major.rules import STAGE as EXPERT_STAGE
from assay.impl.stores.expert_major.store import PAYLOAD_DIGEST as EXPERT_PAYLOAD
from assay.impl.stores.expert_major.store import ExpertStore, judge_expert_store
from assay.impl.stores.extents import Extent, StoreFile
from assay.impl.stores.ple_rows.layout import HEADER_BYTES as PLE_HEADER_BYTES
from assay.impl.stores.ple_rows.layout import MAGIC as PLE_MAGIC
from assay.impl.stores.ple_rows.layout import (
    STAGE,
    PleGeometry,
    PleHeader,
    RowCodec,
    RowTable,
    judge_geometry,
    unpack_ple_header,
)
from assay.impl.stores.ple_rows.rules import FAMILY as PLE_FAMILY
from assay.impl.stores.ple_rows.rules import PAYLOAD_DIGEST as PLE_PAYLOAD
from assay.impl.stores.ple_rows.store import PleStore, judge_ple_store
from assay.impl.stores.ple_rows.tables import QWEN4EXP_ROWS
from assay.impl.stores.publication import publish
from assay.impl.stores.steps import increments
from assay.impl.stores.strict_json import read_json_object
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, AssayError, Finding
from assay.spec.judgement import Judgement, JudgeOptions

PRIVATE: Final = declare(
    "store.private",
    Authority.PIN,
    "A private family is accepted only through the private seam.",
    source="AFN-013; private families",
    cause="a miniature or another private store on the public route",
    fix="add --private; the result is stamped with it",
)

CONTRACT: Final = declare(
    "gguf.contract",
    Authority.PROCESS,
    "Metadata and tensors of an artifact are those of a profile.",
    source="GGUF artifact, admission",
    cause="only the structure of the file was judged",
)

_NO_PAYLOAD: Final = "payload: not asked for (--payload reads it)"


def judge_expert_file(path: Path, options: JudgeOptions) -> Judgement:
    """Judges a lone ExpertMajor v2 store; the payload as well when it was asked for."""
    judgement = Judgement("expert-store")
    with StoreFile.open(path) as file:
        judge_experts(file.extent(), judgement, options)
    return judgement


def judge_experts(extent: Extent, judgement: Judgement, options: JudgeOptions, prefix: str = "") -> None:
    """Judges an ExpertMajor v2 store in its extent; `prefix` stands before the names of its areas."""
    family = _expert_family(extent, judgement, options)
    if family is None:
        return
    manifest, findings = judge_expert_store(extent, family)
    judgement.judged(f"{prefix}manifest", findings)
    if manifest is not None:
        judgement.facts |= _expert_facts(manifest, family)
    judgement.not_checked.append("source: whether the store was made from a given file")
    if not options.with_payload:
        judgement.not_checked.append(_NO_PAYLOAD)
    elif manifest is not None and not findings:
        judge_expert_payload(extent, manifest, judgement, options, prefix)


def judge_expert_payload(
    extent: Extent, manifest: Manifest, judgement: Judgement, options: JudgeOptions, prefix: str = ""
) -> None:
    """Reads the whole payload of an expert store whose manifest was accepted, unless it says itself that it has none."""
    if manifest.header.payload_sha256 == NO_DIGEST:
        judgement.judged(f"{prefix}payload", [_structural(EXPERT_PAYLOAD, EXPERT_STAGE)])
        return
    with _display(options, "payload", manifest.data_bytes) as advance:
        store = ExpertStore(extent, manifest)
        found = store.verify_all(max(2, options.jobs), increments(advance), derive=False)
    records = damaged_records(store, options.evidence) if found.findings else []
    judgement.judged(f"{prefix}payload", [*found.findings, *records])
    judgement.facts["payloadSha256"] = found.payload_sha256.hex()


def judge_ple_file(path: Path, options: JudgeOptions) -> Judgement:
    """Judges a lone PLE row store; every page as well when the payload was asked for."""
    judgement = Judgement("ple-store")
    with StoreFile.open(path) as file:
        judge_rows(file.extent(), judgement, options)
    return judgement


def judge_rows(extent: Extent, judgement: Judgement, options: JudgeOptions, prefix: str = "") -> None:
    """Judges a PLE row store in its extent; `prefix` stands before the names of its areas."""
    header = unpack_ple_header(extent.read(0, PLE_HEADER_BYTES)) if extent.size >= PLE_HEADER_BYTES else None
    geometry = None if header is None else _geometry(header, judgement, options)
    if header is not None and geometry is None:
        return
    shape = geometry or PleGeometry(QWEN4EXP_ROWS, RowCodec("none", 1, 1, 320), 12, 4096)
    unusable = judge_geometry(shape)
    if unusable:
        judgement.judged(f"{prefix}manifest", unusable)
        return
    _, findings = judge_ple_store(extent, shape)
    judgement.judged(f"{prefix}manifest", findings)
    judgement.facts |= _ple_facts(shape)
    judgement.not_checked.append("codec: taken from the store; no production codec is qualified")
    if not options.with_payload:
        judgement.not_checked.append(_NO_PAYLOAD)
    elif not findings:
        _judge_pages(PleStore.open(extent, shape, table_budget=0), judgement, options, prefix)


def _judge_pages(store: PleStore, judgement: Judgement, options: JudgeOptions, prefix: str) -> None:
    if store.header.payload_sha256 == NO_DIGEST:
        judgement.judged(f"{prefix}payload", [_structural(PLE_PAYLOAD, STAGE)])
        return
    state = _State(store, options.state)
    with _display(options, "pages", store.geometry.payload_bytes) as advance:
        # Starting processes costs more than a small store.
        jobs = options.jobs if store.geometry.payload_bytes > 1 << 28 else 1
        found = store.verify_all(
            2, increments(advance), jobs=jobs, judged_before=state.judged, checkpoint=state.save
        )
    state.clear()
    judgement.judged(f"{prefix}payload", found.findings)
    if state.is_unsaved:
        judgement.facts["resumption"] = UNSAVED
    judgement.facts |= {
        "payloadSha256": found.payload_sha256.hex(),
        "badPages": found.bad_pages,
        "pagesJudged": found.pages_judged,
    }


class _State:
    """How far an earlier run judged the pages of the same file; another file or manifest starts anew."""

    def __init__(self, store: PleStore, folder: Path | None) -> None:
        self._manifest = store.header.manifest_sha256.hex()
        self._identity = [str(one) for one in store.extent.file.identity]
        self._path = folder / f"pages-{self._manifest}.json" if folder is not None else None
        self.is_unsaved = False
        self._pages = store.geometry.page_count
        self.judged = self._load()

    def save(self, judged: int) -> None:
        if self._path is None:
            return
        data = json.dumps({"manifest": self._manifest, "file": self._identity, "pages": judged}).encode()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            publish(self._path, len(data), lambda draft: draft.write(0, data), lambda _: None)
        except (OSError, AssayError):  # costs the resumption and nothing else
            self._path, self.is_unsaved = None, True

    def clear(self) -> None:
        try:
            if self._path is not None:
                self._path.unlink(missing_ok=True)
        except OSError:
            self.is_unsaved = True

    def _load(self) -> int:
        try:
            found = read_json_object(self._path, stage="payload") if self._path is not None else {}
        except AdmissionError:
            return 0
        if found.get("manifest") != self._manifest or found.get("file") != self._identity:
            return 0
        pages = found.get("pages")
        return pages if type(pages) is int and 0 < pages <= self._pages else 0


def _expert_family(extent: Extent, judgement: Judgement, options: JudgeOptions) -> ExpertFamily | None:
    """Returns the family that a store names, or None after saying why it can't be judged as one."""
    if extent.size < EXPERT_HEADER_BYTES:
        return PUBLIC[4]  # the judgement says that the header is missing
    header = unpack_header(extent.read(0, EXPERT_HEADER_BYTES))
    number = header.family
    if header.magic != EXPERT_MAGIC:
        return PUBLIC[4]  # the judgement says that this is another kind of file
    if number in PUBLIC:
        return PUBLIC[number]
    if number < PRIVATE_BASE:
        judgement.judged(
            "manifest",
            [Finding.of(EXPERT_FAMILY, EXPERT_STAGE, "family", expected="1..4, or private", got=number)],
        )
        return None
    if not options.is_private:
        judgement.judged("manifest", [_private(EXPERT_STAGE, number)])
        return None
    judgement.is_private = True
    return private_expert_family(number, "", None)


def _geometry(header: PleHeader, judgement: Judgement, options: JudgeOptions) -> PleGeometry | None:
    """Returns the geometry to hold a store to: public rows, or its own ones behind the private seam."""
    try:
        codec_id = header.codec_id.rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError:
        codec_id = ""
    codec = RowCodec(codec_id, header.codec_version, header.group_size, header.row_bytes)
    table = QWEN4EXP_ROWS
    if header.magic != PLE_MAGIC:  # the judgement says that this is another kind of file
        return PleGeometry(table, RowCodec("none", 1, 1, 320), 12, 4096)
    if header.family >= PRIVATE_BASE:
        if not options.is_private:
            judgement.judged("manifest", [_private(STAGE, header.family)])
            return None
        judgement.is_private = True
        heads = min(header.head_count, 16)
        table = RowTable(
            header.family,
            _text(header.profile),
            _text(header.hash_id),
            header.rows,
            header.width,
            header.row_alignment,
            header.primes[:heads],
            header.offsets[:heads],
        )
    elif header.family != QWEN4EXP_ROWS.family:
        finding = Finding.of(PLE_FAMILY, STAGE, "family", expected="4, or private", got=header.family)
        judgement.judged("manifest", [finding])
        return None
    return PleGeometry(table, codec, header.rows_per_page, header.page_alignment)


def _structural(code: str, stage: str) -> Finding:
    """Returns the finding of a store that was written without payload, which need not be read to be told."""
    return Finding.of(
        code, stage, "payload_sha256", expected="the digest of the payload", got="32 zero bytes",
        hint="a structural store or a stand-in: its payload is a hole",
    )  # fmt: skip


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode("ascii", "replace")


def _private(stage: str, number: int) -> Finding:
    return Finding.of(
        PRIVATE,
        stage,
        "family",
        expected="a public family",
        got=f"{number:#x}",
        hint="private stores need --private",
    )


def _expert_facts(manifest: Manifest, family: ExpertFamily) -> dict[str, Any]:
    header = manifest.header
    storage = header.storage
    return {
        "family": family.name,
        "layers": header.layer_count,
        "experts": header.expert_count,
        "expertsUsed": header.experts_used,
        "storage": Storage(storage).name if storage in set(Storage) else storage,
        "storeBytes": str(header.store_bytes),
        "recordBytes": sorted({str(layer.record_bytes) for layer in manifest.layers}),
        "codecStatus": family.affine_block.status.value,
    }


def _ple_facts(geometry: PleGeometry) -> dict[str, Any]:
    return {
        "profile": geometry.table.profile,
        "rows": str(geometry.table.rows),
        "codec": geometry.codec.id,
        "rowBytes": geometry.codec.row_bytes,
        "rowsPerPage": geometry.rows_per_page,
        "pages": str(geometry.page_count),
        "pageStride": str(geometry.page_stride),
        "storeBytes": str(geometry.store_bytes),
    }


def _display(options: JudgeOptions, title: str, total: int) -> Any:
    return options.progress(title, total) if options.progress is not None else nullcontext(lambda _: None)
