"""The clauses of a trace; each names one way in which a run can't have gone."""

from typing import Final

from assay.spec.clauses import Authority, declare

_SOURCE: Final = "field note AFN-019"

FORM: Final = declare(
    "trace.form", Authority.FORM, "A trace is a header, lines of its schema and a footer, each one line of JSON.",
    source=_SOURCE, cause="an edited trace, one of another version, or a number that is not finite",
)  # fmt: skip
TRUNCATED: Final = declare(
    "trace.truncated", Authority.PROCESS, "A trace ends with a footer.",
    source="assay: a missing end never looks like an end", cause="the run was killed or interrupted, failed, or is still going on",
    fix="run it again to its end",
)  # fmt: skip
COUNTS: Final = declare(
    "trace.counts", Authority.RULE, "The footer counts the lines and bytes that stand before it.",
    source="assay: a trace can't lose lines unseen", cause="lines were removed or added",
)  # fmt: skip
ORDER: Final = declare(
    "trace.order", Authority.RULE, "Tickets and completions are numbered in order, and time doesn't run backwards.",
    source=_SOURCE, cause="lines that were moved, or two clocks in one trace",
)  # fmt: skip
UNKNOWN: Final = declare(
    "trace.unknown", Authority.RULE, "A line speaks of a ticket, store or lane that the trace has named before.",
    source=_SOURCE, cause="lines that were removed, or lines of another run",
)  # fmt: skip
STATE: Final = declare(
    "trace.state", Authority.RULE, "A ticket is issued, read, ready and released in this order, and ends once.",
    source=_SOURCE, cause="a scheduler that skips a step, or lines that were removed",
)  # fmt: skip
RELEASE: Final = declare(
    "trace.release", Authority.RULE, "A ticket is released once, after it was ready.",
    source=_SOURCE, cause="two owners of one lease",
)  # fmt: skip
AFTER_END: Final = declare(
    "trace.after-end", Authority.RULE, "Nothing is published or read for a ticket that was withdrawn, dropped or failed.",
    source=_SOURCE, cause="a completion that doesn't ask whether it is still wanted",
)  # fmt: skip
GENERATION: Final = declare(
    "trace.generation", Authority.RULE,
    "Only the generation that an owner is in, and the use of the slot that was read into, is published.",
    source=_SOURCE, cause="a stale read that finds its slot in other hands",
)  # fmt: skip
SLOT: Final = declare(
    "trace.slot", Authority.RULE, "A slot belongs to one read at a time, and each use of it has a higher number.",
    source=f"{_SOURCE}; bug report A23", cause="a slot that was handed on while it was read into or from",
)  # fmt: skip
BOUND: Final = declare(
    "trace.bound", Authority.RULE, "No more tickets are live in a lane than its header allows, and owners are few.",
    source="assay: bounded memory", cause="a scheduler that queues without end, or a hostile trace",
)  # fmt: skip
LEASES: Final = declare(
    "trace.leases", Authority.RULE, "A read has at least as many leases as live tickets share it.",
    source=_SOURCE, cause="a lease that is counted twice when it is given back",
)  # fmt: skip
BYTES: Final = declare(
    "trace.bytes", Authority.RULE, "A ticket is ready when all its parts, and exactly its bytes, were read.",
    source=f"{_SOURCE}; bug report A25", cause="a short read that passed for a whole one",
)  # fmt: skip
PRIORITY: Final = declare(
    "trace.priority", Authority.RULE,
    "Exact requests have priority 0 and fail aloud; predictions have not, and are dropped.",
    source=_SOURCE, cause="a prediction that claims to be exact, or an exact request that was dropped in silence",
)  # fmt: skip
EXACT_FIRST: Final = declare(
    "trace.exact-first", Authority.RULE, "While an exact request waits, no prediction is started in its lane.",
    source=_SOURCE, cause="one queue for all",
)  # fmt: skip
ROUTE: Final = declare(
    "trace.route", Authority.RULE, "A route names each expert once, with a weight and a residency for each.",
    source=_SOURCE, cause="a recorder that mixes up two tokens",
)  # fmt: skip
LAYER: Final = declare(
    "trace.layer", Authority.RULE, "A record of experts is read for the layer that it belongs to.",
    source=_SOURCE, cause="a prediction that was filed under the layer that made it",
)  # fmt: skip
LEAK: Final = declare(
    "trace.leak", Authority.RULE, "When a run has ended, every ticket has.",
    source=_SOURCE, cause="a reader that was not closed, or a lease that nobody gave back",
)  # fmt: skip
