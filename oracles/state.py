"""Everything that a sequence carries from token to token, each owner by name; and pure functions over it.

No function here changes an array in place: a state that was handed out stays what it was, so a copy is the object
itself, a rewind is an older object, and two sequences can't share a mutable past.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from assay.oracles.checks import Array, integer, integers, real, refuse, working
from assay.oracles.clauses import DOMAIN
from assay.oracles.geometry import Geometry
from assay.oracles.rope import LARGEST_POSITION

LAYER_OWNERS: Final = (
    "gdn_conv",
    "gdn_recurrent",
    "qsa_key",
    "qsa_value",
    "qsa_raw_index",
    "ple_conv",
)
"""Owners that exist once for each layer of their kind."""

OWNERS: Final = ("first_position", "tokens", "positions", "ple_history", *LAYER_OWNERS)


@dataclass(frozen=True, slots=True)
class State:
    """The state of one sequence after `tokens` tokens.

    Attributes:
        first_position: logical position of the first token (the anchor; anything after left padding).
        tokens: how many tokens were committed.
        positions: rotary positions of all tokens, int64 [3, token].
        ple_history: at most n-gram size - 1 tokens, oldest first, cut at an end of sequence.
        gdn_conv: layer -> [channel, kernel - 1], oldest first, before the activation.
        gdn_recurrent: layer -> [value head, key, value].
        qsa_key: layer -> [token, key head, dim], after norm and rotation.
        qsa_value: layer -> [token, key head, dim].
        qsa_raw_index: layer -> [token, index dim], before pooling, norm and rotation.
        ple_conv: layer -> [streams * hidden, dilation * (kernel - 1)], oldest first.
    """

    first_position: int
    tokens: int
    positions: NDArray[np.int64]
    ple_history: tuple[int, ...]
    gdn_conv: Mapping[int, Array]
    gdn_recurrent: Mapping[int, Array]
    qsa_key: Mapping[int, Array]
    qsa_value: Mapping[int, Array]
    qsa_raw_index: Mapping[int, Array]
    ple_conv: Mapping[int, Array]


def fresh(geometry: Geometry, first_position: int = 0, dtype: DTypeLike = np.float32) -> State:
    """Returns the state before the first token; also what a reset gives."""
    kind = working(dtype)
    integer("first_position", first_position, 0, LARGEST_POSITION)
    gdn = [layer for layer, one in enumerate(geometry.layer_types) if one == "gdn"]
    qsa = [layer for layer, one in enumerate(geometry.layer_types) if one == "qsa"]
    span = geometry.ngram_size * (geometry.ple_kernel - 1)
    matrix = (geometry.value_heads, geometry.key_dim, geometry.value_dim)
    keys = (0, geometry.kv_heads, geometry.head_dim)
    return State(
        first_position=first_position,
        tokens=0,
        positions=np.zeros((3, 0), np.int64),
        ple_history=(),
        gdn_conv={layer: np.zeros((geometry.gdn_channels, geometry.kernel - 1), kind) for layer in gdn},
        gdn_recurrent={layer: np.zeros(matrix, kind) for layer in gdn},
        qsa_key={layer: np.zeros(keys, kind) for layer in qsa},
        qsa_value={layer: np.zeros(keys, kind) for layer in qsa},
        qsa_raw_index={layer: np.zeros((0, geometry.index_dim), kind) for layer in qsa},
        ple_conv={layer: np.zeros((geometry.wide, span), kind) for layer in geometry.ple_layers},
    )


def copy(state: State) -> State:
    """Returns an equal state whose arrays share no memory with the first: every owner moves together."""
    layers: dict[str, Any] = {
        owner: {layer: array.copy() for layer, array in getattr(state, owner).items()}
        for owner in LAYER_OWNERS
    }
    return replace(state, positions=state.positions.copy(), **layers)


def rewind(kept: Sequence[State], tokens: int) -> State:
    """Returns the state after `tokens` tokens out of those that were kept.

    A recurrent matrix can't be run backwards, so a rewind goes to a kept state or nowhere.

    Raises:
        ContractError: oracle.argument.domain, when no state of this length was kept.
    """
    for state in kept:
        if state.tokens == tokens:
            return copy(state)
    lengths = ", ".join(str(state.tokens) for state in kept) or "none"
    raise refuse(DOMAIN, "tokens", expected=f"one of the kept lengths {lengths}", got=tokens)


def arrays(state: State) -> dict[str, Array]:
    """Returns every owner as an array by name, such as `gdn_conv.0`; integers as int64."""
    named: dict[str, Array] = {
        "first_position": np.array(state.first_position, np.int64),
        "tokens": np.array(state.tokens, np.int64),
        "positions": state.positions,
        "ple_history": np.array(state.ple_history, np.int64),
    }
    for owner in LAYER_OWNERS:
        named |= {f"{owner}.{layer}": array for layer, array in sorted(getattr(state, owner).items())}
    return named


def differing(left: State, right: State) -> list[str]:
    """Returns the names of the owners whose bytes, type or shape differ."""
    first, second = arrays(left), arrays(right)
    return [
        name
        for name in sorted(first.keys() | second.keys())
        if name not in first
        or name not in second
        or first[name].dtype != second[name].dtype
        or first[name].shape != second[name].shape
        or first[name].tobytes() != second[name].tobytes()
    ]


def write_slots(
    bank: Array, slots: Sequence[int], rows: Array, filler: int = -1, dtype: DTypeLike = np.float32
) -> Array:
    """Returns the bank with each row written to its slot; a row whose slot is the filler writes nowhere.

    Args:
        bank: [slot, value].
        slots: slot of every row; the filler lies outside 0 .. slots - 1, so that slot 0 is a slot like any other.
        rows: [row, value]; rows of the filler may hold anything finite.
        filler: mark of a padding row, below 0 or at least the number of slots.
        dtype: float32 or float64.

    Returns:
        [slot, value].

    Raises:
        ContractError: oracle.argument.domain, for a slot out of range, a slot named twice, or a filler in range.

    Source: bug report A15.
    """
    kind = working(dtype)
    table = real("bank", bank, kind, (None, None)).copy()
    if 0 <= integer("filler", filler) < table.shape[0]:
        raise refuse(DOMAIN, "filler", expected=f"a value outside 0 .. {table.shape[0] - 1}", got=filler)
    places = integers("slots", slots)
    values = real("rows", rows, kind, (len(places), table.shape[1]))
    seen: set[int] = set()
    for index, place in enumerate(places):
        if place == filler:
            continue
        if not 0 <= place < table.shape[0] or place in seen:
            expected = f"a slot below {table.shape[0]} named once, or the filler {filler}"
            raise refuse(DOMAIN, f"slots[{index}]", expected=expected, got=place)
        seen.add(place)
        table[place] = values[index]
    return table
