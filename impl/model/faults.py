"""Faults at any stage of the graph: what a transaction must survive, as a trace that a test or gate hands in.

MLX is lazy, so a stage is evaluated before its fault; one kind fails inside a later evaluation instead, where no line
of Python stands between the stages, and one is seen only when the whole chunk is judged.
"""

import contextlib
from typing import Final, Literal

import mlx.core as mx

from assay.impl.model import backend
from assay.impl.model.trace import Trace

Kind = Literal["exception", "non-finite", "allocation", "evaluation", "cancellation", "late"]
KINDS: Final[tuple[Kind, ...]] = (
    "exception",
    "non-finite",
    "allocation",
    "evaluation",
    "cancellation",
    "late",
)
"""`allocation` is the error of an allocator that was asked for too much (MLX 0.32 on the CPU does not raise it: where
malloc returns nothing the process ends); `evaluation` asks for a product that the device does not have, so that a
later evaluation fails in its middle; `late` gives the chunk up, so that what a worker delivers afterwards comes too late."""


class InjectedError(Exception):
    """Raised by a fault; not a kind of error that the model itself raises."""


class Fault(Trace):
    """Fails after one stage call.

    Attributes:
        calls: stage calls so far; with no fault the number that a chunk makes.
        place: the stage at which it failed, such as `layers.1.gdn`.
    """

    def __init__(self, kind: Kind | None = None, at: int = 0) -> None:
        """Fails after call number `at`, from 1; with 0, or without a kind, never."""
        super().__init__(self._asked)
        self.calls = 0
        self.place = ""
        self._kind = kind
        self._at = at

    def stage(self, stage: str, layer: int | None, value: mx.array) -> mx.array:
        """Counts a stage and fails after it if it is the one."""
        self.calls += 1
        if self._kind is None or self.calls != self._at:
            return super().stage(stage, layer, value)
        self.place = stage if layer is None else f"layers.{layer}.{stage}"
        mx.eval(value)
        if self._kind in {"exception", "late"}:
            raise InjectedError(self.place)
        if self._kind == "allocation":
            raise MemoryError(self.place)
        return super().stage(stage, layer, self._spoilt(value))

    def _spoilt(self, value: mx.array) -> mx.array:
        if self._kind == "non-finite":
            flat = value.reshape(-1)
            return mx.concatenate([mx.array([float("nan")]), flat[1:]]).reshape(value.shape)
        if self._kind == "evaluation":
            return value + _undispatched()
        return value

    def _asked(self) -> bool:
        return self._kind == "cancellation" and self._at == self.calls


class Abandoned(Trace):
    """Gives a chunk up after one stage call while the device fails at work of it, which must not reach a later chunk."""

    def __init__(self, at: int) -> None:
        """Gives up after call number `at`, from 1."""
        super().__init__()
        self._left = at

    def stage(self, stage: str, layer: int | None, value: mx.array) -> mx.array:
        """Counts a stage and gives up after it if it is the one."""
        self._left -= 1
        if self._left:
            return super().stage(stage, layer, value)
        with contextlib.suppress(RuntimeError):  # raised at once where the device is quicker than the host
            backend.start(_failing(value))
        raise InjectedError(stage)


def _undispatched() -> mx.array:
    """Returns a scalar that the device refuses when an evaluation comes to it: MLX gathers only float32 on the CPU."""
    rows, matrices = mx.zeros((1, 1, 2), dtype=mx.bfloat16), mx.zeros((1, 2, 2), dtype=mx.bfloat16)
    return mx.sum(mx.gather_mm(rows, matrices, rhs_indices=mx.array([0]), stream=mx.cpu)).astype(mx.float32)


def _failing(value: mx.array) -> mx.array:
    """Returns an array at which the device fails in its own thread.

    One such failure in ten is lost from MLX's count of tasks, and with more than ten lost every evaluation waits for
    ever: few of them fit into a process.
    """
    return value + mx.sum(mx.linalg.inv(mx.zeros((2, 2)), stream=mx.cpu))
