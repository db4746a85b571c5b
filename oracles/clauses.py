"""Why an oracle refuses, one clause for each reason; kept free of NumPy so that `assay explain` needs none."""

from typing import Final

from assay.spec.clauses import Authority, declare

SHAPE: Final = declare(
    "oracle.argument.shape",
    Authority.FORM,
    "An array argument has the rank and the extents that the operation states.",
    source="the operation's own docstring; `assay oracle --list`",
    cause="an axis is missing, transposed, or a batch axis was left in",
    fix="compare with `assay oracle OP --example`; arrays are plain, without a batch axis",
)

TYPE: Final = declare(
    "oracle.argument.type",
    Authority.FORM,
    "An argument has the type that the operation states: numbers, integers, text or a flag.",
    source="the operation's own docstring; `assay oracle --list`",
    cause="text or null where a number is expected, rows of unequal length, or a fraction where an integer is",
    fix="integers may be given as numbers or as decimal strings",
)

FINITE: Final = declare(
    "oracle.argument.finite",
    Authority.RULE,
    "Real arguments are finite; where a policy gives infinities a meaning, the operation says so.",
    source="AFN-010: non-finite values stop a transaction",
    cause="an uninitialised buffer or an overflow upstream of this operation",
)

DOMAIN: Final = declare(
    "oracle.argument.domain",
    Authority.RULE,
    "An argument lies in the range in which the operation is authoritative.",
    source="AFN-011: a reference states its domain",
    cause="a size of zero, an index out of range, or an unknown convention or policy",
)

RESULT: Final = declare(
    "oracle.result.finite",
    Authority.RULE,
    "Every number that an oracle gives is finite.",
    source="AFN-010: after every stage all owners are finite",
    cause="finite arguments whose result overflows the working type",
    fix="ask again with float64 to see how large the result is",
)

CEILING: Final = declare(
    "oracle.qsa.dense-ceiling",
    Authority.RULE,
    "The dense form answers only while no query sees more keys than a full selection holds (2,051 as published).",
    source="AFN-011",
    cause="the dense reference was reached with a longer history, where it is another model than the sparse one",
    fix="select first (`qsa.select`), then attend over the selected rows (`qsa.attend`)",
)

HOLE: Final = declare(
    "oracle.qsa.hole",
    Authority.RULE,
    "The visible positions of one sequence are one contiguous run; every token is its predecessor's successor.",
    source="AFN-018",
    cause="a token inside the history was removed or evicted and the run was not rebuilt",
)

REPEAT: Final = declare(
    "oracle.qsa.repeat",
    Authority.RULE,
    "A position of one sequence stands in one slot, unless grouping by rank alone is asked for.",
    source="AFN-018; bug report A11",
    cause="a token written twice, or slots of two sequences taken for one",
    fix="give another sequence's slots as null; `contiguous`: false groups equal positions in slot order",
)

SCORES: Final = declare(
    "oracle.qsa.nan-score",
    Authority.RULE,
    "No group score is NaN: a NaN has no place in an order, so there is no set to choose.",
    source="AFN-010; issue text of the oracles",
    cause="a non-finite raw index key or query",
)

PRODUCT: Final = declare(
    "oracle.ple.product",
    Authority.RULE,
    "Every product of token and multiplier is at most 2^63 - 1, so that signed and unsigned readings agree.",
    source="facts on the row store, section 6 (largest product 5,886,047,582,964,040,311)",
    cause="a token beyond the physical vocabulary, or multipliers of another vocabulary",
    fix="`ple.wrapped` shows what 64-bit arithmetic, signed and unsigned, and float64 make of it",
)

NOTHING: Final = declare(
    "oracle.logits.nothing-sampleable",
    Authority.RULE,
    "At least one valid, unmasked id has a logit above -inf: an empty set of candidates is an error, not id 0.",
    source="AFN-005",
    cause="a grammar mask without a way on, or logits that are all -inf",
)

UNKNOWN: Final = declare(
    "oracle.argument.unknown",
    Authority.FORM,
    "An operation is asked with its own argument names only, each once.",
    source="`assay oracle --list`",
    cause="a misspelt name, or an argument of another operation",
)

MISSING: Final = declare(
    "oracle.argument.missing",
    Authority.FORM,
    "Every required argument of an operation is given.",
    source="`assay oracle --list`",
    cause="a misspelt or forgotten name",
)
