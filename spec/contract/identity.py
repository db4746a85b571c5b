"""Who the profile is, under which licence, and what the base profile leaves out."""

from assay.spec.contract.types import Count, Positive, Seq, Text
from assay.spec.documents.base import Document


class Identity(Document):
    """Names and ids that must be equal, never similar."""

    family: Text
    gguf_architecture: Text
    profile_id: Text
    store_family: Positive
    store_family_name: Text
    ple_extent_magic: Text
    repository: Text
    revision: Text
    architecture: Text
    model_type: Text
    text_model_type: Text
    gguf_architecture_spelling: Text
    forbidden_aliases: Seq[Text]


class Exclusions(Document):
    """Source tensors that the base profile counts but never executes."""

    vision_tensors: Count
    vision_prefix: Text
    vision_bytes: Count
    mtp_tensors: Count
    mtp_prefix: Text
    mtp_bytes: Count
    rules: Seq[Text]


class License(Document):
    """The licence of the checkpoint and the state of its review."""

    expected: Text
    review_required_before_distribution: bool
    assumed_apache2: bool
    review_status: Text
