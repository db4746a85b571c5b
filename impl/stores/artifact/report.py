"""The ownership report: 30 flat fields, the same for an accepted and a rejected artifact.

A rejection clears what was found on the way: counters are zero and flags false, so that nobody can build on half an
admission. Even an accepted report claims no runtime support and no verified payload.
"""

from typing import Any, Final

from assay.impl.stores.artifact.descriptor import ArtifactDescriptor
from assay.impl.stores.artifact.ownership import Ownership
from assay.impl.stores.gguf.reader import Gguf
from assay.spec.errors import Finding

FAMILY: Final = "qwen4exp"
PUBLIC_PROFILE: Final = "qwen4exp-base-v1"
FIELD_LIMIT: Final = 127
TEXT_LIMIT: Final = 159


def accepted_report(gguf: Gguf, descriptor: ArtifactDescriptor, owned: Ownership) -> dict[str, Any]:
    """Returns the report of an artifact that passed every stage."""
    source = descriptor.source
    return {
        **_blank(descriptor.profile_id),
        "physicalProfileId": descriptor.physical_profile_id,
        "stage": "accepted",
        "admitted": True,
        "textOnly": True,
        "physicalTensors": len(gguf.tensors),
        "denseTensors": len(owned.dense),
        "expertStores": 1,
        "pleStores": 1,
        "fileBytes": gguf.file_bytes,
        "headerBytes": owned.header,
        "denseBytes": owned.dense_bytes,
        "expertBytes": owned.expert_bytes,
        "pleBytes": owned.ple_bytes,
        "paddingBytes": owned.padding,
        "ownedBytes": owned.owned_bytes,
        "densePageBytes": owned.warm_bytes,
        "expertManifestVerified": True,
        "pleManifestVerified": True,
        "sourceTensorCount": source.tensor_count or 0,
        "sourceBytes": source.size_bytes or 0,
        "sourceInventorySha256": (source.sha256 or b"").hex(),
    }


def rejected_report(finding: Finding, profile_id: str = PUBLIC_PROFILE) -> dict[str, Any]:
    """Returns the report of an artifact that was rejected by this finding."""
    rejection = {
        "field": _cut(finding.where, FIELD_LIMIT),
        "expected": _cut(finding.expected, TEXT_LIMIT),
        "observed": _cut(finding.got, TEXT_LIMIT),
    }
    return {**_blank(profile_id), "stage": finding.stage, "rejection": rejection}


def _blank(profile_id: str) -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "family": FAMILY,
        "profileId": profile_id,
        "physicalProfileId": None,
        "stage": "none",
        "admitted": False,
        "runtimeSupported": False,
        "payloadVerified": False,
        "textOnly": False,
        "mtpPresent": False,
        "visionPresent": False,
        "physicalTensors": 0,
        "denseTensors": 0,
        "expertStores": 0,
        "pleStores": 0,
        "fileBytes": 0,
        "headerBytes": 0,
        "denseBytes": 0,
        "expertBytes": 0,
        "pleBytes": 0,
        "paddingBytes": 0,
        "ownedBytes": 0,
        "densePageBytes": 0,
        "expertManifestVerified": False,
        "pleManifestVerified": False,
        "sourceTensorCount": 0,
        "sourceBytes": 0,
        "sourceInventorySha256": "",
        "tokenizerContentVerified": False,
        "rejection": None,
    }


def _cut(text: str, limit: int) -> str:
    """Returns non-empty text of at most `limit` characters."""
    found = text or "(empty)"
    return found if len(found) <= limit else f"{found[: limit - 1]}…"
