"""Gated DeltaNet: a matrix for each value head that decays, forgets along the key and learns the new value.

The order inside a step is part of the contract: decay, predict, correct, read. To re-associate it is another model.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from assay.oracles.arithmetic import l2_normalise, narrow, sigmoid, softplus
from assay.oracles.checks import Array, real, refuse, working
from assay.oracles.clauses import DOMAIN


class Stepped(NamedTuple):
    """Output (without a token axis for one step) and the state [value head, key, value] after it."""

    y: Array
    state: Array


def step(
    q: Array,
    k: Array,
    v: Array,
    log_decay: Array,
    beta: Array,
    state: Array | None = None,
    prepared: bool = False,
    dtype: DTypeLike = np.float32,
) -> Stepped:
    """Returns one token of the recurrence; `sequence` of a single token without its token axis.

    Args:
        q: [key head, key].
        k: [key head, key].
        v: [value head, value]; value head h reads key head floor(h / (value heads / key heads)).
        log_decay: [value head].
        beta: [value head].
        state: [value head, key, value]; zeros when absent.
        prepared: q and k are normalised and scaled already; otherwise it is done here.
        dtype: float32 or float64.

    Returns:
        `y` [value head, value] and `state`.

    Order: S = S * exp(log_decay), working type; p = k^T S, float64 rounded once; d = (v - p) * beta;
        S = S + outer(k, d); y = q^T S, float64 rounded once.
    Source: facts 2.3; transformers 5.24.0 `torch_recurrent_gated_delta_rule`; bug report A13.
    """
    kind = working(dtype)
    many = sequence(
        real("q", q, kind, (None, None))[None],
        real("k", k, kind, (None, None))[None],
        real("v", v, kind, (None, None))[None],
        real("log_decay", log_decay, kind, (None,))[None],
        real("beta", beta, kind, (None,))[None],
        state,
        prepared,
        kind,
    )
    return Stepped(many.y[0], many.state)


def sequence(
    q: Array,
    k: Array,
    v: Array,
    log_decay: Array,
    beta: Array,
    state: Array | None = None,
    prepared: bool = False,
    dtype: DTypeLike = np.float32,
) -> Stepped:
    """Returns the recurrence over the tokens in order, q and k L2-normalised and q divided by sqrt(key).

    Args:
        q: [token, key head, key].
        k: [token, key head, key].
        v: [token, value head, value].
        log_decay: [token, value head], at most 0 in the model.
        beta: [token, value head].
        state: [value head, key, value]; zeros when absent.
        prepared: q and k are normalised and scaled already.
        dtype: float32 or float64.

    Returns:
        `y` [token, value head, value] and `state`, the state after the last token.

    Order: token by token, each as `step`; so any partition into chunks gives the same bytes.
    Source: facts 2.3.
    """
    kind = working(dtype)
    keys = real("k", k, kind, (None, None, None))
    tokens, key_heads, key_dim = keys.shape
    queries = real("q", q, kind, keys.shape)
    values = real("v", v, kind, (tokens, None, None))
    value_heads = values.shape[1]
    if key_heads == 0 or value_heads == 0 or value_heads % key_heads or key_dim == 0:
        raise refuse(DOMAIN, "v", expected=f"a multiple of the {key_heads} key heads", got=value_heads)
    decays = real("log_decay", log_decay, kind, (tokens, value_heads))
    rates = real("beta", beta, kind, (tokens, value_heads))
    matrix = np.zeros((value_heads, key_dim, values.shape[2]), kind) if state is None else state
    matrix = real("state", matrix, kind, (value_heads, key_dim, values.shape[2]))
    if not prepared:
        queries, keys = l2_normalise(queries) / kind.type(np.sqrt(key_dim)), l2_normalise(keys)
    repeat = value_heads // key_heads
    outputs = np.zeros(values.shape, kind)
    for token in range(tokens):
        query = np.repeat(queries[token], repeat, axis=0)
        key = np.repeat(keys[token], repeat, axis=0)
        with np.errstate(over="ignore"):
            matrix = matrix * np.exp(decays[token])[:, None, None]
        delta = (values[token] - _read(key, matrix)) * rates[token][:, None]
        matrix = matrix + key[:, :, None] * delta[:, None, :]
        outputs[token] = _read(query, matrix)
    return Stepped(outputs, matrix)


def gates(
    a: Array, b: Array, a_log: Array, dt_bias: Array, dtype: DTypeLike = np.float32
) -> tuple[Array, Array]:
    """Returns log_decay = -exp(A_log) * softplus(a + dt_bias) and beta = sigmoid(b).

    Args:
        a: [..., value head].
        b: [..., value head].
        a_log: [value head].
        dt_bias: [value head].
        dtype: float32 or float64.

    Returns:
        log_decay and beta, each [..., value head].

    Source: facts 2.3.
    """
    kind = working(dtype)
    rows = real("a", a, kind)
    raw = real("b", b, kind, rows.shape)
    heads = rows.shape[-1:]
    scale, bias = real("a_log", a_log, kind, heads), real("dt_bias", dt_bias, kind, heads)
    return np.asarray(-np.exp(scale) * softplus(rows + bias), dtype=kind), sigmoid(raw)


def _read(vector: Array, matrix: Array) -> Array:
    """Sum over the key axis of vector [head, key] times matrix [head, key, value]."""
    wide = vector.astype(np.float64)[:, None, :] @ matrix.astype(np.float64)
    return narrow(wide[:, 0, :], matrix.dtype)
