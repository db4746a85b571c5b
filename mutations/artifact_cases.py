"""The published negative cases of admission: 66 rejections, 5 files that can't be parsed, 36 bounded fuzz cases.

Each says what it changes, at which stage it must stop, and what the named field contains. Names, stages and changes
are the published ones; offsets inside the manifests are those of the containers' tables.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from assay.impl.stores.gguf.values import Value, ValueType, array, scalar
from assay.mutations.artifact_sketch import EXPERT, PLE, Record, Sketch, put, structural_sketch

Change = Callable[[Sketch], None]
FUZZ_SEED: Final = 0x5147455846555A5A
REGIONS: Final = {"gguf": 1, "expert": 2, "ple": 3}
FUZZ_CASES: Final = 12
_TEXT: Final = "qwen4exp.text."
_COMPONENT: Final = 256 + 32
"""First component descriptor of the first layer in an expert store."""


@dataclass(frozen=True, slots=True)
class Case:
    """One negative case.

    Attributes:
        name: its published name.
        stage: the stage that must reject it; `gguf` when it can't even be parsed, empty when any stage may.
        where: text that the first finding's place must contain.
        before: changes entries and records before the file is laid out.
        after: changes offsets, manifests and bytes afterwards.
    """

    name: str
    stage: str
    where: str
    before: Change | None = None
    after: Change | None = None

    def sketch(self) -> Sketch:
        """Returns the fixture with this change."""
        sketch = structural_sketch(self.before)
        if self.after is not None:
            self.after(sketch)
        return sketch


def all_cases() -> tuple[Case, ...]:
    """Returns the 107 cases: 66 rejections, 5 fatal ones, 36 of bounded fuzz."""
    return (*REJECTED, *FATAL, *fuzz_cases())


def fuzz_cases() -> Iterator[Case]:
    """Yields the 36 fuzz cases, each from a generator of its own seeded by region and case."""
    for region, number in REGIONS.items():
        stage = {"gguf": "", "expert": "expert_store", "ple": "ple_store"}[region]
        where = {"gguf": "", "expert": EXPERT, "ple": PLE}[region]
        for case in range(FUZZ_CASES):
            random = Random(FUZZ_SEED ^ (number << 16) ^ case)  # noqa: S311 - a published sequence, not a secret
            yield Case(f"fuzz_{region}_{case}", stage, where, after=_fuzz(region, case, random))


# --- Changes of metadata ---------------------------------------------------------------------------------------------


def _set(key: str, value: Any, kind: ValueType = ValueType.UINT32) -> Change:
    def change(sketch: Sketch) -> None:
        sketch.set_entry(key, scalar(kind, value))

    return change


def _set_text(key: str, value: str) -> Change:
    return _set(key, value, ValueType.STRING)


def _set_array(key: str, values: list[int], kind: ValueType = ValueType.UINT32) -> Change:
    def change(sketch: Sketch) -> None:
        sketch.set_entry(key, array(kind, values))

    return change


def _append(key: str, value: Value | None = None) -> Change:
    """Appends an entry; without a value, a copy of the entry of this key."""

    def change(sketch: Sketch) -> None:
        sketch.entries.append((key, value or sketch.entries[sketch.entry(key)][1]))

    return change


def _remove(key: str) -> Change:
    def change(sketch: Sketch) -> None:
        del sketch.entries[sketch.entry(key)]

    return change


def _forbidden_entry(sketch: Sketch) -> None:
    place = sketch.entry(f"{_TEXT}hidden_act")
    sketch.entries[place] = ("qwen4exp.tokenizer.bos_token_id", scalar(ValueType.UINT32, 248044))


def _pattern(sketch: Sketch) -> None:
    layers = [0, 0, 0, 1] * 12
    layers[7] = 0
    sketch.set_entry(f"{_TEXT}layer_pattern", array(ValueType.UINT32, layers))


# --- Changes of the directory ----------------------------------------------------------------------------------------


def _first(**fields: Any) -> Change:
    """Changes fields of the first record."""

    def change(sketch: Sketch) -> None:
        for name, value in fields.items():
            setattr(sketch.records[0], name, value)

    return change


def _replace_first(name: str, type_id: int, dimensions: list[int] | None = None) -> Change:
    def change(sketch: Sketch) -> None:
        sketch.records[0] = Record(name, dimensions or [1], type_id)

    return change


def _second_store(name: str) -> Change:
    def change(sketch: Sketch) -> None:
        sketch.records[0] = Record(name, [4096], 24)

    return change


def _extra_tensor(sketch: Sketch) -> None:
    sketch.records.insert(len(sketch.records) - 2, Record("q4exp.unexpected.weight", [32], 30))


def _duplicate_tensor(sketch: Sketch) -> None:
    first = sketch.records[0]
    sketch.records[1] = Record(first.name, list(first.dimensions), first.type_id)


def _extra_rank(sketch: Sketch) -> None:
    sketch.records[0].dimensions.append(1)


def _wider(sketch: Sketch) -> None:
    sketch.records[0].dimensions[0] += 1


def _ple_layer(sketch: Sketch) -> None:
    for one in sketch.records:
        one.name = one.name.replace("layers.1.ple.", "layers.2.ple.")


def _drop_first(sketch: Sketch) -> None:
    del sketch.records[0]


def _move(name: str, step: int) -> Change:
    """Moves a record, and for a store its bytes as well; the file grows with it."""

    def change(sketch: Sketch) -> None:
        sketch.record(name).offset += step
        if name == PLE:
            sketch.rows_at += step
            sketch.file_bytes += step

    return change


def _shorten(name: str) -> Change:
    def change(sketch: Sketch) -> None:
        sketch.record(name).dimensions[0] -= 4096

    return change


def _overlap(sketch: Sketch) -> None:
    sketch.records[1].offset = sketch.records[0].offset


def _store_overlap(sketch: Sketch) -> None:
    sketch.record(PLE).offset = sketch.record(EXPERT).offset + 12_288
    sketch.rows_at = sketch.expert_at + 12_288


def _cut(sketch: Sketch) -> None:
    sketch.file_bytes -= 1


def _magic(sketch: Sketch) -> None:
    sketch.magic = 0


def _version(sketch: Sketch) -> None:
    sketch.version = 2


# --- Changes of the manifests ----------------------------------------------------------------------------------------


def _experts(offset: int, form: str, value: int, *, signed: bool = True) -> Change:
    def change(sketch: Sketch) -> None:
        put(sketch.expert, offset, form, value)
        if signed:
            sketch.sign_expert()

    return change


def _rows(offset: int, form: str, value: Any, *, signed: bool = True) -> Change:
    def change(sketch: Sketch) -> None:
        put(sketch.rows, offset, form, value)
        if signed:
            sketch.sign_rows()

    return change


def _add_rows(offset: int, form: str, step: int, *, signed: bool = True) -> Change:
    def change(sketch: Sketch) -> None:
        (value,) = struct.unpack_from(f"<{form}", sketch.rows, offset)
        _rows(offset, form, value + step, signed=signed)(sketch)

    return change


def _add_experts(offset: int, form: str, step: int, *, signed: bool = True) -> Change:
    def change(sketch: Sketch) -> None:
        (value,) = struct.unpack_from(f"<{form}", sketch.expert, offset)
        _experts(offset, form, value + step, signed=signed)(sketch)

    return change


def _flip(region: str, offset: int, mask: int) -> Change:
    """Changes a byte of a manifest and leaves its digest as it is."""

    def change(sketch: Sketch) -> None:
        (sketch.expert if region == "expert" else sketch.rows)[offset] ^= mask

    return change


REJECTED: Final[tuple[Case, ...]] = (
    Case("architecture", "identity", "general.architecture", _set_text("general.architecture", "qwen4exp-invalid")),
    Case("source_architecture", "identity", "source_architecture",
         _set_text("ds4.model.source_architecture", "Qwen4ExpForCausalLM")),
    Case("profile", "identity", "profile_id", _set_text("ds4.model.profile_id", "qwen4exp-base-v2")),
    Case("revision", "identity", "source_revision", _set_text("ds4.model.source_revision", "0" * 40)),
    Case("duplicate_kv", "identity", "num_hidden_layers", _append(f"{_TEXT}num_hidden_layers")),
    Case("physical_profile", "physical_profile", "physical_profile_id",
         _set_text("ds4.model.physical_profile_id", "qwen4exp-production-does-not-exist")),
    Case("missing_metadata", "metadata", "metadata entry count", _remove(f"{_TEXT}hidden_act")),
    Case("extra_metadata", "metadata", "metadata entry count",
         _append("qwen4exp.unexpected", scalar(ValueType.UINT32, 1))),
    Case("forbidden_metadata", "metadata", "bos_token_id", _forbidden_entry),
    Case("context", "metadata", "max_position_embeddings", _set(f"{_TEXT}max_position_embeddings", 262143)),
    Case("layer_pattern", "metadata", "layer_pattern", _pattern),
    Case("top_k", "metadata", "num_experts_per_tok", _set(f"{_TEXT}num_experts_per_tok", 9)),
    Case("expert_count", "metadata", "num_experts", _set(f"{_TEXT}num_experts", 511)),
    Case("gr_rank", "metadata", "hc_lowrank", _set(f"{_TEXT}hc_lowrank", 319)),
    Case("qsa_query_heads", "metadata", "num_attention_heads", _set(f"{_TEXT}num_attention_heads", 23)),
    Case("qsa_kv_heads", "metadata", "num_key_value_heads", _set(f"{_TEXT}num_key_value_heads", 3)),
    Case("qsa_head_dim", "metadata", "head_dim", _set(f"{_TEXT}head_dim", 255)),
    Case("qsa_rotary_dim", "metadata", "partial_rotary_factor",
         _set(f"{_TEXT}partial_rotary_factor", 0.5, ValueType.FLOAT32)),
    Case("qsa_index_query_heads", "metadata", "indexer_n_heads", _set(f"{_TEXT}indexer_n_heads", 5)),
    Case("qsa_index_kv_heads", "metadata", "indexer_kv_heads", _set(f"{_TEXT}indexer_kv_heads", 2)),
    Case("qsa_index_head_dim", "metadata", "indexer_head_dim", _set(f"{_TEXT}indexer_head_dim", 127)),
    Case("gdn_key_heads", "metadata", "linear_num_key_heads", _set(f"{_TEXT}linear_num_key_heads", 15)),
    Case("gdn_value_heads", "metadata", "linear_num_value_heads", _set(f"{_TEXT}linear_num_value_heads", 47)),
    Case("gdn_key_dim", "metadata", "linear_key_head_dim", _set(f"{_TEXT}linear_key_head_dim", 127)),
    Case("gdn_value_dim", "metadata", "linear_value_head_dim", _set(f"{_TEXT}linear_value_head_dim", 127)),
    Case("ple_insertion_layer", "metadata", "ple_layer_ids", _set_array(f"{_TEXT}ple_layer_ids", [3])),
    Case("ple_source_layer", "metadata", "ple_layer_ids", _set_array(f"{_TEXT}ple_layer_ids", [1])),
    Case("ple_rows", "metadata", "ple.rows", _set("qwen4exp.ple.rows", 320_001_536 - 128, ValueType.UINT64)),
    Case("ple_multiplier_high32", "metadata", "layer_multipliers",
         _set_array("qwen4exp.ple.layer_multipliers",
                    [23703573157769 ^ 1 << 40, 20109073645365, 8052911324071], ValueType.UINT64)),
    Case("u64_wrong_type", "metadata", "layer_multipliers",
         _set_array("qwen4exp.ple.layer_multipliers",
                    [23703573157769, 20109073645365, 8052911324071], ValueType.INT64)),
    Case("tokenizer_digest", "tokenizer", "tokenizer.digest", _set_text("ds4.tokenizer.digest", "0" * 64)),
    Case("template_digest", "tokenizer", "chat_template.digest", _set_text("ds4.chat_template.digest", "0" * 64)),
    Case("special_id", "tokenizer", "image_pad_token_id", _set("qwen4exp.tokenizer.image_pad_token_id", 248055)),
    Case("missing_tensor", "inventory", "physical tensor count", _drop_first),
    Case("extra_tensor", "inventory", "physical tensor count", _extra_tensor),
    Case("canonical_routed", "inventory", "tensor policy", _replace_first("blk.0.ffn_gate_exps.weight", 24)),
    Case("vision_tensor", "inventory", "tensor policy", _replace_first("model.visual.fixture.weight", 30)),
    Case("mtp_tensor", "inventory", "tensor policy", _replace_first("mtp.fixture.weight", 30)),
    Case("second_expert_store", "inventory", EXPERT, _second_store(EXPERT)),
    Case("second_ple_store", "inventory", PLE, _second_store(PLE)),
    Case("duplicate_tensor", "inventory", "lm_head.weight", _duplicate_tensor),
    Case("tensor_rank", "inventory", "lm_head.weight", _extra_rank),
    Case("tensor_dimension", "inventory", "lm_head.weight.dim[0]", _wider),
    Case("tensor_type", "inventory", "lm_head.weight", _first(type_id=24)),
    Case("ple_runtime_layer", "inventory", "layers.1.ple.conv1d.weight", _ple_layer),
    Case("unaligned_tensor", "inventory", "lm_head.weight", after=_move("lm_head.weight", 1)),
    Case("expert_family", "expert_store", EXPERT, after=_experts(16, "I", 3)),
    Case("expert_header_version", "expert_store", EXPERT, after=_experts(8, "I", 3)),
    Case("expert_component_offset", "expert_store", EXPERT, after=_experts(_COMPONENT + 48, "Q", 36)),
    Case("expert_component_length", "expert_store", EXPERT, after=_add_experts(_COMPONENT + 40, "Q", 36)),
    Case("expert_manifest_digest", "expert_store", EXPERT, after=_flip("expert", 168, 0x80)),
    Case("truncated_expert_store", "expert_store", EXPERT, after=_shorten(EXPERT)),
    Case("page_isolation", "ple_store", PLE, after=_move(PLE, 32)),
    Case("unaligned_store", "ple_store", PLE, after=_move(PLE, 32)),
    Case("ple_header_version", "ple_store", PLE, after=_rows(8, "I", 2)),
    Case("ple_row_width", "ple_store", PLE, after=_rows(152, "I", 161)),
    Case("ple_head_prime", "ple_store", PLE, after=_add_rows(216 + 4 * 7, "I", 2)),
    Case("ple_head_offset", "ple_store", PLE, after=_add_rows(280 + 4 * 7, "I", 1)),
    Case("ple_hash_version", "ple_store", PLE, after=_rows(56, "32s", b"SplitMix64-Qwen4Exp-v2")),
    Case("ple_manifest_rows", "ple_store", PLE, after=_add_rows(144, "Q", -128)),
    Case("ple_page_stride", "ple_store", PLE, after=_add_rows(168, "Q", 4096)),
    Case("ple_manifest_digest", "ple_store", PLE, after=_flip("ple", 376, 0x40)),
    Case("truncated_ple_store", "ple_store", PLE, after=_shorten(PLE)),
    Case("mtp_policy", "policy", "mtp.present", _set("ds4.mtp.present", True, ValueType.BOOL)),
    Case("exact_overlap", "ownership", "raw tensor spans", after=_overlap),
    Case("store_overlap", "ownership", "raw tensor spans", after=_store_overlap),
)  # fmt: skip
"""The 66 rejections, in their published order."""

FATAL: Final[tuple[Case, ...]] = (
    Case("dimension_overflow", "gguf", "lm_head.weight.dim", after=_first(dimensions=[1 << 63, 3])),
    Case("offset_overflow", "gguf", "lm_head.weight.offset", after=_first(offset=(1 << 64) - 1)),
    Case("gguf_bad_magic", "gguf", "magic", after=_magic),
    Case("gguf_bad_version", "gguf", "version", after=_version),
    Case("truncated_file", "gguf", f"{PLE}.offset", after=_cut),
)
"""The 5 files that the parser itself must refuse, without a report."""


# --- Fuzz ------------------------------------------------------------------------------------------------------------


def _fuzz(region: str, case: int, random: Random) -> Change:
    if region == "gguf":
        return _fuzz_gguf(case, random)
    return _fuzz_expert(case, random) if region == "expert" else _fuzz_ple(case, random)


def _fuzz_gguf(case: int, random: Random) -> Change:
    fields: dict[int, Change] = {
        2: lambda sketch: setattr(sketch, "counts", (1070, None)),
        3: lambda sketch: setattr(sketch, "counts", (None, 109)),
        7: lambda sketch: _patch_record(sketch, 0, struct.pack("<I", 5)),
        8: lambda sketch: _patch_record(sketch, 4, bytes(8)),
        9: _first(type_id=24),
        10: _first(offset=1),
        11: _patch_name_length,
    }
    if case in fields:
        return fields[case]
    if case == 0:
        return _flip_text(b"GGUF", random, bits=8)
    if case == 1:
        mask = 1 << random.randrange(8)
        return lambda sketch: setattr(sketch, "version", 3 ^ mask)
    text = {4: b"qwen4exp", 5: b"qwen4exp-phase3-fixture-bf16-v1", 6: b"lm_head.weight"}[case]
    return _flip_text(text, random, bits=6)


def _fuzz_expert(case: int, random: Random) -> Change:
    if case == 0:
        return _flip("expert", random.randrange(8), 1 << random.randrange(8))
    if case == 7:
        return _flip("expert", 168 + random.randrange(32), 1 << random.randrange(8))
    if case == 6:
        return _add_experts(80, "Q", -4096, signed=False)
    offset, form, value = {
        1: (8, "I", 3),
        2: (12, "I", 255),
        3: (16, "I", 3),
        4: (24, "I", 47),
        5: (28, "I", 511),
        8: (160, "I", 0),
        9: (256, "I", 1),
        10: (_COMPONENT, "I", 1),
        11: (_COMPONENT + 48, "Q", 36),
    }[case]
    return _experts(offset, form, value, signed=False)


def _fuzz_ple(case: int, random: Random) -> Change:
    if case in {0, 10, 11}:
        start, size = {0: (0, 8), 10: (376, 32), 11: (512, 32)}[case]
        return _flip("ple", start + random.randrange(size), 1 << random.randrange(8))
    if case in {5, 6, 7}:
        start = {5: 24, 6: 56, 7: 88}[case]
        return _flip("ple", start + random.randrange(24), 1 << random.randrange(8))
    if case == 9:
        return _add_rows(144, "Q", -128, signed=False)
    offset, value = {1: (8, 2), 2: (12, 511), 3: (16, 3), 4: (20, 15), 8: (120, 2)}[case]
    return _rows(offset, "I", value, signed=False)


def _flip_text(text: bytes, random: Random, *, bits: int) -> Change:
    place, mask = random.randrange(len(text)), 1 << random.randrange(bits)

    def change(sketch: Sketch) -> None:
        head = sketch.head()
        start = head.index(struct.pack("<Q", len(text)) + text) + 8 if text != b"GGUF" else 0
        sketch.patches[start + place] = bytes([head[start + place] ^ mask])

    return change


def _patch_record(sketch: Sketch, offset: int, data: bytes) -> None:
    """Writes over the first record, from the byte after its name on."""
    sketch.patches[_first_record(sketch) + 8 + len(sketch.records[0].name) + offset] = data


def _patch_name_length(sketch: Sketch) -> None:
    sketch.patches[_first_record(sketch)] = b"\xff" * 8


def _first_record(sketch: Sketch) -> int:
    name = sketch.records[0].name.encode()
    return sketch.head().index(struct.pack("<Q", len(name)) + name)
