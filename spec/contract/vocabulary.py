"""The vocabulary boundary: what the tokenizer can produce, and how many rows the head has."""

from assay.spec.contract.types import Count, Positive, Seq, Text
from assay.spec.documents.base import Document, Sha256


class AddedToken(Document):
    """One added token."""

    id: Count
    content: Text
    special: bool


class ModelConfigIds(Document):
    """Ids that `config.json` and `generation_config.json` declare."""

    bos: Count
    pad: Count
    eos: Count
    image: Count
    video: Count
    vision_start: Count
    vision_end: Count


class TokenizerIds(Document):
    """Ids that the tokenizer's own files declare."""

    bos: Count | None
    end_of_text: Count
    im_start: Count
    im_end: Count
    eos: Count
    pad: Count
    vision_start: Count
    vision_end: Count
    vision_pad: Count
    image_pad: Count
    video_pad: Count


class Vocabulary(Document):
    """Two sizes that look alike: the tokenizer's domain and the width of the logits."""

    base_tokens: Positive
    added_tokens: Seq[AddedToken]
    effective_ids: Positive
    largest_valid_id: Positive
    physical_rows: Positive
    unassigned_first: Positive
    unassigned_end: Positive
    unassigned_rows: Count
    stop_ids: Seq[Count]
    model_config_ids: ModelConfigIds
    tokenizer_ids: TokenizerIds
    backend_special_ids: Seq[Count]
    added_token_mapping_sha256: Sha256
    backend_special_ids_sha256: Sha256
    model_max_length: Positive
    sampling_rule: Text
    decode_rule: Text
