"""Descriptors behind the private seam: what an artifact of any configuration must be, derived from the configuration.

A private artifact carries its configuration as canonical JSON, and how its stores are encoded. Everything else, every
metadata entry, tensor, family and page, follows from these two and is compared. What nobody can derive from a file
(the digests of the checkpoint and tokenizer it was made from) must have its form and agree wherever it is repeated.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from assay.impl.stores.artifact.descriptor import ArtifactDescriptor, DenseTensor, typed
from assay.impl.stores.artifact.geometry import Geometry, dense_shapes, read_geometry, text_of
from assay.impl.stores.expert_major.blocks import AFFINE4, BF16, F32, GGML, Block
from assay.impl.stores.expert_major.layout import Storage
from assay.impl.stores.expert_major.rules import ExpectedSource
from assay.impl.stores.gguf.reader import Gguf
from assay.impl.stores.gguf.values import Value, ValueType, scalar
from assay.impl.stores.ple_rows.layout import PleGeometry, RowTable, check_geometry
from assay.impl.stores.ple_rows.tables import raw_codec
from assay.impl.stores.private_families import GEOMETRY, MINIATURE_PROFILE, PrivateStores, private_stores
from assay.impl.stores.strict_json import parse_json, require_object
from assay.spec.canonical import canonical_digest, canonical_json
from assay.spec.contract.config import TextConfig
from assay.spec.errors import AssayError, ContractError, Finding
from assay.spec.profiles import load_profile

CONFIG_KEY: Final = "assay.private.config"
PHYSICAL_JSON_KEY: Final = "assay.private.physical"
PRIVATE_PREFIX: Final = "assay-"
NONE: Final = "none"
CONFIG_LIMIT: Final = 1 << 20
EXPERT_CODECS: Final[dict[str, tuple[Block, Storage]]] = {
    "f32": (F32, Storage.GGML),
    "bf16": (BF16, Storage.GGML),
    "mlx-affine4": (AFFINE4, Storage.MLX_AFFINE4),
}
"""How private expert stores may be encoded: plain values, or the one structural quantisation."""
ROW_CODECS: Final[dict[str, Block]] = {"f32": F32, "f16": GGML[1], "bf16": BF16}
"""How private rows may be encoded: raw."""
DENSE_TYPES: Final = frozenset({0, 1, 30})
_HEX: Final = re.compile(r"^[0-9a-f]{64}$")
_TYPES: Final = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING"}


@dataclass(frozen=True, slots=True)
class Physical:
    """How the stores of a private artifact are encoded."""

    expert_codec: str
    row_codec: str
    rows_per_page: int
    page_alignment: int

    @property
    def profile_id(self) -> str:
        """Returns the physical profile's id."""
        return f"assay-physical-{self.expert_codec}-{self.row_codec}-v1"

    def as_json(self) -> dict[str, Any]:
        """Returns the JSON value that stands in the file."""
        return {
            "expertCodec": self.expert_codec,
            "pageAlignment": self.page_alignment,
            "rowCodec": self.row_codec,
            "rowsPerPage": self.rows_per_page,
        }


@dataclass(frozen=True, slots=True)
class Stated:
    """What a private artifact says of where it was made from; digests of absent tokenizer files are `none`."""

    inventory_sha256: str
    tensor_count: int
    source_bytes: int
    tokenizer: tuple[str, str, str] = (NONE, NONE, NONE)


@dataclass(frozen=True, slots=True)
class PrivateArtifact:
    """A configuration with everything that its artifact follows from."""

    config: Mapping[str, Any]
    geometry: Geometry
    stores: PrivateStores
    profile_id: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "PrivateArtifact":
        """Derives families and geometry.

        Raises:
            ContractError: private.geometry.
        """
        geometry = read_geometry(config)
        stores = private_stores(text_of(config))
        profile = _profile_id(config)
        if profile == MINIATURE_PROFILE:
            table = replace(stores.rows, hash_id=load_profile("miniature").ple_extent.hash_id)
            stores = PrivateStores(stores.family, table)
        return cls(config, geometry, stores, profile)

    def rows(self, physical: Physical) -> PleGeometry:
        """Returns the geometry of the row store.

        Raises:
            ContractError: ple-store.*, for pages that can't be.
        """
        table: RowTable = self.stores.rows
        codec = raw_codec(f"assay-raw-{physical.row_codec}-v1", ROW_CODECS[physical.row_codec], table.width)
        found = PleGeometry(table, codec, physical.rows_per_page, physical.page_alignment)
        check_geometry(found)
        return found

    def descriptor(self, physical: Physical, stated: Stated) -> ArtifactDescriptor:
        """Returns everything that the artifact must be.

        Raises:
            ContractError: private.geometry or ple-store.*.
        """
        rows = self.rows(physical)
        dense = [
            DenseTensor(name, tuple(reversed(shape)), DENSE_TYPES)
            for name, shape in dense_shapes(self.geometry).items()
        ]
        source = ExpectedSource(
            stated.tensor_count, stated.source_bytes, bytes.fromhex(stated.inventory_sha256), None
        )
        return ArtifactDescriptor(
            self.profile_id,
            physical.profile_id,
            _entries(self, physical, stated, rows),
            ("general.alignment", "qwen4exp.tokenizer.bos_token_id"),
            tuple(sorted(dense, key=lambda one: one.name.encode("utf-8"))),
            self.stores.family,
            source,
            rows,
            is_private=True,
            is_structural=False,
            facts={"expertCodec": physical.expert_codec},
        )


def read_private(gguf: Gguf) -> tuple[ArtifactDescriptor | None, list[Finding]]:
    """Returns the descriptor that a private artifact's own configuration gives, or why there is none.

    Raises nothing for bad input: a configuration that can't be read is a finding of the stage `identity`.
    """
    try:
        config = _json_entry(gguf, CONFIG_KEY)
        physical = _physical(_json_entry(gguf, PHYSICAL_JSON_KEY))
        artifact = PrivateArtifact.of(config)
        return artifact.descriptor(physical, _stated(gguf)), []
    except AssayError as error:
        found = error.finding
        where = found.where if found.where.startswith("assay.private") else f"{CONFIG_KEY}: {found.where}"
        return None, [replace(found, stage="identity", where=where)]


def is_private_artifact(gguf: Gguf) -> bool:
    """Says whether a file claims to be a private artifact."""
    return any(entry.key in {CONFIG_KEY, PHYSICAL_JSON_KEY} for entry in gguf.entries) or _text(
        gguf, "ds4.model.profile_id"
    ).startswith(PRIVATE_PREFIX)


def expert_descriptor_digest(codec: str) -> str:
    """Returns the digest of the expert codec's descriptor."""
    block, storage = EXPERT_CODECS[codec]
    return canonical_digest(
        {
            "blockBytes": block.bytes,
            "groupSize": 64 if storage is Storage.MLX_AFFINE4 else 0,
            "logicalGgmlType": "Q4_K" if storage is Storage.MLX_AFFINE4 else block.name,
            "status": "private-structural",
            "storage": codec,
        }
    )


def row_descriptor_digest(rows: PleGeometry) -> str:
    """Returns the digest of the row codec's descriptor and pages."""
    return canonical_digest(
        {
            "codecId": rows.codec.id,
            "codecVersion": rows.codec.version,
            "encodedRowBytes": rows.codec.row_bytes,
            "groupSize": rows.codec.group_size,
            "pageAlignment": rows.page_alignment,
            "rowsPerPage": rows.rows_per_page,
        }
    )


def _profile_id(config: Mapping[str, Any]) -> str:
    if dict(config) == load_profile("miniature").config.as_file():
        return MINIATURE_PROFILE
    try:
        digest = canonical_digest(dict(config))
    except ValueError as error:
        raise ContractError(
            Finding.of(GEOMETRY, "private", "config", expected="values that JSON keeps exactly", got=error)
        ) from None
    return f"assay-private-{digest[:12]}-v1"


def _entries(
    artifact: PrivateArtifact, physical: Physical, stated: Stated, rows: PleGeometry
) -> dict[str, Value]:
    config, stores = artifact.config, artifact.stores
    is_miniature = artifact.profile_id == MINIATURE_PROFILE
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else NONE
    plain: list[tuple[str, str, Any]] = [
        ("general.architecture", "STRING", "qwen4exp"),
        ("ds4.model.profile_id", "STRING", artifact.profile_id),
        ("ds4.model.physical_profile_id", "STRING", physical.profile_id),
        ("ds4.model.source_architecture", "STRING", first if isinstance(first, str) else NONE),
        ("ds4.model.source_revision", "STRING",
         load_profile("miniature").identity.revision if is_miniature else "local"),
        ("ds4.model.transformers_revision", "STRING", NONE),
        ("ds4.model.tensor_inventory_digest", "STRING", stated.inventory_sha256),
        ("ds4.model.source_tensor_count", "UINT32", stated.tensor_count),
        ("ds4.model.source_bytes", "UINT64", stated.source_bytes),
        ("ds4.tokenizer.digest", "STRING", stated.tokenizer[0]),
        ("ds4.tokenizer_config.digest", "STRING", stated.tokenizer[1]),
        ("ds4.chat_template.digest", "STRING", stated.tokenizer[2]),
        ("ds4.text_only", "BOOL", True),
        ("ds4.mtp.present", "BOOL", False),
        ("ds4.mtp.executed", "BOOL", False),
        ("ds4.expert_store.family", "UINT32", stores.family.id),
        ("ds4.expert_store.profile", "STRING", stores.family.profile),
        ("ds4.expert_store.codec", "STRING", physical.expert_codec),
        ("ds4.expert_store.codec_descriptor_digest", "STRING", expert_descriptor_digest(physical.expert_codec)),
        ("ds4.ple_store.family", "UINT32", stores.rows.family),
        ("ds4.ple_store.profile", "STRING", stores.rows.profile),
        ("ds4.ple_store.codec", "STRING", rows.codec.id),
        ("ds4.ple_store.codec_descriptor_digest", "STRING", row_descriptor_digest(rows)),
        (CONFIG_KEY, "STRING", canonical_json(dict(config)).decode("utf-8")),
        (PHYSICAL_JSON_KEY, "STRING", canonical_json(physical.as_json()).decode("utf-8")),
        *_text_entries(config),
        *_hash_entries(artifact),
        *(_token_entries() if is_miniature else ()),
    ]  # fmt: skip
    return {key: typed(kind, value) for key, kind, value in plain}


def _text_entries(config: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Returns the known scalars of the configuration as entries; the configuration itself has all of them."""
    text = text_of(config)
    found: list[tuple[str, str, Any]] = []
    for name in sorted(TextConfig.model_fields):
        found += _scalar(f"qwen4exp.text.{name}", text.get(name))
    rope = text.get("rope_parameters")
    for name in ("rope_type", "rope_theta", "partial_rotary_factor", "mrope_interleaved"):
        found += _scalar(f"qwen4exp.text.rope.{name}", rope.get(name) if isinstance(rope, dict) else None)
    return found


def _scalar(key: str, value: Any) -> list[tuple[str, str, Any]]:
    kind = _TYPES.get(type(value))
    if kind is None or (kind == "UINT32" and not 0 <= value < 1 << 32):
        return []
    return [(key, kind, value)]


def _hash_entries(artifact: PrivateArtifact) -> list[tuple[str, str, Any]]:
    geometry, rows = artifact.geometry, artifact.stores.rows
    buffers = geometry.hash_buffers()
    heads = len(buffers.primes)
    return [
        ("qwen4exp.text.layer_pattern", f"UINT32[{len(geometry.layers)}]", [int(one) for one in geometry.layers]),
        ("qwen4exp.text.ple_layer_ids", "UINT32[1]", [geometry.ple_layer + 1]),
        ("qwen4exp.ple.layer_multipliers", f"UINT64[{len(buffers.multipliers)}]", list(buffers.multipliers)),
        ("qwen4exp.ple.head_primes", f"UINT64[{heads}]", list(buffers.primes)),
        ("qwen4exp.ple.head_offsets", f"UINT64[{heads}]", list(buffers.offsets)),
        ("qwen4exp.ple.hash_id", "STRING", rows.hash_id),
        ("qwen4exp.ple.hash_seed", "UINT32", geometry.seed),
        ("qwen4exp.ple.head_rows", "UINT64", sum(buffers.primes)),
        ("qwen4exp.ple.rows", "UINT64", buffers.padded_rows),
    ]  # fmt: skip


def _token_entries() -> list[tuple[str, str, Any]]:
    ids = load_profile("miniature").vocabulary.tokenizer_ids
    return [
        (f"qwen4exp.tokenizer.{name}_token_id", "UINT32", value)
        for name, value in ids.model_dump().items()
        if value is not None
    ]


def _stated(gguf: Gguf) -> Stated:
    """Returns what the file states of its source; what has not its form becomes something that it can't equal."""
    digest = _text(gguf, "ds4.model.tensor_inventory_digest")
    names = ("ds4.tokenizer.digest", "ds4.tokenizer_config.digest", "ds4.chat_template.digest")
    tokens = [_text(gguf, name) for name in names]
    first, second, third = (one if _HEX.match(one) else NONE for one in tokens)
    return Stated(
        digest if _HEX.match(digest) else "0" * 64,
        _number(gguf, "ds4.model.source_tensor_count", ValueType.UINT32),
        _number(gguf, "ds4.model.source_bytes", ValueType.UINT64),
        (first, second, third),
    )


def _number(gguf: Gguf, key: str, kind: ValueType) -> int:
    value = gguf.value(key)
    if value is None or value != scalar(
        kind, int.from_bytes(value.data, "little") if value.type is kind else 0
    ):
        return 0
    return int.from_bytes(value.data, "little")


def _physical(found: dict[str, Any]) -> Physical:
    experts, rows = found.get("expertCodec"), found.get("rowCodec")
    if not isinstance(experts, str) or experts not in EXPERT_CODECS:
        raise _error(f"{PHYSICAL_JSON_KEY}: expertCodec", f"one of {', '.join(EXPERT_CODECS)}", experts)
    if not isinstance(rows, str) or rows not in ROW_CODECS:
        raise _error(f"{PHYSICAL_JSON_KEY}: rowCodec", f"one of {', '.join(ROW_CODECS)}", rows)
    numbers = [found.get("rowsPerPage"), found.get("pageAlignment")]
    if set(found) != {"expertCodec", "rowCodec", "rowsPerPage", "pageAlignment"} or not all(
        type(one) is int and 1 <= one < 1 << 32 for one in numbers
    ):
        raise _error(PHYSICAL_JSON_KEY, "four fields, pages as unsigned integers", sorted(found))
    return Physical(experts, rows, *(int(one or 0) for one in numbers))


def _json_entry(gguf: Gguf, key: str) -> dict[str, Any]:
    value = gguf.value(key)
    data = value.data[8:] if value is not None and value.type is ValueType.STRING else b""
    if not 0 < len(data) <= CONFIG_LIMIT:
        raise _error(key, f"canonical JSON of 1..{CONFIG_LIMIT} bytes", f"{len(data)} bytes")
    found = require_object(parse_json(data, stage="identity", where=key), stage="identity", where=key)
    try:
        again = canonical_json(found)
    except ValueError as error:
        raise _error(key, "values that JSON keeps exactly", error) from None
    if again != data:
        raise _error(key, "canonical JSON", "the same value in another spelling")
    return found


def _text(gguf: Gguf, key: str) -> str:
    value = gguf.value(key)
    if value is None or value.type is not ValueType.STRING:
        return ""
    return value.data[8:].decode("utf-8", "replace")


def _error(where: str, expected: object, got: object) -> ContractError:
    return ContractError(Finding.of(GEOMETRY, "identity", where, expected=expected, got=got))
