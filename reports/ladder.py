"""The debugging ladder of a run: the first rung that differs, and what nothing is known about."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from assay.spec.documents.measurements import LADDER, LadderMeasurement
from assay.spec.documents.run import Run
from assay.spec.ladder import RUNGS


@dataclass(frozen=True, slots=True)
class RungView:
    """One rung; `state` is equal, differs, unknown or not-blamed."""

    title: str
    state: str
    is_first_difference: bool = False


@dataclass(frozen=True, slots=True)
class LadderRow:
    """The ladder as one gate saw it."""

    gate: str
    href: str
    rungs: Sequence[RungView]
    where: str
    detail: str
    unknown_before: int


@dataclass(frozen=True, slots=True)
class LadderView:
    """One row for each gate that compared captures; the one with the lowest first difference leads."""

    rows: Sequence[LadderRow]
    sentence: str


def ladder_of(run: Run, anchors: dict[str, str]) -> LadderView:
    """Returns what the run knows of each rung; a run without such a gate knows nothing, and says so."""
    rows = []
    for gate in run.gates:
        value = gate.measurements.get(LADDER)
        if value is None:
            continue
        try:
            measured = LadderMeasurement.model_validate(value)
        except ValidationError:
            measured = LadderMeasurement(detail="the gate's ladder could not be read")
        rows.append(_row(gate.id, anchors.get(gate.id, ""), measured))
    if not rows:
        nothing = _row("", "", LadderMeasurement())
        return LadderView([nothing], "No gate of this run compared two captures, so every rung is unknown.")
    rows.sort(key=_first_difference)
    return LadderView(rows, _sentence(rows[0]))


def _row(gate: str, href: str, measured: LadderMeasurement) -> LadderRow:
    states = [measured.rungs.get(rung.id, "unknown") for rung in RUNGS]
    first = states.index("differs") if "differs" in states else len(states)
    rungs = [
        RungView(rung.title, "not-blamed" if index > first else state, index == first)
        for index, (rung, state) in enumerate(zip(RUNGS, states, strict=True))
    ]
    return LadderRow(gate, href, rungs, measured.where, measured.detail, states[:first].count("unknown"))


def _first_difference(row: LadderRow) -> int:
    return next((index for index, rung in enumerate(row.rungs) if rung.is_first_difference), len(row.rungs))


def _sentence(row: LadderRow) -> str:
    first = _first_difference(row)
    known = sum(rung.state == "equal" for rung in row.rungs)
    if first == len(row.rungs):
        return (
            f"No rung differs: {known} of {len(row.rungs)} are equal within the gate's tolerances, "
            f"{len(row.rungs) - known} are unknown."
        )
    unsure = f"; {row.unknown_before} before it unknown" if row.unknown_before else ""
    return f"First difference: {row.rungs[first].title}{unsure}. The rungs after it are not blamed."
