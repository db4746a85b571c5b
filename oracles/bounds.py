"""Where each bounded oracle stops being an authority, as data that code and tests read (AFN-011).

A reference without an expiry becomes the product by accident. Each row names the domain, the first input that is
refused, why the bound exists, what must replace the oracle beyond it and which gate lifts the bound.
"""

from dataclasses import dataclass
from typing import Final

from assay.oracles.ple import LARGEST_BASE, LARGEST_HEADS, LARGEST_PRODUCT
from assay.oracles.qsa import DENSE_CEILING
from assay.oracles.tensors import LARGEST_MODEL_VALUES


@dataclass(frozen=True, slots=True)
class Bound:
    """The limit of one oracle.

    Attributes:
        operation: name in the catalogue.
        domain: where it is authoritative.
        first_rejected: the smallest input that it refuses.
        clause: code of that refusal.
        complexity: time and memory that make the bound necessary.
        replacement: what must answer beyond the bound.
        lifted_by: gate that must pass before the bound may move.
    """

    operation: str
    domain: str
    first_rejected: str
    clause: str
    complexity: str
    replacement: str
    lifted_by: str


BOUNDS: Final[tuple[Bound, ...]] = (
    Bound(
        "qsa.dense",
        f"at most {DENSE_CEILING} visible keys for any query",
        f"{DENSE_CEILING + 1} visible keys",
        "oracle.qsa.dense-ceiling",
        "time and memory grow with queries x keys",
        "oracles.qsa.select with oracles.qsa.attend, and the implementation in impl/model",
        "parity.oracle-upstream",
    ),
    Bound(
        "ple.rows",
        f"token x multiplier at most {LARGEST_PRODUCT}",
        f"a product of {LARGEST_PRODUCT + 1}",
        "oracle.ple.product",
        "exact integers; linear in tokens x heads",
        "none: beyond it signed and unsigned readings differ and no source says which is meant",
        "none",
    ),
    Bound(
        "ple.primes",
        f"base at most {LARGEST_BASE}, at most {LARGEST_HEADS} primes",
        f"base {LARGEST_BASE + 1}",
        "oracle.argument.domain",
        "sqrt(base) divisions for each candidate",
        "a sieve, compared with this list",
        "parity.oracle-upstream",
    ),
    Bound(
        "model.run",
        f"one sequence; at most {LARGEST_MODEL_VALUES} values in the tensors",
        "a geometry with more values",
        "oracle.argument.domain",
        "every token reads every weight that it uses; attention keys are copied when they grow",
        "oracles.model.Model over stored tensors, or the implementation in impl/model",
        "parity.oracle-upstream",
    ),
)
"""Every bounded oracle; a test asks each first rejected input and the last accepted one."""
