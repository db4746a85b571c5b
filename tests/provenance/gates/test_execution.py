"""A gate passes only by returning a pass; every other ending is told apart and is no pass."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.provenance.gates.base import Gate, GateContext
from assay.provenance.gates.execution import watch
from assay.provenance.gates.inputs import INPUTS
from assay.spec.verdicts import Outcome

MakeGate = Callable[..., Gate]


@pytest.fixture
def context(tmp_path: Path) -> GateContext:
    return GateContext(checkpoint=None, out=tmp_path / "out", seed=7, private=True)


def ended(process: int) -> bool:
    """Whether a process is gone, or is a zombie that nobody has waited for."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()[:1] in {"", "Z"}


def test_a_pass_comes_back_with_its_measurements(make_gate: MakeGate, context: GateContext) -> None:
    result = watch(make_gate("passes"), context).result
    assert (result.outcome, result.measurements, result.findings) == (
        Outcome.PASS,
        {"seed": 7, "private": True},
        (),
    )


def test_what_a_gate_prints_is_kept_and_decides_nothing(make_gate: MakeGate, context: GateContext) -> None:
    assert watch(make_gate("prints_and_passes"), context).result.outcome is Outcome.PASS
    assert (context.out / "output.txt").read_text() == '{"outcome": "fail"}\n'


def test_a_gate_can_say_that_it_stood_on_a_private_descriptor(
    make_gate: MakeGate, context: GateContext
) -> None:
    assert watch(make_gate("passes_privately"), context).result.is_private is True


@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("fails", Outcome.FAIL, "sample.code: here: expected 1, got 2"),
        ("raises_parity", Outcome.FAIL, "sample.code: here: expected 1, got 2"),
        ("raises_evidence", Outcome.INCONCLUSIVE, "sample.code: here: expected 1, got 2"),
        ("undecided", Outcome.INCONCLUSIVE, "near tie"),
        ("skips", Outcome.NOT_RUN, "skipped itself: no mood"),
    ],
)
def test_a_gate_that_does_not_pass_keeps_its_outcome_and_reason(
    make_gate: MakeGate, context: GateContext, name: str, outcome: Outcome, reason: str
) -> None:
    result = watch(make_gate(name), context).result
    assert (result.outcome, result.reason) == (outcome, reason)


def test_a_gate_that_skips_itself_gets_a_finding(make_gate: MakeGate, context: GateContext) -> None:
    (finding,) = watch(make_gate("skips"), context).result.findings
    assert (finding.code, finding.where) == ("gate.skipped", "sample.skips")


@pytest.mark.parametrize(
    ("name", "code", "got"),
    [
        ("raises", "gate.crashed", "exit 1 without a result: TypeError: broken inside"),
        ("returns_nothing", "gate.crashed", "the gate returned NoneType, not a GateResult"),
        ("returns_text", "gate.crashed", "the gate returned str, not a GateResult"),
        ("returns_bytes", "gate.crashed", "not JSON serializable"),
        ("exits", "gate.crashed", "exit 0 without a result"),
        ("exits_politely", "gate.crashed", "exit 0 without a result"),
        ("aborts", "gate.crashed", "killed by SIGABRT"),
        ("writes_a_result_and_dies", "gate.crashed", "exit 7 without a result"),
        ("no_such_function", "gate.crashed", "AttributeError"),
        ("returns_nan", "gate.result", "finite"),
        ("returns_huge_integer", "gate.result", "1152921504606846976"),
        ("returns_unknown_outcome", "gate.result", "outcome"),
        ("returns_too_much", "gate.result", "at most"),
        ("passes_with_findings", "gate.result", "a pass with 1 findings"),
    ],
)
def test_crashes_and_nonsense_are_inconclusive_and_say_why(
    make_gate: MakeGate, context: GateContext, name: str, code: str, got: str
) -> None:
    gate = make_gate(name)
    result = watch(gate, context).result
    assert result.outcome is Outcome.INCONCLUSIVE
    assert (result.findings[0].code, result.findings[0].where) == (code, gate.id)
    assert got in result.findings[0].got
    assert result.reason == result.findings[0].line


def test_a_result_of_an_earlier_run_is_not_taken_for_this_one(
    make_gate: MakeGate, context: GateContext
) -> None:
    watch(make_gate("passes"), context)
    assert watch(make_gate("exits"), context).result.outcome is Outcome.INCONCLUSIVE


def test_a_hanging_gate_is_ended_with_all_that_it_started(make_gate: MakeGate, context: GateContext) -> None:
    gate = make_gate("hangs", limit_s=1.5)
    result = watch(gate, context).result
    assert (result.outcome, result.findings[0].code) == (Outcome.INCONCLUSIVE, "gate.hung")
    assert result.findings[0].where == gate.id
    child = int((context.out / "child.pid").read_text())
    for _ in range(100):
        if ended(child):
            break
        time.sleep(0.05)
    assert ended(child)


def test_a_blocked_gate_is_not_run_and_starts_nothing(make_gate: MakeGate, context: GateContext) -> None:
    result = watch(make_gate("passes", blocked="no product"), context).result
    assert (result.outcome, result.reason) == (Outcome.NOT_RUN, "no product")
    assert not context.out.exists()


def test_a_gate_whose_input_is_absent_is_not_run_and_says_what_to_bring(
    make_gate: MakeGate, context: GateContext
) -> None:
    result = watch(make_gate("passes", needs=("checkpoint",)), context).result
    assert (result.outcome, result.reason) == (Outcome.NOT_RUN, f"needs {INPUTS['checkpoint'][0]}")
    assert not context.out.exists()
