"""What a gate is given and what it hands back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.spec.errors import Finding
from assay.spec.verdicts import Label, Outcome


@dataclass(frozen=True, slots=True)
class Gate:
    """One named check, as data.

    Attributes:
        id: dotted word id, such as `contract.checkpoint`.
        title: what it shows, one sentence.
        components: the components whose status it can raise.
        rung: the lowest label that needs this gate to pass.
        function: where it lives, `module:name`; imported only in the gate's own process. Empty when `blocked`.
        needs: inputs without which it is `not-run`; the words are the keys of `assay.provenance.gates.inputs.INPUTS`.
        packages: distributions whose versions belong to its evidence.
        limit_s: seconds after which it counts as hung.
        may_use: inputs that it judges too where they are here; it is given no others.
        blocked: why no version of assay up to this one can decide it; such a gate is always `not-run`.
    """

    id: str
    title: str
    components: tuple[str, ...]
    rung: Label
    function: str
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    limit_s: float = 600.0
    blocked: str = ""
    may_use: tuple[str, ...] = ()

    def takes(self, word: str) -> bool:
        """Says whether the gate is given this input when it is here."""
        return word in self.needs or word in self.may_use


@dataclass(frozen=True, slots=True)
class GateContext:
    """What a gate may use.

    Attributes:
        checkpoint: directory with the description of the real checkpoint, or None.
        out: a folder of this run for bulky by-products of this gate.
        jobs: worker processes that it may start (spawn only).
        seed: seed of all randomness.
        private: whether the private seam was asked for.
    """

    checkpoint: Path | None
    out: Path
    jobs: int = 1
    seed: int = 0
    private: bool = False


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate came to.

    Attributes:
        outcome: a gate that could not look says `inconclusive` or `not-run`, never `pass`.
        measurements: a JSON value; integers beyond 2^53 as strings, floats finite. The report shows two keys in
            their own form (a battery, a ladder): `assay.spec.documents.measurements`.
        findings: every disagreement; a pass has none.
        reason: one sentence, required unless it passed.
        is_private: whether it stood on a private descriptor (the miniature), so that it can't reach `qualified`.
    """

    outcome: Outcome
    measurements: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    is_private: bool = False


GateFunction = Callable[[GateContext], GateResult]
