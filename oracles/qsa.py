"""Sparse attention by groups of logical positions: score, select, gather, attend.

A sequence is one contiguous run of logical positions from its anchor (`first_position`). Four consecutive positions
are a group; what is left over at the frontier is the raw tail. Scores choose the set, time gives the order: the
chosen groups are emitted by position, each with all of its tokens, then the tail (AFN-017). Padding stands before
the anchor; a hole inside the run is refused (AFN-018).
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles import rope
from assay.oracles.arithmetic import narrow, softmax
from assay.oracles.checks import Array, integer, integers, numbers, real, refuse, working
from assay.oracles.clauses import CEILING, DOMAIN, HOLE, REPEAT, SCORES, SHAPE, TYPE
from assay.oracles.norms import rms

DENSE_CEILING: Final = 2051
"""Widest selection of the published geometry: 512 groups of 4 and a tail of 3."""

LARGEST_VISIBLE: Final = 2**24
LARGEST_RATIO: Final = 2**16
"""No array may take its size from this number alone: a group is laid out as `ratio` positions."""


class Groups(NamedTuple):
    """Slots of every complete group [group, ratio], position of each group's first token, and tail slots."""

    groups: Array
    starts: Array
    tail: Array


class Selected(NamedTuple):
    """Ordinals of the chosen groups from the anchor, ascending, and absolute positions of all selected tokens."""

    groups: Array
    tokens: Array


def groups(positions: Sequence[int | None], ratio: int = 4, contiguous: bool = True) -> Groups:
    """Returns the groups of one sequence, by logical position and never by physical slot.

    Args:
        positions: logical position of each physical slot; None (or -1) for padding and for other sequences' slots.
        ratio: positions in a group.
        contiguous: refuse a hole and a repeat; False groups by rank alone, equal positions in slot order.

    Returns:
        `groups` (slots, int64 [group, ratio]), `starts` (logical position of each group's first token, which is
        where its key is rotated), `tail` (slots of the 0 .. ratio - 1 tokens after the last complete group).

    Raises:
        ContractError: oracle.qsa.hole or oracle.qsa.repeat, naming the slot whose position is not the successor.

    Source: facts 2.5; AFN-018; bug reports A11 and A12.
    """
    integer("ratio", ratio, 1, LARGEST_RATIO)
    slots: list[tuple[int, int]] = []
    for slot, position in enumerate(positions):
        if position is not None and integer(f"positions[{slot}]", position, -1, rope.LARGEST_POSITION) >= 0:
            slots.append((int(position), slot))
    slots.sort()
    if contiguous:
        for (before, _), (position, slot) in itertools.pairwise(slots):
            if position == before:
                raise refuse(
                    REPEAT, f"positions[{slot}]", expected=f"each position once, {before + 1} next", got=position,
                    hint="`contiguous`: false groups equal positions by rank, in slot order",
                )  # fmt: skip
            if position != before + 1:
                raise refuse(HOLE, f"positions[{slot}]", expected=before + 1, got=position)
    complete = len(slots) // ratio
    inside = [slot for _, slot in slots[: complete * ratio]]
    starts = [position for position, _ in slots[: complete * ratio : ratio]]
    tail = [slot for _, slot in slots[complete * ratio :]]
    return Groups(
        np.array(inside, np.int64).reshape(complete, ratio),
        np.array(starts, np.int64),
        np.array(tail, np.int64),
    )


def pool(
    keys: Array,
    groups: Array,
    starts: Array,
    weight: Array,
    rotary_dim: int,
    theta: float = 1e7,
    sections: Sequence[int] = (11, 11, 10),
    eps: float = 1e-6,
    dtype: DTypeLike = np.float32,
) -> Array:
    """Returns the key of every group: mean of its raw keys, norm, rotation at its first position.

    Args:
        keys: raw index keys [slot, dim], as cached: before pooling, norm and rotation.
        groups: slots [group, ratio].
        starts: positions [group], or [3, group].
        weight: [dim], zero-centred gain.
        rotary_dim: rotated part of a key.
        theta: base of the frequencies.
        sections: interleaved sections.
        eps: of the norm.
        dtype: float32 or float64.

    Returns:
        [group, dim].

    Order: mean in float64 rounded once, then the norm, then the rotation.
    Source: facts 2.5.
    """
    kind = working(dtype)
    raw = real("keys", keys, kind, (None, None))
    members = _members(groups, raw.shape[0])
    rows = rope.position_rows("starts", starts, members.shape[0])
    mean = narrow(raw[members].astype(np.float64).mean(axis=1), kind)
    normal = rms(mean, weight, eps, "zero-centred", dtype=kind)
    return rope.apply(normal[:, None, :], rows, rotary_dim, theta, sections, kind)[:, 0, :]


def scores(q: Array, keys: Array, dtype: DTypeLike = np.float32) -> Array:
    """Returns the score of every group: ReLU of each head's product, then the sum over heads, over sqrt(dim).

    Args:
        q: index query [head, dim], after norm and rotation.
        keys: group keys [group, dim].
        dtype: float32 or float64.

    Returns:
        [group].

    Order: products in float64 rounded once for each head; ReLU; sum over heads in float64 rounded once; division.
    Source: facts 2.5; AFN-016. ReLU after the sum is the fault to look for.
    """
    kind = working(dtype)
    query = real("q", q, kind, (None, None))
    table = real("keys", keys, kind, (None, query.shape[1]))
    products = narrow(table.astype(np.float64) @ query.astype(np.float64).T, kind)
    total = narrow(np.maximum(products, 0).astype(np.float64).sum(axis=1), kind)
    return np.asarray(total / kind.type(math.sqrt(query.shape[1])), dtype=kind)


def select(
    scores: Array,
    budget_groups: int,
    visible: int,
    ratio: int = 4,
    first_position: int = 0,
    dtype: DTypeLike = np.float32,
) -> Selected:
    """Returns which groups a query attends to, and all selected tokens in the order of attention.

    Args:
        scores: [visible // ratio], one for each complete group from the anchor; -0.0 equals 0.0, infinities are
            ordered, NaN is refused.
        budget_groups: at most this many groups.
        visible: number of visible tokens, the query's own included, at least 1.
        ratio: positions in a group.
        first_position: absolute position of the first visible token (the anchor).
        dtype: float32 or float64, in which scores are compared.

    Returns:
        `groups` (ordinals from the anchor, ascending) and `tokens` (absolute positions: the groups' tokens, then
        the tail), both int64.

    Raises:
        ContractError: oracle.qsa.nan-score, naming the group; oracle.argument.* otherwise.

    Order: membership by score descending, then by the smaller ordinal; emission ascending.
    Source: facts 2.5; AFN-017; bug report A10.
    """
    integer("visible", visible, 1, LARGEST_VISIBLE)
    integer("ratio", ratio, 1, LARGEST_RATIO)
    integer("budget_groups", budget_groups, 0)
    integer("first_position", first_position, 0, 2**53)
    complete = visible // ratio
    values = numbers("scores", scores, working(dtype), (complete,))
    if np.isnan(values).any():
        where = f"scores[{int(np.flatnonzero(np.isnan(values))[0])}]"
        raise refuse(SCORES, where, expected="a number", got="nan")
    ranked = sorted(range(complete), key=lambda group: (-values[group], group))
    chosen = np.array(sorted(ranked[:budget_groups]), np.int64)
    inside = (chosen[:, None] * ratio + np.arange(ratio)).reshape(-1)
    tail = np.arange(complete * ratio, visible)
    return Selected(chosen, (np.concatenate([inside, tail]) + first_position).astype(np.int64))


def attend(
    q: Array,
    k: Array,
    v: Array,
    tokens: Any,
    first_position: int = 0,
    scale: float | None = None,
    dtype: DTypeLike = np.float32,
) -> Array:
    """Returns attention over the selected rows only, in their given order.

    Args:
        q: [token, head, dim], one row for each query.
        k: [row, key head, dim], the cache from the anchor on; query head h reads key head floor(h / (heads / key heads)).
        v: [row, key head, value].
        tokens: absolute positions: one list for all queries, or one list for each query.
        first_position: absolute position of row 0.
        scale: factor of the products; 1 / sqrt(dim) when absent.
        dtype: float32 or float64.

    Returns:
        [token, head, value].

    Order: products in float64 rounded once, times scale; softmax as `arithmetic.softmax`; weighted sum in float64
        rounded once.
    Source: facts 2.4; AFN-016.
    """
    kind = working(dtype)
    queries = real("q", q, kind, (None, None, None))
    keys = real("k", k, kind, (None, None, queries.shape[2]))
    values = real("v", v, kind, (keys.shape[0], keys.shape[1], None))
    if keys.shape[1] == 0 or queries.shape[1] % keys.shape[1]:
        raise refuse(DOMAIN, "q", expected=f"a multiple of {keys.shape[1]} heads", got=queries.shape[1])
    factor = kind.type(1 / math.sqrt(queries.shape[2]) if scale is None else real("scale", scale, kind, ()))
    rows = _rows_of_queries(tokens, queries.shape[0], first_position, keys.shape[0])
    repeat = queries.shape[1] // keys.shape[1]
    outputs = np.zeros((queries.shape[0], queries.shape[1], values.shape[2]), kind)
    for index, chosen in enumerate(rows):
        for head in range(queries.shape[1]):
            source = head // repeat
            line = keys[chosen, source].astype(np.float64) @ queries[index, head].astype(np.float64)
            weights = softmax(np.asarray(narrow(line, kind) * factor, dtype=kind))
            mixed = weights.astype(np.float64) @ values[chosen, source].astype(np.float64)
            outputs[index, head] = narrow(mixed, kind)
    return outputs


def dense(
    q: Array,
    k: Array,
    v: Array,
    scale: float | None = None,
    ceiling: int = DENSE_CEILING,
    dtype: DTypeLike = np.float32,
) -> Array:
    """Returns causal attention over all visible rows, as long as none sees more than `ceiling` of them.

    Args:
        q: [token, head, dim]; the queries are the last `token` positions of the cache.
        k: [row, key head, dim].
        v: [row, key head, value].
        scale: factor of the products; 1 / sqrt(dim) when absent.
        ceiling: most visible keys for which dense and sparse attention are the same.
        dtype: float32 or float64.

    Returns:
        [token, head, value].

    Raises:
        ContractError: oracle.qsa.dense-ceiling, before anything is allocated.

    Domain: authoritative for at most 2,051 visible keys in the published geometry; 2,052 is refused.
    Order: as `attend`.
    Source: AFN-011.
    """
    visible = len(k)
    if visible > integer("ceiling", ceiling, 1):
        raise refuse(CEILING, "k", expected=f"at most {ceiling} visible keys", got=visible)
    queries = len(q)
    if queries > visible:
        raise refuse(DOMAIN, "q", expected=f"at most {visible} queries", got=queries)
    rows = [list(range(visible - queries + index + 1)) for index in range(queries)]
    return attend(q, k, v, rows, 0, scale, dtype)


def _members(groups: Any, slots: int) -> Array:
    rows = [integers(f"groups[{index}]", row, 0, slots - 1) for index, row in enumerate(groups)]
    width = len(rows[0]) if rows else 1
    for index, row in enumerate(rows):
        if len(row) != width or not row:
            raise refuse(SHAPE, f"groups[{index}]", expected=f"{max(width, 1)} slots", got=len(row))
    return np.array(rows, np.int64).reshape(len(rows), width)


def _rows_of_queries(tokens: Any, queries: int, first_position: int, rows: int) -> list[list[int]]:
    anchor = integer("first_position", first_position, 0)
    plain = not isinstance(tokens, (Sequence, np.ndarray)) or isinstance(tokens, str)
    if plain or (isinstance(tokens, np.ndarray) and tokens.ndim == 0):
        raise refuse(TYPE, "tokens", expected="a list of positions, or one for each query", got=tokens)
    nested = len(tokens) > 0 and not isinstance(tokens[0], (int, np.integer))
    lists = list(tokens) if nested else [tokens] * queries
    if len(lists) != queries:
        raise refuse(SHAPE, "tokens", expected=f"{queries} lists", got=f"{len(lists)} lists")
    chosen = []
    for index, one in enumerate(lists):
        name = f"tokens[{index}]" if nested else "tokens"
        line = integers(name, one, anchor, anchor + rows - 1)
        if not line:
            raise refuse(DOMAIN, name, expected="at least one selected token", got="none")
        if len(set(line)) != len(line):
            raise refuse(DOMAIN, name, expected="each token once", got="a token selected twice")
        chosen.append([position - anchor for position in line])
    return chosen
