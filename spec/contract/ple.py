"""The per-layer embedding: how its rows are hashed and how the table is laid out."""

from typing import Literal

from assay.spec.contract.types import BigInteger, Count, Hex64, Positive, Seq, Text
from assay.spec.documents.base import Document, Sha256


class HashFormulas(Document):
    """The derivation in words."""

    splitmix: Text
    multiplier: Text
    prime: Text
    offset: Text
    row: Text


class HashDerivation(Document):
    """The constants from which multipliers and primes follow."""

    mask64: Hex64
    splitmix_gamma: Hex64
    splitmix_m1: Hex64
    splitmix_m2: Hex64
    prime_step: Positive
    max_long: BigInteger
    formulas: HashFormulas


class PleHash(Document):
    """The hash from token history to table rows."""

    derivation: HashDerivation
    ple_layer_index: Count
    seed: Count
    layer_multipliers: Seq[Positive]
    head_primes: Seq[Positive]
    head_offsets: Seq[Count]
    total_head_rows: Positive
    padded_rows: Positive
    max_hash_product: BigInteger
    hash_safety: Seq[Text]


class WireFormat(Document):
    """Byte layout of the row store."""

    endianness: Literal["little", "big"]
    header_bytes: Positive
    page_header_bytes: Positive
    minimum_page_alignment: Positive
    page_digest_algorithm: Text
    page_digest_bytes: Positive
    page_digest_table: Text
    manifest_digest: Text
    payload_digest: Text
    codec_binding: Text


class PendingDecision(Document):
    """Something that upstream has not decided."""

    subject: Text
    state: Literal["pending", "frozen"]
    text: Text


class PleExtent(Document):
    """The row store `ds4.ple_rows.v1` of this profile."""

    magic: Text
    version: Positive
    family: Positive
    profile_id: Text
    hash_id: Text
    rows: Positive
    row_width: Positive
    row_alignment: Positive
    head_rows: Positive
    padding_rows: Count
    embedding_shard_count: Positive
    embedding_shard_rows: Positive
    embedding_shard_formula: Text
    wire_format: WireFormat
    pending_decisions: Seq[PendingDecision]
    rules: Seq[Text]


class PlePhysical(Document):
    """The row store inside the structural fixture of the artifact."""

    codec_id: Text
    codec_version: Positive
    codec_descriptor_sha256: Sha256
    group_size: Positive
    encoded_row_bytes: Positive
    rows: Positive
    padding_rows: Count
    rows_per_page: Positive
    page_alignment: Positive
    page_count: Positive
    page_stride: Positive
    payload_verification: Text
    startup_payload_verification: bool
    payload_present: bool
