"""Gates about streaming: the scheduler under every order, the reader under faults, and traces that can't lie unseen."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.impl.runtime.faulty_device import Faults, FaultyDevice
from assay.impl.runtime.limits import LaneLimits, Limits
from assay.impl.runtime.plans import Asker, expert_request, row_requests, store_digest
from assay.impl.runtime.reading import PlainReader
from assay.impl.runtime.recorder import Recorder, trace_header
from assay.impl.runtime.service import StreamReader
from assay.impl.runtime.tickets import Lane, Phase, Priority, ReadRequest, State
from assay.impl.runtime.trace_judge import judge_trace, read_trace
from assay.impl.runtime.trace_timeline import timeline
from assay.impl.stores.expert_major.store import ExpertStore
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.ple_rows.store import PleStore
from assay.mutations import scheduler_battery, trace
from assay.mutations import store_samples as samples
from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.gates.batteries import battery_result
from assay.spec.clauses import Authority, declare
from assay.spec.documents.measurements import TIMELINE
from assay.spec.errors import AdmissionError, Finding
from assay.spec.judgement import JudgeOptions
from assay.spec.verdicts import Outcome

SAME = declare(
    "gate.runtime-same-bytes", Authority.RULE,
    "Under every fault an exact ticket brings the bytes of its store or fails aloud, and a prediction is dropped.",
    source="field note AFN-019; bug report A25", cause="a short or damaged read that passes for a whole one",
)  # fmt: skip
LEFT = declare(
    "gate.runtime-nothing-left", Authority.RULE,
    "When a run has ended, no ticket is live and every slot is free.",
    source="field note AFN-019", cause="a way out that gives nothing back",
)  # fmt: skip

_RECORD = 3 * 128 * 64 * 36 // 64
_PAGE = 4096
_LIMITS: Limits = {Lane.EXPERT: LaneLimits(2, 3, _RECORD), Lane.PLE: LaneLimits(1, 2, 16 * _PAGE)}
_SEEDS = 12
_TURNS = 8
_FAULTS = {
    "none": Faults(),
    "slow and short": Faults(short=0.3, interrupt=0.2, delay=0.3, delay_s=0.001),
    "failing": Faults(error=0.2, end=0.1, delay=0.2, delay_s=0.001),
    "corrupting": Faults(corrupt=0.3, short=0.2, delay=0.2, delay_s=0.001),
}


def scheduler(context: GateContext) -> GateResult:
    """Tries every order of steps in small worlds, with the scheduler and with schedulers that make one mistake."""
    return battery_result(scheduler_battery.BATTERY.name, context)


def trace_schema(context: GateContext) -> GateResult:
    """Tells a valid trace one lie at a time; each must be refused for its own reason."""
    return battery_result(trace.BATTERY.name, context)


def device(context: GateContext) -> GateResult:
    """Streams records and rows of small stores through faulty devices, and compares with plain reads."""
    findings: list[Finding] = []
    counts = dict.fromkeys(("exact", "failed", "predicted", "dropped", "injected"), 0)
    picture: dict[str, Any] | None = None
    with tempfile.TemporaryDirectory(prefix="assay-runtime-") as folder, _stores(Path(folder)) as found:
        experts, rows, files = found
        expected = _expected(experts, rows, files)
        for name, faults in _FAULTS.items():
            for seed in range(_SEEDS):
                path = Path(folder) / "trace.jsonl"
                run = _Run(
                    experts, rows, files, path, FaultyDevice(faults, 100 * context.seed + seed), expected
                )
                findings += run.play(f"{name}, seed {seed}")
                for key in counts:
                    counts[key] += run.counts[key]
                judged = judge_trace(path, JudgeOptions(is_private=True))
                findings += judged.faults + judged.gaps
                if name == "slow and short" and seed == 0:
                    drawn = timeline(
                        read_trace(path), "Small stores through a slow device, seed 0", most_bars=400
                    )
                    picture = drawn.model_dump(mode="json")
    measurements: dict[str, Any] = {**counts, TIMELINE: picture}
    if not counts["failed"] or not counts["dropped"]:
        return GateResult(
            Outcome.INCONCLUSIVE, measurements, reason="no fault was met, so nothing was shown of faults"
        )
    if findings:
        return GateResult(Outcome.FAIL, measurements, tuple(findings[:20]), findings[0].line)
    return GateResult(Outcome.PASS, measurements)


class _Run:
    """One run: each turn predicts, asks for what is exact, compares, and withdraws the rest."""

    def __init__(
        self,
        experts: ExpertStore,
        rows: PleStore,
        files: dict[str, StoreFile],
        path: Path,
        faulty: FaultyDevice,
        expected: dict[str, bytes],
    ) -> None:
        self.counts = dict.fromkeys(("exact", "failed", "predicted", "dropped", "injected"), 0)
        self._experts, self._rows, self._files = experts, rows, files
        self._path, self._device, self._expected = path, faulty, expected

    def play(self, name: str) -> list[Finding]:
        """Returns what was wrong."""
        kinds = {store_digest(self._experts): "experts", store_digest(self._rows): "rows"}
        recorder = Recorder(self._path, trace_header(_LIMITS, kinds, producer="assay gate", is_private=True))
        findings: list[Finding] = []
        reader = StreamReader(self._files, _LIMITS, device=self._device, observer=recorder)
        with recorder, reader:
            for turn in range(_TURNS):
                findings += self._turn(reader, turn, f"{name}, turn {turn}")
        if reader.live_tickets or any(reader.free_slots(lane) != _LIMITS[lane].slots for lane in Lane):
            got = f"{reader.live_tickets} live, free {[reader.free_slots(lane) for lane in Lane]}"
            findings.append(Finding.of(LEFT, "runtime", name, expected="nothing", got=got))
        self.counts["injected"] += sum(count for kind, count in self._device.injected.items() if kind != "ok")
        return findings

    def _turn(self, reader: StreamReader, turn: int, where: str) -> list[Finding]:
        asker = Asker("lane 0", turn, Phase.DECODE, turn % 3)
        reader.advance("lane 0", turn)
        predicted = reader.submit([
            expert_request(self._experts, asker, (turn + one) % 4, priority=Priority(1 + one), confidence=0.5)
            for one in range(2)
        ])  # fmt: skip
        exact = reader.submit([
            *(expert_request(self._experts, asker, (turn + one) % 4) for one in (0, 3)),
            *row_requests(self._rows, asker, [turn, 99 - turn, 50], slot_bytes=16 * _PAGE),
        ])  # fmt: skip
        findings = []
        for ticket in exact:
            self.counts["exact"] += 1
            try:
                data = bytes(reader.wait(ticket))
            except AdmissionError as error:
                self.counts["failed"] += 1
                if ticket.state is not State.FAILED or not error.finding.code.startswith("runtime.read."):
                    findings.append(
                        Finding.of(SAME, "runtime", where, expected="runtime.read.*", got=error.finding.line)
                    )
                continue
            if data != self._expected[_name(ticket.request)]:
                got = "other bytes"
                findings.append(
                    Finding.of(
                        SAME, "runtime", f"{where}: {ticket.request.target}", expected="its bytes", got=got
                    )
                )
            reader.release(ticket)
        for ticket in predicted:
            self.counts["predicted"] += 1
            reader.cancel(ticket)
            self.counts["dropped"] += ticket.state is State.DROPPED
            if ticket.state in {State.FAILED, State.READY}:
                findings.append(
                    Finding.of(
                        SAME, "runtime", where, expected="dropped or withdrawn", got=ticket.state.value
                    )
                )
        return findings


@contextmanager
def _stores(folder: Path) -> Iterator[tuple[ExpertStore, PleStore, dict[str, StoreFile]]]:
    digests = write_expert_store(
        folder / "experts", samples.small_manifest(), samples.SMALL_FAMILY, samples.small_component
    )
    samples.golden_ple(folder / "rows")
    if digests is None:
        raise AssertionError("a store with components has digests")
    try:
        with StoreFile.open(folder / "experts") as experts, StoreFile.open(folder / "rows") as rows:
            store = ExpertStore.open(experts.extent(), samples.SMALL_FAMILY).with_digests(digests)
            table = PleStore.open(rows.extent(), samples.GOLDEN_PLE)
            yield store, table, {store_digest(store): experts, store_digest(table): rows}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _expected(experts: ExpertStore, rows: PleStore, files: dict[str, StoreFile]) -> dict[str, bytes]:
    """Returns the bytes of every request that a run makes, read plainly."""
    found: dict[str, bytes] = {}
    with PlainReader(files) as plain:
        for turn in range(_TURNS):
            asker = Asker("plain", 0, Phase.DECODE, turn % 3)
            requests = [expert_request(experts, asker, one) for one in range(4)]
            requests += row_requests(rows, asker, [turn, 99 - turn, 50], slot_bytes=16 * _PAGE)
            for request, ticket in zip(requests, plain.submit(requests), strict=True):
                found[_name(request)] = bytes(plain.wait(ticket))
    return found


def _name(request: ReadRequest) -> str:
    return str(request.target) if request.lane is Lane.EXPERT else repr(request.target)
