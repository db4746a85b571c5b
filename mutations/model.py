"""Battery `model`: the mistakes of a port made in the MLX code, and mistakes of state, each caught by what must hold.

A mistake is an edit of the syntax tree of a shipped function, run in a private copy of the model. It is asked for
upstream's captures in their own chunks first, then by probes of its state: partitions, batches, forks, rewinds,
failures. The first that finds something ends the question.
"""

from typing import Final

from assay.mutations import model_probes
from assay.mutations.battery import Battery, BatteryContext, Mutation
from assay.mutations.code_copy import MODEL, Edit, code_copy
from assay.mutations.model_catalogue import MISTAKES
from assay.mutations.model_clauses import CAPTURE
from assay.spec.errors import Finding

_FORCED: Final = (Edit("residual", "apply", "wide + (injection[:, :, None] * block[:, None, :]).reshape(wide.shape)", "wide"),)  # fmt: skip


def judge_edits(edits: tuple[Edit, ...]) -> list[Finding]:
    """Returns what captures and probes say about the MLX model with these edits; none for the model as shipped.

    Raises:
        InvalidMutationError: when an edit can't be made.
    """
    found: list[Finding] = []
    with code_copy(MODEL, edits) as copy:
        for probe in model_probes.PROBES:
            found += probe(copy.module)
            if found and edits:
                break
    return found


def _mutations(_context: BatteryContext) -> list[Mutation]:
    return [
        Mutation(
            id=one.id,
            area=one.id.partition(".")[0],
            field=f"{one.edits[0].module}.{one.edits[0].function}",
            change=one.change,
            expected=(one.caught_by,),
            payload=one.edits,
        )
        for one in MISTAKES
    ]


def _judge(mutation: Mutation, _context: BatteryContext) -> list[Finding]:
    edits: tuple[Edit, ...] = mutation.payload
    return judge_edits(edits)


def _forced(_context: BatteryContext) -> Mutation:
    return Mutation(
        id="forced.no-injection", area="forced", field="residual.apply", change="blocks never reach the streams",
        expected=(CAPTURE,), payload=_FORCED,
    )  # fmt: skip


BATTERY: Final = Battery(
    name="model",
    title="Mistakes of a port and of its state, made in the MLX code; each is caught by a capture or by a probe.",
    mutations=_mutations,
    judge=_judge,
    control=lambda _context: judge_edits(()),
    forced=_forced,
    place=lambda finding: finding.where.partition(": ")[0],
)
