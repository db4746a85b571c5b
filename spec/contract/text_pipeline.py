"""Admission of the text pipeline: tokenizer authority, chat template and the oracles behind both."""

from assay.spec.contract.types import Count, Positive, Seq, Text
from assay.spec.contract.vocabulary import ModelConfigIds, TokenizerIds
from assay.spec.documents.base import Document, Sha256


class DeclaredProvenance(Document):
    """Digests that an artifact declares of its text files."""

    tokenizer_sha256: Sha256
    tokenizer_config_sha256: Sha256
    chat_template_sha256: Sha256


class TokenizerAuthority(Document):
    """Which reader of the tokenizer file decides."""

    backend: Text
    source: Text
    auto_tokenizer_authoritative: bool
    divergence: Text


class ChatTemplate(Document):
    """Behaviour of the chat template."""

    default_reasoning_effort: Text
    supported_reasoning_efforts: Seq[Text]
    medium_system_instruction: bool
    low_system_instruction: Text
    disabled_thinking_emits_closed_empty_think: bool
    disabled_thinking_ignores_invalid_effort: bool
    preserve_thinking_default: bool
    preserve_thinking_false_keeps_current_tool_chain_reasoning: bool
    system_message_rule: Text
    tools_json: Text
    empty_conversation_error: Text
    assistant_or_tool_only_error: Text
    structured_media_policy: Text
    trim_policy: Text
    segment_kinds: Seq[Text]
    segment_rule: Text


class TextOracles(Document):
    """Cases that stand behind the text pipeline, by count and digest."""

    tokenizer_text_cases: Count
    tokenizer_decode_controls: Count
    tokenizer_payload_sha256: Sha256
    tokenizer_file_sha256: Sha256
    chat_cases: Count
    chat_upstream_cases: Count
    chat_contract_negative_cases: Count
    chat_cases_sha256: Sha256


class TokenizerAdmission(Document):
    """The text pipeline as admission sees it."""

    verification: Text
    tokenizer_content_verified: bool
    full_special_mapping_verified: bool
    phase: Positive
    status: Text
    declared_provenance: DeclaredProvenance
    authority: TokenizerAuthority
    normalizer: Text
    pretokenize_regex: Text
    add_prefix_space: bool
    base_vocabulary_size: Positive
    effective_valid_vocabulary_size: Positive
    maximum_valid_token_id: Positive
    physical_logits_width: Positive
    unassigned_physical_id_range: Seq[Positive]
    sampling_rule: Text
    stop_ids: Seq[Count]
    added_token_count: Count
    added_token_mapping_sha256: Sha256
    backend_special_ids_sha256: Sha256
    declared_model_config_ids: ModelConfigIds
    declared_tokenizer_ids: TokenizerIds
    chat_template: ChatTemplate
    oracles: TextOracles
