"""Mixture of experts: the chosen experts weighted by rank, and one shared expert behind a gate of its own."""

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles.arithmetic import linear, narrow, sigmoid, silu
from assay.oracles.checks import Array, integers, real, refuse, shaped, working
from assay.oracles.clauses import DOMAIN, SHAPE
from assay.oracles.router import topk


class Mixed(NamedTuple):
    """Output [hidden] with its two parts, and the routing that led to it.

    `expert_shared` [hidden] and `shared_logit` [1] are the shared expert and its gate before they are multiplied.
    """

    y: Array
    routed: Array
    shared: Array
    logits: Array
    ids: Array
    weights: Array
    expert_shared: Array
    shared_logit: Array


def forward(
    x: Array,
    router: Array,
    gate_up: Array,
    down: Array,
    shared_gate: Array,
    shared_up: Array,
    shared_down: Array,
    shared_scale: Array,
    k: int,
    dtype: DTypeLike = np.float32,
) -> Mixed:
    """Returns the block's output for one token.

    Args:
        x: [hidden].
        router: [expert, hidden].
        gate_up: [expert, 2 * width, hidden]; the gate rows stand first.
        down: [expert, hidden, width].
        shared_gate: [shared width, hidden].
        shared_up: [shared width, hidden].
        shared_down: [hidden, shared width].
        shared_scale: [hidden]; the shared expert is multiplied by sigmoid(shared_scale . x).
        k: experts for this token.
        dtype: float32 or float64.

    Returns:
        `y` = `routed` + `shared`, each [hidden], with `logits` [expert], `ids` and `weights` [k] of the router.

    Order: every expert as `expert`; the weighted outputs are added in float64 and rounded once.
    Source: facts 2.6; transformers 5.24.0 `Qwen4ExpTextSparseMoeBlock`.
    """
    kind = working(dtype)
    row = real("x", x, kind, (None,))
    matrix = real("router", router, kind, (None, row.size))
    gate = real("shared_gate", shared_gate, kind, (None, row.size))
    up = real("shared_up", shared_up, kind, gate.shape)
    back = real("shared_down", shared_down, kind, (row.size, gate.shape[0]))
    scale_row = real("shared_scale", shared_scale, kind, (row.size,))
    logits = linear(matrix, row)
    routing = topk(logits, k, kind)
    fused, heads = np.asarray(gate_up), np.asarray(down)
    experts, width = matrix.shape[0], fused.shape[1] // 2 if fused.ndim == 3 else 0
    if fused.shape != (experts, 2 * width, row.size):
        expected = f"shape [{experts}, 2 * width, {row.size}]"
        raise refuse(SHAPE, "gate_up", expected=expected, got=f"shape {list(fused.shape)}")
    shaped("down", heads, (experts, row.size, width))
    outputs = np.stack(
        [
            fused_expert(
                row, real(f"gate_up[{one}]", fused[one], kind), real(f"down[{one}]", heads[one], kind), kind
            )
            for one in routing.ids
        ]
    )
    wide = routing.weights.astype(np.float64) @ outputs.astype(np.float64)
    routed = narrow(wide, kind)
    shared_logit = linear(scale_row[None, :], row)
    alone = expert(row, gate, up, back, kind)
    shared = np.asarray(sigmoid(shared_logit) * alone, dtype=kind)
    return Mixed(
        np.asarray(routed + shared), routed, shared, logits, routing.ids, routing.weights, alone, shared_logit
    )


def expert(x: Array, gate: Array, up: Array, down: Array, dtype: DTypeLike = np.float32) -> Array:
    """Returns down(silu(gate x) * (up x)).

    Args:
        x: [hidden].
        gate: [width, hidden].
        up: [width, hidden].
        down: [hidden, width].
        dtype: float32 or float64.

    Returns:
        [hidden].

    Order: each projection in float64 rounded once; activation and product in the working type.
    Source: facts 2.6.
    """
    kind = working(dtype)
    row = real("x", x, kind, (None,))
    first = real("gate", gate, kind, (None, row.size))
    second = real("up", up, kind, first.shape)
    third = real("down", down, kind, (None, first.shape[0]))
    return linear(third, np.asarray(silu(linear(first, row)) * linear(second, row), dtype=kind))


def fused_expert(x: Array, gate_up: Array, down: Array, dtype: DTypeLike = np.float32) -> Array:
    """Returns `expert` of a fused matrix [2 * width, hidden] whose first half is the gate."""
    gate, up = split_fused(gate_up)
    return expert(x, gate, up, down, dtype)


def split_fused(gate_up: Array) -> tuple[Array, Array]:
    """Returns the gate rows (first half) and the up rows (second half) of a fused matrix [2 * width, hidden].

    Source: facts 2.6; bug report A17.
    """
    rows = np.asarray(gate_up)
    if rows.ndim != 2 or rows.shape[0] % 2:
        raise refuse(DOMAIN, "gate_up", expected="an even number of rows", got=list(rows.shape))
    half = rows.shape[0] // 2
    return rows[:half], rows[half:]


def combine(ids: Array, weights: Array, outputs: Array, dtype: DTypeLike = np.float32) -> Array:
    """Returns the sum of the chosen experts' outputs, weight i with the i-th chosen id.

    Args:
        ids: integers [k], in rank order.
        weights: [k], in the same order; never indexed by expert id.
        outputs: [expert, hidden], indexed by expert id.
        dtype: float32 or float64.

    Returns:
        [hidden].

    Order: products and sum in float64, rounded once.
    Source: bug report A19.
    """
    kind = working(dtype)
    table = real("outputs", outputs, kind, (None, None))
    chosen = integers("ids", ids, 0, table.shape[0] - 1)
    ranks = real("weights", weights, kind, (len(chosen),))
    return narrow(ranks.astype(np.float64) @ table[chosen].astype(np.float64), kind)
