"""Gates that misbehave, as a module that a worker process can import."""

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.provenance.components import Component
from assay.provenance.evidence.status import Registry
from assay.provenance.gates.base import Gate
from assay.spec.verdicts import Label

SOURCE = """
import math, os, subprocess, sys, time
from assay.provenance.gates.base import GateResult
from assay.spec.errors import EvidenceError, Finding, ParityError
from assay.spec.verdicts import Outcome

FINDING = Finding("sample.code", "gate", "here", "1", "2")

def passes(context): return GateResult(Outcome.PASS, {"seed": context.seed, "private": context.private})
def passes_privately(context): return GateResult(Outcome.PASS, is_private=True)
def prints_and_passes(context):
    print('{"outcome": "fail"}')
    return GateResult(Outcome.PASS)
def tells_its_checkpoint(context): return GateResult(Outcome.PASS, {"given": context.checkpoint is not None})
def fails(context): return GateResult(Outcome.FAIL, {"count": 3}, (FINDING,))
def skips(context): return GateResult(Outcome.NOT_RUN, reason="no mood")
def undecided(context): return GateResult(Outcome.INCONCLUSIVE, reason="near tie")
def raises(context): raise TypeError("broken inside")
def raises_parity(context): raise ParityError(FINDING)
def raises_evidence(context): raise EvidenceError(FINDING)
def returns_nothing(context): return None
def returns_text(context): return "pass"
def returns_nan(context): return GateResult(Outcome.PASS, {"loss": math.nan})
def returns_huge_integer(context): return GateResult(Outcome.PASS, {"count": 2**60})
def returns_bytes(context): return GateResult(Outcome.PASS, {"data": b"x"})
def returns_unknown_outcome(context): return GateResult("great")
def returns_too_much(context): return GateResult(Outcome.PASS, {"text": "x" * (3 << 20)})
def passes_with_findings(context): return GateResult(Outcome.PASS, findings=(FINDING,))
def exits(context): os._exit(0)
def exits_politely(context): sys.exit(0)
def aborts(context): os.abort()
def writes_a_result_and_dies(context):
    (context.out / "result.json").write_text(
        '{"outcome": "pass", "measurements": {}, "findings": [], "reason": "", "is_private": false, "modules": []}')
    os._exit(7)
def passes_through_a_late_import(context):
    import importlib
    importlib.import_module("assay.spec." + "canonical")
    importlib.import_module("assay.oracles." + "norms")
    return GateResult(Outcome.PASS)
def hangs(context):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (context.out / "child.pid").write_text(str(child.pid))
    while True: time.sleep(0.05)
def notes_its_processes_and_sleeps(context):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (context.out / "child.new").write_text(f"{os.getpid()} {child.pid}")
    (context.out / "child.new").rename(context.out / "child.pid")
    time.sleep(600)
    return GateResult(Outcome.PASS)
"""
MakeGate = Callable[..., Gate]


@pytest.fixture
def make_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeGate:
    import os

    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "sample_gates.py").write_text(SOURCE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))

    def make(name: str, **changes: object) -> Gate:
        values: dict[str, object] = {
            "id": f"sample.{name.replace('_', '-')}", "title": "A sample.", "components": ("sample",),
            "rung": Label.IMPLEMENTED, "function": f"sample_gates:{name}", "limit_s": 30.0,
        }  # fmt: skip
        return Gate(**(values | changes))  # type: ignore[arg-type]

    return make


@pytest.fixture
def make_registry() -> Callable[..., Registry]:
    sample = Component("sample", "Sample", "A claim.", ("assay.spec.verdicts",), contract=())
    return lambda *gates: Registry((sample,), tuple(gates), {})
