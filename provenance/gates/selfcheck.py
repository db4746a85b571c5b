"""Gates about the gates: the ledger is damaged in every way it is meant to notice, and must notice."""

from pathlib import Path

from assay.provenance.components import Component
from assay.provenance.evidence.ledger import Ledger
from assay.provenance.evidence.status import Present, Registry, compute_status
from assay.provenance.gates.base import Gate, GateContext, GateResult
from assay.spec.clauses import Authority, declare
from assay.spec.documents.evidence import Bench, Evidence, Subject
from assay.spec.errors import Finding
from assay.spec.verdicts import Label, Outcome

UNNOTICED = declare(
    "gate.damage-unnoticed",
    Authority.PROCESS,
    "Damage of a ledger is reported at the damaged file and raises no label.",
    source="design: status is computed",
    cause="a change in provenance/evidence",
)

_SUBJECT = Subject(code="1" * 64, contract="2" * 64, fixtures="3" * 64)
_BENCH = Bench(python="3.11", platform="test", device="test", packages={})
_GATES = tuple(
    Gate(f"sample.{rung}", "A sample.", ("sample",), rung, f"sample:{index}")
    for index, rung in enumerate((Label.STRUCTURAL_ONLY, Label.IMPLEMENTED, Label.CORRECTNESS_FIXTURE))
)
_REGISTRY = Registry((Component("sample", "Sample", "A sample.", ("sample",)),), _GATES, {})
_PRESENT = Present(
    {"sample": _SUBJECT}, {gate.id: None for gate in _GATES}, {gate.id: _BENCH for gate in _GATES}
)


def ledger_detects_damage(context: GateContext) -> GateResult:
    """Writes a ledger whose last record lowers a label, damages each of its files in turn, and reads it again."""
    context.out.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(context.out / "ledger")
    outcomes = [("pass", 0), ("pass", 1), ("pass", 2), ("not-run", 1), ("fail", 1)]
    for index, (outcome, gate) in enumerate(outcomes):
        ledger.append(_record(_GATES[gate].id, outcome, index))
    intact = _label(ledger)
    findings = (
        [] if intact is Label.STRUCTURAL_ONLY else [_finding("intact ledger", "structural-only", intact)]
    )
    cases = 0
    for path in sorted(ledger.directory.iterdir()):
        if path.suffix != ".json" and path.name != "HEAD":
            continue
        kept = path.read_bytes()
        for how, data in _damages(kept):
            cases += 1
            _put(path, data)
            found = ledger.read().findings
            if not any(path.name in f"{one.where} {one.expected}" for one in found):
                lines = [one.line for one in found]
                findings.append(_finding(f"{how} {path.name}", "a finding that names it", lines))
            if (label := _label(ledger)) is not Label.HYPOTHESIS:
                findings.append(_finding(f"{how} {path.name}", "hypothesis", label))
        _put(path, kept)
    if ledger.read().findings:
        findings.append(_finding("restored ledger", "no finding", "findings"))
    measurements = {"records": len(outcomes), "damages": cases}
    outcome = Outcome.FAIL if findings else Outcome.PASS
    reason = findings[0].line if findings else ""
    return GateResult(outcome, measurements, tuple(findings), reason)


def _damages(data: bytes) -> list[tuple[str, bytes | None]]:
    flipped = bytes([data[0] ^ 1]) + data[1:]
    middle = len(data) // 2
    swapped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    return [
        ("removed", None),
        ("emptied", b""),
        ("cut short", data[:-1]),
        ("first bit flipped", flipped),
        ("middle bit flipped", swapped),
        ("extended", data + b" "),
    ]


def _put(path: Path, data: bytes | None) -> None:
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)


def _record(gate: str, outcome: str, index: int) -> Evidence:
    return Evidence.model_validate(
        {
            "gate": gate, "outcome": outcome, "subjects": {"sample": _SUBJECT}, "gate_code": None, "bench": _BENCH,
            "seam": None, "measurements": {}, "findings": [], "reason": "" if outcome == "pass" else "as asked",
            "run": f"sample-{index}", "seed": index, "started": "2026-01-01T00:00:00Z", "duration_s": 0.0,
            "assay": "0", "predecessor": None,
        }
    )  # fmt: skip


def _label(ledger: Ledger) -> Label:
    return Label(compute_status(ledger.read(), _PRESENT, _REGISTRY).labels[0].label)


def _finding(where: str, expected: object, got: object) -> Finding:
    return Finding.of(UNNOTICED, "gate", where, expected=expected, got=got)
