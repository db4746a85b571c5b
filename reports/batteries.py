"""The mutation batteries that a gate ran, as the report shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from assay.reports.text import anchor
from assay.spec.documents.measurements import BATTERY
from assay.spec.documents.mutation_run import (
    AreaCounts,
    BatteryCounts,
    BatteryDetail,
    MutationRecord,
    MutationRun,
)
from assay.spec.documents.run import GateRecord

RECORDS_PER_BATTERY: Final = 30
LEAVES_PER_REASON: Final = 12


@dataclass(frozen=True, slots=True)
class BatteryView:
    """One battery: counts, areas, and the mutations that need a reader."""

    name: str
    anchor: str
    counts: BatteryCounts
    areas: Sequence[tuple[str, AreaCounts]]
    detail: BatteryDetail
    survivors: Sequence[MutationRecord]
    elsewhere: Sequence[MutationRecord]
    hidden: int


def mutation_run_of(gate: GateRecord) -> MutationRun | None:
    """Returns the mutation run among a gate's measurements; None when there is none or it is malformed."""
    value = gate.measurements.get(BATTERY)
    if not isinstance(value, dict):
        return None
    try:
        return MutationRun.model_validate(value)
    except ValidationError:
        return None


def batteries_of(gate: GateRecord, gate_anchor: str) -> list[BatteryView]:
    """Returns the batteries of a gate, in their order; a gate without a readable mutation run has none."""
    run = mutation_run_of(gate)
    if run is None:
        return []
    views = []
    for name, counts in run.batteries.items():
        detail = run.details.get(name) or BatteryDetail(areas={})
        survivors = [one for one in run.survivors if one.battery == name]
        elsewhere = [one for one in run.killed_elsewhere if one.battery == name]
        kept = survivors[:RECORDS_PER_BATTERY]
        kept_elsewhere = elsewhere[: RECORDS_PER_BATTERY - len(kept)]
        views.append(
            BatteryView(
                name=name,
                anchor=f"{gate_anchor}-{anchor('battery', name)}",
                counts=counts,
                areas=list(detail.areas.items()),
                detail=detail,
                survivors=kept,
                elsewhere=kept_elsewhere,
                hidden=len(survivors) + len(elsewhere) - len(kept) - len(kept_elsewhere),
            )
        )
    return views
