"""Runs upstream on one case and returns every array that it held, by rung.

Values are taken from the inputs and outputs of upstream's own modules and from its cache; the one value that no
module hands out, the index scores, is taken from the argument of upstream's own `topk` call. Nothing is recomputed
here but what `origins.SOURCES` calls derived.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.provenance.captures.geometries import GEOMETRIES, Case
from assay.provenance.captures.weights import Floats, named_weight, role_weight, weights_digest
from assay.spec.stages import rung

Rung = tuple[str, int | None, str]
Array = NDArray[Any]

NO_SCORE: Final = np.float32(-1.0)
"""Fills the places of groups that a query can't see yet; a score is never negative."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What one run left behind.

    Attributes:
        arrays: rung -> array; token stages [tokens from `record_from`, ...], states in upstream's own shape.
        tokens: token ids of the recorded row, without padding.
        weights: digest of all weights.
    """

    arrays: dict[Rung, Array]
    tokens: tuple[int, ...]
    weights: str


@dataclass(slots=True)
class Taps:
    """Chunks of every rung, in call order, each [batch, tokens, ...]."""

    batch: int
    chunks: dict[Rung, list[Any]] = field(default_factory=dict)

    def add(self, stage: str, layer: int | None, part: str, value: Any) -> None:
        """Keeps one chunk; the expert modules work on flat rows [batch * tokens, width], which are folded back."""
        if stage == "router" or part in {"routed", "shared", "shared_gate"}:
            value = value.reshape(self.batch, -1, value.shape[-1])
        self.chunks.setdefault((stage, layer, part), []).append(value.detach().clone())


def collect(case: Case) -> Collected:
    """Runs upstream on one case, single-threaded, and returns what it held.

    Order: batch rows are padded on the left to the longest; positions are logical (0 at the first real token; 0 in
    padding), as upstream's `generate` makes them; the attention mask covers every slot so far.
    """
    import torch

    model, digest = build_model(case)
    longest = max(map(len, case.rows))
    eos = GEOMETRIES[case.geometry]["eos_token_id"]
    fill = eos if case.pad_id is None else case.pad_id
    slots = torch.tensor([[fill] * (longest - len(row)) + list(row) for row in case.rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in case.rows])
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    padded = bool((mask == 0).any())
    taps = Taps(len(case.rows))
    cache: Any = None
    with tapped(model, taps), torch.no_grad():
        start = 0
        for width in case.partition:
            stop = start + width
            done = model(
                input_ids=slots[:, start:stop],
                attention_mask=mask[:, :stop] if padded else None,
                position_ids=positions[:, start:stop],
                cache=cache,
                use_cache=True,
            )
            cache = done.cache
            start = stop
    padding = longest - len(case.rows[case.row])
    arrays = _recorded(case, taps, padding, longest)
    arrays |= cache_arrays(cache, case.row, padding)
    arrays[("sampled_id", None, "")] = greedy_ids(arrays[("output_head", None, "")])
    ordered = sorted(arrays.items(), key=lambda item: rung(*item[0]))
    return Collected(dict(ordered), case.rows[case.row], digest)


def build_model(case: Case) -> tuple[Any, str]:
    """Returns upstream's model of a case's geometry with weights by its rule, and the digest of the weights."""
    import torch
    from transformers.models.qwen4_exp import Qwen4ExpForCausalLM, Qwen4ExpTextConfig

    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # plain kernels, so that another CPU gives the same bits
    text = GEOMETRIES[case.geometry]
    config = Qwen4ExpTextConfig(**text)
    config._attn_implementation = "eager"  # noqa: SLF001 - the documented way is a loader that we don't use
    config._experts_implementation = "eager"  # noqa: SLF001 - the modelling file's own loop over experts
    model = Qwen4ExpForCausalLM(config).eval()
    made: list[tuple[str, Floats]] = []
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            shape = tuple(parameter.shape)
            values = (
                named_weight(name, shape, text["split_ngram_parts"])
                if case.rule == "counter-by-name"
                else role_weight(name, shape, text)
            )
            parameter.copy_(torch.from_numpy(values))
            made.append((name, values))
    return model, weights_digest(iter(made))


def selected_tokens(mask: Array, width: int) -> NDArray[np.int32]:
    """Returns the selected positions of each query, ascending, filled with -1 up to `width`; int32 [tokens, width]."""
    rows = np.full((mask.shape[0], width), -1, np.int32)
    for place, row in enumerate(mask):
        chosen = np.flatnonzero(row)
        rows[place, : chosen.size] = chosen
    return rows


def greedy_ids(logits: Array) -> NDArray[np.int32]:
    """Returns the id of the largest logit of each token, ties to the lower id; int32 [tokens]."""
    ids: NDArray[np.int32] = logits.argmax(axis=-1).astype(np.int32)
    return ids


def _recorded(case: Case, taps: Taps, padding: int, longest: int) -> dict[Rung, Array]:
    """Cuts the recorded row out of the batch, drops its padding and the tokens before `record_from`."""
    first = padding + case.record_from
    text = GEOMETRIES[case.geometry]
    width = text["indexer_budget"] + text["indexer_compress_ratio"] - 1
    arrays: dict[Rung, Array] = {}
    for (stage, layer, part), chunks in taps.chunks.items():
        if part in {"index_scores", "selection_mask"}:
            fill = NO_SCORE if part == "index_scores" else 0
            row = _ragged([chunk[case.row].numpy() for chunk in chunks], fill)
        else:
            row = np.concatenate([chunk[case.row].numpy() for chunk in chunks])
        if part == "selection_mask":
            row = row[:, padding:longest].astype(np.int32)
            arrays[(stage, layer, "selected")] = selected_tokens(row[first:], width)
        if part == "index_scores":
            row = row[:, : max(1, (longest - padding) // text["indexer_compress_ratio"])]
        if case.detail or part in _ALWAYS:
            arrays[(stage, layer, part)] = row[first:]
    return arrays


_ALWAYS: Final = frozenset({"", "injection", "index_scores", "selection_mask", "ids", "weights", "logits"})


def _ragged(chunks: list[Array], fill: Any) -> Array:
    """Joins chunks whose last axis grows, filled on the right."""
    width = max(chunk.shape[-1] for chunk in chunks)
    padded = [
        np.pad(chunk, [(0, 0)] * (chunk.ndim - 1) + [(0, width - chunk.shape[-1])], constant_values=fill)
        for chunk in chunks
    ]
    return np.concatenate(padded)


def cache_arrays(cache: Any, row: int, padding: int = 0) -> dict[Rung, Array]:
    """Returns the state arrays of one row, taken out of upstream's cache; padded slots of attention caches are dropped."""
    arrays: dict[Rung, Array] = {}
    for index, layer in enumerate(cache.layers):
        if hasattr(layer, "conv_states"):
            for slot, part in ((0, "gdn_conv"), (1, "ple_conv"), (2, "ple_history")):
                if (state := layer.conv_states.get(slot)) is not None:
                    arrays[("state", index, part)] = state[row].numpy().copy()
            arrays[("state", index, "gdn_recurrent")] = layer.recurrent_states[0][row].numpy().copy()
        else:
            arrays[("state", index, "qsa_key")] = layer.keys[row, :, padding:].numpy().copy()
            arrays[("state", index, "qsa_value")] = layer.values[row, :, padding:].numpy().copy()
            arrays[("state", index, "qsa_raw_index")] = layer.indexer_keys[row, padding:].numpy().copy()
    return arrays


@contextmanager
def tapped(model: Any, taps: Taps) -> Iterator[None]:
    """Hooks every module of the ladder and watches upstream's own selection call; unhooks on the way out."""
    handles: list[Any] = []

    def out(module: Any, stage: str, layer: int | None, part: str = "", pick: int | None = None) -> None:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            value = output if pick is None else output[pick]
            taps.add(stage, layer, part, value)

        handles.append(module.register_forward_hook(hook))

    def before(module: Any, stage: str, layer: int | None, part: str = "") -> None:
        def hook(_module: Any, args: Any) -> None:
            taps.add(stage, layer, part, args[0])

        handles.append(module.register_forward_pre_hook(hook))

    text = model.model
    out(text.embed_tokens, "embedding", None)
    before(text.layers[0], "four_stream_residual", None)
    for index, layer in enumerate(text.layers):
        _tap_layer(layer, index, out, before)
    _tap_mixer(text.hyper_connection_mixer, "final_gr_mixer", None, out)
    out(text.hyper_connection_mixer, "final_gr_mixer", None)
    out(model.lm_head, "output_head", None)
    with _selection_watched(text.layers, taps, handles):
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _tap_layer(layer: Any, index: int, out: Callable[..., None], before: Callable[..., None]) -> None:
    if layer.ple is not None:
        before(layer.ple.ple_embedding.ngram_embedding, "ple_rows", index)
        out(layer.ple.key_proj, "ple", index, "key")
        out(layer.ple.norm_key, "ple", index, "norm_key")
        out(layer.ple.value_proj, "ple", index, "value")
        out(layer.ple.norm_query, "ple", index, "norm_query")
        out(layer.ple.norm_conv, "ple", index, "norm_conv")
        out(layer.ple, "ple", index)
    _tap_mixer(layer.attn_hyper_connection, "attn_gr_prepare", index, out)
    out(layer.attn_hyper_connection, "attn_gr_prepare", index, "injection", 2)
    out(layer.attn_hyper_connection, "attn_gr_prepare", index, "", 0)
    if layer.layer_type == "linear_attention":
        for part in ("qkv", "z", "b", "a"):
            out(getattr(layer.linear_attn, f"in_proj_{part}"), "gdn", index, part)
        before(layer.linear_attn.out_proj, "gdn", index, "gated_norm")
        out(layer.linear_attn, "gdn", index)
    else:
        for part in ("q_proj", "k_proj", "v_proj", "q_norm", "k_norm"):
            out(getattr(layer.self_attn, part), "qsa", index, part)
        out(layer.self_attn.indexer.index_qk_proj, "qsa", index, "index_qk")
        out(layer.self_attn.indexer.q_layernorm, "qsa", index, "index_query")
        before(layer.self_attn.o_proj, "qsa", index, "gated")
        out(layer.self_attn, "qsa", index, "", 0)
    out(layer.mlp_hyper_connection, "attn_gr_apply", index, "", 1)
    _tap_mixer(layer.mlp_hyper_connection, "moe_gr_prepare", index, out)
    out(layer.mlp_hyper_connection, "moe_gr_prepare", index, "injection", 2)
    out(layer.mlp_hyper_connection, "moe_gr_prepare", index, "", 0)
    _tap_experts(layer.mlp, index, out)
    out(layer, "moe_gr_apply", index)


def _tap_mixer(mixer: Any, stage: str, index: int | None, out: Callable[..., None]) -> None:
    out(mixer.hc_norm, stage, index, "normed")
    out(mixer.input_mix_weight_up, stage, index, "mix")


def _tap_experts(mlp: Any, index: int, out: Callable[..., None]) -> None:
    out(mlp.gate, "router", index, "logits", 0)
    out(mlp.gate, "router", index, "weights", 1)
    out(mlp.gate, "router", index, "ids", 2)
    out(mlp.experts, "routed_shared_moe", index, "routed")
    out(mlp.shared_expert, "routed_shared_moe", index, "shared")
    out(mlp.shared_expert_gate, "routed_shared_moe", index, "shared_gate")
    out(mlp, "routed_shared_moe", index)


@contextmanager
def _selection_watched(layers: Any, taps: Taps, handles: list[Any]) -> Iterator[None]:
    """Records the scores that each indexer hands to `topk`, and the mask that it returns."""
    import torch
    from torch.overrides import TorchFunctionMode

    scores: list[Any] = []

    class Watch(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.Tensor.topk:
                scores.append(args[0].detach().clone())
            return func(*args, **(kwargs or {}))

    def watch(indexer: Any, index: int) -> None:
        def start(_module: Any, _args: Any) -> None:
            scores.clear()

        def finish(_module: Any, args: Any, output: Any) -> None:
            taps.add("qsa", index, "selection_mask", output[:, 0])
            taps.add("qsa", index, "index_scores", _score_rows(args[2], scores, indexer.compress_ratio))

        handles.append(indexer.register_forward_pre_hook(start))
        handles.append(indexer.register_forward_hook(finish))

    for index, layer in enumerate(layers):
        if layer.layer_type != "linear_attention":
            watch(layer.self_attn.indexer, index)
    with Watch():
        yield


def _score_rows(attention_mask: Any, scores: list[Any], ratio: int) -> Any:
    """Lays the scores of one indexer call out as [batch, tokens, groups]; a query without a group has none."""
    import torch

    visible = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
    batch, _, queries, slots = visible.shape
    rows = torch.full((batch, queries, max(1, slots // ratio)), float(NO_SCORE))
    waiting = iter(scores)
    for one in range(batch):
        for query in range(queries):
            groups = int(visible[one, 0, query].sum()) // ratio
            if groups:
                rows[one, query, :groups] = next(waiting)
    return rows
