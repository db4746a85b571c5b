"""All clauses and schemas of the project, gathered by importing the modules that declare them."""

import importlib
from typing import Any, Final

from assay.spec.documents import DOCUMENTS
from assay.spec.errors import usage_error

CLAUSE_MODULES: Final[tuple[str, ...]] = (
    "assay.impl.text.chat",
    "assay.impl.text.facts",
    "assay.impl.text.identity",
    "assay.impl.text.origin",
    "assay.impl.text.parser",
    "assay.impl.text.segments",
    "assay.impl.text.template",
    "assay.impl.text.vocabulary",
    "assay.spec.rules.base",
    "assay.spec.rules.admission",
    "assay.spec.rules.config",
    "assay.spec.rules.derived",
    "assay.spec.rules.expert_store",
    "assay.spec.rules.form",
    "assay.spec.rules.formulas",
    "assay.spec.rules.identity",
    "assay.spec.rules.metadata",
    "assay.spec.rules.pins",
    "assay.spec.rules.ple",
    "assay.spec.rules.tensors",
    "assay.spec.rules.upstream",
    "assay.spec.rules.vocabulary",
    "assay.impl.workers",
    "assay.impl.stores.arguments",
    "assay.impl.stores.expert_families",
    "assay.impl.stores.gguf_values",
    "assay.impl.stores.gguf_writer",
    "assay.impl.stores.ple_tables",
    "assay.impl.stores.tokenizer_ids",
    "assay.impl.stores.payload",
    "assay.impl.stores.layout",
    "assay.impl.stores.hash_derivation",
    "assay.impl.stores.contract_inventory",
    "assay.impl.stores.config_fields",
    "assay.impl.stores.checkpoint",
    "assay.impl.stores.checkpoint_reader",
    "assay.impl.model.clauses",
    "assay.impl.runtime.budget",
    "assay.impl.runtime.cache",
    "assay.impl.runtime.clauses",
    "assay.impl.runtime.recorder",
    "assay.impl.runtime.trace_clauses",
    "assay.impl.captures.fixtures",
    "assay.impl.captures.npy",
    "assay.impl.captures.reading",
    "assay.impl.stores.files",
    "assay.impl.stores.foreign",
    "assay.impl.stores.foreign_gguf",
    "assay.impl.stores.header_set",
    "assay.impl.stores.inventory",
    "assay.impl.stores.published_files",
    "assay.impl.stores.safetensors",
    "assay.impl.stores.single",
    "assay.impl.stores.shard_index",
    "assay.impl.stores.strict_json",
    "assay.provenance.captures.installed",
    "assay.provenance.gates.parity",
    "assay.provenance.captures.regenerate",
    "assay.provenance.kinds",
    "assay.provenance.usage",
    "assay.provenance.evidence.durable",
    "assay.provenance.evidence.heads",
    "assay.provenance.evidence.claims",
    "assay.provenance.evidence.ledger",
    "assay.provenance.evidence.run_log",
    "assay.provenance.evidence.statement",
    "assay.provenance.evidence.subjects",
    "assay.provenance.gates.artifact",
    "assay.provenance.gates.batteries",
    "assay.provenance.gates.checkpoint",
    "assay.provenance.gates.execution",
    "assay.provenance.gates.run",
    "assay.provenance.gates.selfcheck",
    "assay.provenance.gates.stores",
    "assay.provenance.gates.text",
    "assay.provenance.records",
    "assay.provenance.runs",
    "assay.spec.records",
    "assay.oracles.clauses",
    "assay.provenance.miniature",
    "assay.provenance.oracle_input",
    "assay.mutations.clauses",
    "assay.mutations.code",
    "assay.mutations.vectors",
    "assay.mutations.model_clauses",
    "assay.provenance.gates.model_clauses",
    "assay.mutations.store_bytes",
    "assay.mutations.scheduler_model",
    "assay.mutations.gguf",
    "assay.impl.stores.artifact.build",
    "assay.impl.stores.artifact.conversion",
    "assay.impl.stores.artifact.entries",
    "assay.impl.stores.artifact.inventory",
    "assay.impl.stores.artifact.opened",
    "assay.impl.stores.artifact.origin",
    "assay.impl.stores.artifact.owned_stores",
    "assay.impl.stores.artifact.ownership",
    "assay.impl.stores.artifact.source",
    "assay.impl.stores.artifact.structural",
    "assay.impl.stores.blocks",
    "assay.impl.stores.expert_repack",
    "assay.impl.stores.expert_rules",
    "assay.impl.stores.expert_store",
    "assay.impl.stores.expert_writer",
    "assay.impl.stores.extents",
    "assay.impl.stores.gguf",
    "assay.impl.stores.gguf_rules",
    "assay.impl.stores.ple_digests",
    "assay.impl.stores.ple_layout",
    "assay.impl.stores.ple_rules",
    "assay.impl.stores.ple_store",
    "assay.impl.stores.ple_writer",
    "assay.impl.stores.private_families",
    "assay.impl.stores.publication",
    "assay.impl.stores.fill_once",
    "assay.impl.stores.record_digests",
    "assay.impl.stores.row_shards",
    "assay.impl.stores.store_files",
)
"""Every module that declares clauses; a test finds those that are missing here."""


def load_all_clauses() -> None:
    """Imports every module that declares clauses."""
    for name in CLAUSE_MODULES:
        importlib.import_module(name)


def json_schema(name: str) -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of a document or contract, by its full or short name."""
    full = {
        **{key: key for key in DOCUMENTS},
        **{key.split("/")[0].removeprefix("assay."): key for key in DOCUMENTS},
    }
    if name not in full:
        raise usage_error("schema", expected=f"one of {', '.join(sorted(DOCUMENTS))}", got=name)
    module, model = DOCUMENTS[full[name]]
    document = getattr(importlib.import_module(module), model)
    schema: dict[str, Any] = document.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": full[name], **schema}
