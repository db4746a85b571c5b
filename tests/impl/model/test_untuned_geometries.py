"""Geometries that nobody chose, as save_pretrained writes them: drawn by a seed, run by upstream and by the MLX model.

Upstream's top-k takes equal scores in an order of its own; here it takes the first ones, as the contract says, so that
the many exact zeros of small indexes need not be left out. Prompts are short of the near cuts at which upstream differs
from itself, or the tokens would say so: every seed below gives upstream's tokens.
"""

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.upstream
NEW = 40


def drawn(seed: int) -> dict[str, Any]:
    """A configuration of upstream's text model, with every size drawn and every option open."""
    draw = random.Random(seed)  # noqa: S311 - a fixture, not a secret
    layers = draw.choice([1, 2, 3, 4, 5, 7])
    kinds = [draw.choice(["linear_attention", "linear_attention", "full_attention"]) for _ in range(layers)]
    kinds[draw.randrange(layers)] = "full_attention"  # upstream has no cache for a model without one
    linear = [layer + 1 for layer, kind in enumerate(kinds) if kind == "linear_attention"]
    rotary = 2 * draw.randint(1, 8)
    head_dim = rotary * draw.choice([1, 2, 4])
    kv_heads, key_heads, ratio = draw.randint(1, 3), draw.randint(1, 3), draw.choice([1, 2, 3, 4, 5])
    experts, ngram = draw.choice([1, 2, 5, 13]), draw.choice([2, 3, 3, 4])
    heads, vocab = draw.choice([1, 2, 3, 8]), draw.choice([37, 64, 101, 257])
    return {
        "vocab_size": vocab,
        "hidden_size": draw.choice([8, 12, 33, 48]),
        "num_hidden_layers": layers,
        "layer_types": kinds,
        "num_attention_heads": kv_heads * draw.choice([1, 2, 3, 5]),
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": 512,
        "rms_norm_eps": draw.choice([1e-6, 1e-3]),
        "attention_bias": draw.random() < 0.3,
        "linear_conv_kernel_dim": draw.choice([2, 3, 4, 7]),
        "linear_key_head_dim": draw.choice([4, 5, 16]),
        "linear_value_head_dim": draw.choice([4, 7, 16]),
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": key_heads * draw.choice([1, 2, 3, 5]),
        "moe_intermediate_size": draw.choice([1, 7, 32]),
        "shared_expert_intermediate_size": draw.choice([1, 5, 40]),
        "num_experts": experts,
        "num_experts_per_tok": draw.choice([1, experts, (experts + 1) // 2]),
        "norm_topk_prob": draw.random() < 0.7,
        "hc_count": draw.choice([2, 3, 4, 5]),
        "hc_lowrank": draw.choice([1, 3, 16]),
        "ple_layer_ids": sorted(draw.sample(linear, min(len(linear), draw.choice([0, 1, 1, 2])))),
        "ple_embed_dim": (ngram - 1) * heads * draw.choice([1, 2, 5]),
        "ple_conv_kernel_size": draw.choice([2, 3, 4, 6]),
        "ngram_size": ngram,
        "heads_per_ngram": heads,
        "ngram_vocab_size_base": draw.choice([2, 50, 499]),
        "make_ngram_vocab_size_divisible_by": 16,
        "split_ngram_parts": draw.choice([1, 2, 4, 16]),
        "seed": draw.choice([0, 1234, 2**40]),
        "output_gate_type": draw.choice(["sigmoid", "silu", None]),
        "eos_token_id": draw.choice([0, 3, [5, 7]]),
        "bos_token_id": None,
        "pad_token_id": None,
        "indexer_n_heads": draw.randint(1, 4),
        "indexer_kv_heads": 1,
        "indexer_head_dim": rotary + draw.choice([0, 1, 6]),
        "indexer_budget": ratio * draw.choice([1, 2, 7]),
        "indexer_compress_ratio": ratio,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": draw.choice([100.0, 1e7]), "mrope_interleaved": True,
            "partial_rotary_factor": rotary / head_dim, "mrope_section": [rotary // 2, 0, 0],
        },
        "tie_word_embeddings": draw.random() < 0.3,
    }  # fmt: skip


def saved(seed: int, folder: Path) -> Any:
    """Saves weights of a seed in a drawn type, sharded or not, and returns upstream's model of what was saved."""
    import torch
    from transformers.models.qwen4_exp import Qwen4ExpForCausalLM, Qwen4ExpTextConfig

    torch.set_num_threads(1)
    torch.manual_seed(seed)  # A_log is left as upstream draws it
    model = Qwen4ExpForCausalLM(Qwen4ExpTextConfig(**drawn(seed)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = torch.randn(parameter.shape, generator=generator)
            if name.endswith("linear_attn.norm.weight"):
                parameter.copy_(1 + 0.1 * values)
            elif not name.endswith("A_log"):
                is_plain = parameter.ndim == 1 or "embed" in name
                parameter.copy_(0.5 * values if is_plain else 1.2 * values / math.sqrt(parameter.shape[-1]))
    kind = (torch.float32, torch.bfloat16, torch.float16)[seed % 3]
    model.to(kind).save_pretrained(folder, max_shard_size=("5GB", "20KB")[seed % 2])
    return Qwen4ExpForCausalLM.from_pretrained(
        folder, dtype=torch.float32, experts_implementation="eager"
    ).eval()


def first_of_equals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the index's choice among equal scores that of the contract."""
    import torch

    shipped = torch.Tensor.topk

    def topk(self: Any, k: int, dim: int = -1, **named: Any) -> Any:
        if self.dim() != 1 or dim != 0:
            return shipped(self, k, dim=dim, **named)
        return torch.return_types.topk([found[:k] for found in self.sort(descending=True, stable=True)])

    monkeypatch.setattr(torch.Tensor, "topk", topk)


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(one, marks=pytest.mark.slow) for one in range(3, 12))]
)
def test_a_drawn_geometry_gives_upstreams_tokens(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from assay.impl.model.backend import choose_numerics
    from assay.impl.model.bank import Bank
    from assay.impl.model.generation import Report, Request, generate
    from assay.impl.model.loader import load_checkpoint

    first_of_equals(monkeypatch)
    upstream = saved(seed, tmp_path)
    model = load_checkpoint(tmp_path, choose_numerics(fast=False)).model
    draw = random.Random(seed)  # noqa: S311 - as above
    prompt = [draw.randrange(model.geometry.physical_rows) for _ in range(1 + 9 * (seed % 5))]
    theirs, chunk, cache = [], prompt, None
    with torch.no_grad():
        for _ in range(NEW):
            done = upstream(input_ids=torch.tensor([chunk]), cache=cache, use_cache=True)
            cache, chunk = done.cache, [int(done.logits[0, -1].argmax())]
            theirs += chunk
    bank = Bank(model)
    request = Request(prompt, NEW, frozenset(), model.geometry.physical_rows)
    assert list(generate(bank, request, Report())) == theirs
    last = done.logits[0, -1].numpy()
    assert np.allclose(np.array(bank.state().logits), last, rtol=1e-4, atol=1e-4)
