"""Runs one gate in a process of its own and decides what it came to; crashes, hangs and nonsense never pass.

`watch` is a plain function of plain data, so that any `concurrent.futures.Executor` can run it; locally that is a pool
of threads, each watching one fresh interpreter (never a fork: MLX hangs after one).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from assay.provenance.gates.base import Gate, GateContext, GateResult
from assay.provenance.gates.inputs import missing_inputs
from assay.spec.canonical import canonical_json
from assay.spec.clauses import Authority, declare
from assay.spec.documents.base import Document, FindingRecord
from assay.spec.documents.evidence import MAX_RECORD_BYTES
from assay.spec.documents.run import OutcomeText
from assay.spec.errors import Finding, shown
from assay.spec.verdicts import Outcome

_SOURCE: Final = "design: status is computed"
_TAIL_BYTES: Final = 4000
_MAX_RESULT_BYTES: Final = MAX_RECORD_BYTES // 2
_RUNNING: Final[set[subprocess.Popen[bytes]]] = set()

CRASHED = declare(
    "gate.crashed",
    Authority.PROCESS,
    "A gate ends by returning a result.",
    source=_SOURCE,
    cause="the gate raised, was killed, ended the process or returned nothing",
    fix="read output.txt in the gate's folder of the run",
)
HUNG = declare(
    "gate.hung",
    Authority.PROCESS,
    "A gate ends within its limit.",
    source=_SOURCE,
    cause="an endless loop, a deadlock, or a machine much slower than the limit was set for",
)
NONSENSE = declare(
    "gate.result",
    Authority.PROCESS,
    "A gate's result is a JSON value of its form: an outcome, finite measurements, no findings beside a pass.",
    source=_SOURCE,
    cause="a measurement that is not JSON, an unknown outcome, or a pass in spite of findings",
)
SKIPPED = declare(
    "gate.skipped",
    Authority.PROCESS,
    "A gate whose inputs are here decides.",
    source=_SOURCE,
    cause="the gate skipped itself",
)


@dataclass(frozen=True, slots=True)
class Finished:
    """What a gate came to, how long it took, and which modules of assay it loaded."""

    result: GateResult
    duration_s: float
    modules: tuple[str, ...] = ()


class _Result(Document):
    outcome: OutcomeText
    measurements: dict[str, Any]
    findings: list[FindingRecord]
    reason: str
    is_private: bool
    modules: list[str]


def watch(gate: Gate, context: GateContext) -> Finished:
    """Runs `gate` to its end or its limit; never raises for what the gate does.

    Without its inputs, or without a procedure, a gate is `not-run` and no process is started.
    """
    if gate.blocked:
        return Finished(GateResult(Outcome.NOT_RUN, reason=gate.blocked), 0.0)
    if absent := missing_inputs(gate.needs, context.checkpoint):
        return Finished(GateResult(Outcome.NOT_RUN, reason=f"needs {' and '.join(absent)}"), 0.0)
    context.out.mkdir(parents=True, exist_ok=True)
    answer = context.out / "result.json"
    answer.unlink(missing_ok=True)
    started = time.monotonic()
    code = _run_process(gate, context, answer)
    duration_s = time.monotonic() - started
    if code is None:
        finding = Finding.of(
            HUNG, "gate", gate.id, expected=f"an end within {gate.limit_s:g} s", got="no end"
        )
        return Finished(_undecided(finding), duration_s)
    if code != 0 or not answer.is_file():
        return Finished(_undecided(_crash(gate, context, code)), duration_s)
    result, modules = _judge(gate, answer.read_bytes())
    return Finished(result, duration_s, modules)


def end_all() -> None:
    """Ends every gate that this process is watching, with all that it started; for an interrupted run."""
    for process in tuple(_RUNNING):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _run_process(gate: Gate, context: GateContext, answer: Path) -> int | None:
    """Starts the worker and waits; returns its exit code, or None when it was killed at its limit."""
    order = {
        "function": gate.function,
        "checkpoint": os.fspath(context.checkpoint.resolve()) if context.checkpoint else None,
        "out": os.fspath(context.out.resolve()),
        "jobs": context.jobs,
        "seed": context.seed,
        "private": context.private,
        "result": os.fspath(answer.resolve()),
    }
    with (context.out / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "assay.provenance.gates.worker"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _RUNNING.add(process)
    assert process.stdin is not None  # noqa: S101 - tells the type checker what PIPE means
    try:
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        return process.wait(gate.limit_s)
    except subprocess.TimeoutExpired:
        return None
    except BrokenPipeError:
        return process.wait()
    finally:
        _end_group(process)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        _RUNNING.discard(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends whatever is left of the worker's own process group, its children included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _judge(gate: Gate, data: bytes) -> tuple[GateResult, tuple[str, ...]]:
    if len(data) > _MAX_RESULT_BYTES:
        got = f"{len(data)} bytes; at most {_MAX_RESULT_BYTES} are kept as evidence"
        return _undecided(_nonsense(gate, got)), ()
    try:
        found = _Result.model_validate_json(data)
        canonical_json(found.measurements)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        got = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return _undecided(_nonsense(gate, got)), ()
    except ValueError as error:
        return _undecided(_nonsense(gate, str(error))), ()
    return _consistent(gate, found), tuple(found.modules)


def _consistent(gate: Gate, found: _Result) -> GateResult:
    """Returns the result with a reason, and without a pass that its own findings contradict."""
    findings = tuple(Finding(**one.model_dump()) for one in found.findings)
    outcome, reason = Outcome(found.outcome), found.reason
    if outcome is Outcome.PASS and findings:
        contradiction = _nonsense(gate, f"a pass with {len(findings)} findings")
        findings = (contradiction, *findings)
        outcome, reason = Outcome.INCONCLUSIVE, contradiction.line
    elif outcome is Outcome.NOT_RUN:
        why = reason or "no reason given"
        skip = Finding.of(SKIPPED, "gate", gate.id, expected="a decision, as its inputs are here", got=why)
        findings, reason = (skip, *findings), f"skipped itself: {why}"
    elif outcome is not Outcome.PASS and not reason:
        reason = findings[0].line if findings else "the gate gave no reason"
    return GateResult(outcome, found.measurements, findings, reason, found.is_private)


def _crash(gate: Gate, context: GateContext, code: int) -> Finding:
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit {code} without a result"
    with (context.out / "output.txt").open("rb") as output:
        output.seek(0, os.SEEK_END)
        output.seek(max(0, output.tell() - _TAIL_BYTES))
        lines = output.read().decode("utf-8", "replace").strip().splitlines()
    last = f": {shown(lines[-1], 120)}" if lines else ""
    return Finding.of(CRASHED, "gate", gate.id, expected="a result", got=f"{how}{last}")


def _nonsense(gate: Gate, got: str) -> Finding:
    return Finding.of(NONSENSE, "gate", gate.id, expected="a result of the form GateResult", got=got)


def _undecided(finding: Finding) -> GateResult:
    return GateResult(Outcome.INCONCLUSIVE, findings=(finding,), reason=finding.line)
