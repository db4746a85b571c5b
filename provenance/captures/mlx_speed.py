"""Speed of the MLX model and of upstream on one middle-sized geometry, each in a process of its own, from one checkpoint.

A process gets a folder, a context and a mode, and answers seconds of prefill and of single tokens. Nothing here
imports MLX or torch at its head: a fast BLAS must come before the one, and slows the other.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, cast

Mode = Literal["upstream", "shipped", "fast", "tiled"]
MODES: Final[dict[Mode, str]] = {
    "upstream": "transformers 5.24.0, float32, two threads",
    "shipped": "deterministic, MLX as its wheel ships (reference BLAS)",
    "fast": "fast mode, OpenBLAS in front of MLX",
    "tiled": "deterministic by tiles of 8 rows, OpenBLAS in front of MLX",
}
DECODED: Final = 96
REPEATED_BELOW: Final = 4096
"""Contexts up to here are prefilled three times in a process, and the median is taken."""
LIMIT_S: Final = 240.0
MARK: Final = "speed: "

MIDDLE: Final[dict[str, Any]] = {
    "vocab_size": 4096, "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2,
    "head_dim": 64, "max_position_embeddings": 32768, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32,
    "linear_value_head_dim": 32, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64, "num_experts": 32, "num_experts_per_tok": 4, "hc_count": 4, "hc_lowrank": 32,
    "ple_layer_ids": [2], "ple_embed_dim": 256, "ple_conv_kernel_size": 4, "ngram_size": 3, "heads_per_ngram": 8,
    "ngram_vocab_size_base": 1000, "split_ngram_parts": 2, "indexer_n_heads": 2, "indexer_kv_heads": 1,
    "indexer_head_dim": 32, "indexer_budget": 64, "indexer_compress_ratio": 4, "output_gate_type": "sigmoid",
    "eos_token_id": 1, "pad_token_id": 0, "bos_token_id": 2,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25, "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    },
}  # fmt: skip
"""19.6 million parameters of which a token uses 6.1 million; selection budget 64 tokens."""


class SpeedError(Exception):
    """A process that measures failed; the text says how."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of one mode at one context; the share of a prefill that was spent in each kind of stage."""

    prefill: float
    decode: float
    shares: dict[str, float]


def save_middle(folder: Path) -> None:
    """Writes the checkpoint that all modes read, in a process of its own.

    Raises:
        SpeedError: when that process failed.
    """
    _answer(["save", str(folder)])


def measure(mode: Mode, folder: Path, context: int) -> Speed | None:
    """Returns the speed of a mode; None when it has no BLAS to use.

    Raises:
        SpeedError: when the process failed, or did not end within its limit.
    """
    found = _answer([mode, str(folder), str(context)])
    return Speed(**found) if found else None


def main(arguments: Sequence[str]) -> NoReturn:
    """Does one piece of work and prints its answer as one line of JSON."""
    if arguments[0] == "save":
        _save(arguments[1])
        found: Speed | None = None
    elif arguments[0] == "upstream":
        found = _upstream(arguments[1], int(arguments[2]))
    else:
        found = _ours(cast("Mode", arguments[0]), arguments[1], int(arguments[2]))
    sys.stdout.write(f"\n{MARK}{json.dumps(asdict(found) if found is not None else {})}\n")
    sys.stdout.flush()
    os._exit(0)  # what a library's threads do at exit is not measured


def _answer(arguments: Sequence[str]) -> dict[str, Any]:
    """Runs this module in a fresh interpreter and returns what it says."""
    command = [sys.executable, "-m", "assay.provenance.captures.mlx_speed", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SpeedError(f"{arguments[0]} did not end within {LIMIT_S:g} s") from None
    line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith(MARK)), None)
    if done.returncode or line is None:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise SpeedError(f"{arguments[0]} ended with status {done.returncode} and said: {said}")
    found: dict[str, Any] = json.loads(line.removeprefix(MARK))
    return found


def _save(folder: str) -> None:
    import torch
    from transformers.models.qwen4_exp import Qwen4ExpForCausalLM, Qwen4ExpTextConfig

    model = Qwen4ExpForCausalLM(Qwen4ExpTextConfig(**MIDDLE))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                scale = 0.1 if name.endswith("ple.conv1d.weight") else 0.05
                parameter.copy_(scale * drawn)
    model.save_pretrained(folder)


def _tokens(context: int) -> list[int]:
    from assay.provenance.captures.geometries import counter_tokens

    return list(counter_tokens(9, context, MIDDLE["vocab_size"], avoid=MIDDLE["eos_token_id"]))


def _upstream(folder: str, context: int) -> Speed:
    import torch
    from transformers.models.qwen4_exp import Qwen4ExpForCausalLM

    torch.set_num_threads(2)
    model = Qwen4ExpForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = _tokens(context)
    with torch.no_grad():
        model(input_ids=torch.tensor([tokens[:64]]), use_cache=True)
        prefills, steps = [], []
        for _ in range(_repeats(context)):
            started = time.perf_counter()
            done = model(input_ids=torch.tensor([tokens]), use_cache=True, logits_to_keep=1)
            prefills.append(time.perf_counter() - started)
        for _ in range(DECODED):
            started = time.perf_counter()
            chosen = done.logits[:, -1:].argmax(-1)
            done = model(input_ids=chosen, cache=done.cache, use_cache=True)
            steps.append(time.perf_counter() - started)
    return Speed(context / statistics.median(prefills), 1 / statistics.median(steps), {})


def _repeats(context: int) -> int:
    return 3 if context <= REPEATED_BELOW else 1


def _ours(mode: Mode, folder: str, context: int) -> Speed | None:
    from assay.impl.model.backend import choose_numerics, load_fast_blas

    if mode in {"fast", "tiled"} and load_fast_blas() is None:
        return None
    numerics = choose_numerics(fast=mode == "fast")

    from assay.impl.model.bank import Bank
    from assay.impl.model.generation import Report, Request, generate
    from assay.impl.model.loader import load_checkpoint

    model = load_checkpoint(Path(folder), numerics).model
    tokens = _tokens(context)
    Bank(model).advance({0: tokens[:64]})
    prefills, steps = [], []
    for _ in range(_repeats(context)):
        bank, report = Bank(model, rows=context + DECODED), Report()
        run = generate(bank, Request(tokens, DECODED + 1, frozenset(), MIDDLE["vocab_size"]), report)
        next(run)
        prefills.append(report.prefill_seconds)
    started = time.perf_counter()
    for _ in run:
        steps.append(time.perf_counter() - started)
        started = time.perf_counter()
    prefill = statistics.median(prefills)
    return Speed(context / prefill, 1 / statistics.median(steps), _shares(model, tokens[:512]))


def _shares(model: Any, tokens: Sequence[int]) -> dict[str, float]:
    """Returns the share of each kind of stage of a chunk, evaluated stage by stage, which costs what it hides."""
    import mlx.core as mx

    from assay.impl.model.bank import Bank
    from assay.impl.model.trace import Trace

    spent: dict[str, float] = {}

    class Clock(Trace):
        def __init__(self) -> None:
            super().__init__()
            self.last = time.perf_counter()

        def stage(self, stage: str, layer: int | None, value: Any) -> Any:
            mx.eval(value)
            now = time.perf_counter()
            spent[stage] = spent.get(stage, 0.0) + now - self.last
            self.last = now
            return super().stage(stage, layer, value)

    Bank(model).advance({0: list(tokens)}, Clock())
    total = sum(spent.values())
    return {stage: seconds / total for stage, seconds in sorted(spent.items(), key=lambda item: -item[1])}


if __name__ == "__main__":
    main(sys.argv[1:])
