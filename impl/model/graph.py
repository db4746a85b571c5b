"""The whole model: the 13 stages in order, over the rows of any number of sequences at once.

A batch is the rows of its sequences one after another; there is no padding inside. Work that looks at one row alone
is done for all rows together, work that looks at a past is done sequence by sequence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from assay.impl.model import backend, gdn, moe, ple, qsa, residual, router
from assay.impl.model.clauses import CONTEXT, EVALUATION, TOKENS, refuse
from assay.impl.model.gdn import GdnWeights
from assay.impl.model.geometry import Geometry
from assay.impl.model.moe import MoeWeights
from assay.impl.model.numerics import Numerics
from assay.impl.model.ple import PleWeights
from assay.impl.model.qsa import QsaWeights
from assay.impl.model.residual import Mixer
from assay.impl.model.state import State
from assay.impl.model.trace import Trace
from assay.impl.model.transaction import Image, Transaction


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Weights of one layer: `mixing` is what its kind needs."""

    attn_mixer: Mixer
    mixing: GdnWeights | QsaWeights
    mlp_mixer: Mixer
    moe: MoeWeights
    ple: PleWeights | None = None


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """Weights of the whole model.

    Attributes:
        embedding: [physical row, hidden] in its stored type.
        head: [hidden, physical row] in its stored type.
    """

    embedding: mx.array
    layers: tuple[LayerWeights, ...]
    mixer: Mixer
    head: mx.array


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens that continue a state.

    Attributes:
        state: the state before them.
        tokens: ids.
        positions: int64 [token, 3] rotary positions; None for text, which counts on from the frontier.
    """

    state: State
    tokens: Sequence[int]
    positions: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """States after a batch, and the logits that were asked for: of the newest token, or of every row.

    Attributes:
        logits: float32 [physical row] of each sequence, or [token, physical row].
        counters: physical work of sparse attention.
    """

    states: list[State]
    logits: list[mx.array]
    counters: qsa.Counters


@dataclass(frozen=True, slots=True)
class AskedRows:
    """Table rows of one layer: their ids int64 [row, head], and whoever fetches them."""

    ids: NDArray[np.int64]
    asked: ple.Asked


class Model:
    """One geometry with its weights; holds no sequence."""

    def __init__(self, geometry: Geometry, weights: ModelWeights, numerics: Numerics) -> None:
        self.geometry = geometry
        self.weights = weights
        self.numerics = numerics

    def run(
        self,
        chunks: Sequence[Chunk],
        trace: Trace | None = None,
        *,
        every_logit: bool = False,
        transaction: Transaction | None = None,
    ) -> Done:
        """Returns the states after the chunks; the states before them stay what they were.

        Args:
            chunks: one for each sequence, each with at least one token.
            trace: told of every stage.
            every_logit: logits of all rows, not only of the newest.
            transaction: the private images, when the caller wants to hold them; made by `begin`.

        Raises:
            ContractError: model.tokens, model.context, model.finite, model.routes, model.transaction.*.
        """
        watching = trace or Trace()
        private = transaction or self.begin(chunks)
        counters = qsa.Counters()
        asked: dict[int, AskedRows] = {}
        try:
            self._ask_rows(private, asked)
            logits = self._forward(private, asked, watching, counters, every_logit=every_logit)
            states = private.seal(watching, logits)
        except (RuntimeError, MemoryError) as error:
            backend.DEVICE.failures += isinstance(error, RuntimeError)
            backend.settle()
            text = str(error) or type(error).__name__
            raise refuse(EVALUATION, "chunk", expected="an evaluation without an error", got=text) from error
        except BaseException:
            backend.settle()
            raise
        finally:
            private.close()
            for one in asked.values():
                one.asked.close()
        return Done(states, logits, counters)

    def begin(self, chunks: Sequence[Chunk]) -> Transaction:
        """Returns an open transaction on private images, once every id and position is known to be in bounds.

        Raises:
            ContractError: model.tokens or model.context.
        """
        g = self.geometry
        if backend.DEVICE.failures >= backend.FAILURES_SURVIVED:
            raise refuse(
                EVALUATION, "device", expected=f"fewer than {backend.FAILURES_SURVIVED} failed evaluations in a process",
                got=backend.DEVICE.failures, hint="start a new process: MLX loses count of its tasks and would wait for ever",
            )  # fmt: skip
        if not chunks:
            raise refuse(TOKENS, "batch", expected="at least one sequence", got="none")
        images = []
        for number, chunk in enumerate(chunks):
            tokens = tuple(chunk.tokens)
            where = f"sequences[{number}]"
            if not tokens:
                raise refuse(TOKENS, where, expected="at least one token", got="none")
            for place, token in enumerate(tokens):
                if type(token) is not int or not 0 <= token < g.physical_rows:
                    expected = f"an id in 0 .. {g.physical_rows - 1}"
                    raise refuse(TOKENS, f"{where}.tokens[{place}]", expected=expected, got=token)
            base = chunk.state
            end = base.first_position + base.frontier + len(tokens)
            if end > g.context:
                raise refuse(CONTEXT, where, expected=f"at most {g.context} positions", got=end)
            history = (
                ple.history_after(tokens, base.ple_history, g.eos[0], g.ngram_size - 1)
                if g.ple_layers
                else ()
            )
            images.append(Image(base, tokens, _positions(chunk, where), history))
        return Transaction(images, g)

    def _ask_rows(self, private: Transaction, asked: dict[int, AskedRows]) -> None:
        """Asks for the table rows of all layers: they follow from the tokens alone, so nothing need wait for them."""
        g = self.geometry
        for layer in g.ple_layers:
            own = self.weights.layers[layer].ple
            if own is None:
                raise AssertionError("a layer with per-layer embedding has its weights")
            ids = np.concatenate(
                [
                    ple.row_ids(
                        image.tokens, image.base.ple_history, own.hash, g.heads_per_ngram, g.eos[0],
                        physical_rows=g.physical_rows,
                    )
                    for image in private.images
                ]
            )  # fmt: skip
            asked[layer] = AskedRows(ids, own.rows.ask(ids.reshape(-1)))

    def _forward(
        self,
        private: Transaction,
        asked: Mapping[int, AskedRows],
        trace: Trace,
        counters: qsa.Counters,
        *,
        every_logit: bool,
    ) -> list[mx.array]:
        g, weights, numerics = self.geometry, self.weights, self.numerics
        tokens = np.concatenate([image.tokens for image in private.images]).astype(np.int32)
        rows = mx.take(weights.embedding, mx.array(tokens), axis=0).astype(mx.float32)
        rows = trace.stage("embedding", None, rows)
        wide = trace.stage("four_stream_residual", None, mx.tile(rows, (1, g.streams)))
        checked = 0
        for layer, own in enumerate(weights.layers):
            if own.ple is not None:
                wide = self._ple(layer, own.ple, asked[layer], wide, private, trace)
            read = self._read("attn_gr_prepare", layer, own.attn_mixer, wide, trace)
            block = self._mix(layer, own, read.value, private, trace, counters)
            wide = trace.stage("attn_gr_apply", layer, residual.apply(wide, block, _given(read.injection)))
            read = self._read("moe_gr_prepare", layer, own.mlp_mixer, wide, trace)
            routing = self._route(layer, own.moe, read.value, private, trace)
            self._look_ahead(layer + 1, wide)
            block = moe.forward(read.value, own.moe, routing, numerics, _parts(trace, layer))
            block = trace.stage("routed_shared_moe", layer, block)
            wide = trace.stage("moe_gr_apply", layer, residual.apply(wide, block, _given(read.injection)))
            backend.start(
                wide, *trace.watched[checked:]
            )  # the device works while the host builds the next layer
            checked = len(trace.watched)
        ends = np.cumsum(private.lengths)
        told = wide if every_logit else mx.take(wide, mx.array((ends - 1).astype(np.int32)), axis=0)
        final = residual.read(told, weights.mixer, g.streams, g.eps, numerics)
        trace.part("final_gr_mixer", None, "normed", final.normed)
        trace.part("final_gr_mixer", None, "mix", final.mix)
        value = trace.stage("final_gr_mixer", None, final.value)
        logits = trace.stage("output_head", None, numerics.linear(value, weights.head))
        if every_logit:
            split = [logits[end - length : end] for end, length in zip(ends, private.lengths, strict=True)]
            private.install_ends(wide, [one[-1] for one in split])
            return split
        split = [logits[row] for row in range(len(private.images))]
        private.install_ends(wide, split)
        return split

    def _read(self, stage: str, layer: int, mixer: Mixer, wide: mx.array, trace: Trace) -> residual.Read:
        found = residual.read(wide, mixer, self.geometry.streams, self.geometry.eps, self.numerics)
        trace.part(stage, layer, "normed", found.normed)
        trace.part(stage, layer, "mix", found.mix)
        injection = _given(found.injection)
        trace.part(stage, layer, "injection", injection)
        trace.check(stage, layer, injection)
        return residual.Read(found.normed, found.mix, trace.stage(stage, layer, found.value), injection)

    def _ple(
        self,
        layer: int,
        own: PleWeights,
        asked: AskedRows,
        wide: mx.array,
        private: Transaction,
        trace: Trace,
    ) -> mx.array:
        g = self.geometry
        if trace.is_recording:
            trace.part("ple_rows", layer, "", mx.array(asked.ids))
        embedding = asked.asked.rows().reshape(asked.ids.shape[0], -1)
        added, states = ple.forward(
            wide, embedding, own, [image.base.ple_conv[layer] for image in private.images], private.lengths,
            g, self.numerics, lambda part, array: trace.part("ple", layer, part, array),
        )  # fmt: skip
        added = trace.stage("ple", layer, added)
        private.install("ple_conv", layer, states)
        return wide + added

    def _mix(
        self,
        layer: int,
        own: LayerWeights,
        x: mx.array,
        private: Transaction,
        trace: Trace,
        counters: qsa.Counters,
    ) -> mx.array:
        if isinstance(own.mixing, GdnWeights):
            block, states = gdn.forward(
                x, own.mixing, [image.base.gdn[layer] for image in private.images], private.lengths,
                self.geometry, self.numerics, lambda part, array: trace.part("gdn", layer, part, array),
            )  # fmt: skip
            block = trace.stage("gdn", layer, block)
            private.install("gdn", layer, states)
            return block
        watch = qsa.Watch(
            lambda part, array: trace.part("qsa", layer, part, array),
            lambda scores: trace.check("qsa.index_scores", layer, scores),
            counters,
            trace.is_recording,
        )
        block, gained = qsa.forward(
            x, own.mixing, [image.base.qsa[layer] for image in private.images],
            [image.positions for image in private.images],
            [_group_starts(image, self.geometry) for image in private.images],
            self.geometry, self.numerics, watch,
        )  # fmt: skip
        block = trace.stage("qsa", layer, block)
        private.install("qsa", layer, gained)
        return block

    def _route(
        self, layer: int, own: MoeWeights, x: mx.array, private: Transaction, trace: Trace
    ) -> router.Routing:
        found = router.route(x, own.router, self.geometry, self.numerics)
        trace.part("router", layer, "logits", found.logits)
        trace.part("router", layer, "ids", found.ids)
        weights = trace.stage("router", layer, found.weights)
        routing = router.Routing(found.logits, found.ids, weights)
        private.install_routes(layer, routing)
        return routing

    def _look_ahead(self, layer: int, wide: mx.array) -> None:
        """Tells the next layer's experts where its router would send the rows if nothing changed them until then."""
        if layer == self.geometry.layers or not self.weights.layers[layer].moe.experts.has_guesses:
            return
        own = self.weights.layers[layer]
        read = residual.read(wide, own.mlp_mixer, self.geometry.streams, self.geometry.eps, self.numerics)
        own.moe.experts.hint(router.route(read.value, own.moe.router, self.geometry, self.numerics).ids)


def _parts(trace: Trace, layer: int) -> moe.Part:
    return lambda part, array: trace.part("routed_shared_moe", layer, part, array)


def _positions(chunk: Chunk, where: str) -> NDArray[np.int64]:
    count = len(chunk.tokens)
    if chunk.positions is None:
        start = chunk.state.first_position + chunk.state.frontier
        return np.repeat(np.arange(start, start + count, dtype=np.int64)[:, None], 3, axis=1)
    rows = np.asarray(chunk.positions)
    if rows.shape != (count, 3) or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= 1 << 24:
        expected = f"whole numbers [{count}, 3] below 2^24"
        raise refuse(CONTEXT, f"{where}.positions", expected=expected, got=f"{rows.dtype} {list(rows.shape)}")
    return rows.astype(np.int64)


def _group_starts(image: Image, geometry: Geometry) -> NDArray[np.int64]:
    """Positions of the first tokens of the groups that the chunk completes, int64 [group, 3]."""
    ratio, before = geometry.ratio, image.base.frontier
    first, stop = before // ratio, (before + len(image.tokens)) // ratio
    places = np.arange(first, stop) * ratio
    known = image.base.positions.rows[first * ratio :]
    line = np.concatenate([known.astype(np.int64), image.positions])
    return line[places - first * ratio]


def _given(injection: mx.array | None) -> mx.array:
    if injection is None:
        raise AssertionError("a layer's mixer has injection weights")
    return injection
