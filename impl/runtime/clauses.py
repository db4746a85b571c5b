"""The clauses of streaming that a request, a read or a caller can break."""

from typing import Any, Final

from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, ContractError, Finding

_SOURCE: Final = "field note AFN-019"
STAGE: Final = "runtime"

REQUEST: Final = declare(
    "runtime.request", Authority.FORM,
    "A read request is whole: it names at least one byte, and only an exact request has priority 0.",
    source=_SOURCE, cause="a caller that asks for nothing, or a prediction that claims to be exact",
)  # fmt: skip
STORE: Final = declare(
    "runtime.store", Authority.FORM, "A request names a store that the reader was given, and a range inside it.",
    source=_SOURCE, cause="a request that was planned for another artifact",
)  # fmt: skip
SLOT_SIZE: Final = declare(
    "runtime.slot-size", Authority.FORM, "The bytes of one request fit into one slot of its lane.",
    source="assay: bounded memory", cause="a batch of pages that was not split, or slots sized for another store",
)  # fmt: skip
LIMITS: Final = declare(
    "runtime.limits",
    Authority.FORM,
    "Each lane has at least one reader, one slot and room for one request.",
    source="assay: bounded memory",
    cause="a memory budget that leaves nothing for reads",
)
QUEUE_FULL: Final = declare(
    "runtime.queue-full", Authority.PROCESS, "The queue of a lane holds no more exact requests than it was made for.",
    source=_SOURCE, cause="a caller that asks for several layers at once", fix="wait for some before asking for more",
)  # fmt: skip
RELEASE: Final = declare(
    "runtime.release", Authority.PROCESS, "A ticket is released once, and its bytes are not used afterwards.",
    source=f"{_SOURCE}; bug report A23", cause="two owners of one lease, or a view kept too long",
)  # fmt: skip
STALE: Final = declare(
    "runtime.stale", Authority.PROCESS, "Nobody waits for a ticket that was cancelled, dropped or has a stale generation.",
    source=_SOURCE, cause="a request that was withdrawn while its owner still counted on it",
)  # fmt: skip
SHORT: Final = declare(
    "runtime.read.short", Authority.INPUT, "The file doesn't end inside what is read.",
    source=f"{_SOURCE}; bug report A25", cause="a truncated store",
)  # fmt: skip
IO: Final = declare(
    "runtime.read.io", Authority.INPUT, "The device reads without an error.",
    source=_SOURCE, cause="a failing disk or a lost mount",
)  # fmt: skip
DIGEST: Final = declare(
    "runtime.read.digest", Authority.RULE, "What was read has the digest that its store has for it.",
    source="field note AFN-003; bug report A25", cause="a damaged disk block, or a store that changed after it was opened",
    fix="verify the whole store: assay validate --payload",
)  # fmt: skip
LANE: Final = declare(
    "runtime.lane", Authority.PROCESS, "Every lane has a name of its own: it owns the lane's tickets and generations.",
    source=_SOURCE, cause="two requests with one name, of which each would make the other's reads stale",
)  # fmt: skip
CLOSED: Final = declare(
    "runtime.closed", Authority.PROCESS, "Nothing is asked of a reader that was closed.",
    source="assay: runtime", cause="a model that outlives its reader",
)  # fmt: skip


def refuse(code: str, where: str, *, expected: Any, got: Any, hint: str = "") -> ContractError:
    """Makes the error for a caller's mistake."""
    return ContractError(Finding.of(code, STAGE, where, expected=expected, got=got, hint=hint))


def damaged(finding: Finding) -> AdmissionError:
    """Makes the error for bytes that could not be had."""
    return AdmissionError(finding)
