"""Writes the structural fixture of the public profile: true geometry, true size, no payload.

Only the directory and both manifests are written; everything else is a hole. It exists to prove admission at the
real size, and its payload digests are zero, so that no verifier can ever take it for a model.
"""

import os
from pathlib import Path
from typing import Final

from assay.impl.stores.artifact.descriptor import (
    EXPERT_TENSOR,
    I8,
    PLE_TENSOR,
    ArtifactDescriptor,
    fixture_descriptor,
)
from assay.impl.stores.expert_major.blocks import AFFINE4
from assay.impl.stores.expert_major.layout import Manifest, Source, Storage, plan_manifest
from assay.impl.stores.expert_major.writer import check_written_store, fill_structural_store
from assay.impl.stores.extents import SYSTEM, Extent, Filesystem
from assay.impl.stores.gguf.reader import Entry
from assay.impl.stores.gguf.writer import Plan, Planned, plan_gguf, write_gguf
from assay.impl.stores.ple_rows.layout import PleHeader
from assay.impl.stores.ple_rows.writer import check_written_ple, fill_ple_store
from assay.impl.stores.publication import Draft
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

MOST_ALLOCATED: Final = 64 << 20
PAGE: Final = 4096

SPARSE: Final = declare(
    "artifact.structural.sparse",
    Authority.PROCESS,
    "The structural fixture takes at most 64 MiB of the disk.",
    source="the artifact's structural fixture",
    cause="a file system without sparse files",
    fix="write it to a file system that keeps holes, such as ext4, xfs or apfs",
)


def plan_structural(descriptor: ArtifactDescriptor | None = None) -> tuple[Plan, Manifest]:
    """Returns the layout of the fixture and the unsigned manifest of its expert store."""
    wanted = descriptor or fixture_descriptor()
    geometry, source = wanted.family.geometry, wanted.source
    if geometry is None or source.tensor_count is None or source.size_bytes is None or source.sha256 is None:
        raise ValueError("a structural fixture needs an exact family and a stated source")
    manifest = plan_manifest(
        wanted.family.id,
        Storage.MLX_AFFINE4,
        experts=geometry.experts,
        used=geometry.used,
        layers=geometry.shapes(AFFINE4),
        source=Source(source.tensor_count, source.size_bytes, source.sha256),
    )
    planned = [Planned(one.name, one.dimensions, min(one.types)) for one in wanted.dense]
    planned += [
        Planned(EXPERT_TENSOR, (manifest.header.store_bytes,), I8, PAGE),
        Planned(PLE_TENSOR, (wanted.rows.store_bytes,), I8, PAGE),
    ]
    return plan_gguf([Entry(key, value) for key, value in wanted.entries.items()], planned), manifest


def write_structural(target: Path, system: Filesystem = SYSTEM, *, replace: bool = True) -> Plan:
    """Publishes the fixture at `target`, or leaves everything as it was.

    Args:
        target: where it shall be.
        system: the seam for injected faults.
        replace: whether a file that is at `target` at the commit is replaced.

    Raises:
        AdmissionError: artifact.structural.sparse, when the disk keeps no holes, or what verification finds.
        PublicationError: publish.<step>.
    """
    descriptor = fixture_descriptor()
    plan, manifest = plan_structural(descriptor)
    written: list[tuple[Manifest, PleHeader]] = []

    def fill(draft: Draft, index: int, start: int) -> None:
        if index == len(descriptor.dense):
            signed = fill_structural_store(draft, start, manifest)
            header = fill_ple_store(draft, plan.starts[-1], descriptor.rows, None)
            written.append((signed, header))

    def verify(extent: Extent) -> None:
        signed, header = written[0]
        expert, ple = (extent.part(plan.starts[at], plan.sizes[at], plan.tensors[at].name) for at in (-2, -1))
        check_written_store(expert, descriptor.family, signed, has_payload=False)
        check_written_ple(ple, descriptor.rows, header, is_structural=True)
        allocated = 512 * os.fstat(extent.file.descriptor).st_blocks
        if allocated > MOST_ALLOCATED:
            raise AdmissionError(
                Finding.of(SPARSE, "build", str(target), expected=f"at most {MOST_ALLOCATED}", got=allocated)
            )

    write_gguf(target, plan, fill, verify=verify, system=system, replace=replace)
    return plan
