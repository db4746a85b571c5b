"""Stages `expert_store` and `ple_store`: the manifests of both opaque owners, judged where they lie in the file."""

from dataclasses import replace
from typing import Final

from assay.impl.stores.artifact.descriptor import EXPERT_TENSOR, PLE_TENSOR, ArtifactDescriptor
from assay.impl.stores.artifact.entries import compare_entries
from assay.impl.stores.expert_major.layout import Manifest
from assay.impl.stores.expert_major.store import judge_expert_store
from assay.impl.stores.extents import Extent
from assay.impl.stores.gguf.reader import Gguf
from assay.impl.stores.ple_rows.layout import HEADER_BYTES, NO_DIGEST, PleHeader, unpack_ple_header
from assay.impl.stores.ple_rows.store import judge_ple_store
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

NO_PAYLOAD: Final = declare(
    "artifact.no-payload",
    Authority.RULE,
    "A structural fixture states no payload digest: it has no payload, and none may be taken for verified.",
    source="field notes AFN-002 and AFN-003",
    cause="a digest pasted into a fixture",
)


def judge_experts(
    gguf: Gguf, extent: Extent, descriptor: ArtifactDescriptor
) -> tuple[Manifest | None, list[Finding]]:
    """Returns the expert store's manifest and what is wrong with its entries and manifest; no payload is read."""
    stage = "expert_store"
    findings = list(compare_entries(gguf, descriptor, stage))
    place = _extent(gguf, extent, EXPERT_TENSOR)
    if place is None:
        return None, findings
    try:
        manifest, found = judge_expert_store(place, descriptor.family, descriptor.source)
    except AdmissionError as error:
        return None, [*findings, _inside(error.finding, stage, EXPERT_TENSOR)]
    return manifest, findings + [_inside(one, stage, EXPERT_TENSOR) for one in found]


def judge_rows(
    gguf: Gguf, extent: Extent, descriptor: ArtifactDescriptor
) -> tuple[PleHeader | None, list[Finding]]:
    """Returns the row store's header and what is wrong with its entries and manifest; no page is read."""
    stage = "ple_store"
    findings = list(compare_entries(gguf, descriptor, stage))
    place = _extent(gguf, extent, PLE_TENSOR)
    if place is None:
        return None, findings
    try:
        _, found = judge_ple_store(place, descriptor.rows)
        header = unpack_ple_header(place.read(0, HEADER_BYTES)) if place.size >= HEADER_BYTES else None
    except AdmissionError as error:
        return None, [*findings, _inside(error.finding, stage, PLE_TENSOR)]
    if not found and header is not None and descriptor.is_structural and header.payload_sha256 != NO_DIGEST:
        got = header.payload_sha256.hex()
        found = [Finding.of(NO_PAYLOAD, stage, "payload_sha256", expected="zeros", got=got)]
    return header, findings + [_inside(one, stage, PLE_TENSOR) for one in found]


def _extent(gguf: Gguf, extent: Extent, name: str) -> Extent | None:
    """Returns the bytes of a store, or None when the directory has none or doesn't say how many."""
    tensor = gguf.tensor(name)
    if tensor is None or tensor.bytes is None:
        return None
    return extent.part(gguf.data_start + tensor.offset, tensor.bytes, name)


def _inside(finding: Finding, stage: str, tensor: str) -> Finding:
    """Returns a store's finding as one of the artifact: at the artifact's stage, behind the tensor's name."""
    where = finding.where if finding.where.startswith(tensor) else f"{tensor}: {finding.where}"
    return replace(finding, stage=stage, where=where)
