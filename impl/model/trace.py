"""What the graph tells while it is built: the arrays of every stage, and what must be finite before publication.

The graph hands each stage's result to a `Trace` and goes on with what it gets back. In a plain run that is the same
array; a capture keeps it, a fault changes it or does not return.
"""

from collections.abc import Callable
from typing import Any, Final

import mlx.core as mx

from assay.impl.model.clauses import CANCELLED, refuse
from assay.impl.model.numerics import non_finite

SMALL: Final = 1 << 14
"""Values up to which an array is kept and looked at by the host, which takes less than two operations of the device."""


class Trace:
    """Collects what must be finite: small arrays themselves, and of large ones a scalar that is NaN when they are not.

    Attributes:
        names: where each was made.
        watched: the arrays.
    """

    is_recording = False

    def __init__(self, is_cancelled: Callable[[], bool] | None = None) -> None:
        """Asks `is_cancelled`, if given, after every stage."""
        self.names: list[str] = []
        self.watched: list[mx.array] = []
        self._is_cancelled = is_cancelled

    def stage(self, stage: str, layer: int | None, value: mx.array) -> mx.array:
        """Takes the result of a stage and returns what the graph goes on with.

        Raises:
            ContractError: model.transaction.cancelled.
        """
        if self._is_cancelled is not None and self._is_cancelled():
            place = stage if layer is None else f"layers.{layer}.{stage}"
            raise refuse(CANCELLED, place, expected="a chunk that goes on", got="a cancellation")
        self.check(stage, layer, value)
        return value

    def part(self, stage: str, layer: int | None, part: str, value: mx.array) -> None:
        """Takes an array inside a stage."""

    def check(self, stage: str, layer: int | None, value: mx.array) -> None:
        """Adds an array to those that must be finite."""
        self.names.append(stage if layer is None else f"layers.{layer}.{stage}")
        self.watched.append(value if value.size <= SMALL else non_finite(value))


class Recorder(Trace):
    """Keeps every array by (stage, layer, part), chunk after chunk."""

    is_recording = True

    def __init__(self, is_cancelled: Callable[[], bool] | None = None) -> None:
        """Asks `is_cancelled`, if given, after every stage."""
        super().__init__(is_cancelled)
        self.arrays: dict[tuple[str, int | None, str], list[Any]] = {}

    def stage(self, stage: str, layer: int | None, value: mx.array) -> mx.array:
        """Keeps the result of a stage."""
        self.part(stage, layer, "", value)
        return super().stage(stage, layer, value)

    def part(self, stage: str, layer: int | None, part: str, value: mx.array) -> None:
        """Keeps an array inside a stage."""
        self.arrays.setdefault((stage, layer, part), []).append(value)
