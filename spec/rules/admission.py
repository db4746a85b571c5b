"""Rules of admission: the partition of tensors, the physical fixture, the report and the text pipeline."""

from collections import Counter
from functools import lru_cache
from typing import Any, Final

from assay.spec.canonical import canonical_digest
from assay.spec.contract.contract import Contract
from assay.spec.contract.tensors import TensorSpec, expand_tensors
from assay.spec.hashing import align_up
from assay.spec.rules.base import Check, Judge, rule

SOURCE: Final = "field note AFN-004"

NO_SUPPORT: Final = rule(
    "admission.no-support",
    "Admission claims no support: no production profile, decision pending, a test guard, no run in production, digests as metadata only.",
    cause="A structural fixture was promoted by editing its status.",
    source="field note AFN-013",
)
PARTITION: Final = rule(
    "admission.partition",
    "Every base tensor has one destination: dense, expert store or row store; the numbers are those of the expanded roles.",
    cause="A tensor counted at two owners, or at none.",
    source=SOURCE,
)
OWNERS: Final = rule(
    "admission.owners",
    "The artifact has the dense tensors and one tensor for each of the two stores.",
    cause="A second store of a kind, or a canonical tensor left beside its store.",
    source=SOURCE,
)
DENSE: Final = rule(
    "admission.dense",
    "The digest of the dense owner is that of the sorted list of names, reversed shapes and types.",
    cause="A dense tensor was renamed, transposed or stored in another type.",
    source=SOURCE,
)
EXPERT: Final = rule(
    "admission.expert",
    "The expert store of the fixture repeats the contract's geometry, candidate and source totals, and its descriptor digest is recomputed.",
    cause="The fixture and the contract were changed apart.",
    source=SOURCE,
)
PLE: Final = rule(
    "admission.ple",
    "The row store of the fixture has the contract's rows, BF16 row bytes, one unbroken stride a page, and its descriptor digest is recomputed.",
    cause="A page geometry that does not hold its rows.",
    source="field note AFN-003",
)
PLE_PAYLOAD: Final = rule(
    "admission.ple-payload",
    "The payload of the row store is absent from the fixture and never verified at start.",
    cause="A start-up check that would read 100 GB.",
    source="field note AFN-003",
)
LAYOUT: Final = rule(
    "admission.layout",
    "There are six layout rules; alignments are powers of two, and owners are aligned to pages that hold the default.",
    cause="A layout rule was dropped.",
    source=SOURCE,
)
REPORT_FIELDS: Final = rule(
    "admission.report.fields",
    "Fields of the report are distinct; counts and extents are UINT64, flags BOOL; only the fields that a rejection clears may be null.",
    cause="A field narrowed by a writer.",
    source=SOURCE,
)
REPORT_VALUES: Final = rule(
    "admission.report.values",
    "Values of an accepted report are those of the contract, and it claims neither runtime support nor a payload check.",
    cause="A report that claims more than admission can know.",
    source=SOURCE,
)
REPORT_STAGES: Final = rule(
    "admission.report.stages",
    "Stages are distinct, begin with none and end with accepted.",
    cause="A stage was renamed in the report only.",
    source=SOURCE,
)
TOKENIZER: Final = rule(
    "admission.tokenizer",
    "The text pipeline repeats the vocabulary section: sizes, range, ids, stops and digests.",
    cause="Admission and vocabulary were changed apart.",
    source="field note AFN-005",
)
TEXT_DIGESTS: Final = rule(
    "admission.text-digests",
    "The declared digests of the text files are those of the source pins.",
    cause="A re-saved tokenizer.",
    source="field note AFN-008",
)
CHAT: Final = rule(
    "admission.chat",
    "The default effort is among the supported ones; segments are of two kinds; the cases of the oracles add up.",
    cause="A template of a sister family.",
    source="field note AFN-006",
)


def stance(contract: Contract, judge: Judge) -> None:
    """Nothing in admission claims support."""
    admission = contract.admission
    if admission is None:
        return
    fixture = admission.physical_fixture
    for where, wanted, got in (
        ("support_claim", False, admission.support_claim),
        ("production_profile", None, admission.production_profile),
        ("production_decision", "pending", admission.production_decision),
        ("fixture_may_run_in_production", False, admission.fixture_may_run_in_production),
        ("physical_fixture.production", False, fixture.production),
        ("physical_fixture.payload_materialized", False, fixture.payload_materialized),
        ("physical_fixture.scope", admission.fixture_build_guard, fixture.scope),
    ):
        judge.equal(NO_SUPPORT, f"admission.{where}", wanted, got)
    for where, word, text in (
        ("status", "test-only", admission.status),
        ("fixture_build_guard", "TEST", admission.fixture_build_guard),
        ("source_hash_controls", "metadata-only", admission.source_hash_controls),
        ("physical_fixture.physical_profile_id", "fixture", fixture.physical_profile_id),
    ):
        judge.holds(NO_SUPPORT, f"admission.{where}", word in text, f"a text with {word}", text)


def owners(contract: Contract, judge: Judge) -> None:
    """Three owners share all base tensors."""
    if contract.admission is None:
        return
    fixture, tensors = contract.admission.physical_fixture, expand_tensors(contract)
    groups, owned = Counter(one.group for one in tensors), Counter(one.owner for one in tensors)
    partition, where = fixture.source_partition, "admission.physical_fixture.source_partition"
    for name, wanted in (
        ("base", len(tensors)),
        ("dense", owned["dense"]),
        ("routed_into_expert_major", owned["expert_major"]),
        ("ple_into_store", owned["ple"]),
        ("ple_compute_retained_dense", groups["ple-compute"]),
    ):
        judge.equal(PARTITION, f"{where}.{name}", wanted, getattr(partition, name))
    judge.equal(
        PARTITION,
        f"{where}.base",
        partition.dense + partition.routed_into_expert_major + partition.ple_into_store,
        partition.base,
    )
    counts, where = fixture.owners, "admission.physical_fixture.owners"
    for name, wanted in (("dense", owned["dense"]), ("expert_major", 1), ("ple", 1)):
        judge.equal(OWNERS, f"{where}.{name}", wanted, getattr(counts, name))
    total = counts.dense + counts.expert_major + counts.ple
    judge.equal(OWNERS, "admission.physical_fixture.tensor_count", total, fixture.tensor_count)
    dense, where = fixture.dense, "admission.physical_fixture.dense"
    judge.equal(DENSE, f"{where}.tensors", counts.dense, dense.tensors)
    judge.equal(DENSE, f"{where}.ggml_type", "BF16", dense.ggml_type)
    judge.equal(DENSE, f"{where}.descriptor_sha256", _dense_digest(tensors), dense.descriptor_sha256)
    judge.equal(LAYOUT, "admission.physical_fixture.layout_rules", 6, len(set(fixture.layout_rules)))
    small, large = fixture.default_alignment, fixture.owner_alignment
    judge.equal(LAYOUT, "admission.physical_fixture.default_alignment", 32, small)
    page = contract.ple_extent.wire_format.minimum_page_alignment
    judge.equal(LAYOUT, "admission.physical_fixture.owner_alignment", page, large)


def stores(contract: Contract, judge: Judge) -> None:
    """Both stores of the fixture agree with the contract."""
    if contract.admission is None or contract.source_pins is None:
        return
    fixture, pins, store = contract.admission.physical_fixture, contract.source_pins, contract.expert_store
    expert, candidate, where = (
        fixture.expert_major,
        store.structural_candidate,
        "admission.physical_fixture.expert_major",
    )
    for name, wanted in (
        ("family", store.family),
        ("version", store.version),
        ("layers", store.layers),
        ("experts_per_layer", store.experts_per_layer),
        ("storage", candidate.storage),
        ("logical_ggml_type", candidate.logical_ggml_type),
        ("group_size", candidate.group_size),
        ("block_bytes", candidate.block_bytes),
        ("status", candidate.status),
        ("source_tensor_count", pins.tensor_count),
        ("source_bytes", pins.source_bytes),
        ("source_inventory_sha256", pins.inventory_sha256),
    ):
        judge.equal(EXPERT, f"{where}.{name}", wanted, getattr(expert, name))
    descriptor: dict[str, Any] = {
        "blockBytes": expert.block_bytes,
        "groupSize": expert.group_size,
        "logicalGgmlType": expert.logical_ggml_type,
        "status": expert.status,
        "storage": expert.storage,
    }
    judge.equal(
        EXPERT,
        f"{where}.codec_descriptor_sha256",
        canonical_digest(descriptor),
        expert.codec_descriptor_sha256,
    )
    rows, wire, where = fixture.ple, contract.ple_extent.wire_format, "admission.physical_fixture.ple"
    extent = contract.ple_extent
    payload = wire.page_header_bytes + rows.rows_per_page * rows.encoded_row_bytes
    for name, wanted in (
        ("rows", extent.rows),
        ("padding_rows", extent.padding_rows),
        ("encoded_row_bytes", 2 * extent.row_width * rows.group_size),
        ("group_size", 1),
        ("page_alignment", wire.minimum_page_alignment),
        ("page_count", 1 + (rows.rows - 1) // rows.rows_per_page),
        ("page_stride", align_up(payload, rows.page_alignment)),
    ):
        judge.equal(PLE, f"{where}.{name}", wanted, getattr(rows, name))
    judge.holds(PLE, f"{where}.codec_id", "fixture" in rows.codec_id, "a fixture's codec", rows.codec_id)
    descriptor = {
        "codecId": rows.codec_id,
        "codecVersion": rows.codec_version,
        "encodedRowBytes": rows.encoded_row_bytes,
        "groupSize": rows.group_size,
        "pageAlignment": rows.page_alignment,
        "rowsPerPage": rows.rows_per_page,
    }
    judge.equal(
        PLE, f"{where}.codec_descriptor_sha256", canonical_digest(descriptor), rows.codec_descriptor_sha256
    )
    judge.equal(
        PLE_PAYLOAD, f"{where}.startup_payload_verification", False, rows.startup_payload_verification
    )
    judge.equal(PLE_PAYLOAD, f"{where}.payload_present", fixture.payload_materialized, rows.payload_present)
    judge.holds(
        PLE_PAYLOAD,
        f"{where}.payload_verification",
        rows.payload_verification.startswith("offline"),
        "an offline check",
        rows.payload_verification,
    )


def report(contract: Contract, judge: Judge) -> None:
    """The ownership report of an accepted artifact."""
    if contract.admission is None or contract.source_pins is None:
        return
    schema, fixture, pins = (
        contract.admission.report,
        contract.admission.physical_fixture,
        contract.source_pins,
    )
    judge.equal(REPORT_STAGES, "admission.report.stages", len(schema.stages), len(set(schema.stages)))
    judge.equal(
        REPORT_STAGES, "admission.report.stages", ["none", "accepted"], [schema.stages[0], schema.stages[-1]]
    )
    names = [one.name for one in schema.fields]
    judge.equal(REPORT_FIELDS, "admission.report.fields", [30, 30], [len(names), len(set(names))])
    judge.equal(REPORT_FIELDS, "admission.report.closed", True, schema.closed)
    judge.equal(REPORT_FIELDS, "admission.report.rules", 4, len(set(schema.rules)))
    known: dict[str, Any] = {
        "schemaVersion": schema.version,
        "family": contract.identity.family,
        "profileId": contract.identity.profile_id,
        "physicalProfileId": fixture.physical_profile_id,
        "stage": schema.stages[-1],
        "admitted": True,
        "runtimeSupported": contract.admission.support_claim,
        "payloadVerified": False,
        "textOnly": True,
        "mtpPresent": False,
        "visionPresent": False,
        "physicalTensors": fixture.tensor_count,
        "denseTensors": fixture.owners.dense,
        "expertStores": fixture.owners.expert_major,
        "pleStores": fixture.owners.ple,
        "expertManifestVerified": True,
        "pleManifestVerified": True,
        "sourceTensorCount": pins.tensor_count,
        "sourceBytes": pins.source_bytes,
        "sourceInventorySha256": pins.inventory_sha256,
        "tokenizerContentVerified": False,
    }
    for index, one in enumerate(schema.fields):
        where = f"admission.report.fields[{index}]"
        judge.equal(REPORT_VALUES, f"{where}.value", known.get(one.name), one.value, one.name)
        judge.equal(REPORT_FIELDS, f"{where}.type", _report_type(one.name), one.type, one.name)
        nullable = one.name in {"physicalProfileId", "rejection"}
        judge.equal(REPORT_FIELDS, f"{where}.nullable", nullable, one.nullable, one.name)


def text_pipeline(contract: Contract, judge: Judge) -> None:
    """Tokenizer and template as admission sees them."""
    if contract.admission is None or contract.source_pins is None:
        return
    part, words, files = contract.admission.tokenizer, contract.vocabulary, contract.source_pins.files
    where = "admission.tokenizer"
    for name, wanted in (
        ("base_vocabulary_size", words.base_tokens),
        ("effective_valid_vocabulary_size", words.effective_ids),
        ("maximum_valid_token_id", words.largest_valid_id),
        ("physical_logits_width", words.physical_rows),
        ("unassigned_physical_id_range", (words.unassigned_first, words.unassigned_end)),
        ("sampling_rule", words.sampling_rule),
        ("stop_ids", words.stop_ids),
        ("added_token_count", len(words.added_tokens)),
        ("added_token_mapping_sha256", words.added_token_mapping_sha256),
        ("backend_special_ids_sha256", words.backend_special_ids_sha256),
    ):
        judge.equal(TOKENIZER, f"{where}.{name}", wanted, getattr(part, name))
    for group, source in (
        ("declared_model_config_ids", words.model_config_ids),
        ("declared_tokenizer_ids", words.tokenizer_ids),
    ):
        for name in type(source).model_fields:
            judge.equal(
                TOKENIZER,
                f"{where}.{group}.{name}",
                getattr(source, name),
                getattr(getattr(part, group), name),
            )
    for name, file in (
        ("tokenizer_sha256", "tokenizer.json"),
        ("tokenizer_config_sha256", "tokenizer_config.json"),
        ("chat_template_sha256", "chat_template.jinja"),
    ):
        digest = getattr(part.declared_provenance, name)
        judge.equal(TEXT_DIGESTS, f"{where}.declared_provenance.{name}", files[file].sha256, digest)
    judge.holds(
        TEXT_DIGESTS,
        f"{where}.authority.source",
        part.authority.source in files and not part.authority.auto_tokenizer_authoritative,
        "a pinned file, read by its own backend",
        part.authority.source,
    )
    chat, oracles = part.chat_template, part.oracles
    judge.holds(
        CHAT,
        f"{where}.chat_template.default_reasoning_effort",
        chat.default_reasoning_effort == chat.supported_reasoning_efforts[0],
        chat.supported_reasoning_efforts[0],
        chat.default_reasoning_effort,
    )
    judge.items(CHAT, f"{where}.chat_template.segment_kinds", ("DATA", "TRUSTED_CONTROL"), chat.segment_kinds)
    total = oracles.chat_upstream_cases + oracles.chat_contract_negative_cases
    judge.equal(CHAT, f"{where}.oracles.chat_cases", total, oracles.chat_cases)


# The same few expansions come back throughout a battery; hashing a tuple of them is cheaper than the digest.
@lru_cache(maxsize=8)
def _dense_digest(tensors: tuple[TensorSpec, ...]) -> str:
    return canonical_digest(
        [
            {"ggufDimensions": list(reversed(one.shape)), "ggufType": one.dtype, "sourceIdentity": one.name}
            for one in sorted(tensors, key=lambda one: one.name.encode())
            if one.owner == "dense"
        ]
    )


def _report_type(name: str) -> str:
    if name == "rejection":
        return "REJECTION"
    if name == "schemaVersion":
        return "UINT32"
    if name.endswith(("Tensors", "Stores", "Bytes", "Count")):
        return "UINT64"
    strings = ("family", "profileId", "physicalProfileId", "stage", "sourceInventorySha256")
    return "STRING" if name in strings else "BOOL"


CHECKS: Final[tuple[Check, ...]] = (stance, owners, stores, report, text_pipeline)
