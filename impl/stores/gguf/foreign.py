"""Judges a llama.cpp GGUF conversion by what its keys and tensor directory say in that ecosystem's own words.

Only keys and names that are common to all of its architectures are judged; the embedding table, its hash and the
sparse index have no agreed names there, and are said to be unjudged.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.expert_major.blocks import GGML
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.gguf.reader import Gguf, Tensor, read_gguf
from assay.impl.stores.gguf.rules import judge_gguf, split_unknown
from assay.impl.stores.strict_json import same_json
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract
from assay.spec.errors import AdmissionError, Finding
from assay.spec.judgement import Judgement

ARCHITECTURE: Final = declare(
    "foreign.gguf.architecture", Authority.RULE, "`general.architecture` is this family's, never a similar one.",
    source="field note AFN-001: the forbidden aliases", cause="a conversion of another model, or under a borrowed name",
)  # fmt: skip
KEY: Final = declare(
    "foreign.gguf.key", Authority.UPSTREAM, "A key of a conversion has the value of the config field that it stands for.",
    source="GGUF standard keys", cause="another size of the model, or a converter's default",
)  # fmt: skip
TENSOR: Final = declare(
    "foreign.gguf.tensor", Authority.RULE, "A tensor with a standard name has its role's shape, reversed.",
    source="GGUF standard names", cause="another size of the model, or a cut vocabulary",
)  # fmt: skip
TOKENS: Final = declare(
    "foreign.gguf.tokens", Authority.UPSTREAM, "The token list and the special ids are the pinned ones.",
    source="GGUF tokenizer keys", cause="a padded or cut vocabulary, or another end of text",
)  # fmt: skip
UNJUDGED: Final = "checkpoint.unjudged"

_PART: Final = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_BLOCK: Final = re.compile(r"^blk\.(\d+)\.")


def judge_gguf_folder(judgement: Judgement, folder: Path, names: Sequence[str], contract: Contract) -> None:
    """Judges the GGUF files of a folder, all parts of a split one together, area by area."""
    files: list[tuple[str, Gguf]] = []
    faults: list[Finding] = []
    with ExitStack() as stack:
        for name in names:
            try:
                extent = stack.enter_context(StoreFile.open(folder / name)).extent(name=name)
                directory = read_gguf(extent)
            except AdmissionError as error:
                faults.append(error.finding)
                continue
            files.append((name, directory))
            faults += [
                Finding(one.code, "headers", f"{name}: {one.where}", one.expected, one.got, one.hint)
                for one in judge_gguf(directory)
            ]
    judgement.judged("headers", *split_unknown(faults))
    main = next(
        (directory for _, directory in files if directory.value("general.architecture") is not None), None
    )
    if main is None:
        for area in ("config", "hash", "inventory", "tokenizer"):
            judgement.judged(area, gaps=[_unjudged(area, "no file with general.architecture could be read")])
        return
    is_split = len(files) > 1 and all(_PART.search(name) for name, _ in files)
    tensors = (
        [tensor for _, directory in files for tensor in directory.tensors] if is_split else list(main.tensors)
    )
    _judge_keys(judgement, main, contract)
    judgement.judged(
        "hash", gaps=[_unjudged("hash", "GGUF has no standard keys for the hash of the embedding table")]
    )
    _judge_directory(judgement, tensors, contract)
    _judge_tokens(judgement, main, contract)


def _judge_keys(judgement: Judgement, gguf: Gguf, contract: Contract) -> None:
    architecture = _python(gguf, "general.architecture")
    text = contract.config.text
    expected: dict[str, Any] = {
        "block_count": text.num_hidden_layers,
        "embedding_length": text.hidden_size,
        "attention.head_count": text.num_attention_heads,
        "attention.head_count_kv": text.num_key_value_heads,
        "attention.key_length": text.head_dim,
        "attention.value_length": text.head_dim,
        "expert_count": text.num_experts,
        "expert_used_count": text.num_experts_per_tok,
        "expert_feed_forward_length": text.moe_intermediate_size,
        "expert_shared_feed_forward_length": text.shared_expert_intermediate_size,
        "context_length": text.max_position_embeddings,
        "rope.freq_base": float(text.rope_parameters.rope_theta),
        "vocab_size": text.vocab_size,
    }
    faults: list[Finding] = []
    absent: list[str] = []
    if architecture != contract.identity.gguf_architecture:
        faults.append(
            Finding.of(ARCHITECTURE, "config", "general.architecture", expected=contract.identity.gguf_architecture,
                       got=architecture)
        )  # fmt: skip
    for key, value in expected.items():
        got = _python(gguf, f"{architecture}.{key}")
        if got is None:
            absent.append(key)
        elif isinstance(got, list):  # a value for each layer, as llama.cpp writes where layers differ
            judgement.not_checked.append(f"config: {architecture}.{key} has a value for each layer")
        elif not same_json(got, value):
            faults.append(Finding.of(KEY, "config", f"{architecture}.{key}", expected=value, got=got))
    gaps = [_unjudged("config", f"no key {architecture}.{key}") for key in absent]
    judgement.judged("config", faults, gaps)


def _judge_directory(judgement: Judgement, tensors: Sequence[Tensor], contract: Contract) -> None:
    text = contract.config.text
    experts, width, hidden = text.num_experts, text.moe_intermediate_size, text.hidden_size
    standard: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (hidden, text.vocab_size),
        "output.weight": (hidden, text.vocab_size),
    }
    for layer in range(text.num_hidden_layers):
        standard |= {
            f"blk.{layer}.ffn_gate_inp.weight": (hidden, experts),
            f"blk.{layer}.ffn_gate_exps.weight": (hidden, width, experts),
            f"blk.{layer}.ffn_up_exps.weight": (hidden, width, experts),
            f"blk.{layer}.ffn_down_exps.weight": (width, hidden, experts),
        }
    by_name = {tensor.name: tensor for tensor in tensors}
    faults = [
        Finding.of(TENSOR, "inventory", name, expected=list(shape), got=list(by_name[name].dimensions))
        for name, shape in standard.items()
        if name in by_name and by_name[name].dimensions != shape
    ]
    layers = {int(match[1]) for name in by_name if (match := _BLOCK.match(name))}
    if layers and layers != set(range(text.num_hidden_layers)):
        expected = f"layers 0 to {text.num_hidden_layers - 1}"
        faults.append(
            Finding.of(
                TENSOR, "inventory", "blk.*", expected=expected, got=f"{len(layers)}, to {max(layers)}"
            )
        )
    absent = [name for name in standard if name not in by_name]
    others = sum(1 for name in by_name if name not in standard)
    gaps = (
        [_unjudged("inventory", f"{len(absent)} standard names are not in it, such as {absent[0]}")]
        if absent
        else []
    )
    gaps += (
        [_unjudged("inventory", f"{others} tensors have names without a standard meaning here")]
        if others
        else []
    )
    judgement.judged("inventory", faults, gaps)
    elements = sum(_elements(tensor) for tensor in tensors)
    known = sum(tensor.bytes or 0 for tensor in tensors)
    judgement.facts |= {
        "tensors": len(tensors),
        "codecs": dict(
            Counter(GGML[t.type_id].name if t.type_id in GGML else f"type {t.type_id}" for t in tensors)
        ),
        "bits_per_weight": round(8 * known / elements, 3) if elements else 0.0,
    }


def _judge_tokens(judgement: Judgement, gguf: Gguf, contract: Contract) -> None:
    vocabulary = contract.vocabulary
    tokens = gguf.value("tokenizer.ggml.tokens")
    faults: list[Finding] = []
    gaps: list[Finding] = []
    if tokens is None or tokens.element is None:
        gaps.append(_unjudged("tokenizer", "no tokenizer.ggml.tokens"))
    elif tokens.count not in {vocabulary.effective_ids, vocabulary.physical_rows}:
        expected = f"{vocabulary.effective_ids} tokens, or {vocabulary.physical_rows} with padding"
        faults.append(
            Finding.of(TOKENS, "tokenizer", "tokenizer.ggml.tokens", expected=expected, got=tokens.count)
        )
    ids = vocabulary.tokenizer_ids
    for key, expected_id in (("eos_token_id", ids.eos), ("padding_token_id", ids.pad)):
        got = _python(gguf, f"tokenizer.ggml.{key}")
        if got is None:
            gaps.append(_unjudged("tokenizer", f"no tokenizer.ggml.{key}"))
        elif got != expected_id:
            faults.append(
                Finding.of(TOKENS, "tokenizer", f"tokenizer.ggml.{key}", expected=expected_id, got=got)
            )
    judgement.judged("tokenizer", faults, gaps)


def _python(gguf: Gguf, key: str) -> Any:
    """Returns a value as Python has it, or None when it is absent or can't be read."""
    value = gguf.value(key)
    try:
        return value.python() if value is not None else None
    except ValueError:
        return None


def _elements(tensor: Tensor) -> int:
    count = 1
    for dimension in tensor.dimensions:
        count *= dimension
    return count


def _unjudged(area: str, why: str) -> Finding:
    return Finding.of(UNJUDGED, area, area, expected="something to judge", got=why)
