"""One chunk as one transaction: a private image is filled, judged as a whole, and only then becomes a state.

Nothing here touches the states that it started from. What a chunk computes is installed, owner by owner, into a
private image; `seal` evaluates all of it, checks ids before anything is indexed by them on the host, then that every
stage and owner is finite, and returns new states. Whoever holds the public name flips it once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model import backend, columns, router
from assay.impl.model.clauses import CLOSED, FINITE, refuse
from assay.impl.model.columns import Column
from assay.impl.model.gdn import Recurrent
from assay.impl.model.geometry import Geometry
from assay.impl.model.qsa import Cache, Fresh
from assay.impl.model.router import Routing
from assay.impl.model.state import Route, State
from assay.impl.model.trace import Trace
from assay.spec.errors import ContractError


@dataclass(slots=True)
class Image:
    """The private image of one sequence.

    Attributes:
        base: the state that it started from, never changed.
        tokens: the chunk.
        positions: int64 [token, 3] of the chunk.
        history: what the sequence's hash sees after the chunk.
        gdn, qsa, ple_conv: what each layer installed.
        wide: residual streams of the newest token.
        logits: of the newest token.
    """

    base: State
    tokens: tuple[int, ...]
    positions: NDArray[np.int64]
    history: tuple[int, ...]
    gdn: dict[int, Recurrent] = field(default_factory=dict)
    qsa: dict[int, Fresh] = field(default_factory=dict)
    ple_conv: dict[int, mx.array] = field(default_factory=dict)
    wide: mx.array | None = None
    logits: mx.array | None = None


class Transaction:
    """The private images of a batch, and the routes of its rows; open until it is sealed or given up."""

    def __init__(self, images: Sequence[Image], geometry: Geometry) -> None:
        self.images = list(images)
        self._geometry = geometry
        self._routings: dict[int, Routing] = {}
        self._is_open = True

    @property
    def lengths(self) -> list[int]:
        """Rows of each sequence."""
        return [len(image.tokens) for image in self.images]

    def install(self, owner: str, layer: int, values: Sequence[Any]) -> None:
        """Installs what a layer carries on, one value for each sequence: `gdn`, `qsa` or `ple_conv`.

        Raises:
            ContractError: model.transaction.closed.
        """
        self._require_open(f"{owner}.{layer}")
        for image, value in zip(self.images, values, strict=True):
            getattr(image, owner)[layer] = value

    def install_routes(self, layer: int, routing: Routing) -> None:
        """Installs the routes of all rows of a layer."""
        self._require_open(f"routes.{layer}")
        self._routings[layer] = routing

    def install_ends(self, wide: mx.array, logits: Sequence[mx.array]) -> None:
        """Installs the newest residual streams out of those of all rows, and the newest logits."""
        self._require_open("logits")
        stop = 0
        for image, row in zip(self.images, logits, strict=True):
            stop += len(image.tokens)
            image.wide, image.logits = wide[stop - 1], row

    def close(self) -> None:
        """Ends the transaction; what arrives later is refused."""
        self._is_open = False

    def seal(self, trace: Trace, extra: Sequence[mx.array] = ()) -> list[State]:
        """Evaluates the whole chunk, judges it, and returns the states after it.

        Args:
            trace: what must be finite.
            extra: arrays that the caller wants evaluated with the chunk.

        Raises:
            ContractError: model.routes or model.finite.
            RuntimeError, MemoryError: what the device said; no state was made.
        """
        self._require_open("publication")
        mx.eval([*trace.watched, *self._pending(), *extra])
        backend.raise_pending()
        self._judge_finite(
            trace
        )  # first, and in the graph's order, so that the first place is the one that is told
        self._judge_routes()
        states: list[State] = []
        attempts: list[tuple[Column, Column]] = []
        try:
            states.extend(self._next(row, attempts) for row in range(len(self.images)))
        except BaseException:
            for column, attempt in reversed(attempts):
                columns.released(column, attempt)
            raise
        self.close()
        return states

    def _require_open(self, where: str) -> None:
        if not self._is_open:
            raise refuse(CLOSED, where, expected="an open transaction", got="one that has ended")

    def _pending(self) -> list[mx.array]:
        found: list[mx.array] = []
        for image in self.images:
            for recurrent in image.gdn.values():
                found += [recurrent.conv, recurrent.matrix]
            for rows in image.qsa.values():
                found += [rows.keys, rows.values, rows.raw, rows.pooled]
            found += image.ple_conv.values()
            found += [one for one in (image.wide, image.logits) if one is not None]
        for routing in self._routings.values():
            found += [routing.logits, routing.ids, routing.weights]
        return found

    def _judge_routes(self) -> None:
        for layer, one in sorted(self._routings.items()):
            arrays = (np.asarray(one.logits), np.asarray(one.ids), np.asarray(one.weights))
            where = f"layers.{layer}.router"
            if not np.isfinite(arrays[0]).all():
                raise refuse(FINITE, where, expected="finite values", got="NaN or infinity")
            if found := router.faults(*arrays, self._geometry, where):
                raise ContractError(found[0])

    def _judge_finite(self, trace: Trace) -> None:
        for name, array in zip(trace.names, trace.watched, strict=True):
            if not np.isfinite(np.asarray(array)).all():
                raise refuse(FINITE, name, expected="finite values", got="NaN or infinity")
        for image in self.images:
            for name, array in _installed(image):
                if not np.isfinite(np.asarray(array)).all():
                    raise refuse(FINITE, name, expected="finite values", got="NaN or infinity")

    def _next(self, row: int, attempts: list[tuple[Column, Column]]) -> State:
        image = self.images[row]
        base = image.base
        last = sum(self.lengths[: row + 1]) - 1
        if image.wide is None or image.logits is None:
            raise refuse(CLOSED, "logits", expected="a whole chunk", got="one without its end")

        def grown(column: Column, new: Any) -> Column:
            attempt = columns.appended(column, np.asarray(new))
            attempts.append((column, attempt))
            return attempt

        return State(
            first_position=base.first_position,
            frontier=base.frontier + len(image.tokens),
            positions=grown(base.positions, image.positions.astype(np.float32)),
            ple_history=image.history,
            gdn=_complete(base.gdn, image.gdn, "gdn"),
            qsa={
                layer: Cache(
                    grown(cache.keys, image.qsa[layer].keys),
                    grown(cache.values, image.qsa[layer].values),
                    grown(cache.raw, image.qsa[layer].raw),
                    grown(cache.pooled, image.qsa[layer].pooled),
                )
                for layer, cache in base.qsa.items()
            },
            ple_conv=_complete(base.ple_conv, image.ple_conv, "ple_conv"),
            wide=image.wide,
            routes={
                layer: Route(np.array(one.ids)[last], np.array(one.weights)[last])
                for layer, one in sorted(self._routings.items())
            },
            logits=image.logits,
        )


def _complete(base: Mapping[int, Any], installed: Mapping[int, Any], owner: str) -> dict[int, Any]:
    if missing := base.keys() - installed.keys():
        raise refuse(
            CLOSED, f"{owner}.{min(missing)}", expected="a whole chunk", got="a layer without its state"
        )
    return dict(installed)


def _installed(image: Image) -> list[tuple[str, Any]]:
    named: list[tuple[str, Any]] = []
    for layer, one in image.gdn.items():
        named += [(f"gdn_conv.{layer}", one.conv), (f"gdn_recurrent.{layer}", one.matrix)]
    for layer, rows in image.qsa.items():
        parts = ("keys", "values", "raw", "pooled")
        named += [(f"qsa.{layer}.{part}", getattr(rows, part)) for part in parts]
    named += [(f"ple_conv.{layer}", past) for layer, past in image.ple_conv.items()]
    return [*named, ("logits", image.logits)]
