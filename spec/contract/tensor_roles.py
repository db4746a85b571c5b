"""Tensor roles: one entry a kind of tensor, expanded over layers and shards to the full list of names."""

from typing import Literal

from assay.spec.contract.types import Count, Positive, Seq, Shape, Text
from assay.spec.documents.base import Document

Dtype = Literal["BF16", "I64"]


class Role(Document):
    """One kind of tensor; `N` in the path stands for a layer number."""

    path: Text
    leaf: Literal["weight"] | None
    dtype: Dtype
    shape: Shape


class PleRole(Role):
    """A tensor of the per-layer embedding; `K` in the path stands for 0 to count - 1."""

    count: Positive


class TensorRoles(Document):
    """All roles of the base profile."""

    base_prefix: Text
    global_roles: Seq[Role]
    layer_roles: Seq[Role]
    linear_attention_roles: Seq[Role]
    full_attention_roles: Seq[Role]
    ple_roles: Seq[PleRole]
    ple_runtime_layer: Count
    ple_layer_pattern: Text
    expected_base_tensors: Positive
