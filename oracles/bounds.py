"""Where each bounded oracle stops being an authority, as data that code and tests read (AFN-011).

A reference without an expiry becomes the product by accident. Each row names the domain, the first input that is
refused, why the bound exists, what must replace the oracle beyond it and which gate lifts the bound.
"""

from dataclasses import dataclass
from typing import Final

from assay.oracles.conv import LARGEST_DILATION
from assay.oracles.logits import LARGEST_ROWS
from assay.oracles.ple import LARGEST_BASE, LARGEST_HEADS, LARGEST_NGRAM, LARGEST_PRODUCT
from assay.oracles.qsa import DENSE_CEILING, LARGEST_RATIO, LARGEST_VISIBLE
from assay.oracles.rope import LARGEST_POSITION
from assay.oracles.tensors import LARGEST_MODEL_VALUES
from assay.oracles.weights import LARGEST_LIST


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
        "qsa.select",
        f"at most {LARGEST_VISIBLE} visible tokens",
        f"{LARGEST_VISIBLE + 1} visible tokens",
        "oracle.argument.domain",
        "all scores are sorted and every selected position is listed",
        "a streaming selection that keeps `budget_groups` scores, compared with this one below the bound",
        "parity.oracle-upstream",
    ),
    Bound(
        "qsa.groups",
        f"at most {LARGEST_RATIO} positions in a group",
        f"a ratio of {LARGEST_RATIO + 1}",
        "oracle.argument.domain",
        "a group is laid out as one row of `ratio` slots",
        "none: the published ratio is 4",
        "none",
    ),
    Bound(
        "rope.apply",
        f"positions 0 .. {LARGEST_POSITION}",
        f"position {LARGEST_POSITION + 1}",
        "oracle.argument.domain",
        "linear; a larger position is not exact in float64, and far smaller ones are not in float32",
        "none: the published context ends at 262,144",
        "none",
    ),
    Bound(
        "conv.causal",
        f"a dilation of at most {LARGEST_DILATION}",
        f"a dilation of {LARGEST_DILATION + 1}",
        "oracle.argument.domain",
        "the state holds dilation x (kernel - 1) values of every channel",
        "none: the published dilations are 1 and 3",
        "none",
    ),
    Bound(
        "ple.multipliers",
        f"n-grams of 2 .. {LARGEST_NGRAM} tokens",
        f"an n-gram of {LARGEST_NGRAM + 1} tokens",
        "oracle.argument.domain",
        "linear in the n-gram",
        "none: the published n-gram is 3",
        "none",
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
        "logits.mask",
        f"at most {LARGEST_ROWS} physical rows",
        f"{LARGEST_ROWS + 1} physical rows",
        "oracle.argument.domain",
        "one word for 32 ids, all of them printed",
        "none: the published output has 248,320 rows",
        "none",
    ),
    Bound(
        "weights.values",
        f"at most {LARGEST_LIST} values at once",
        f"{LARGEST_LIST + 1} values",
        "oracle.argument.domain",
        "every value is listed; ask again with a later `first`",
        "oracles.weights.named, a block at a time",
        "none",
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
