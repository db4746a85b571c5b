"""The debugging ladder: the order in which a divergence is looked for, the same everywhere."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung: its stable id and what a reader calls it."""

    id: str
    title: str


RUNGS: Final[tuple[Rung, ...]] = (
    Rung("prompt-bytes", "prompt bytes"),
    Rung("token-ids", "token ids"),
    Rung("ple-rows", "PLE rows"),
    Rung("embedding", "embedding"),
    Rung("layer-stage", "layer stage"),
    Rung("final-logits", "final logits"),
    Rung("sampled-id", "sampled id"),
)
"""Lowest first; a difference on one rung explains the ones after it, so that those are not blamed."""
