"""The routed experts' store `ds4.expert_major.v2` of this profile."""

from assay.spec.contract.types import Count, Positive, Seq, Text
from assay.spec.documents.base import Document, Sha256


class RaiseMaxExperts(Document):
    """The one shared limit that a runtime must raise for this family."""

    field: Text
    from_experts: Positive
    to_experts: Positive
    phase: Positive
    note: Text


class StructuralCandidate(Document):
    """The storage that proves the geometry; not a release codec."""

    storage: Text
    logical_ggml_type: Text
    group_size: Positive
    block_bytes: Positive
    status: Text
    reason: Text


class ExpertStore(Document):
    """Geometry of the expert store."""

    tensor: Text
    version: Positive
    family: Positive
    layers: Positive
    experts_per_layer: Positive
    components: Seq[Text]
    minimum_route_records_per_token: Positive
    route_records_formula: Text
    raise_max_experts: RaiseMaxExperts | None
    structural_candidate: StructuralCandidate


class ExpertPhysical(Document):
    """The expert store inside the structural fixture of the artifact."""

    family: Positive
    version: Positive
    layers: Positive
    experts_per_layer: Positive
    storage: Text
    logical_ggml_type: Text
    group_size: Positive
    block_bytes: Positive
    status: Text
    codec_descriptor_sha256: Sha256
    source_provenance: Text
    source_tensor_count: Positive
    source_bytes: Count
    source_inventory_sha256: Sha256
