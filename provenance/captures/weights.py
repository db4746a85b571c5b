"""The weights of every geometry by a counter rule, so that a C program makes the same without a file.

This is the capture's own statement of the rule; the oracles have theirs, and neither imports the other.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_SCALE: Final = 0.12 / 32768
_GAMMA: Final = 0x9E3779B97F4A7C15
_NAME_PREFIX: Final = "model.language_model."


def counter_values(role: int, count: int) -> NDArray[np.float64]:
    """Returns `count` values of one role, float64 in [-0.12, 0.12).

    value(i) = ((S(0x4E585134 ^ role*0xD6E8FEB86659FD93 ^ i*0xA0761D6478BD642F) >> 40 & 0xFFFF) - 32768) * 0.12/32768
    with S one SplitMix64 step, all products modulo 2^64.
    """
    mask = (1 << 64) - 1
    seed = np.uint64(0x4E585134 ^ ((role * 0xD6E8FEB86659FD93) & mask))
    with np.errstate(over="ignore"):
        word = seed ^ (np.arange(count, dtype=np.uint64) * np.uint64(0xA0761D6478BD642F))
        word = word + np.uint64(_GAMMA)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word = word ^ (word >> np.uint64(31))
    drawn = ((word >> np.uint64(40)) & np.uint64(0xFFFF)).astype(np.int64) - 32768
    return drawn.astype(np.float64) * _SCALE


def name_role(name: str) -> int:
    """Returns the 64-bit FNV-1a of a tensor name in UTF-8, with the contract's offset basis."""
    value = 1469598103934665603
    for byte in name.encode("utf-8"):
        value = ((value ^ byte) * 1099511628211) & ((1 << 64) - 1)
    return value


def round_bf16(values: NDArray[np.float64]) -> Floats:
    """Rounds through float32 to bfloat16 (nearest, ties to even) and returns it widened to float32."""
    bits = values.astype(np.float32).view(np.uint32)
    kept = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (kept & np.uint32(0xFFFF0000)).view(np.float32)


def named_weight(parameter: str, shape: tuple[int, ...], shards: int) -> Floats:
    """Returns the weight of one upstream parameter by the rule of tensor names in the checkpoint.

    Args:
        parameter: name in upstream's `Qwen4ExpForCausalLM`, such as `model.layers.0.mlp.gate.weight`.
        shape: its shape.
        shards: into how many tensors the checkpoint cuts the n-gram table, by rows.
    """
    name = parameter.replace("model.", _NAME_PREFIX, 1) if parameter.startswith("model.") else parameter
    if name.endswith("ngram_embedding.weight"):
        rows = shape[0] // shards
        stem = name.removesuffix("weight")
        parts = [
            counter_values(name_role(f"{stem}shard_{index}.weight"), rows * shape[1])
            for index in range(shards)
        ]
        return round_bf16(np.concatenate(parts)).reshape(shape)
    values = counter_values(name_role(name), math.prod(shape))
    if name.endswith("linear_attn.norm.weight"):
        values = values + 1.0  # the one norm whose stored weight is used as it stands
    return round_bf16(values).reshape(shape)


def role_weight(parameter: str, shape: tuple[int, ...], config: dict[str, Any]) -> Floats:
    """Returns the weight of one upstream parameter by the role numbers of the published fixture geometry, float32."""
    for pattern, make in _ROLES:
        if parameter.endswith(pattern):
            layer = int(parameter.split(".")[2]) if ".layers." in parameter else config["num_hidden_layers"]
            return make(parameter, layer, shape, config).astype(np.float32).reshape(shape)
    raise KeyError(parameter)


def weights_digest(weights: Iterator[tuple[str, Floats]]) -> str:
    """Returns the SHA-256 over name, zero byte and little-endian float32 bytes of every weight, in name order."""
    digest = hashlib.sha256()
    for name, values in weights:
        digest.update(name.encode("utf-8") + b"\0")
        digest.update(values.astype("<f4").tobytes())
    return digest.hexdigest()


_Maker = Callable[[str, int, tuple[int, ...], dict[str, Any]], NDArray[np.float64]]


def _plain(base: int, step: int = 0) -> _Maker:
    def make(_name: str, layer: int, shape: tuple[int, ...], _config: dict[str, Any]) -> NDArray[np.float64]:
        return counter_values(base + step * layer, math.prod(shape))

    return make


def _residual(offset: int) -> _Maker:
    def make(name: str, layer: int, shape: tuple[int, ...], _config: dict[str, Any]) -> NDArray[np.float64]:
        phase = 2 if "mixer" in name else 1 if "mlp_hyper" in name else 0
        return counter_values(1000 + 100 * layer + 10 * phase + offset, math.prod(shape))

    return make


def _gated_norm(name: str, layer: int, shape: tuple[int, ...], config: dict[str, Any]) -> NDArray[np.float64]:
    return 1.0 + _plain(3007, 20)(name, layer, shape, config)


def _query_and_gate(
    _n: str, _layer: int, shape: tuple[int, ...], config: dict[str, Any]
) -> NDArray[np.float64]:
    heads, dim = config["num_attention_heads"], config["head_dim"]
    halves = [
        counter_values(role, heads * dim * shape[1]).reshape(heads, dim, shape[1]) for role in (4000, 4003)
    ]
    return np.concatenate(halves, axis=1)


def _index_query_and_key(
    _n: str, _layer: int, shape: tuple[int, ...], config: dict[str, Any]
) -> NDArray[np.float64]:
    queries = config["indexer_n_heads"] * config["indexer_head_dim"] * shape[1]
    return np.concatenate([counter_values(4004, queries), counter_values(4005, math.prod(shape) - queries)])


def _experts(fused: bool) -> _Maker:
    def make(_name: str, layer: int, shape: tuple[int, ...], _config: dict[str, Any]) -> NDArray[np.float64]:
        parts = []
        for expert in range(shape[0]):
            base = 6000 + 2000 * layer + 3 * expert
            if fused:
                half = shape[1] // 2 * shape[2]
                parts += [counter_values(base, half), counter_values(base + 1, half)]
            else:
                parts.append(counter_values(base + 2, shape[1] * shape[2]))
        return np.concatenate(parts)

    return make


_ROLES: Final[tuple[tuple[str, _Maker], ...]] = (
    ("embed_tokens.weight", _plain(100)),
    ("lm_head.weight", _plain(17000)),
    (".hc_norm.weight", _residual(0)),
    (".input_mix_weight_down.weight", _residual(1)),
    (".input_mix_weight_up.weight", _residual(2)),
    (".block_inject_weight.weight", _residual(3)),
    (".ngram_embedding.weight", _plain(2000)),
    (".ple.key_proj.weight", _plain(2001)),
    (".ple.value_proj.weight", _plain(2002)),
    (".ple.norm_key.weight", _plain(2003)),
    (".ple.norm_query.weight", _plain(2004)),
    (".ple.norm_conv.weight", _plain(2005)),
    (".ple.conv1d.weight", _plain(2006)),
    (".linear_attn.in_proj_qkv.weight", _plain(3000, 20)),
    (".linear_attn.in_proj_z.weight", _plain(3001, 20)),
    (".linear_attn.in_proj_b.weight", _plain(3002, 20)),
    (".linear_attn.in_proj_a.weight", _plain(3003, 20)),
    (".linear_attn.conv1d.weight", _plain(3004, 20)),
    (".linear_attn.A_log", _plain(3005, 20)),
    (".linear_attn.dt_bias", _plain(3006, 20)),
    (".linear_attn.norm.weight", _gated_norm),
    (".linear_attn.out_proj.weight", _plain(3008, 20)),
    (".self_attn.q_proj.weight", _query_and_gate),
    (".self_attn.k_proj.weight", _plain(4001)),
    (".self_attn.v_proj.weight", _plain(4002)),
    (".indexer.index_qk_proj.weight", _index_query_and_key),
    (".indexer.q_layernorm.weight", _plain(4006)),
    (".indexer.k_layernorm.weight", _plain(4007)),
    (".self_attn.o_proj.weight", _plain(4009)),
    (".self_attn.q_norm.weight", _plain(4010)),
    (".self_attn.k_norm.weight", _plain(4011)),
    (".mlp.gate.weight", _plain(5000, 1)),
    (".mlp.experts.gate_up_proj", _experts(fused=True)),
    (".mlp.experts.down_proj", _experts(fused=False)),
    (".mlp.shared_expert.gate_proj.weight", _plain(15000, 10)),
    (".mlp.shared_expert.up_proj.weight", _plain(15001, 10)),
    (".mlp.shared_expert.down_proj.weight", _plain(15002, 10)),
    (".mlp.shared_expert_gate.weight", _plain(15003, 10)),
)
