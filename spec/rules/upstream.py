"""Agreement of a contract with what upstream published; each part is judged only if it was handed in.

A finding expects what the contract says and got what the files say, as in every other judgement of a checkpoint.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Final

from assay.spec.clauses import Authority, declare
from assay.spec.contract.contract import Contract
from assay.spec.contract.tensors import DTYPE_BYTES, expand_tensors
from assay.spec.leaves import ABSENT, leaves, path_text
from assay.spec.rules.base import Check, Judge

TensorRow = tuple[str, str, tuple[int, ...], str, int, int]
"""Name, dtype, shape, shard file, begin and end of the payload inside the shard's data section."""


@dataclass(frozen=True)
class UpstreamFacts:
    """What is known of the published checkpoint; None means that it is not at hand, never that it is right.

    Attributes:
        config: content of `config.json`.
        generation_config: content of `generation_config.json`.
        tokenizer_config: content of `tokenizer_config.json`.
        weight_map: tensor name -> shard file, from the index.
        total_size: payload bytes that the index states.
        tensors: every tensor of every header.
        header_bytes: length of the JSON header of each shard, by file name.
        header_sha256: digest of the JSON header of each shard, by file name.
        file_sha256: digest by file name.
        file_sizes: size in bytes by file name.
        base_tokens: entries of the base vocabulary.
        added_tokens: id, content and special flag of each added token, by id.
        all_zero_rows: whether the padding row of a table is all zero, by graph fact; needs the real payload.
    """

    config: Mapping[str, Any] | None = None
    generation_config: Mapping[str, Any] | None = None
    tokenizer_config: Mapping[str, Any] | None = None
    weight_map: Mapping[str, str] | None = None
    total_size: float | None = None
    tensors: Sequence[TensorRow] | None = None
    header_bytes: Mapping[str, int] | None = None
    header_sha256: Mapping[str, str] | None = None
    file_sha256: Mapping[str, str] | None = None
    file_sizes: Mapping[str, int] | None = None
    base_tokens: int | None = None
    added_tokens: Sequence[tuple[int, str, bool]] | None = None
    all_zero_rows: Mapping[str, bool] | None = None

    @cached_property
    def inventory_sha256(self) -> str | None:
        """Digest of the inventory by the published rule, computed once."""
        return None if self.tensors is None else inventory_digest(self.tensors)


def upstream_clause(name: str, meaning: str, cause: str, source: str) -> str:
    """Declares a clause that upstream's data stands behind."""
    return declare(f"upstream.{name}", Authority.UPSTREAM, meaning, source=source, cause=cause)


CONFIG: Final = upstream_clause(
    "config",
    "Every leaf of config.json is pinned with its value and type, or is named as unjudged.",
    "A field of another release, or a converter that rewrote number types.",
    "config.json",
)
FILES: Final = upstream_clause(
    "files",
    "Pinned digests and sizes are those of the published files.",
    "A file of another revision, or a re-saved one.",
    "published files",
)
NAMES: Final = upstream_clause(
    "names",
    "Roles and exclusions explain every published tensor name, and every name they give exists.",
    "A renamed role, or a prefix that misses its tensors.",
    "safetensors headers",
)
TENSOR: Final = upstream_clause(
    "tensor",
    "Every base tensor has the dtype and shape that its role gives.",
    "A role with a transposed shape.",
    "safetensors headers",
)
EXCLUDED: Final = upstream_clause(
    "excluded",
    "Excluded tensors have the pinned count and bytes.",
    "A prefix or a count of another release.",
    "safetensors headers",
)
TOTALS: Final = upstream_clause(
    "totals",
    "Counts, bytes, bytes by dtype and classes are those of the headers.",
    "A total of another release.",
    "safetensors headers",
)
INVENTORY: Final = upstream_clause(
    "inventory-digest",
    "The digest of the sorted inventory (name, dtype, shape, shard, begin, end) is the pinned one.",
    "A tensor at another place, shape or shard.",
    "safetensors headers",
)
INDEX: Final = upstream_clause(
    "index",
    "The index names every tensor once, in the shard whose header holds it, and states the payload's bytes.",
    "An index of another upload.",
    "model.safetensors.index.json",
)
SHARDS: Final = upstream_clause(
    "shards",
    "Shards have the pinned names, sizes, header bytes and, where published, header digests.",
    "A shard of another upload.",
    "safetensors headers",
)
TOKENS: Final = upstream_clause(
    "tokens",
    "Base vocabulary and added tokens are those of the tokenizer's files.",
    "A tokenizer of a sister family.",
    "vocab.json, tokenizer_config.json",
)
TOKENIZER: Final = upstream_clause(
    "tokenizer",
    "Declared ids, maximum length, split pattern and prefix rule are those of the tokenizer's configuration.",
    "A tokenizer class that rebuilt its own pattern.",
    "tokenizer_config.json",
)
STOPS: Final = upstream_clause(
    "stop-ids",
    "Stop ids, start and padding ids are those of the generation configuration.",
    "The two ids called eos were taken for one.",
    "generation_config.json",
)
PADDING_ROW: Final = upstream_clause(
    "padding-row",
    "The row of the padding id in the input table and in the head is zero exactly where the contract says so.",
    "A runtime or a conversion zeroed the row because upstream passes its id as padding index.",
    "payload of embed_tokens and lm_head",
)
NO_SEED: Final = upstream_clause(
    "defaults",
    "The file lacks every key whose value the contract takes from the model class.",
    "A converter wrote a default out; the file's value then decides.",
    "config.json",
)


def upstream_checks(facts: UpstreamFacts) -> tuple[Check, ...]:
    """Returns the checks for which the facts are at hand."""

    def config(contract: Contract, judge: Judge) -> None:
        _config(contract, judge, facts)

    def files(contract: Contract, judge: Judge) -> None:
        _files(contract, judge, facts)

    def tensors(contract: Contract, judge: Judge) -> None:
        _tensors(contract, judge, facts)

    def tokenizer(contract: Contract, judge: Judge) -> None:
        _tokenizer(contract, judge, facts)

    def padding_row(contract: Contract, judge: Judge) -> None:
        for name, is_zero in (facts.all_zero_rows or {}).items():
            pinned = getattr(contract.graph_facts.embedding_padding_row, name)
            judge.equal(PADDING_ROW, f"graph_facts.embedding_padding_row.{name}", pinned, is_zero)

    return config, files, tensors, tokenizer, padding_row


def inventory_digest(tensors: Sequence[TensorRow]) -> str:
    """Returns the digest of a tensor inventory: rows by name, fields joined by NUL, lines by newline.

    Source: published inventory rule; on the real headers it gives a639efc7...1dc434.
    """
    total = hashlib.sha256()
    for name, dtype, shape, shard, begin, end in sorted(tensors):
        fields = (name, dtype, ",".join(map(str, shape)), shard, str(begin), str(end))
        total.update("\0".join(fields).encode() + b"\n")
    return total.hexdigest()


def _config(contract: Contract, judge: Judge, facts: UpstreamFacts) -> None:
    if facts.config is not None:
        unjudged = {leaf.path for leaf in contract.config.unjudged}
        real = {path: value for path, value in leaves(dict(facts.config)) if path_text(path) not in unjudged}
        pinned = dict(leaves(contract.config.as_file()))
        for path in (*pinned, *(path for path in real if path not in pinned)):
            where = _contract_path(path_text(path))
            judge.equal(CONFIG, where, pinned.get(path, ABSENT), real.get(path, ABSENT))
        for name in unjudged:
            claim = any(path_text(path) == name for path, _ in leaves(dict(facts.config)))
            judge.holds(CONFIG, "config.unjudged", claim, "a leaf of the file", name)
        text = facts.config.get("text_config", {})
        for key, where in (("seed", "config.seed"), ("norm_topk_prob", "config.norm_topk_prob")):
            judge.holds(
                NO_SEED, where, key not in text and key not in facts.config, "no such key in the file", key
            )
    if facts.generation_config is not None:
        real_ids, words = facts.generation_config, contract.vocabulary
        judge.equal(STOPS, "vocabulary.stop_ids", sorted(words.stop_ids), sorted(real_ids["eos_token_id"]))
        judge.equal(
            STOPS, "vocabulary.model_config_ids.bos", words.model_config_ids.bos, real_ids["bos_token_id"]
        )
        judge.equal(
            STOPS, "vocabulary.model_config_ids.pad", words.model_config_ids.pad, real_ids["pad_token_id"]
        )


def _files(contract: Contract, judge: Judge, facts: UpstreamFacts) -> None:
    pins = contract.source_pins
    if pins is None:
        return
    for name, file in pins.files.items():
        where = f'source_pins.files["{name}"]'
        if facts.file_sha256 is not None and name in facts.file_sha256:
            judge.equal(FILES, f"{where}.sha256", file.sha256, facts.file_sha256[name])
        if facts.file_sizes is not None and name in facts.file_sizes:
            judge.equal(FILES, f"{where}.size_bytes", file.size_bytes, facts.file_sizes[name])
    if facts.header_bytes is not None:
        judge.equal(
            SHARDS,
            "source_pins.shard_header_bytes",
            pins.shard_header_bytes,
            sum(facts.header_bytes.values()),
        )
        names = sorted(facts.header_bytes)
        judge.items(SHARDS, "source_pins.shards", [shard.name for shard in pins.shards], names)
        for name, digest in pins.header_sha256.items():
            real = (facts.header_sha256 or {}).get(name, ABSENT)
            judge.equal(SHARDS, f'source_pins.header_sha256["{name}"]', digest, real)
        if facts.tensors is not None:
            payload: Counter[str] = Counter()
            for row in facts.tensors:
                payload[row[3]] += row[5] - row[4]
            for index, shard in enumerate(pins.shards):
                size = 8 + facts.header_bytes.get(shard.name, 0) + payload[shard.name]
                judge.equal(SHARDS, f"source_pins.shards[{index}].size_bytes", shard.size_bytes, size)


def _tensors(contract: Contract, judge: Judge, facts: UpstreamFacts) -> None:
    if facts.tensors is None:
        return
    excluded, pins = contract.exclusions, contract.source_pins
    base: dict[str, TensorRow] = {}
    left_out: dict[str, list[TensorRow]] = {"vision": [], "mtp": []}
    for row in facts.tensors:
        if row[0].startswith(excluded.vision_prefix):
            left_out["vision"].append(row)
        elif row[0].startswith(excluded.mtp_prefix):
            left_out["mtp"].append(row)
        else:
            base[row[0]] = row
    specs = {one.name: one for one in expand_tensors(contract)}
    for name in sorted(specs.keys() - base.keys()):
        judge.holds(NAMES, name, claim=False, expected="a published tensor", got=ABSENT)
    for name in sorted(base.keys() - specs.keys()):
        judge.holds(NAMES, name, claim=False, expected="a role or an excluded prefix", got="neither")
    for name, spec in specs.items():
        if name in base:
            _, dtype, shape, *_ = base[name]
            if (dtype, shape) != (spec.dtype, spec.shape):
                judge.equal(TENSOR, name, f"{spec.dtype} {list(spec.shape)}", f"{dtype} {list(shape)}")
    for kind, rows in left_out.items():
        judge.equal(EXCLUDED, f"exclusions.{kind}_tensors", getattr(excluded, f"{kind}_tensors"), len(rows))
        size = sum(row[5] - row[4] for row in rows)
        judge.equal(EXCLUDED, f"exclusions.{kind}_bytes", getattr(excluded, f"{kind}_bytes"), size)
    if pins is None:
        return
    sizes: Counter[str] = Counter()
    for row in facts.tensors:
        sizes[row[1]] += prod(row[2]) * DTYPE_BYTES.get(row[1], 0)
    where = "source_pins"
    judge.equal(TOTALS, f"{where}.tensor_count", pins.tensor_count, len(facts.tensors))
    judge.equal(TOTALS, f"{where}.source_bytes", pins.source_bytes, sum(sizes.values()))
    judge.equal(TOTALS, f"{where}.bytes_by_dtype", dict(pins.bytes_by_dtype), dict(sorted(sizes.items())))
    judge.equal(TOTALS, f"{where}.shard_count", pins.shard_count, len({row[3] for row in facts.tensors}))
    pattern = contract.tensor_roles.ple_layer_pattern
    for name, wanted in (
        ("base", len(base)),
        ("ple", sum(row.startswith(pattern) for row in base)),
        ("vision", len(left_out["vision"])),
        ("mtp", len(left_out["mtp"])),
    ):
        judge.equal(TOTALS, f"{where}.classification.{name}", getattr(pins.classification, name), wanted)
    judge.equal(INVENTORY, f"{where}.inventory_sha256", pins.inventory_sha256, facts.inventory_sha256)
    if facts.weight_map is not None:
        owners = {row[0]: row[3] for row in facts.tensors}
        differing = sorted(
            name
            for name in owners.keys() | facts.weight_map.keys()
            if owners.get(name) != facts.weight_map.get(name)
        )
        judge.equal(INDEX, f"{where}.tensor_count", [], differing[:8])
    if facts.total_size is not None:
        judge.equal(INDEX, f"{where}.source_bytes", pins.source_bytes, int(facts.total_size))


def _tokenizer(contract: Contract, judge: Judge, facts: UpstreamFacts) -> None:
    words = contract.vocabulary
    if facts.base_tokens is not None:
        judge.equal(TOKENS, "vocabulary.base_tokens", words.base_tokens, facts.base_tokens)
    ids: dict[str, int] = {}
    if facts.added_tokens is not None:
        mine = [(one.id, one.content, one.special) for one in words.added_tokens]
        judge.items(TOKENS, "vocabulary.added_tokens", mine, facts.added_tokens)
        ids = {content: id_ for id_, content, _ in facts.added_tokens}
    real = facts.tokenizer_config
    if real is None:
        return
    judge.equal(TOKENIZER, "vocabulary.model_max_length", words.model_max_length, real["model_max_length"])
    if ids:
        for key, name in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "pad")):
            wanted = None if real[key] is None else ids.get(real[key])
            judge.equal(
                TOKENIZER, f"vocabulary.tokenizer_ids.{name}", getattr(words.tokenizer_ids, name), wanted
            )
    if contract.admission is not None:
        part = contract.admission.tokenizer
        where = "admission.tokenizer"
        judge.equal(
            TOKENIZER, f"{where}.pretokenize_regex", part.pretokenize_regex, real["pretokenize_regex"]
        )
        judge.equal(TOKENIZER, f"{where}.add_prefix_space", part.add_prefix_space, real["add_prefix_space"])


def _contract_path(path: str) -> str:
    for file, own in (("text_config", "config.text"), ("vision_config", "config.vision")):
        if path == file or path.startswith((f"{file}.", f"{file}[")):
            return own + path.removeprefix(file)
    return f"config.top.{path}"
