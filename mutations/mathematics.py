"""Battery `mathematics`: plausible mistakes of a port, made in the oracles, each caught by a shipped vector.

A mistake is an edit of the syntax tree of a shipped function, run in a private copy of the oracles. All literal
vectors are asked, and upstream's captures in order of their cost until one differs; the findings name each vector
that caught the mistake.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from assay.mutations import capture_vectors, vectors
from assay.mutations.battery import Battery, BatteryContext, Mutation
from assay.mutations.code_copy import ORACLES, CodeCopy, Edit, code_copy
from assay.mutations.mathematics_catalogue import MISTAKES
from assay.oracles import catalogue as _catalogue  # noqa: F401 - the copy is made of these modules: they are the subject
from assay.spec.errors import Finding

_FORCED: Final = (Edit("arithmetic", "linear", "x.astype(np.float64) @ weight.astype(np.float64).T", "x.astype(np.float64) @ -weight.astype(np.float64).T"),)  # fmt: skip


def judge_edits(edits: tuple[Edit, ...], *, captures: bool = True) -> list[Finding]:
    """Returns what the vectors say about the oracles with these edits; none for the oracles as shipped.

    Args:
        edits: of the oracles' syntax trees.
        captures: whether upstream's captures are asked too, until one differs.

    Raises:
        InvalidMutationError: when an edit can't be made.
    """
    with code_copy(ORACLES, edits) as copy:
        answer = _answers(copy)
        found = [
            one
            for operation, listed in _vectors().items()
            for vector in listed
            for one in vectors.findings(vector, operation, answer)
        ]
        for case in capture_vectors.CASES if captures else ():
            differing = list(capture_vectors.findings(case, copy.module))
            found += differing
            if differing and edits:
                break
    return found


@cache
def _vectors() -> dict[str, list[Any]]:
    return dict(vectors.read_vectors())


def _answers(copy: CodeCopy) -> Callable[[str, dict[str, Any]], Mapping[str, Any]]:
    operations = copy.module("catalogue").OPERATIONS

    def answer(name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        operation = operations[name]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a wrong oracle may overflow; its numbers are judged
            result = operation.function(**arguments)
        if hasattr(result, "_asdict"):
            return dict(result._asdict())
        values = result if isinstance(result, tuple) else (result,)
        return {part.name: value for part, value in zip(operation.results, values, strict=True)}

    return answer


def _mutations(_context: BatteryContext) -> list[Mutation]:
    return [
        Mutation(
            id=one.id,
            area=one.id.partition(".")[0],
            field=f"{one.edits[0].module}.{one.edits[0].function}",
            change=one.change,
            expected=(vectors.LITERAL, vectors.CAPTURED),
            where=one.caught_by,
            payload=one.edits,
        )
        for one in MISTAKES
    ]


def _judge(mutation: Mutation, _context: BatteryContext) -> list[Finding]:
    edits: tuple[Edit, ...] = mutation.payload
    return judge_edits(edits)


def _forced(_context: BatteryContext) -> Mutation:
    return Mutation(
        id="forced.negated-projection",
        area="forced",
        field="arithmetic.linear",
        change="every projection is negated",
        expected=(vectors.LITERAL,),
        payload=_FORCED,
    )


BATTERY: Final = Battery(
    name="mathematics",
    title="Plausible mistakes of a port, made in the oracles; each is caught by a shipped vector.",
    mutations=_mutations,
    judge=_judge,
    control=lambda _context: [*vectors.index_findings(), *judge_edits(())],
    forced=_forced,
    place=lambda finding: finding.where.partition(": ")[0],
)
