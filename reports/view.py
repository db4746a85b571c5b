"""What a report of one run says, in the order in which it says it; the templates only lay it out.

Everything that could grow without bound is cut here, and each cut knows how much it left out.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from assay.provenance.gates.inputs import gate_command
from assay.reports.batteries import BatteryView, batteries_of, mutation_run_of
from assay.reports.ladder import LadderView, ladder_of
from assay.reports.text import anchor, plural
from assay.spec.documents.base import FindingRecord
from assay.spec.documents.measurements import BATTERY, LADDER, TIMELINE, TimelineMeasurement
from assay.spec.documents.run import GateRecord, LabelRecord, Run
from assay.spec.errors import most_telling
from assay.spec.verdicts import LADDER as LABELS

FINDINGS_PER_GATE: Final = 40
FINDINGS_PER_REPORT: Final = 400
RED_ROWS: Final = 40
VALUES_PER_GATE: Final = 24

OUTCOME_WORDS: Final = {"pass": "pass", "fail": "fail", "inconclusive": "inconclusive", "not-run": "not run"}
STATES: Final = ("pass", "fail", "inconclusive", "not-run", "stale")
_COMMAND: Final = re.compile(r": (assay [^`]+)$")
_ORDER: Final = ("fail", "inconclusive", "pass", "not-run")


@dataclass(frozen=True, slots=True)
class Tile:
    """One count of the strip."""

    state: str
    count: int
    text: str
    href: str


@dataclass(frozen=True, slots=True)
class RedItem:
    """One thing that does not hold, with the place where the report says more."""

    state: str
    word: str
    name: str
    text: str
    href: str
    more: int = 0


@dataclass(frozen=True, slots=True)
class LabelView:
    """One component: its label, how high it stands, and what the next rung lacks."""

    record: LabelRecord
    anchor: str
    height: int

    @property
    def is_shown(self) -> bool:
        """Whether any evidence stands behind the claim; a hypothesis is what nothing has been shown of."""
        return self.height > 0


@dataclass(frozen=True, slots=True)
class GateView:
    """One gate with the findings and values that fit."""

    record: GateRecord
    anchor: str
    findings: Sequence[FindingRecord]
    hidden_findings: int
    values: Sequence[tuple[str, str]]
    hidden_values: int
    batteries: Sequence[BatteryView]
    timeline: TimelineMeasurement | None = None


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One gate of the matrix; a cell is a state, or empty where the gate says nothing of the component."""

    gate: str
    href: str
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Gates down, components across."""

    components: Sequence[LabelView]
    rows: Sequence[MatrixRow]


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything that the four formats show."""

    run: Run
    headline: str
    boundary: str
    tiles: Sequence[Tile]
    labels: Sequence[LabelView]
    red: Sequence[RedItem]
    hidden_red: int
    not_claimed: Sequence[str]
    next_steps: Sequence[str]
    ladder: LadderView
    matrix: Matrix
    gates: Sequence[GateView]
    command: str
    counts: dict[str, int] = field(default_factory=dict)


def view_of(run: Run) -> RunView:
    """Returns what there is to say about a run."""
    names = _Anchors()
    gates = _gates(run, names)
    labels = [
        LabelView(one, names("label", one.component), [str(rung) for rung in LABELS].index(one.label))
        for one in run.labels
    ]
    red = _red(run, gates, labels)
    counts: Counter[str] = Counter(gate.outcome for gate in run.gates)
    return RunView(
        run=run,
        headline=_headline(run, counts, red),
        boundary=_boundary(run),
        tiles=_tiles(counts, gates, labels),
        labels=labels,
        red=red[:RED_ROWS],
        hidden_red=max(0, len(red) - RED_ROWS),
        not_claimed=_not_claimed(run),
        next_steps=[_COMMAND.sub(r": `\1`", step) for step in run.next_steps] or _next_steps(gates, labels),
        ladder=ladder_of(run, {gate.record.id: gate.anchor for gate in gates}),
        matrix=_matrix(run, gates, labels),
        gates=gates,
        command=_command(run),
        counts=dict(counts),
    )


def _gates(run: Run, names: "_Anchors") -> list[GateView]:
    """What fails first, what was not run last; findings are dealt out until the report has enough."""
    left = FINDINGS_PER_REPORT
    views = []
    for gate in sorted(run.gates, key=_rank):
        shown = gate.findings[: min(FINDINGS_PER_GATE, left)]
        left -= len(shown)
        values = flat_values(gate.measurements)
        name = names("gate", gate.id)
        if BATTERY in gate.measurements and mutation_run_of(gate) is None:
            values.insert(0, (BATTERY, "can't be read as assay.mutation-run/1, so it is not shown"))
        views.append(
            GateView(
                record=gate,
                anchor=name,
                findings=shown,
                hidden_findings=len(gate.findings) - len(shown),
                values=values[:VALUES_PER_GATE],
                hidden_values=max(0, len(values) - VALUES_PER_GATE),
                batteries=batteries_of(gate, name),
                timeline=_timeline_of(gate),
            )
        )
    return views


def _timeline_of(gate: GateRecord) -> TimelineMeasurement | None:
    try:
        return TimelineMeasurement.model_validate_json(json.dumps(gate.measurements.get(TIMELINE)))
    except ValueError:  # none, or another version's: then it is not drawn
        return None


def _rank(gate: GateRecord) -> int:
    is_missed = gate.required and gate.outcome == "not-run"
    return _ORDER.index("inconclusive" if is_missed else gate.outcome)


def stale_gates(label: LabelRecord) -> list[str]:
    """Returns the ids of the gates whose evidence is stale; an entry of `stale` is an id, or an id and why."""
    said = [entry.split(":")[0] for entry in label.stale]
    return list(dict.fromkeys([*said, *(id_ for id_, state in label.gates.items() if state == "stale")]))


def flat_values(measurements: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Measurements as name and text, nested names joined by dots; batteries and ladders are shown elsewhere."""
    found: list[tuple[str, str]] = []
    for name, value in measurements.items():
        if not prefix and name in {BATTERY, LADDER, TIMELINE}:
            continue
        if isinstance(value, dict) and value:
            found += flat_values(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", _value(value)))
    return found


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(one) for one in value[:12]) + (
            f", … ({len(value):,})" if len(value) > 12 else ""
        )
    return "—" if value is None else str(value)


def _red(run: Run, gates: Sequence[GateView], labels: Sequence[LabelView]) -> list[RedItem]:
    """Failing, then surviving, then inconclusive, then stale; a required gate that was not run is inconclusive."""
    failing, surviving, open_, stale = [], [], [], []
    for view in gates:
        gate = view.record
        first = most_telling(gate.findings) if gate.findings else None
        text = gate.reason or gate.title or "no reason was given"
        if first:
            text = f"{first.code}: {first.where}: expected {first.expected}, got {first.got}"
        item = RedItem(
            gate.outcome,
            OUTCOME_WORDS[gate.outcome],
            gate.id,
            text,
            view.anchor,
            max(0, len(gate.findings) - 1),
        )
        if gate.outcome == "fail":
            failing.append(item)
        elif gate.outcome == "inconclusive":
            open_.append(item)
        elif gate.outcome == "not-run" and run.cut_off:
            open_.append(RedItem("inconclusive", "not ended", gate.id, text, view.anchor))
        elif gate.outcome == "not-run" and gate.required:
            text = f"required, but not run: {gate.reason or 'no reason was given'}"
            open_.append(RedItem("inconclusive", "not run", gate.id, text, view.anchor))
        surviving += [
            RedItem("fail", "survived", f"battery {battery.name}",
                    f"{plural(battery.counts.survived, 'mutation')} that nothing noticed", battery.anchor)
            for battery in view.batteries if battery.counts.survived
        ]  # fmt: skip
    for label in labels:
        if label.record.stale:
            text = "; ".join(label.record.stale)
            stale.append(RedItem("stale", "stale", label.record.component, text, label.anchor))
    return [*failing, *surviving, *open_, *stale]


def _headline(run: Run, counts: Counter[str], red: Sequence[RedItem]) -> str:
    total = len(run.gates)
    ended = f"{total - counts['not-run']:,} of {plural(total, 'gate')} had ended"
    if run.outcome == "fail":
        failed = counts["fail"]
        cut = f"; the run was cut off when {ended}" if run.cut_off else ""
        return f"{failed:,} of {plural(total, 'gate')} {'fails' if failed == 1 else 'fail'}{cut}"
    if run.cut_off:
        return f"Cut off: {ended}"
    if run.outcome == "inconclusive":
        return (
            f"Inconclusive: {plural(sum(one.state == 'inconclusive' for one in red), 'question')} left open"
        )
    if run.outcome == "not-run":
        return f"None of {plural(total, 'gate')} was run"
    unrun = f", {counts['not-run']:,} not run" if counts["not-run"] else ""
    return (
        f"{counts['pass']:,} of {plural(total, 'gate')} {'passes' if counts['pass'] == 1 else 'pass'}{unrun}"
    )


def _boundary(run: Run) -> str:
    """The whole claim in one sentence: how many components stand on which rung, and that no more is said."""
    standing: Counter[str] = Counter(one.label for one in run.labels)
    rungs = [f"{standing[rung]} {rung}" for rung in map(str, reversed(LABELS)) if standing[rung]]
    claim = (
        f"{plural(len(run.labels), 'component')}: {', '.join(rungs)}" if rungs else "No component is labelled"
    )
    top = (
        ""
        if standing["supported"] or standing["qualified"] or not rungs
        else "; none is qualified or supported"
    )
    states = "".join(f"; profile `{one.profile}` is `{one.state}`" for one in run.support)
    return f"{claim}{top}{states}."


def _tiles(counts: Counter[str], gates: Sequence[GateView], labels: Sequence[LabelView]) -> list[Tile]:
    batteries = [battery for gate in gates for battery in gate.batteries]
    tiles = [Tile(state, counts[state], OUTCOME_WORDS[state], "gates") for state in OUTCOME_WORDS]
    tiles.append(Tile("stale", sum(bool(one.record.stale) for one in labels), "stale", "holds"))
    for one in batteries:  # a count each: one number for all mutations would hide the weakest battery
        tiles.append(Tile("pass", one.counts.killed, f"{one.name} mutations killed", one.anchor))
        if one.counts.survived:
            tiles.append(Tile("fail", one.counts.survived, f"{one.name} mutations survived", one.anchor))
    return tiles


def _not_claimed(run: Run) -> list[str]:
    """What the run itself says, then what follows from it; each sentence once."""
    said = list(run.not_claimed)
    if run.seam:
        said.append("Made through the private seam: none of this evidence can reach `qualified`.")
    for one in run.support:
        if one.state != "supported" and not any(one.profile in text and one.state in text for text in said):
            passed = sum(outcome == "pass" for outcome in one.gates.values())
            said.append(
                f"Profile `{one.profile}` is `{one.state}`: {passed} of {len(one.gates)} support gates pass."
            )
    needs = Counter(", ".join(gate.needs) for gate in run.gates if gate.outcome == "not-run" and gate.needs)
    said += [f"Nothing that needs {need}: {plural(count, 'gate')} not run." for need, count in needs.items()]
    return list(dict.fromkeys(said))


def _next_steps(gates: Sequence[GateView], labels: Sequence[LabelView]) -> list[str]:
    failing = [view.record.id for view in gates if view.record.outcome == "fail"]
    unsure = [view.record.id for view in gates if view.record.outcome == "inconclusive"]
    stale = list(dict.fromkeys(gate for label in labels for gate in stale_gates(label.record)))
    steps: list[str] = []
    needs = {view.record.id: view.record.needs for view in gates}

    def command(names: Sequence[str]) -> str:
        return gate_command(names, (need for name in names for need in needs.get(name, ())))

    for why, names in (("failing", failing), ("inconclusive", unsure), ("stale", stale)):
        if names:
            steps.append(f"`{command(names)}` runs what is {why} again.")
    waiting: dict[str, list[str]] = {}
    for view in gates:
        if view.record.outcome == "not-run" and view.record.needs:
            waiting.setdefault(", ".join(sorted(view.record.needs)), []).append(view.record.id)
    codes = list(dict.fromkeys(one.code for view in gates for one in view.findings))
    steps += [f"`assay explain {code}` says what this means and how to fix it." for code in codes[:3]]
    steps += [
        f"Where there is what they need ({need}): `{command(names)}`." for need, names in waiting.items()
    ]
    return steps or ["`assay status` says what each component lacks for its next label."]


def _matrix(run: Run, gates: Sequence[GateView], labels: Sequence[LabelView]) -> Matrix:
    """Rows in the order of their ids; gates with earlier evidence stand in it although this run left them out."""
    here = {view.record.id: view for view in gates}
    known = sorted({*here, *(gate for one in run.labels for gate in one.gates)})
    rows = []
    for gate in known:
        cells = []
        for label in labels:
            record = here[gate].record if gate in here else None
            state = label.record.gates.get(gate, "")
            if not state and record is not None and label.record.component in record.components:
                state = record.outcome
            cells.append("stale" if gate in stale_gates(label.record) else state)
        rows.append(MatrixRow(gate, here[gate].anchor if gate in here else "", cells))
    return Matrix(labels, rows)


def _command(run: Run) -> str:
    """The command that makes this run again; gate ids so odd that they need quoting are left out."""
    names = [gate.id for gate in run.gates if re.fullmatch(r"[A-Za-z0-9._-]+", gate.id)]
    words = ["assay gate", f"--only {','.join(names)}" if names else "", f"--seed {run.seed}"]
    if run.environment and run.environment.checkpoint:
        words.append("--checkpoint DIR")
    if run.seam:
        words.append("--private")
    return " ".join(filter(None, words))


class _Anchors:
    """Gives every row a name of its own, also when two ids look alike once they are made safe."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __call__(self, *parts: str) -> str:
        name = base = anchor(*parts)
        number = 2
        while name in self._taken:
            name, number = f"{base}-{number}", number + 1
        self._taken.add(name)
        return name
