"""The documents that assay writes, one module a schema; each is exported as JSON Schema by `assay schema NAME`."""

from typing import Final

DOCUMENTS: Final[dict[str, tuple[str, str]]] = {
    "assay.contract/1": ("assay.spec.contract", "Contract"),
    "assay.validation/1": ("assay.spec.documents.validation", "Validation"),
    "assay.mutation-run/1": ("assay.spec.documents.mutation_run", "MutationRun"),
    "assay.oracle-list/1": ("assay.spec.documents.oracle_list", "OracleList"),
    "assay.run/1": ("assay.spec.documents.run", "Run"),
    "assay.run-log/1": ("assay.spec.documents.run_log", "RunLogLine"),
    "assay.evidence/1": ("assay.spec.documents.evidence", "Evidence"),
    "assay.status/1": ("assay.spec.documents.status", "Status"),
    "assay.decision-record/1": ("assay.spec.documents.decision_record", "DecisionRecord"),
    "assay.run-comparison/1": ("assay.spec.documents.run_comparison", "RunComparison"),
    "assay.capture/1": ("assay.spec.documents.capture", "Capture"),
    "assay.capture-check/1": ("assay.spec.documents.capture_check", "CaptureCheck"),
    "assay.fixture/1": ("assay.spec.documents.fixture", "Fixture"),
    "assay.diff/1": ("assay.spec.documents.diff", "Diff"),
    "assay.record-digests/1": ("assay.spec.documents.record_digests", "RecordDigestsDocument"),
    "assay.vectors/1": ("assay.spec.documents.vectors", "Vectors"),
    "assay.generation/1": ("assay.spec.documents.generation", "Generation"),
    "assay.build/1": ("assay.spec.documents.build", "Build"),
    "assay.conversion/1": ("assay.spec.documents.build", "Conversion"),
    "assay.device-probe/1": ("assay.spec.documents.device_probe", "DeviceProbe"),
    "assay.trace-summary/1": ("assay.spec.documents.trace_summary", "TraceSummary"),
    "assay.trace-comparison/1": ("assay.spec.documents.trace_summary", "TraceComparison"),
    "assay.trace/1": ("assay.spec.documents.trace", "TraceLine"),
    "assay.text-prompt/1": ("assay.spec.documents.text", "TextPrompt"),
    "assay.text-ids/1": ("assay.spec.documents.text", "TextIds"),
    "assay.text-decoded/1": ("assay.spec.documents.text", "TextDecoded"),
    "assay.text-turn/1": ("assay.spec.documents.text", "TextTurn"),
    "assay.bench/1": ("assay.spec.documents.bench", "Bench"),
}
"""Schema name -> (module, model); modules are imported only when a schema is asked for."""
