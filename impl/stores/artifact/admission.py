"""Admission of an artifact: nine stages, cheapest first, on the CPU, before anything is mapped or allocated for it.

The first stage that objects decides where an artifact is rejected, and every objection of that stage is given. Once
the file is known to be of a profile (after `physical_profile`), later stages are judged as well, so that whoever
repairs it sees everything at once; before that they would compare it with something that it doesn't claim to be.
No byte of a tensor and no page of a store is read: only the directory, both manifests and the padding.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from assay.impl.stores.artifact.descriptor import STAGES, ArtifactDescriptor
from assay.impl.stores.artifact.entries import (
    compare_entries,
    judge_identity,
    judge_metadata,
    judge_physical_profile,
)
from assay.impl.stores.artifact.inventory import judge_inventory
from assay.impl.stores.artifact.owned_stores import judge_experts, judge_rows
from assay.impl.stores.artifact.ownership import Ownership, judge_ownership
from assay.impl.stores.artifact.report import accepted_report, rejected_report
from assay.impl.stores.expert_major.layout import Manifest
from assay.impl.stores.extents import Extent
from assay.impl.stores.gguf.reader import Gguf
from assay.spec.errors import Finding


@dataclass(slots=True)
class Admission:
    """What admission came to.

    Attributes:
        descriptor: what the artifact was compared with.
        findings: of each stage that was judged, in order; empty lists for stages that hold.
        skipped: stages that could not be judged after an earlier one had failed.
        owned: who owns which bytes, once known.
        experts: manifest of the expert store, once read.
        report: the 30 fields.
    """

    descriptor: ArtifactDescriptor
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    owned: Ownership | None = None
    experts: Manifest | None = None
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def first(self) -> Finding | None:
        """The finding that decides the stage of a rejection, or None when the artifact is admitted."""
        return next((one for found in self.findings.values() for one in found), None)


def admit(gguf: Gguf, extent: Extent, descriptor: ArtifactDescriptor, known: tuple[str, ...]) -> Admission:
    """Judges an artifact.

    Args:
        gguf: its directory.
        extent: the whole file.
        descriptor: what it must be.
        known: physical profiles that may be admitted; none on the public route.
    """
    found = Admission(descriptor)

    def experts() -> list[Finding]:
        found.experts, findings = judge_experts(gguf, extent, descriptor)
        return findings

    def ownership() -> list[Finding]:
        found.owned, findings = judge_ownership(gguf, extent, ends_on_page=not descriptor.is_private)
        return findings

    judges: dict[str, Callable[[], list[Finding]]] = {
        "identity": lambda: judge_identity(gguf, descriptor),
        "physical_profile": lambda: judge_physical_profile(gguf, known),
        "metadata": lambda: judge_metadata(gguf, descriptor),
        "tokenizer": lambda: list(compare_entries(gguf, descriptor, "tokenizer")),
        "inventory": lambda: judge_inventory(gguf, descriptor),
        "expert_store": experts,
        "ple_store": lambda: judge_rows(gguf, extent, descriptor)[1],
        "policy": lambda: list(compare_entries(gguf, descriptor, "policy")),
        "ownership": ownership,
    }
    for stage in STAGES:
        found.findings[stage] = judges[stage]()
        if found.findings[stage] and stage in {"identity", "physical_profile"}:
            break
    found.skipped = tuple(stage for stage in STAGES if stage not in found.findings)
    first = found.first
    if first is None and found.owned is not None:
        found.report = accepted_report(gguf, descriptor, found.owned)
    elif first is not None:
        found.report = rejected_report(first, descriptor.profile_id)
    return found
