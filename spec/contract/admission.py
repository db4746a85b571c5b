"""Admission of an artifact: its metadata, its physical fixture and the report of a judgement."""

from typing import Literal

from pydantic import JsonValue

from assay.spec.contract.expert_store import ExpertPhysical
from assay.spec.contract.ple import PlePhysical
from assay.spec.contract.text_pipeline import TokenizerAdmission
from assay.spec.contract.types import Count, Float, Positive, Seq, Text
from assay.spec.documents.base import Document, Sha256


class MetadataEntry(Document):
    """One metadata key with its exact type and value."""

    key: Text
    type: Text
    value: bool | int | Float | str | Seq[int]


class LayerTypeEncoding(Document):
    """How the layer pattern is written as numbers."""

    linear_attention: Count
    full_attention: Count


class MetadataSchema(Document):
    """The closed set of metadata entries."""

    closed: bool
    layer_type_encoding: LayerTypeEncoding
    absent_keys: Seq[Text]
    entries: Seq[MetadataEntry]


class Owners(Document):
    """Tensors of the artifact by owner."""

    dense: Positive
    expert_major: Positive
    ple: Positive


class SourcePartition(Document):
    """Where the source tensors of the base profile go."""

    base: Positive
    dense: Positive
    routed_into_expert_major: Positive
    ple_into_store: Positive
    ple_compute_retained_dense: Positive


class DensePhysical(Document):
    """The dense owner."""

    ggml_type: Text
    dimensions: Text
    identity: Text
    tensors: Positive
    descriptor_sha256: Sha256


class PhysicalFixture(Document):
    """The structural fixture: geometry without payload, for tests only."""

    scope: Text
    production: bool
    payload_materialized: bool
    physical_profile_id: Text
    tensor_count: Positive
    default_alignment: Positive
    owner_alignment: Positive
    owners: Owners
    source_partition: SourcePartition
    layout_rules: Seq[Text]
    dense: DensePhysical
    expert_major: ExpertPhysical
    ple: PlePhysical


class ReportField(Document):
    """One field of the ownership report; `value` is null where it depends on the file."""

    name: Text
    type: Literal["UINT32", "UINT64", "STRING", "BOOL", "REJECTION"]
    nullable: bool
    value: JsonValue


class ReportSchema(Document):
    """The ownership report."""

    version: Positive
    closed: bool
    stages: Seq[Text]
    fields: Seq[ReportField]
    rules: Seq[Text]


class Admission(Document):
    """What an artifact must be before anything is allocated for it."""

    status: Text
    support_claim: bool
    production_profile: str | None
    production_decision: Text
    fixture_build_guard: Text
    fixture_may_run_in_production: bool
    source_hash_controls: Text
    metadata: MetadataSchema
    physical_fixture: PhysicalFixture
    report: ReportSchema
    tokenizer: TokenizerAdmission
