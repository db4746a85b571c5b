"""What a battery of mutations is made of.

A battery proves first that the unchanged thing passes and that a forced mistake fails; then it makes one mistake at
a time and asks which clause catches it. A mutation that no clause catches survives: the check does not bite.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.spec.clauses import Authority
from assay.spec.errors import Finding


@dataclass(frozen=True, slots=True)
class Mutation:
    """One deliberate mistake.

    Attributes:
        id: word id, unique in its battery, such as `pleHash.multipliers` or `leaf:/ple_hash/seed:value`.
        area: the row of the report that it is counted in.
        field: what it changes, in the words of the thing changed.
        change: what it does, one line.
        expected: clauses of which at least one must fire; empty means that any clause may.
        where: if not empty, a fired expected clause must name a place that contains this text.
        equivalent: why this mutation changes nothing that matters; empty for all others.
        payload: whatever the battery needs to apply it.
    """

    id: str
    area: str
    field: str
    change: str
    expected: tuple[str, ...] = ()
    where: str = ""
    equivalent: str = ""
    payload: Any = None


class InvalidMutationError(Exception):
    """The mutation could not be applied: its anchor is missing, or it changed nothing."""


@dataclass(frozen=True, slots=True)
class BatteryContext:
    """What a battery may use; it must pickle, since batteries run in spawned workers.

    Attributes:
        checkpoint: directory that describes the real checkpoint, or None.
        seed: seed of all randomness.
    """

    checkpoint: Path | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Battery:
    """A set of mutations of one thing.

    Attributes:
        name: as in `assay mutate NAME`.
        title: what the battery proves, one sentence.
        mutations: lists the mutations; the same context must give the same list in the same order.
        judge: applies one mutation to a private copy and returns every finding; raises `InvalidMutationError`
            when it can't be applied.
        control: judges the unchanged thing; must return no finding.
        forced: a mutation that must be killed, or the battery itself is broken.
        pin_reasons: why no rule can exist where only a pin caught a mutation; empty when nobody has said why.
        authority: if given, the authority that killed a mutation, instead of the strongest clause that fired.
        not_run: parts that this context can't decide, in words.
        place: if given, names what caught a mutation (such as a vector) out of a finding; the run lists the names.
    """

    name: str
    title: str
    mutations: Callable[[BatteryContext], list[Mutation]]
    judge: Callable[[Mutation, BatteryContext], list[Finding]]
    control: Callable[[BatteryContext], list[Finding]]
    forced: Callable[[BatteryContext], Mutation]
    pin_reasons: Callable[[Mutation], str] | None = None
    authority: Callable[[Mutation, list[Finding]], Authority] | None = None
    not_run: Callable[[BatteryContext], list[str]] = field(default=lambda _context: [])
    place: Callable[[Finding], str] | None = None
