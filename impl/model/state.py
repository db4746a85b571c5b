"""The state image of one sequence: every owner that outlives a chunk, in one immutable value.

A state that was handed out stays what it was. So a copy is the object itself, a rewind is an older object, two
sequences share no mutable past, and to publish is to let one name point at another object.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model import columns, gdn, qsa
from assay.impl.model.columns import Column
from assay.impl.model.gdn import Recurrent
from assay.impl.model.geometry import Geometry
from assay.impl.model.qsa import Cache

OWNERS: Final = (
    "frontier",
    "positions",
    "ple_history",
    "wide",
    "gdn_conv",
    "gdn_recurrent",
    "qsa_key",
    "qsa_value",
    "qsa_raw_index",
    "qsa_pooled",
    "ple_conv",
    "route_ids",
    "route_weights",
    "logits",
)
"""Every persistent owner. One that a copy, rewind or transaction forgets is a state that no execution produced."""


@dataclass(frozen=True, slots=True)
class Route:
    """Experts of the newest token in one layer, in rank order, and their weights."""

    ids: NDArray[np.int32]
    weights: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class State:
    """What a sequence carries after `frontier` tokens.

    Attributes:
        first_position: logical position of the first token.
        frontier: committed tokens.
        positions: rotary positions of all tokens, [token, 3], whole numbers below 2^24 in float32.
        ple_history: tokens since the last end of text that the hash still sees, oldest first.
        gdn: layer -> convolution and recurrent matrix.
        qsa: layer -> keys, values, raw and pooled index keys.
        ple_conv: layer -> [span, streams * hidden], oldest first.
        wide: residual streams of the newest token, [streams * hidden].
        routes: layer -> route of the newest token.
        logits: of the newest token, [physical row].
    """

    first_position: int
    frontier: int
    positions: Column
    ple_history: tuple[int, ...]
    gdn: Mapping[int, Recurrent]
    qsa: Mapping[int, Cache]
    ple_conv: Mapping[int, mx.array]
    wide: mx.array
    routes: Mapping[int, Route]
    logits: mx.array


def fresh(geometry: Geometry, first_position: int = 0, rows: int = 0) -> State:
    """Returns the state before the first token; also what a reset gives.

    Args:
        geometry: dimensions.
        first_position: the anchor.
        rows: tokens that are to come, if that is known: caches then never move.
    """
    g = geometry
    state = State(
        first_position=first_position,
        frontier=0,
        positions=columns.empty((3,), rows),
        ple_history=(),
        gdn={layer: gdn.fresh(g) for layer, kind in enumerate(g.kinds) if kind == "gdn"},
        qsa={layer: qsa.fresh(g, rows) for layer, kind in enumerate(g.kinds) if kind == "qsa"},
        ple_conv={layer: mx.zeros((g.ple_span, g.wide)) for layer in g.ple_layers},
        wide=mx.zeros((g.wide,)),
        routes={
            layer: Route(np.full(g.experts_used, -1, np.int32), np.zeros(g.experts_used, np.float32))
            for layer in range(g.layers)
        },
        logits=mx.zeros((g.physical_rows,)),
    )
    mx.eval([*state.ple_conv.values(), state.wide, state.logits])
    mx.eval([array for one in state.gdn.values() for array in (one.conv, one.matrix)])
    return state


def owners(state: State) -> dict[str, NDArray[Any]]:
    """Returns every owner by name, such as `gdn_conv.0`, in the contract's layouts, as copies.

    Convolutions are [channel, past], oldest first; recurrent matrices [value head, key, value].
    """
    named: dict[str, NDArray[Any]] = {
        "frontier": np.array([state.first_position, state.frontier], np.int64),
        "positions": state.positions.rows.astype(np.int64).T.copy(),
        "ple_history": np.array(state.ple_history, np.int64),
        "wide": np.array(state.wide),
        "logits": np.array(state.logits),
    }
    for layer, one in sorted(state.gdn.items()):
        named[f"gdn_conv.{layer}"] = np.array(one.conv).T.copy()
        named[f"gdn_recurrent.{layer}"] = np.array(one.matrix).transpose(0, 2, 1).copy()
    for layer, cache in sorted(state.qsa.items()):
        named[f"qsa_key.{layer}"] = cache.keys.rows.copy()
        named[f"qsa_value.{layer}"] = cache.values.rows.copy()
        named[f"qsa_raw_index.{layer}"] = cache.raw.rows.copy()
        named[f"qsa_pooled.{layer}"] = cache.pooled.rows.copy()
    for layer, past in sorted(state.ple_conv.items()):
        named[f"ple_conv.{layer}"] = np.array(past).T.copy()
    for layer, route in sorted(state.routes.items()):
        named[f"route_ids.{layer}"] = route.ids.copy()
        named[f"route_weights.{layer}"] = route.weights.copy()
    return named


def memory(state: State) -> list[NDArray[Any]]:
    """Returns the memory of every owner that holds arrays, whole buffers of caches included: nobody may write there."""
    caches = [
        column.buffer.view
        for cache in state.qsa.values()
        for column in (cache.keys, cache.values, cache.raw, cache.pooled)
    ]
    carried = [array for one in state.gdn.values() for array in (one.conv, one.matrix)]
    own = [*carried, *state.ple_conv.values(), state.wide, state.logits]
    routes = [route.weights for route in state.routes.values()]
    return [state.positions.buffer.view, *caches, *map(np.asarray, own), *routes]


def digest(state: State) -> str:
    """Returns the SHA-256 over the name, type, shape and bytes of every owner."""
    total = hashlib.sha256()
    for name, array in sorted(owners(state).items()):
        total.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def differing(one: State, other: State) -> list[str]:
    """Returns the names of the owners whose bytes, type or shape differ."""
    left, right = owners(one), owners(other)
    return [
        name
        for name in sorted(left.keys() | right.keys())
        if name not in left
        or name not in right
        or left[name].dtype != right[name].dtype
        or left[name].shape != right[name].shape
        or left[name].tobytes() != right[name].tobytes()
    ]
