"""The reader: verified records against fio on the same file, and what a ticket costs when the device costs nothing."""

import random
import statistics
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from assay.impl.runtime.device import Device
from assay.impl.runtime.limits import LaneLimits, Limits
from assay.impl.runtime.plans import WAVE_PARTS, Asker, expert_request, store_digest
from assay.impl.runtime.recorder import Recorder, trace_header
from assay.impl.runtime.service import StreamReader
from assay.impl.runtime.tickets import ExpertRecord, Lane, Phase, Piece, Priority, ReadRequest, Ticket
from assay.impl.stores.extents import StoreFile
from assay.provenance.benchmarks.base import BenchContext, BenchmarkNotRunError, drop_from_cache, measurement
from assay.provenance.benchmarks.stream_samples import RECORD_BYTES, Sample, expert_sample, fio_mib_per_s
from assay.spec.documents.bench import Measurement

READERS = 2
SECONDS = 1.5
TICKETS = 5000
WHOLE = ((0, 1, 2),)


def run(context: BenchContext) -> list[Measurement]:
    """Alternates fio and the reader over the same file, then counts what tickets cost."""
    sample = expert_sample(context)
    figures = []
    for direct, parts in ((True, WHOLE), (True, WAVE_PARTS), (False, WHOLE)):
        ours, theirs = [], []
        for turn in range(context.rounds):
            # A, B, B, A: a disk with credit for bursts favours whoever comes first after a pause.
            for is_ours in (False, True) if turn % 2 == 0 else (True, False):
                if is_ours:
                    ours.append(_verified(sample, context.seed + turn, parts, direct=direct))
                else:
                    theirs.append(
                        fio_mib_per_s(sample.path, RECORD_BYTES, READERS, SECONDS, context.seed + turn)
                    )
        speeds = [one for one, _ in ours]
        share = statistics.median(share for _, share in ours)
        kind = "direct" if direct else "buffered, page cache dropped"
        figures.append(
            measurement(
                f"verified records, {'direct' if direct else 'buffered'}{', in two parts' if parts is WAVE_PARTS else ''}",
                statistics.median(speeds),
                "MiB/s",
                f"records of {RECORD_BYTES} B in random order, {READERS} reads in flight, {kind}; "
                f"host-warm (this run wrote the file); {100 * share:.0f}% of the bytes really read directly; "
                f"rounds {', '.join(f'{one:.0f}' for one in speeds)} against {', '.join(f'{one:.0f}' for one in theirs)}",
                reference=(f"fio psync direct, {READERS} jobs", statistics.median(theirs)),
                target=("ratio", "at-least", 0.9) if direct and parts is WHOLE else None,
            )
        )
    return [*figures, *_overhead(context)]


def _verified(
    sample: Sample, seed: int, parts: Sequence[Sequence[int]], *, direct: bool
) -> tuple[float, float]:
    """Returns MiB/s of verified records over some seconds, and the share of bytes that were read directly."""
    order = random.Random(seed)  # noqa: S311 - no secret
    asker = Asker("bench", 0, Phase.DECODE, 0)
    limits: Limits = {Lane.EXPERT: LaneLimits(READERS, 8, RECORD_BYTES), Lane.PLE: LaneLimits(1, 1, 4096)}
    counter = _Bytes()
    drop_from_cache(sample.path)
    with StoreFile.open(sample.path) as file:
        store = sample.opened(file)
        files = {store_digest(store): file}
        # More tickets than slots, so that a reader always has work; each record once until all were read.
        with StreamReader(files, limits, wants_direct=direct, observer=counter) as reader:
            places = deque(order.sample(range(sample.experts), sample.experts))
            pending: deque[Ticket] = deque()
            done = 0
            started = time.perf_counter()
            while time.perf_counter() - started < SECONDS:
                while len(pending) < 6:
                    if not places:
                        if not direct:
                            drop_from_cache(sample.path)
                        places.extend(order.sample(range(sample.experts), sample.experts))
                    pending += reader.submit([expert_request(store, asker, places.popleft(), parts=parts)])
                ticket = pending.popleft()
                reader.wait(ticket).release()
                reader.release(ticket)
                done += 1
            seconds = time.perf_counter() - started
    return done * RECORD_BYTES / (1 << 20) / seconds, counter.direct / max(1, counter.logical)


def _overhead(context: BenchContext) -> list[Measurement]:
    """Returns what one ticket costs from request to release, with a device that costs nothing."""
    bare = [_ticket_us(context.folder, is_recorded=False) for _ in range(context.rounds)]
    recorded = [_ticket_us(context.folder, is_recorded=True) for _ in range(context.rounds)]
    conditions = f"{TICKETS} tickets of one part in groups of 10, one reader and two judges, no bytes moved"
    return [
        measurement(
            "one ticket", statistics.median(bare), "us", conditions, target=("value", "at-most", 50.0)
        ),
        measurement(
            "one ticket, recorded", statistics.median(recorded), "us", f"{conditions}; every event written",
            reference=("one ticket", statistics.median(bare)), target=("value", "at-most", 100.0),
        ),
    ]  # fmt: skip


def _ticket_us(folder: Path, *, is_recorded: bool) -> float:
    path = folder / "nothing"
    path.write_bytes(bytes(4096))
    limits: Limits = {Lane.EXPERT: LaneLimits(1, 16, 4096), Lane.PLE: LaneLimits(1, 1, 4096)}
    header = trace_header(limits, {"0" * 64: "other"}, producer="assay bench")
    recorder = Recorder(folder / "trace", header) if is_recorded else None
    requests = [
        ReadRequest(
            "0" * 64, "bench", 0, Phase.DECODE, 0, 1, ExpertRecord(0, number), ((Piece(0, 4096),),),
            is_exact=True, confidence=1.0, priority=Priority.EXACT,
        )
        for number in range(10)
    ]  # fmt: skip
    with StoreFile.open(path) as file:
        reader = StreamReader({"0" * 64: file}, limits, device=_Nothing(), observer=recorder)
        with reader:
            started = time.perf_counter()
            for _ in range(TICKETS // len(requests)):
                for ticket in reader.submit(requests):
                    reader.wait(ticket)
                    reader.release(ticket)
            seconds = time.perf_counter() - started
    if recorder is not None:
        recorder.close()
        if recorder.finding is not None:
            raise BenchmarkNotRunError(recorder.finding.line)
    return seconds / TICKETS * 1e6


class _Nothing(Device):
    """A device that has everything at once."""

    def read_cached(self, descriptor: int, target: memoryview, offset: int) -> int | None:
        del descriptor, offset
        return len(target)


class _Bytes:
    """An observer that adds up what reads were."""

    def __init__(self) -> None:
        self.logical = self.direct = 0

    def changed(self, change: object) -> None:
        """Nothing to add."""

    def advanced(self, owner: str, generation: int, now_ns: int) -> None:
        """Nothing to add."""

    def waited(self, ticket: object, part: int | None, started_ns: int, ended_ns: int) -> None:
        """Nothing to add."""

    def read(self, read: object, done: object, started_ns: int, ended_ns: int) -> None:
        """Adds a read."""
        del read, started_ns, ended_ns
        self.logical += getattr(done, "logical_bytes", 0)
        self.direct += getattr(done, "direct_bytes", 0)
