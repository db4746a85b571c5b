"""Rules of the artifact's metadata: every entry follows from another section of the contract."""

from typing import Any, Final

from assay.spec.contract.admission import MetadataEntry
from assay.spec.contract.contract import Contract
from assay.spec.contract.tensors import FULL, LINEAR
from assay.spec.rules.base import Check, Judge, rule

SOURCE: Final = "field note AFN-004"

KEYS: Final = rule(
    "admission.metadata.keys",
    "The metadata is a closed set: exactly the keys that the sections of the contract give, in their order.",
    cause="A key was added for one runtime, or dropped because a reader ignores it.",
    source=SOURCE,
)
TYPE: Final = rule(
    "admission.metadata.type",
    "Every entry has the exact type that its value needs; the same number in another type is another entry.",
    cause="A writer that picks the narrowest type.",
    source=SOURCE,
)
VALUE: Final = rule(
    "admission.metadata.value",
    "Every entry has the value of the section that it mirrors.",
    cause="The entry or its section was changed alone.",
    source=SOURCE,
)
ABSENT: Final = rule(
    "admission.metadata.absent",
    "Keys that must be absent are listed, and none of them is an entry: the alignment, every null of the configuration's draft head, and the tokenizer's null start id.",
    cause="A default was written out; a reader then takes it for a choice.",
    source=SOURCE,
)
CLOSED: Final = rule(
    "admission.metadata.closed",
    "The schema is closed, and layer types are written as 0 for linear and 1 for full attention.",
    cause="A schema opened for a local extension.",
    source=SOURCE,
)

_TYPES: Final = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING"}
_U64: Final = frozenset(
    {
        "ds4.model.source_bytes",
        "qwen4exp.ple.layer_multipliers",
        "qwen4exp.ple.head_primes",
        "qwen4exp.ple.head_offsets",
        "qwen4exp.ple.head_rows",
        "qwen4exp.ple.rows",
    }
)
"""Entries whose domain passes 32 bits, whatever their value here."""
_APART: Final = ("layer_types", "mtp", "ple_layer_ids", "rope_parameters", "pad_token_id")
"""Text fields that are no scalar, are written elsewhere, or are null."""


def expected_entries(contract: Contract) -> dict[str, Any]:
    """Returns key -> value of every metadata entry, in order, from the other sections of the contract.

    Raises:
        ValueError: when the profile has no admission or no source pins.
    """
    pins, admission = contract.source_pins, contract.admission
    if pins is None or admission is None:
        raise ValueError("a private profile has no metadata")
    identity, text, top = contract.identity, contract.config.text, contract.config.top
    fixture, hash_, words = admission.physical_fixture, contract.ple_hash, contract.vocabulary.tokenizer_ids
    files = pins.files
    entries: dict[str, Any] = {
        "general.architecture": identity.gguf_architecture,
        "ds4.model.profile_id": identity.profile_id,
        "ds4.model.physical_profile_id": fixture.physical_profile_id,
        "ds4.model.source_architecture": identity.architecture,
        "ds4.model.source_revision": identity.revision,
        "ds4.model.transformers_revision": pins.transformers_commit,
        "ds4.model.tensor_inventory_digest": pins.inventory_sha256,
        "ds4.model.source_tensor_count": pins.tensor_count,
        "ds4.model.source_bytes": pins.source_bytes,
        "ds4.tokenizer.digest": files["tokenizer.json"].sha256,
        "ds4.tokenizer_config.digest": files["tokenizer_config.json"].sha256,
        "ds4.chat_template.digest": files["chat_template.jinja"].sha256,
        "ds4.text_only": True,
        "ds4.mtp.present": False,
        "ds4.mtp.executed": False,
        "ds4.expert_store.family": identity.store_family,
        "ds4.expert_store.profile": identity.profile_id,
        "ds4.expert_store.codec": fixture.expert_major.storage,
        "ds4.expert_store.codec_descriptor_digest": fixture.expert_major.codec_descriptor_sha256,
        "ds4.ple_store.family": identity.store_family,
        "ds4.ple_store.profile": identity.profile_id,
        "ds4.ple_store.codec": fixture.ple.codec_id,
        "ds4.ple_store.codec_descriptor_digest": fixture.ple.codec_descriptor_sha256,
    }
    for name in (
        "model_type",
        "language_model_only",
        "tie_word_embeddings",
        "image_token_id",
        "video_token_id",
        "vision_start_token_id",
        "vision_end_token_id",
    ):
        entries[f"qwen4exp.top.{name}"] = getattr(top, name)
    fields = [name for name in type(text).model_fields if name not in _APART]
    for name in ("model_type", *(field for field in sorted(fields) if field != "model_type")):
        entries[f"qwen4exp.text.{name}"] = getattr(text, name)
    for name in ("rope_type", "rope_theta", "partial_rotary_factor", "mrope_interleaved"):
        entries[f"qwen4exp.text.rope.{name}"] = getattr(text.rope_parameters, name)
    for name in ("hybrid", "num_hidden_layers", "rope_theta"):
        entries[f"qwen4exp.mtp.{name}"] = getattr(text.mtp, name)
    codes = {LINEAR: 0, FULL: 1}
    entries |= {
        "qwen4exp.default.seed": contract.config.seed.value,
        "qwen4exp.text.norm_topk_prob": contract.config.norm_topk_prob.value,
        "qwen4exp.text.layer_pattern": tuple(codes[kind] for kind in text.layer_types),
        "qwen4exp.text.ple_layer_ids": text.ple_layer_ids,
        "qwen4exp.text.rope.mrope_section": text.rope_parameters.mrope_section,
        "qwen4exp.ple.layer_multipliers": hash_.layer_multipliers,
        "qwen4exp.ple.head_primes": hash_.head_primes,
        "qwen4exp.ple.head_offsets": hash_.head_offsets,
        "qwen4exp.ple.hash_id": contract.ple_extent.hash_id,
        "qwen4exp.ple.hash_seed": hash_.seed,
        "qwen4exp.ple.head_rows": hash_.total_head_rows,
        "qwen4exp.ple.rows": hash_.padded_rows,
    }
    for name in (
        "end_of_text",
        "pad",
        "im_start",
        "im_end",
        "eos",
        "vision_start",
        "vision_end",
        "vision_pad",
        "image_pad",
        "video_pad",
    ):
        entries[f"qwen4exp.tokenizer.{name}_token_id"] = getattr(words, name)
    return entries


def metadata_type(key: str, value: Any) -> str:
    """Returns the type that an entry must have, in the spelling of the contract."""
    if isinstance(value, tuple):
        return f"{'UINT64' if key in _U64 else 'UINT32'}[{len(value)}]"
    return "UINT64" if key in _U64 else _TYPES[type(value)]


def entries(contract: Contract, judge: Judge) -> None:
    """The closed set of entries, each recomputed."""
    if contract.admission is None or contract.source_pins is None:
        return
    schema, expected = contract.admission.metadata, expected_entries(contract)
    where = "admission.metadata.entries"
    got = [entry.key for entry in schema.entries]
    if got != list(expected):
        missing = [key for key in expected if key not in got]
        extra = [key for index, key in enumerate(got) if key not in expected or key in got[:index]]
        judge.holds(
            KEYS,
            where,
            claim=False,
            expected=", ".join(missing) or "the order of the contract's sections",
            got=", ".join(extra) or f"{len(got)} keys",
        )
    for index, entry in enumerate(schema.entries):
        if entry.key in expected:
            _entry(entry, f"{where}[{index}]", expected[entry.key], judge)
    judge.equal(CLOSED, "admission.metadata.closed", True, schema.closed)
    encoding = schema.layer_type_encoding
    judge.equal(
        CLOSED, "admission.metadata.layer_type_encoding.linear_attention", 0, encoding.linear_attention
    )
    judge.equal(CLOSED, "admission.metadata.layer_type_encoding.full_attention", 1, encoding.full_attention)
    absent = ["general.alignment"]
    if contract.config.text.mtp.mtp_use_hidden_state_from_layer is None:
        absent.append("qwen4exp.mtp.mtp_use_hidden_state_from_layer")
    if contract.vocabulary.tokenizer_ids.bos is None:
        absent.append("qwen4exp.tokenizer.bos_token_id")
    judge.equal(ABSENT, "admission.metadata.absent_keys", absent, list(schema.absent_keys))
    for index, key in enumerate(got):
        judge.holds(ABSENT, f"{where}[{index}].key", key not in absent, "a key that may be present", key)


def _entry(entry: MetadataEntry, where: str, value: Any, judge: Judge) -> None:
    judge.equal(TYPE, f"{where}.type", metadata_type(entry.key, value), entry.type, entry.key)
    if isinstance(value, tuple) and isinstance(entry.value, tuple):
        judge.items(VALUE, f"{where}.value", value, entry.value)
    else:
        judge.equal(VALUE, f"{where}.value", value, entry.value, entry.key)


CHECKS: Final[tuple[Check, ...]] = (entries,)
