"""What a gate that runs a mutation battery comes to; each such gate is one line that calls `battery_result`.

The gate's own module imports the battery's module, so that the battery belongs to the code that the evidence is
about: the catalogue of batteries names modules as text, which an import closure can't follow.
"""

from typing import Final

from assay.mutations.battery import BatteryContext
from assay.mutations.runner import run_batteries
from assay.provenance.gates.base import GateContext, GateResult
from assay.spec.clauses import Authority, declare
from assay.spec.documents.measurements import BATTERY
from assay.spec.errors import Finding
from assay.spec.verdicts import Outcome

_SHOWN: Final = 50

SURVIVED = declare(
    "gate.mutation-survived",
    Authority.PROCESS,
    "Every mutation of a battery is killed, or says why it is equivalent.",
    source="design: how data flows",
    cause="no check bites at this place",
    fix="add the check, or write down why the mutation changes nothing that matters",
)


def battery_result(name: str, context: GateContext) -> GateResult:
    """Runs the battery `name`; a survivor, or a mutation that could not be applied, fails it, as in `assay mutate`.

    Returns:
        A result whose measurement `battery` is the whole `assay.mutation-run/1` document.

    Raises:
        EvidenceError: mutations.control, when the battery itself is broken; the gate is then inconclusive.
    """
    run = run_batteries([name], BatteryContext(context.checkpoint, context.seed), jobs=context.jobs)
    counts = run.batteries[name]
    measurements = {BATTERY: run.model_dump(mode="json", by_alias=True)}
    if run.survivors:
        findings = tuple(
            Finding.of(
                SURVIVED, "mutation", f"{one.battery}: {one.id}", expected="to be killed", got=one.reason
            )
            for one in run.survivors[:_SHOWN]
        )
        reason = (
            f"{counts.survived} of {counts.total} mutations survived, {counts.invalid} could not be applied"
        )
        return GateResult(Outcome.FAIL, measurements, findings, reason)
    if not counts.total:
        return GateResult(Outcome.INCONCLUSIVE, measurements, reason="the battery has no mutation")
    return GateResult(Outcome.PASS, measurements)
