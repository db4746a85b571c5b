"""Routes of a streamed run for its recorder: what each token chose, by rank, and what of that was resident then.

A trace of the graph that hands everything on to another one. The arrays are read when the chunk has been evaluated, so
that recording adds no evaluation and can be left on.
"""

from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from assay.impl.model.trace import Trace
from assay.impl.runtime.streaming import Stream


class RouteRecorder(Protocol):
    """Takes routes."""

    def routed(self, owner: str, layer: int, token: int, experts: Any, weights: Any, resident: Any) -> None:
        """Notes what one token chose in one layer."""


class Routes(Trace):
    """Notes the routes of one chunk; `flush` hands them to the recorder once the chunk is over."""

    def __init__(self, inner: Trace, stream: Stream, recorder: RouteRecorder | None) -> None:
        """Stands before `inner`, whose names and watched arrays it shares."""
        super().__init__()
        self._inner = inner
        self._stream, self._recorder = stream, recorder
        self._ids: dict[int, mx.array] = {}
        self._weights: dict[int, mx.array] = {}
        self.names, self.watched = inner.names, inner.watched
        self.is_recording = inner.is_recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def stage(self, stage: str, layer: int | None, value: mx.array) -> mx.array:
        """Notes weights, and hands on what the graph goes on with."""
        found = self._inner.stage(stage, layer, value)
        if stage == "router" and layer is not None:
            self._weights[layer] = found
        return found

    def part(self, stage: str, layer: int | None, part: str, value: mx.array) -> None:
        """Notes ids."""
        if stage == "router" and part == "ids" and layer is not None:
            self._ids[layer] = value
        self._inner.part(stage, layer, part, value)

    def check(self, stage: str, layer: int | None, value: mx.array) -> None:
        """Hands on what must be finite."""
        self._inner.check(stage, layer, value)

    def flush(self) -> None:
        """Hands the routes to the recorder, once; those of a chunk that failed before a layer end there."""
        lane = self._stream.lane
        ids, self._ids = self._ids, {}
        if self._recorder is None:
            return
        for layer, array in sorted(ids.items()):
            resident = lane.resident.get(layer)
            if resident is None or layer not in self._weights:
                continue
            experts, weights = np.asarray(array), np.asarray(self._weights[layer])
            for token, (chosen, shares) in enumerate(zip(experts.tolist(), weights.tolist(), strict=True)):
                self._recorder.routed(
                    lane.name, layer, token, chosen, shares, [expert in resident for expert in chosen]
                )
