"""Compares two runs: what changed, what regressed, which labels moved.

Losing is regressing: a pass that became anything else, a label or battery that shrank or vanished, a new finding
at a gate that already failed. A failure that is merely no longer run has not improved.
"""

from typing import Any, Final

from assay.reports.batteries import mutation_run_of
from assay.reports.text import plural
from assay.reports.view import flat_values, stale_gates
from assay.spec.documents.base import FindingRecord
from assay.spec.documents.mutation_run import BatteryCounts
from assay.spec.documents.run import GateRecord, LabelRecord, Run
from assay.spec.documents.run_comparison import (
    BatteryChange,
    Change,
    GateChange,
    LabelChange,
    MeasurementChange,
    RunComparison,
    RunIdentity,
    SettingChange,
)
from assay.spec.verdicts import LADDER

MEASUREMENTS_LIMIT: Final = 200
FINDINGS_LIMIT: Final = 40
_LABELS: Final = [str(label) for label in LADDER]
_SUPPORT: Final = ["pinned-not-supported", "supported"]


def compare(
    a: Run, b: Run, *, unfinished: frozenset[str] = frozenset(), was_cut_off: bool = False
) -> RunComparison:
    """Returns how `b` stands against `a`.

    Args:
        a: the earlier run.
        b: the later run.
        unfinished: gates that had not ended when a run was cut off; of them nothing is known.
        was_cut_off: whether a run was cut off; its labels are then unknown, and the verdict is inconclusive unless
            what did end regressed.
    """
    gates = _gates(a, b, unfinished)
    labels = [] if was_cut_off else _labels(a, b)
    support = [] if was_cut_off else _support(a, b)
    batteries = _batteries(a, b, unfinished)
    regressions = [
        *(f"gate {one.id}: {'; '.join(one.reasons)}" for one in gates if one.change == "regressed"),
        *(f"label {one.component}: {'; '.join(one.reasons)}" for one in labels if one.change == "regressed"),
        *(
            f"support {one.component}: {'; '.join(one.reasons)}"
            for one in support
            if one.change == "regressed"
        ),
        *(
            f"battery {one.battery}: {'; '.join(one.reasons)}"
            for one in batteries
            if one.change == "regressed"
        ),
    ]
    return RunComparison(
        a=_identity(a),
        b=_identity(b),
        verdict="regressed" if regressions else "inconclusive" if was_cut_off else "not-regressed",
        regressions=regressions,
        gates=gates,
        labels=labels,
        support=support,
        batteries=batteries,
        measurements=_measurements(a, b),
        settings=_settings(a, b),
        cautions=_cautions(a, b, was_cut_off),
    )


def _identity(run: Run) -> RunIdentity:
    return RunIdentity(
        run=run.run,
        outcome=run.outcome,
        started=run.started,
        revision=run.environment.revision if run.environment else "",
        seam=run.seam,
    )


def _gates(a: Run, b: Run, unfinished: frozenset[str]) -> list[GateChange]:
    before = {gate.id: gate for gate in a.gates}
    after = {gate.id: gate for gate in b.gates}
    return [
        _gate(id_, before.get(id_), after.get(id_), is_unknown=id_ in unfinished)
        for id_ in {**before, **after}
    ]


def _gate(id_: str, before: GateRecord | None, after: GateRecord | None, *, is_unknown: bool) -> GateChange:
    reasons: list[str] = []
    change: Change = "same"
    new = _minus(after, before) if before and after else []
    gone = _minus(before, after) if before and after else []
    if is_unknown:
        change = "changed"
        reasons.append("had not ended when a run was cut off: nothing is known")
    elif before is None:
        change = "added"
    elif after is None:
        change = "regressed" if before.outcome == "pass" else "removed"
        reasons.append(f"was {before.outcome}, is missing from the second run")
    elif before.outcome != after.outcome:
        lost = before.outcome == "pass" or after.outcome == "fail"
        change = "regressed" if lost else "improved" if after.outcome == "pass" else "changed"
        reasons.append(f"{before.outcome} became {after.outcome}")
    elif after.outcome != "pass" and new:
        change = "regressed"
    elif new or gone:
        change = "changed"
    if new:
        reasons.append(f"{plural(len(new), 'new finding')}, first {new[0].code} at {new[0].where}")
    if gone:
        reasons.append(f"{plural(len(gone), 'finding')} gone")
    return GateChange(
        id=id_,
        before=before.outcome if before else None,
        after=after.outcome if after else None,
        change=change,
        reasons=reasons,
        new_findings=new[:FINDINGS_LIMIT],
        gone_findings=gone[:FINDINGS_LIMIT],
    )


def _minus(one: GateRecord, other: GateRecord) -> list[FindingRecord]:
    """Findings of `one` whose code and place `other` lacks; values may differ from run to run."""
    known = {(finding.code, finding.where) for finding in other.findings}
    return [finding for finding in one.findings if (finding.code, finding.where) not in known]


def _labels(a: Run, b: Run) -> list[LabelChange]:
    before = {label.component: label for label in a.labels}
    after = {label.component: label for label in b.labels}
    return [_label(id_, before.get(id_), after.get(id_)) for id_ in {**before, **after}]


def _label(component: str, before: LabelRecord | None, after: LabelRecord | None) -> LabelChange:
    change = _moved(before.label if before else None, after.label if after else None, _LABELS)
    reasons = []
    if before is None or after is None:
        reasons.append("only the second run labels it" if after else "the second run does not label it")
    elif before.label != after.label:
        reasons.append(f"{before.label} became {after.label}")
    if after and before:
        known = stale_gates(before)
        reasons += [f"now stale: {entry}" for entry in after.stale if entry.split(":")[0] not in known]
        reasons += [
            f"now missing: {lack}"
            for lack in after.missing
            if change == "regressed" and lack not in before.missing
        ]
    return LabelChange(
        component=component,
        before=before.label if before else None,
        after=after.label if after else None,
        change="changed" if change == "same" and reasons else change,
        reasons=reasons,
    )


def _support(a: Run, b: Run) -> list[LabelChange]:
    before = {one.profile: one.state for one in a.support}
    after = {one.profile: one.state for one in b.support}
    changes = []
    for profile in {**before, **after}:
        was, is_ = before.get(profile), after.get(profile)
        change = _moved(was, is_, _SUPPORT)
        reasons = [] if was == is_ else [f"{was or 'absent'} became {is_ or 'absent'}"]
        changes.append(LabelChange(component=profile, before=was, after=is_, change=change, reasons=reasons))
    return changes


def _moved(before: str | None, after: str | None, ladder: list[str]) -> Change:
    if before is None:
        return "added"
    if after is None:
        # The lowest rung claims nothing, so that its loss takes nothing away.
        return "removed" if before == ladder[0] else "regressed"
    step = ladder.index(after) - ladder.index(before)
    return "improved" if step > 0 else "regressed" if step < 0 else "same"


def _batteries(a: Run, b: Run, unfinished: frozenset[str]) -> list[BatteryChange]:
    before, after = _counts(a), _counts(b)
    changes = []
    for key in (key for key in {**before, **after} if key[0] not in unfinished):
        was, is_ = before.get(key), after.get(key)
        reasons: list[str] = []
        change: Change = "same"
        if was is None or is_ is None:
            change = "added" if was is None else "regressed"
            reasons.append("only in the second run" if was is None else "missing from the second run")
        elif was != is_:
            reasons = [
                f"{name.replace('_', ' ')} {getattr(was, name):,} became {getattr(is_, name):,}"
                for name in BatteryCounts.model_fields
                if getattr(was, name) != getattr(is_, name)
            ]
            worse = is_.survived > was.survived or is_.killed < was.killed
            change = "regressed" if worse else "improved" if is_.survived < was.survived else "changed"
        changes.append(
            BatteryChange(
                gate=key[0],
                battery=key[1],
                before=was.model_dump() if was else None,
                after=is_.model_dump() if is_ else None,
                change=change,
                reasons=reasons,
            )
        )
    return changes


def _counts(run: Run) -> dict[tuple[str, str], BatteryCounts]:
    found: dict[tuple[str, str], BatteryCounts] = {}
    for gate in run.gates:
        mutations = mutation_run_of(gate)
        for name, counts in mutations.batteries.items() if mutations else ():
            found[gate.id, name] = counts
    return found


def _measurements(a: Run, b: Run) -> list[MeasurementChange]:
    before = {gate.id: dict(flat_values(gate.measurements)) for gate in a.gates}
    changes = []
    for gate in b.gates:
        old = before.get(gate.id)
        if old is None:
            continue
        new = dict(flat_values(gate.measurements))
        changes += [
            MeasurementChange(gate=gate.id, name=name, before=old.get(name), after=new.get(name))
            for name in {**old, **new}
            if old.get(name) != new.get(name)
        ]
    return changes[:MEASUREMENTS_LIMIT]


def _settings(a: Run, b: Run) -> list[SettingChange]:
    before, after = _facts(a), _facts(b)
    return [
        SettingChange(name=name, before=str(before.get(name, "—")), after=str(after.get(name, "—")))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def _facts(run: Run) -> dict[str, Any]:
    facts: dict[str, Any] = {"seed": run.seed, "seam": run.seam or "public"}
    if run.environment:
        rest = run.environment.model_dump()
        packages = rest.pop("packages")
        facts |= rest | {f"package {name}": version for name, version in packages.items()}
    return facts


def _cautions(a: Run, b: Run, was_cut_off: bool) -> list[str]:
    said = []
    if was_cut_off:
        said.append("A run was cut off: of labels and of gates that had not ended, nothing is known.")
    if a.seam != b.seam:
        said.append("One run is public and one private: their labels do not mean the same.")
    if a.environment and b.environment:
        if a.environment.checkpoint != b.environment.checkpoint:
            said.append("Only one run had the real checkpoint: gates that need it differ for that reason.")
        if (a.environment.machine, a.environment.device) != (b.environment.machine, b.environment.device):
            said.append("The machines differ: compare measured speed with care.")
    if a.run == b.run:
        said.append("Both sides carry the same run id.")
    if {gate.id for gate in a.gates} != {gate.id for gate in b.gates}:
        said.append("The runs hold different gates; one that passed and is missing counts as regressed.")
    return said
