"""The whole model, token by token, composed of the oracles; every stage can be listened to.

The graph of a token: embedding; the same row in all streams; then for each layer an optional per-layer embedding, a
read, the recurrent or the sparse block, its injection, a second read, the experts, their injection; after the last
layer the final mixer and the output head. There is no final norm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from assay.oracles import conv, gdn, moe, norms, ple, qsa, residual, rope
from assay.oracles.arithmetic import linear, sigmoid
from assay.oracles.checks import Array, integer, integers, refuse, result, working
from assay.oracles.clauses import SHAPE
from assay.oracles.geometry import Geometry
from assay.oracles.state import State, fresh
from assay.oracles.tensors import PREFIX

STAGES: Final = (
    "embedding",
    "four_stream_residual",
    "ple",
    "attn_gr_prepare",
    "gdn",
    "qsa",
    "attn_gr_apply",
    "moe_gr_prepare",
    "router",
    "routed_shared_moe",
    "moe_gr_apply",
    "final_gr_mixer",
    "output_head",
)
"""The stages of the graph, in order of their first call."""

TAPS: Final[Mapping[str, str]] = {
    "embedding": "embedding row [hidden]",
    "four_stream_residual": "wide residual at the start [streams * hidden]",
    "ple.rows": "table rows, int64 [head]",
    "ple.embedding": "table rows' values, one after another [embedding]",
    "ple.key": "projected key [streams * hidden]",
    "ple.norm_key": "its norm [streams * hidden]",
    "ple.value": "projected value [hidden]",
    "ple.norm_query": "normed residual [streams * hidden]",
    "ple.norm_conv": "input of the convolution [streams * hidden]",
    "ple": "what the per-layer embedding adds [streams * hidden]",
    "attn_gr_prepare.normed": "grouped norm [streams * hidden]",
    "attn_gr_prepare.mix": "gates before the sigmoid [streams * hidden]",
    "attn_gr_prepare": "block input [hidden]",
    "attn_gr_prepare.injection": "weights of the block output [streams]",
    "gdn.qkv": "projection before the convolution [channel]",
    "gdn.a": "decay before the activation [value head]",
    "gdn.b": "rate before the sigmoid [value head]",
    "gdn.z": "gate before the sigmoid [value head * value]",
    "gdn.conv": "after convolution and SiLU [channel]",
    "gdn.log_decay": "[value head]",
    "gdn.beta": "[value head]",
    "gdn.recurrence": "[value head, value]",
    "gdn.norm": "after the gated norm [value head, value]",
    "gdn": "block output [hidden]",
    "qsa.q_proj": "queries and gates, head after head [heads * 2 * dim]",
    "qsa.k_proj": "[key heads * dim]",
    "qsa.v_proj": "[key heads * dim]",
    "qsa.q_norm": "before the rotation [head, dim]",
    "qsa.k_norm": "before the rotation [key head, dim]",
    "qsa.index_qk": "index queries and raw key [(index heads + 1) * dim]",
    "qsa.index_query": "after the norm, before the rotation [index head, dim]",
    "qsa.scores": "scores of the complete groups [group]",
    "qsa.groups": "chosen ordinals from the anchor, int64",
    "qsa.tokens": "selected absolute positions, int64",
    "qsa.attention": "before the gate [head, dim]",
    "qsa.gated": "after the gate, before the projection [head, dim]",
    "qsa": "block output [hidden]",
    "attn_gr_apply": "wide residual [streams * hidden]",
    "moe_gr_prepare.normed": "grouped norm [streams * hidden]",
    "moe_gr_prepare.mix": "gates before the sigmoid [streams * hidden]",
    "moe_gr_prepare": "block input [hidden]",
    "moe_gr_prepare.injection": "weights of the block output [streams]",
    "router": "router logits [expert]",
    "router.ids": "chosen experts in rank order, int64 [k]",
    "router.weights": "their weights [k]",
    "routed_shared_moe.routed": "routed part [hidden]",
    "routed_shared_moe.shared": "shared expert times its gate [hidden]",
    "routed_shared_moe.expert_shared": "shared expert alone [hidden]",
    "routed_shared_moe.shared_logit": "its gate before the sigmoid [1]",
    "routed_shared_moe": "block output [hidden]",
    "moe_gr_apply": "wide residual [streams * hidden]",
    "final_gr_mixer.normed": "grouped norm [streams * hidden]",
    "final_gr_mixer.mix": "gates before the sigmoid [streams * hidden]",
    "final_gr_mixer": "[hidden]",
    "output_head": "logits [physical row]",
}
"""Every array that a tap receives. A name with a dot is a part of the stage before the dot."""

Tap = Callable[[str, int | None, int, Array], None]
"""Called with stage, layer (None outside the layers), index of the token in the sequence, array."""


class Weights(Protocol):
    """Where the model's tensors come from; names and shapes are the checkpoint's."""

    def tensor(self, name: str) -> Array:
        """Returns the named tensor."""

    def ple_rows(self, layer: int, ids: Sequence[int]) -> Array:
        """Returns rows of the layer's embedding table, [row, width]."""


class Run(NamedTuple):
    """Logits [token, physical row] of a run, and the state after it."""

    logits: Array
    state: State


class Model:
    """One geometry with its weights; holds no sequence.

    Args:
        geometry: dimensions.
        source: the tensors.
        dtype: float32, or float64 as a second opinion.
    """

    def __init__(self, geometry: Geometry, source: Weights, dtype: DTypeLike = np.float32) -> None:
        self.geometry = geometry
        self.dtype = working(dtype)
        self._source = source
        self._cast: dict[str, Array] = {}
        self._hashes = {
            layer: (geometry.ple_multipliers(ordinal), geometry.ple_primes(ordinal))
            for ordinal, layer in enumerate(geometry.ple_layers)
        }

    def fresh(self, first_position: int = 0) -> State:
        """Returns the state before the first token of a sequence."""
        return fresh(self.geometry, first_position, self.dtype)

    def run(
        self,
        tokens: Sequence[int],
        state: State | None = None,
        tap: Tap | None = None,
        positions: ArrayLike | None = None,
    ) -> Run:
        """Returns the logits of every token and the state after the last one.

        Args:
            tokens: ids below the physical rows; may be a chunk of a longer sequence.
            state: the state before them; a fresh one when absent. It is not changed.
            tap: receives every array of `TAPS`.
            positions: rotary positions [3, token]; anchor + index for text.

        Returns:
            `logits` [token, physical row] and `state`.

        Raises:
            ContractError: oracle.argument.domain for an id out of range; oracle.result.finite, naming stage, layer
                and token, when a stage overflows. The given state is as it was.

        Order: token by token, so that a run in chunks gives the same bytes as one run.
        """
        current = self.fresh() if state is None else state
        ids = integers("tokens", tokens, 0, self.geometry.physical_rows - 1)
        rows = _positions(positions, current, len(ids))
        lines = []
        for index, token in enumerate(ids):
            with np.errstate(over="ignore", invalid="ignore"):  # every stage is judged by name
                logits, current = self._token(current, token, rows[:, index], tap)
            lines.append(logits)
        empty = np.zeros((0, self.geometry.physical_rows), self.dtype)
        return Run(np.stack(lines) if lines else empty, current)

    def _token(
        self, state: State, token: int, position: NDArray[np.int64], tap: Tap | None
    ) -> tuple[Array, State]:
        emit = _Emitter(tap, state.tokens)
        geometry = self.geometry
        row = np.asarray(self._source.tensor(f"{PREFIX}embed_tokens.weight")[token], dtype=self.dtype)
        emit("embedding", None, row)
        wide = np.tile(row, geometry.streams)
        emit("four_stream_residual", None, wide)

        def emit_read(stage: str, layer: int, read: residual.Read) -> None:
            emit(f"{stage}.normed", layer, read.normed)
            emit(f"{stage}.mix", layer, read.mix)
            emit(stage, layer, read.read)
            emit(f"{stage}.injection", layer, read.injection)

        positions = np.concatenate([state.positions, position[:, None]], axis=1)
        after = replace(state, positions=positions)
        for layer, kind in enumerate(geometry.layer_types):
            if layer in self._hashes:
                wide, after = self._ple(layer, wide, token, after, emit)
            name = f"{PREFIX}layers.{layer}."
            read = self._read(f"{name}attn_hyper_connection.", wide)
            emit_read("attn_gr_prepare", layer, read)
            block, after = (self._gdn if kind == "gdn" else self._qsa)(layer, read.read, after, emit)
            wide = residual.apply(wide, block, read.injection, self.dtype)
            emit("attn_gr_apply", layer, wide)
            read = self._read(f"{name}mlp_hyper_connection.", wide)
            emit_read("moe_gr_prepare", layer, read)
            wide = residual.apply(wide, self._moe(layer, read.read, emit), read.injection, self.dtype)
            emit("moe_gr_apply", layer, wide)
        mixer = f"{PREFIX}hyper_connection_mixer."
        mixed = residual.final_mix(wide, *self._mixer(mixer), geometry.streams, geometry.eps, self.dtype)
        emit("final_gr_mixer.normed", None, mixed.normed)
        emit("final_gr_mixer.mix", None, mixed.mix)
        emit("final_gr_mixer", None, mixed.read)
        logits = linear(self._weight("lm_head.weight"), mixed.read)
        emit("output_head", None, logits)
        history = ple.history_after([token], geometry.eos, geometry.ngram_size - 1, state.ple_history)
        return logits, replace(after, tokens=state.tokens + 1, ple_history=tuple(history))

    def _ple(
        self, layer: int, wide: Array, token: int, state: State, emit: "_Emitter"
    ) -> tuple[Array, State]:
        geometry = self.geometry
        multipliers, primes = self._hashes[layer]
        ids = ple.rows(
            [token],
            multipliers,
            primes.primes,
            primes.offsets,
            geometry.heads_per_ngram,
            geometry.eos,
            state.ple_history,
            geometry.physical_rows,
        )[0]
        emit("ple.rows", layer, np.array(ids, np.int64))
        embedding = np.asarray(self._source.ple_rows(layer, ids), dtype=self.dtype).reshape(-1)
        emit("ple.embedding", layer, embedding)
        name = f"{PREFIX}layers.{layer}.ple."
        taps = self._weight(f"{name}conv1d.weight")
        done = ple.inject(
            wide,
            embedding,
            key=self._weight(f"{name}key_proj.weight"),
            value=self._weight(f"{name}value_proj.weight"),
            norm_key=self._weight(f"{name}norm_key.weight"),
            norm_query=self._weight(f"{name}norm_query.weight"),
            norm_conv=self._weight(f"{name}norm_conv.weight"),
            conv=taps.reshape(taps.shape[0], -1),
            state=state.ple_conv[layer],
            streams=geometry.streams,
            dilation=geometry.ngram_size,
            eps=geometry.eps,
            dtype=self.dtype,
        )
        for part in ("key", "norm_key", "value", "norm_query", "norm_conv"):
            emit(f"ple.{part}", layer, getattr(done, part))
        emit("ple", layer, done.added)
        return done.wide, replace(state, ple_conv={**state.ple_conv, layer: done.state})

    def _gdn(self, layer: int, x: Array, state: State, emit: "_Emitter") -> tuple[Array, State]:
        geometry = self.geometry
        name = f"{PREFIX}layers.{layer}.linear_attn."
        qkv = linear(self._weight(f"{name}in_proj_qkv.weight"), x)
        emit("gdn.qkv", layer, qkv)
        taps = self._weight(f"{name}conv1d.weight")
        mixed = conv.causal(
            qkv[None, :], taps.reshape(taps.shape[0], -1), state.gdn_conv[layer], 1, "silu", self.dtype
        )
        emit("gdn.conv", layer, mixed.y[0])
        width = geometry.key_heads * geometry.key_dim
        q, k, v = np.split(mixed.y[0], [width, 2 * width])
        a = linear(self._weight(f"{name}in_proj_a.weight"), x)
        b = linear(self._weight(f"{name}in_proj_b.weight"), x)
        z = linear(self._weight(f"{name}in_proj_z.weight"), x)
        for part, array in (("a", a), ("b", b), ("z", z)):
            emit(f"gdn.{part}", layer, array)
        stored = self._weight(f"{name}A_log"), self._weight(f"{name}dt_bias")
        log_decay, beta = gdn.gates(a, b, *stored, self.dtype)
        emit("gdn.log_decay", layer, log_decay)
        emit("gdn.beta", layer, beta)
        stepped = gdn.step(
            q.reshape(geometry.key_heads, geometry.key_dim),
            k.reshape(geometry.key_heads, geometry.key_dim),
            v.reshape(geometry.value_heads, geometry.value_dim),
            log_decay,
            beta,
            state.gdn_recurrent[layer],
            dtype=self.dtype,
        )
        emit("gdn.recurrence", layer, stepped.y)
        gate = z.reshape(stepped.y.shape)
        normal = norms.gated(stepped.y, self._weight(f"{name}norm.weight"), gate, geometry.eps, self.dtype)
        emit("gdn.norm", layer, normal)
        output = linear(self._weight(f"{name}out_proj.weight"), normal.reshape(-1))
        emit("gdn", layer, output)
        return output, replace(
            state,
            gdn_conv={**state.gdn_conv, layer: mixed.state},
            gdn_recurrent={**state.gdn_recurrent, layer: stepped.state},
        )

    def _qsa(self, layer: int, x: Array, state: State, emit: "_Emitter") -> tuple[Array, State]:
        geometry = self.geometry
        name = f"{PREFIX}layers.{layer}.self_attn."
        queries = linear(self._weight(f"{name}q_proj.weight"), x)
        key = linear(self._weight(f"{name}k_proj.weight"), x)
        value = linear(self._weight(f"{name}v_proj.weight"), x).reshape(geometry.kv_heads, geometry.head_dim)
        fused = queries.reshape(geometry.heads, 2, geometry.head_dim)
        q_norm = self._norm(f"{name}q_norm.weight", fused[:, 0])
        k_norm = self._norm(f"{name}k_norm.weight", key.reshape(value.shape))
        for part, array in (
            ("q_proj", queries),
            ("k_proj", key),
            ("v_proj", value.reshape(-1)),
            ("q_norm", q_norm),
            ("k_norm", k_norm),
        ):
            emit(f"qsa.{part}", layer, array)
        q, k = self._turn(q_norm, state.positions), self._turn(k_norm, state.positions)
        keys = np.concatenate([state.qsa_key[layer], k[None]])
        values = np.concatenate([state.qsa_value[layer], value[None]])
        index = linear(self._weight(f"{name}indexer.index_qk_proj.weight"), x).reshape(-1, geometry.index_dim)
        emit("qsa.index_qk", layer, index.reshape(-1))
        raw = np.concatenate([state.qsa_raw_index[layer], index[geometry.index_heads :]])
        chosen = self._select(layer, index[: geometry.index_heads], raw, state, emit)
        attended = qsa.attend(q[None], keys, values, chosen.tokens, state.first_position, dtype=self.dtype)[0]
        emit("qsa.attention", layer, attended)
        gated = np.asarray(attended * sigmoid(fused[:, 1]), dtype=self.dtype)
        emit("qsa.gated", layer, gated)
        output = linear(self._weight(f"{name}o_proj.weight"), gated.reshape(-1))
        emit("qsa", layer, output)
        return output, replace(
            state,
            qsa_key={**state.qsa_key, layer: keys},
            qsa_value={**state.qsa_value, layer: values},
            qsa_raw_index={**state.qsa_raw_index, layer: raw},
        )

    def _select(self, layer: int, query: Array, raw: Array, state: State, emit: "_Emitter") -> qsa.Selected:
        geometry = self.geometry
        name = f"{PREFIX}layers.{layer}.self_attn.indexer."
        normed = self._norm(f"{name}q_layernorm.weight", query)
        emit("qsa.index_query", layer, normed)
        turned = self._turn(normed, state.positions)
        complete = raw.shape[0] // geometry.ratio
        members = np.arange(complete * geometry.ratio).reshape(complete, geometry.ratio)
        keys = qsa.pool(
            raw,
            members,
            state.positions[:, members[:, 0]],
            self._weight(f"{name}k_layernorm.weight"),
            geometry.rotary_dim,
            geometry.theta,
            geometry.sections,
            geometry.eps,
            self.dtype,
        )
        scores = qsa.scores(turned, keys, self.dtype)
        emit("qsa.scores", layer, scores)
        chosen = qsa.select(
            scores, geometry.budget_groups, raw.shape[0], geometry.ratio, state.first_position, self.dtype
        )
        emit("qsa.groups", layer, chosen.groups)
        emit("qsa.tokens", layer, chosen.tokens)
        return chosen

    def _moe(self, layer: int, x: Array, emit: "_Emitter") -> Array:
        name = f"{PREFIX}layers.{layer}.mlp."
        shared = f"{name}shared_expert."
        done = moe.forward(
            x,
            self._weight(f"{name}gate.weight"),
            self._source.tensor(f"{name}experts.gate_up_proj"),
            self._source.tensor(f"{name}experts.down_proj"),
            self._weight(f"{shared}gate_proj.weight"),
            self._weight(f"{shared}up_proj.weight"),
            self._weight(f"{shared}down_proj.weight"),
            self._weight(f"{name}shared_expert_gate.weight").reshape(-1),
            self.geometry.experts_used,
            self.dtype,
        )
        emit("router", layer, done.logits)
        emit("router.ids", layer, done.ids)
        emit("router.weights", layer, done.weights)
        emit("routed_shared_moe.routed", layer, done.routed)
        emit("routed_shared_moe.shared", layer, done.shared)
        emit("routed_shared_moe.expert_shared", layer, done.expert_shared)
        emit("routed_shared_moe.shared_logit", layer, done.shared_logit)
        emit("routed_shared_moe", layer, done.y)
        return done.y

    def _read(self, name: str, wide: Array) -> residual.Read:
        inject = self._weight(f"{name}block_inject_weight.weight")
        geometry = self.geometry
        return residual.read(wide, *self._mixer(name), inject, geometry.streams, geometry.eps, self.dtype)

    def _mixer(self, name: str) -> tuple[Array, Array, Array]:
        return (
            self._weight(f"{name}hc_norm.weight"),
            self._weight(f"{name}input_mix_weight_down.weight"),
            self._weight(f"{name}input_mix_weight_up.weight"),
        )

    def _norm(self, name: str, heads: Array) -> Array:
        return norms.rms(heads, self._weight(name), self.geometry.eps, "zero-centred", dtype=self.dtype)

    def _turn(self, heads: Array, positions: NDArray[np.int64]) -> Array:
        """Rotates the heads of the newest token."""
        geometry = self.geometry
        turned = rope.apply(
            heads[None], positions[:, -1:], geometry.rotary_dim, geometry.theta, geometry.sections, self.dtype
        )
        return np.asarray(turned[0])

    def _weight(self, name: str) -> Array:
        if name not in self._cast:
            self._cast[name] = np.asarray(self._source.tensor(name), dtype=self.dtype)
        return self._cast[name]


class _Emitter:
    """Refuses a stage that isn't finite, then hands a copy to the tap."""

    def __init__(self, tap: Tap | None, token: int) -> None:
        self._tap = tap
        self._token = token

    def __call__(self, stage: str, layer: int | None, array: Array) -> None:
        place = "" if layer is None else f", layer {layer}"
        result(f"{stage}{place}, token {self._token}", array)
        if self._tap is not None:
            self._tap(stage, layer, self._token, array.copy())


def _positions(given: ArrayLike | None, state: State, tokens: int) -> NDArray[np.int64]:
    if given is None:
        start = state.first_position + state.tokens
        return np.tile(np.arange(start, start + tokens, dtype=np.int64), (3, 1))
    rows: NDArray[Any] = np.asarray(given)
    if rows.shape != (3, tokens) or rows.dtype.kind not in "iu":
        raise refuse(SHAPE, "positions", expected=f"integers [3, {tokens}]", got=f"{rows.dtype} {rows.shape}")
    integer("positions", int(rows.min()) if rows.size else 0, 0)
    return rows.astype(np.int64)
