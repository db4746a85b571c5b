"""Writer of ExpertMajor v2: streams components, hashes on the way, signs at the end."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from assay.impl.stores.arguments import readable
from assay.impl.stores.background_hash import BackgroundHash
from assay.impl.stores.expert_major.families import ExpertFamily
from assay.impl.stores.expert_major.layout import NO_DIGEST, ROLES, Layer, Manifest, pack_manifest, sign
from assay.impl.stores.expert_major.rules import STAGE, ExpectedSource, judge_header, judge_manifest
from assay.impl.stores.expert_major.store import ExpertStore, RecordDigests
from assay.impl.stores.extents import SYSTEM, Extent, Filesystem
from assay.impl.stores.publication import Draft, publish
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, ContractError, Finding

SUPPLY: Final = declare(
    "expert-store.supply",
    Authority.FORM,
    "The source of components hands over exactly the bytes that the plan says.",
    source="ExpertMajor v2, builder",
    cause="a source tensor of another shape or type than planned",
)

PLAN: Final = declare(
    "expert-store.plan",
    Authority.FORM,
    "Every number of a planned store fits its field.",
    source="ExpertMajor v2, header and descriptors",
    cause="counts or sizes that are negative, fractional or beyond the field",
)
_JOINED_BYTES: Final = 1 << 18
Components = Callable[[Layer, int, int], bytes | bytearray | memoryview]
"""(layer, role, expert) -> the bytes of that component; asked for in the order of the store."""


def fill_expert_store(draft: Draft, start: int, manifest: Manifest, components: Components) -> Manifest:
    """Writes a store into a file being published; a few records are in memory at a time.

    One thread reads and writes while another chains the payload digest. The digests of single records are derived
    when the reopened store is verified: the payload digest ties both together, and hashing twice would halve the speed.

    Args:
        draft: the file.
        start: absolute offset of the store in it.
        manifest: from `plan_manifest`.
        components: where the bytes come from.

    Returns:
        The signed manifest.

    Raises:
        ContractError: expert-store.supply.
        PublicationError: publish.write.
    """
    with BackgroundHash() as payload:
        _write_records(draft, start, manifest, components, payload)
        signed = sign(manifest, payload.digest())
    draft.write(start, pack_manifest(signed))
    return signed


def _write_records(
    draft: Draft, start: int, manifest: Manifest, components: Components, payload: BackgroundHash
) -> None:
    """Writes every record, small ones in one piece, and feeds the payload digest."""
    end = manifest.header.data_offset
    for layer in manifest.layers:
        payload.update(bytes(layer.data_offset - end))  # less than a page: the plan is canonical
        for expert in range(layer.expert_count):
            parts = []
            for role, one in enumerate(layer.components):
                data = components(layer, role, expert)
                where = f"layer {layer.layer_id} {ROLES[role]} expert {expert}"
                view = readable(data, one.expert_bytes, where, SUPPLY)
                parts.append(data if isinstance(data, bytes) else view)
            place = start + layer.data_offset + expert * layer.record_bytes
            # Joining costs a copy, and a system call costs more than copying a small record.
            for part in parts if layer.record_bytes > _JOINED_BYTES else [b"".join(parts)]:
                draft.write(place, part)
                payload.update(part)
                place += memoryview(part).nbytes
        end = layer.data_offset + layer.data_bytes


def fill_structural_store(draft: Draft, start: int, manifest: Manifest) -> Manifest:
    """Writes only the manifest; the payload is a hole and its digest 32 zero bytes, which no verifier accepts."""
    signed = sign(manifest, NO_DIGEST)
    draft.write(start, pack_manifest(signed))
    return signed


def check_plan(manifest: Manifest, family: ExpertFamily) -> None:
    """Raises unless a planned store would be opened as one of its family: no payload is written for nothing.

    Raises:
        ContractError: the first of `judge_expert_store`, or expert-store.plan, for a number that no field can hold.
    """
    source: object = manifest.header.source_sha256
    if not isinstance(source, bytes) or len(source) != 32:
        raise ContractError(Finding.of(PLAN, STAGE, "source_sha256", expected="32 bytes", got=source))
    try:
        signed = sign(manifest, NO_DIGEST)
        table = pack_manifest(signed)
    except struct.error as error:
        raise ContractError(
            Finding.of(PLAN, STAGE, "manifest", expected="unsigned numbers of 32 and 64 bits", got=error)
        ) from None
    findings = judge_header(signed.header, family, manifest.header.store_bytes)
    findings += judge_manifest(signed, table, family)
    if findings:
        raise ContractError(findings[0])


def write_expert_store(
    target: Path,
    manifest: Manifest,
    family: ExpertFamily,
    components: Components | None,
    system: Filesystem = SYSTEM,
) -> RecordDigests | None:
    """Publishes a store as a file of its own; the reopened file is verified whole before the commit.

    Args:
        target: where it shall be.
        manifest: from `plan_manifest`.
        family: the family it must be admitted as.
        components: where the bytes come from; None writes a structural store with a hole for a payload.
        system: the seam for injected faults.

    Returns:
        The digest of each record, or None for a structural store.

    Raises:
        ContractError: expert-store.*, before anything is created, for a plan that the family doesn't allow; then
            expert-store.supply.
        PublicationError: publish.<step>.
        AdmissionError: what the verifier finds in the reopened file.
    """
    check_plan(manifest, family)
    written: list[Manifest] = []
    digests: list[RecordDigests | None] = []

    def fill(draft: Draft) -> None:
        if components is None:
            written.append(fill_structural_store(draft, 0, manifest))
        else:
            written.append(fill_expert_store(draft, 0, manifest, components))

    def verify(extent: Extent) -> None:
        digests.append(check_written_store(extent, family, written[0], has_payload=components is not None))

    publish(target, manifest.header.store_bytes, fill, verify, system)
    return digests[0]


def check_written_store(
    extent: Extent,
    family: ExpertFamily,
    signed: Manifest,
    *,
    has_payload: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> RecordDigests | None:
    """Raises unless the store is the one that was written: same manifest, same payload.

    Args:
        extent: the store, reopened.
        family: the family it must be admitted as.
        signed: the manifest that was written.
        has_payload: False for a structural store, whose payload isn't read.
        progress: told the bytes read and the bytes in all.

    Returns:
        The digest of each record, or None for a structural store.

    Raises:
        AdmissionError: the first disagreement.
    """
    header = signed.header
    expected = ExpectedSource(
        header.source_tensor_count, header.source_bytes, header.source_sha256, header.payload_sha256
    )
    store = ExpertStore.open(extent, family, expected)
    if store.manifest != signed:
        raise AdmissionError(
            Finding.of(
                "publish.verify", STAGE, "manifest", expected="the written manifest", got="another one"
            )
        )
    if not has_payload:
        return None
    found = store.verify_all(progress=progress)
    if found.findings:
        raise AdmissionError(found.findings[0])
    return found.digests
