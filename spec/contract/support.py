"""What must be shown before the profile may be called supported."""

from assay.spec.contract.types import Count, Positive, Seq, Text
from assay.spec.documents.base import Document


class GibRange(Document):
    """A closed range of GiB."""

    low: Positive
    high: Positive


class MemoryTargets(Document):
    """The machine to aim at; a hypothesis until measured there."""

    machine: Text
    unified_memory_gib: Positive
    resident_model_plus_metal_gib: GibRange
    small_context_working_set_gib: GibRange
    minimum_headroom_gib: Positive
    swap_delta_bytes: Count
    hypothesis_only: bool
    context_qualification_order: Seq[Positive]
    advertising_rule: Text
    hosted_service_window_is_not_a_claim: bool


class SupportGate(Document):
    """One gate of the support state."""

    id: Text
    title: Text
