"""The gates of streaming pass on this code, and fail when what they look at is wrong."""

from pathlib import Path

import pytest

from assay.impl.runtime import service
from assay.impl.runtime.schedule import Scheduler
from assay.impl.runtime.tickets import State, Ticket
from assay.provenance.gates import runtime
from assay.provenance.gates.base import GateContext
from assay.spec.documents.measurements import TIMELINE, TimelineMeasurement
from assay.spec.verdicts import Outcome


def context(tmp_path: Path) -> GateContext:
    return GateContext(None, tmp_path)


def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_SEEDS", 3)


def test_faulty_devices_show_nothing_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch)
    result = runtime.device(context(tmp_path))
    assert (result.outcome, result.reason) == (Outcome.PASS, "")
    assert result.measurements["failed"] > 0
    assert TimelineMeasurement.model_validate(result.measurements[TIMELINE]).rows


def test_a_reader_that_judges_nothing_fails_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch)
    monkeypatch.setattr(service.StreamReader, "_judge", lambda _self, _fetch: None)
    result = runtime.device(context(tmp_path))
    assert result.outcome is Outcome.FAIL
    assert "gate.runtime-same-bytes" in {one.code for one in result.findings}


def test_a_scheduler_that_never_frees_a_slot_after_a_withdrawal_fails_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch)
    real = Scheduler.cancel

    def forgetful(self: Scheduler, ticket: Ticket, now_ns: int) -> bool:
        if ticket.state is State.READY:
            return True
        return real(self, ticket, now_ns)

    monkeypatch.setattr(Scheduler, "cancel", forgetful)
    result = runtime.device(context(tmp_path))
    assert result.outcome is Outcome.FAIL


def test_devices_without_faults_show_nothing_of_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch)
    monkeypatch.setattr(runtime, "_FAULTS", {"none": runtime._FAULTS["none"]})
    assert runtime.device(context(tmp_path)).outcome is Outcome.INCONCLUSIVE


def test_the_battery_of_traces_passes_as_a_gate(tmp_path: Path) -> None:
    assert runtime.trace_schema(context(tmp_path)).outcome is Outcome.PASS


@pytest.mark.slow
def test_every_order_of_every_small_world_passes_as_a_gate(tmp_path: Path) -> None:
    assert runtime.scheduler(context(tmp_path)).outcome is Outcome.PASS
