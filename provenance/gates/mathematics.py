"""Gate of the battery `mathematics`: mistakes in the oracles, each caught by a shipped vector."""

from assay.mutations import mathematics
from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.gates.batteries import battery_result


def mathematics_battery(context: GateContext) -> GateResult:
    """Makes every mistake of the battery in a private copy of the oracles and asks the shipped vectors."""
    return battery_result(mathematics.BATTERY.name, context)
