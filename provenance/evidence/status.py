"""Labels computed from evidence: what each component reached, why, and what is missing for the next rung.

A component reaches a rung when every gate that it has on that rung and on all lower ones has passing evidence about
the code, contract, fixtures, packages, platform and device that are here now. The newest record about them decides;
a record of a gate that did not run decides nothing, and neither does a judgement of a checkpoint that is not the
published one. From `qualified` on, evidence of the private seam does not count,
and `supported` needs every support gate of the profile as well. On a damaged chain nothing stands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from assay.provenance.components import Component
from assay.provenance.evidence.checkpoint_input import departures, describe_checkpoint, pinned_files
from assay.provenance.evidence.ledger import Chain, Entry
from assay.provenance.evidence.subjects import SourceTree, bench
from assay.provenance.gates.base import Gate
from assay.provenance.gates.inputs import INPUTS, gate_command
from assay.spec.contract.source_pins import SourcePins
from assay.spec.documents.base import FindingRecord
from assay.spec.documents.evidence import Bench, CheckpointInput, Evidence, Subject
from assay.spec.documents.run import LabelRecord, OutcomeText, SupportRecord
from assay.spec.documents.status import LedgerState, Status
from assay.spec.verdicts import LADDER, Label

State = Literal["pass", "fail", "inconclusive", "stale", "not-run", "private-only"]
_PUBLIC_FROM: Final = LADDER.index(Label.QUALIFIED)


@dataclass(frozen=True, slots=True)
class Present:
    """What is on disk and on this machine now.

    Attributes:
        subjects: component id -> its digests.
        gate_code: gate id -> digest of the code of the gate itself; None for a gate without a function.
        benches: gate id -> where it would be measured now.
        checkpoint: the checkpoint that is at hand, or None.
        pins: what upstream published; None when no component is about it, and then no input is compared with it.
    """

    subjects: Mapping[str, Subject]
    gate_code: Mapping[str, str | None]
    benches: Mapping[str, Bench]
    checkpoint: CheckpointInput | None = None
    pins: SourcePins | None = None

    def is_other(self, found: CheckpointInput | None) -> bool:
        """Says whether this is a checkpoint, and not the published one."""
        return found is not None and self.pins is not None and bool(departures(found, self.pins))


@dataclass(frozen=True, slots=True)
class Standing:
    """What the evidence says of one gate and one component: a state, why, and the record that decided."""

    state: State
    why: str = ""
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Registry:
    """The tables that labels are computed over."""

    components: tuple[Component, ...]
    gates: tuple[Gate, ...]
    support: Mapping[str, tuple[Gate, ...]]

    @classmethod
    def default(cls) -> "Registry":
        """Returns the project's own tables."""
        from assay.provenance.components import COMPONENTS
        from assay.provenance.gates.registry import GATES, SUPPORT_GATES

        return cls(COMPONENTS, GATES, SUPPORT_GATES)

    def every_gate(self) -> tuple[Gate, ...]:
        """Returns the gates that can be run, then all support gates."""
        return (*self.gates, *(gate for gates in self.support.values() for gate in gates))

    def components_of(self, gate: Gate) -> tuple[str, ...]:
        """Returns the components that `gate` is about; a support gate is about all."""
        return gate.components or tuple(one.id for one in self.components)


def present_checkpoint(directory: Path | None) -> CheckpointInput | None:
    """Returns which checkpoint is at hand."""
    return describe_checkpoint(directory) if directory is not None else None


def present_state(registry: Registry, tree: SourceTree, checkpoint: Path | None = None) -> Present:
    """Digests everything that the labels of `registry` depend on; `checkpoint` is the description at hand.

    Raises:
        EvidenceError: evidence.subject.missing or evidence.subject.syntax.
    """
    gates = registry.every_gate()
    return Present(
        subjects={one.id: tree.subject(one) for one in registry.components},
        gate_code={gate.id: gate_code_digest(gate, tree) for gate in gates},
        benches={gate.id: bench(gate.packages) for gate in gates},
        checkpoint=present_checkpoint(checkpoint),
        pins=pinned_files(),
    )


def gate_code_digest(gate: Gate, tree: SourceTree) -> str | None:
    """Returns the digest of the code of the gate itself, or None when it has none."""
    module = gate.function.partition(":")[0]
    return tree.code_digest([module]) if module.startswith("assay.") else None


def compute_status(chain: Chain, present: Present, registry: Registry) -> Status:
    """Returns all labels and support states with their reasons."""
    judge = _Judge(chain, present, registry)
    labels = [judge.label(one) for one in registry.components]
    support = [judge.support_state(profile) for profile in registry.support]
    return Status(
        labels=labels,
        support=support,
        ledger=LedgerState(
            records=len(chain.entries),
            head=chain.head,
            findings=[FindingRecord(**finding.as_json()) for finding in chain.findings],
        ),
        not_claimed=_not_claimed(labels, support),
        next_steps=_next_steps(labels, registry, is_damaged=bool(chain.findings)),
    )


def decisive_records(chain: Chain, present: Present, registry: Registry) -> list[Entry]:
    """Returns the entries that the present labels stand on, oldest first."""
    judge = _Judge(chain, present, registry)
    wanted = {
        standing.digest
        for gate in registry.gates
        for component in registry.components_of(gate)
        for is_public in (False, True)
        if (standing := judge.standing(gate, component, is_public=is_public)).state == "pass"
    }
    return [entry for entry in chain.entries if entry.digest in wanted]


def what_changed(record: Evidence, component: str, gate: Gate, present: Present) -> list[str]:
    """Returns in words how the subject of `record` differs from what is here now; empty when it is current."""
    then, now = record.subjects[component], present.subjects[component]
    changed = [name for name in ("code", "contract", "fixtures") if getattr(then, name) != getattr(now, name)]
    if record.gate_code != present.gate_code[gate.id]:
        changed.append("the gate itself")
    before, here = record.bench, present.benches[gate.id]
    for name in ("python", "platform", "device"):
        old, new = getattr(before, name), getattr(here, name)
        if old != new:
            changed.append(f"{name} {old} -> {new}")
    for name in sorted(before.packages.keys() | here.packages.keys()):
        old, new = before.packages.get(name, "not recorded"), here.packages.get(name, "not named")
        if old != new:
            changed.append(f"{name} {old} -> {new}")
    then_judged, at_hand = record.checkpoint, present.checkpoint
    if "checkpoint" in gate.needs and then_judged is None:
        changed.append("the checkpoint's description (not recorded)")
    if then_judged and at_hand and then_judged != at_hand and not present.is_other(at_hand):
        changed.append("the checkpoint's description")
    return changed


class _Judge:
    def __init__(self, chain: Chain, present: Present, registry: Registry) -> None:
        self._is_damaged = bool(chain.findings)
        self._present = present
        self._registry = registry
        self._newest_first: dict[str, list[Entry]] = {}
        for entry in reversed(chain.entries):
            self._newest_first.setdefault(entry.record.gate, []).append(entry)

    def standing(self, gate: Gate, component: str, *, is_public: bool) -> Standing:
        """Returns what the evidence says; with `is_public`, evidence of the private seam does not count."""
        if gate.blocked:
            return Standing("not-run", gate.blocked)
        if self._is_damaged:
            return Standing("not-run", "the evidence is damaged")
        found = Standing("not-run", "no evidence yet")
        for entry in self._newest_first.get(gate.id, []):
            record = entry.record
            if component not in record.subjects:
                continue
            if record.outcome == "not-run":
                if found == Standing("not-run", "no evidence yet"):
                    found = Standing("not-run", record.reason)
                continue
            if self._present.is_other(record.checkpoint):
                if found == Standing("not-run", "no evidence yet"):
                    found = Standing(
                        "not-run", "its evidence is about another checkpoint than the published one"
                    )
                continue
            changed = what_changed(record, component, gate, self._present)
            if changed:
                if found.state == "not-run":
                    found = Standing("stale", f"changed since: {', '.join(changed)}", entry.digest)
            elif is_public and record.seam == "private":
                found = Standing("private-only", "evidence of the private seam only", entry.digest)
            else:
                return Standing(record.outcome, record.reason, entry.digest)
        return found

    def label(self, component: Component) -> LabelRecord:
        """Returns the label of one component with everything that explains it."""
        own = [gate for gate in self._registry.gates if component.id in gate.components]
        reached, missing = Label.HYPOTHESIS, [] if own else ["no gate is registered for this component"]
        for height, rung in enumerate(LADDER[1:], start=1):
            gates = [gate for gate in own if gate.rung is rung]
            if rung is Label.SUPPORTED:
                gates += [gate for group in self._registry.support.values() for gate in group]
                if reached is not Label.QUALIFIED:
                    break
            if not gates:
                continue
            asked = [gate for gate in own if LADDER.index(gate.rung) < height] + gates
            missing = self._lacking(asked, component.id, rung, is_public=height >= _PUBLIC_FROM)
            if missing:
                break
            reached = rung
        if own and not missing and reached is not Label.SUPPORTED:
            rung = LADDER[LADDER.index(reached) + 1]
            missing = [f"no gate is registered for `{rung}`"]
        standings = {gate.id: self.standing(gate, component.id, is_public=False) for gate in own}
        return LabelRecord(
            component=component.id,
            title=component.title,
            label=reached.value,
            claim=_claim(component, reached),
            missing=missing,
            gates={id_: standing.state for id_, standing in standings.items()},
            stale=[f"{id_}: {one.why}" for id_, one in standings.items() if one.state == "stale"],
            not_shown=[
                f"{rung}: {component.claims[rung]}"
                for rung in LADDER
                if rung in component.claims and LADDER.index(rung) > LADDER.index(reached)
            ],
        )

    def support_state(self, profile: str) -> SupportRecord:
        """Returns the support state of one profile."""
        gates = {gate.id: self._support_outcome(gate) for gate in self._registry.support[profile]}
        is_supported = bool(gates) and all(outcome == "pass" for outcome in gates.values())
        return SupportRecord(
            profile=profile, state="supported" if is_supported else "pinned-not-supported", gates=gates
        )

    def _support_outcome(self, gate: Gate) -> OutcomeText:
        states = {
            self.standing(gate, one, is_public=True).state for one in self._registry.components_of(gate)
        }
        order: tuple[OutcomeText, ...] = ("fail", "inconclusive")
        for outcome in order:
            if outcome in states:
                return outcome
        return "pass" if states == {"pass"} else "not-run"

    def _lacking(self, gates: Sequence[Gate], component: str, rung: Label, *, is_public: bool) -> list[str]:
        found = []
        for gate in gates:
            standing = self.standing(gate, component, is_public=is_public)
            if standing.state != "pass":
                why = f": {standing.why}" if standing.why else ""
                found.append(f"{rung}: {gate.id} is {standing.state}{why}")
        return found


def _claim(component: Component, reached: Label) -> str:
    """Returns the sentences of the rungs up to `reached`, then where they end; nothing for a hypothesis."""
    if reached is Label.HYPOTHESIS:
        return ""
    below = LADDER[: LADDER.index(reached) + 1]
    return " ".join(
        [*(component.claims[rung] for rung in below if rung in component.claims), component.boundary]
    )


def _not_claimed(labels: Sequence[LabelRecord], support: Sequence[SupportRecord]) -> list[str]:
    said = []
    for one in support:
        passed = sum(outcome == "pass" for outcome in one.gates.values())
        if one.state != "supported":
            said.append(
                f"Nobody may call {one.profile} supported: {passed} of {len(one.gates)} support gates have passed; "
                f"its state is {one.state}."
            )
    height = {one.component: LADDER.index(Label(one.label)) for one in labels}
    if bare := [name for name, rung in height.items() if rung == 0]:
        said.append(f"Nothing is claimed of {', '.join(bare)}.")
    if lower := [name for name, rung in height.items() if 0 < rung < _PUBLIC_FROM]:
        said.append(f"No quality at the real size, speed or memory is claimed of {', '.join(lower)}.")
    return said


def _next_steps(labels: Sequence[LabelRecord], registry: Registry, *, is_damaged: bool) -> list[str]:
    if is_damaged:
        return ["restore the evidence folder from a copy, or move it away and run `assay gate`"]
    steps = []

    def wanted(state: State) -> list[str]:
        return sorted({id_ for one in labels for id_, found in one.gates.items() if found == state})

    needs = {gate.id: gate.needs for gate in registry.gates}

    def command(ids: Sequence[str]) -> str:
        return gate_command(ids, (need for id_ in ids for need in needs[id_]))

    if failing := wanted("fail") + wanted("inconclusive"):
        steps.append(f"find out why, then run again: {command(failing)}")
    if stale := wanted("stale"):
        steps.append(f"renew stale evidence: {command(stale)}")
    waiting: dict[tuple[str, ...], list[str]] = {}
    for id_ in wanted("not-run"):
        waiting.setdefault(tuple(sorted(needs[id_])), []).append(id_)
    for lacking, ids in sorted(waiting.items()):
        if not lacking:
            steps.append(f"run what has no evidence yet: {command(ids)}")
        else:
            steps.append(f"with {' and '.join(INPUTS[need][0] for need in lacking)}: {command(ids)}")
    return steps
