"""Digests, sizes and counts of what upstream published at the pinned revision."""

from typing import Annotated

from pydantic import StringConstraints

from assay.spec.contract.types import Count, GitCommit, Positive, Seq, Text
from assay.spec.documents.base import Document, Sha256


class FilePin(Document):
    """One published file."""

    sha256: Sha256
    size_bytes: Positive


class ShardPin(Document):
    """One published safetensors shard."""

    name: Annotated[str, StringConstraints(pattern=r"^model-[0-9]{5}-of-[0-9]{5}\.safetensors$")]
    size_bytes: Positive
    sha256: Sha256


class Classification(Document):
    """Tensors by class; `ple` is part of `base`."""

    base: Count
    mtp: Count
    ple: Count
    vision: Count


class SourcePins(Document):
    """What upstream published, as digests and counts; digests of headers are published for a few shards only."""

    transformers_commit: GitCommit
    transformers_source_folder: Text
    transformers_sources: dict[str, Sha256]
    inventory_fixture: Text
    inventory_sha256: Sha256
    tensor_count: Positive
    source_bytes: Positive
    bytes_by_dtype: dict[str, Count]
    classification: Classification
    files: dict[str, FilePin]
    shard_count: Positive
    shard_header_bytes: Positive
    shards: Seq[ShardPin]
    header_sha256: dict[str, Sha256]
