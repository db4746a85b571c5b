"""Gates that run a battery of mutations; each imports its battery, so that the evidence is about that code too."""

from assay.mutations import contract
from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.gates.batteries import battery_result


def contract_battery(context: GateContext) -> GateResult:
    """Mutates the contract, and the real config, headers and index where they are here."""
    return battery_result(contract.BATTERY.name, context)
