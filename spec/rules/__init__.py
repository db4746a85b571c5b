"""Rules of the contract: clauses, and pure functions that recompute what the contract states."""

from assay.spec.rules.judge import judge_contract
from assay.spec.rules.upstream import UpstreamFacts
from assay.spec.rules.upstream_files import read_upstream

__all__ = ["UpstreamFacts", "judge_contract", "read_upstream"]
