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
        function: where it lives, `module:name`; imported only when the gate runs.
        needs: inputs without which it is `not-run`: `checkpoint`, `capture`, `metal`.
        packages: distributions whose versions belong to its evidence.
        limit_s: seconds after which it counts as hung.
    """

    id: str
    title: str
    components: tuple[str, ...]
    rung: Label
    function: str
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    limit_s: float = 600.0


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
    """What a gate came to; `reason` is required unless it passed."""

    outcome: Outcome
    measurements: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    reason: str = ""


GateFunction = Callable[[GateContext], GateResult]
