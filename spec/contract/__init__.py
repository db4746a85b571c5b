"""The contract of one profile of the family: strict, frozen models, one module a topic."""

from assay.spec.contract.contract import Contract
from assay.spec.contract.tensors import TensorSpec, expand_tensors

__all__ = ["Contract", "TensorSpec", "expand_tensors"]
