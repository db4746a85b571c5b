"""Measures what a device does with reads like the runtime's, and chooses depth and kind by it: no constant does.

The reads are the runtime's own (`device.transfer`), at places drawn at random, at most once each. What the state of a
place is called says only what this process can know: another may have read it before, and a host below this machine
keeps a cache of its own.
"""

import os
import random
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from assay.impl.runtime.device import Device, DeviceFile, Transfer, transfer
from assay.impl.runtime.limits import LaneLimits
from assay.impl.runtime.slots import ALIGNMENT, SlotMemory
from assay.impl.runtime.tickets import Piece
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.files import read_bounded
from assay.spec.documents.device_probe import DeviceProbe, ProbeChoice, ProbePoint, ProbeState
from assay.spec.errors import AdmissionError

DEPTHS: Final = (1, 2, 4)
_ENOUGH: Final = 0.95
"""Share of the best bandwidth that a smaller depth must reach: more depth only adds latency."""
_CLEARLY: Final = 1.05
_MOST_READS: Final = 64
_FILE_LIMIT: Final = 1 << 16


def probe(
    file: StoreFile,
    record_bytes: int,
    page_bytes: int,
    *,
    batch_pages: int = 16,
    state: ProbeState = "fresh",
    seconds: float = 0.25,
    seed: int = 0,
    device: Device | None = None,
) -> DeviceProbe:
    """Measures a device through a file on it.

    Args:
        file: a large file; with less than some hundred records in it the figures are coarse.
        record_bytes: bytes of one expert record.
        page_bytes: bytes of one page of rows.
        batch_pages: pages of one batch.
        state: what the places that are drawn are: `host-warm` for a file that this process wrote.
        seconds: how long each point is measured at most.
        seed: of the places.
        device: the system calls.

    Returns:
        The points and what follows from them.

    Raises:
        AdmissionError: runtime.read.*.
        ValueError: when the file is too small for one record at each depth.
    """
    unit = -(-record_bytes // ALIGNMENT) * ALIGNMENT
    places = list(range(0, file.size - unit + 1, unit))
    if len(places) < 8 or page_bytes > unit:
        raise ValueError(f"a file of {file.size} bytes is too small to probe records of {record_bytes}")
    chance = random.Random(seed)  # noqa: S311 - no secret
    chance.shuffle(places)
    each = min(_MOST_READS, len(places) // 8)
    drawn = iter([places[start : start + each] for start in range(0, 8 * each, each)])
    meter = _Meter(device or Device(), seconds)
    points: list[ProbePoint] = []
    refusal = ""
    for direct in (False, True):
        opened = DeviceFile(file, wants_direct=direct)
        refusal = opened.refusal or refusal
        try:
            for depth in DEPTHS if opened.direct >= 0 or not direct else ():
                some = [[Piece(offset, record_bytes)] for offset in next(drawn)]
                points += meter.point("record", some, 1, depth, state, opened)
        finally:
            opened.close()
    opened = DeviceFile(file)
    try:
        for depth in DEPTHS[:2]:
            batches = _batches(next(drawn), unit // page_bytes, page_bytes, batch_pages, chance)
            points += meter.point("rows", batches, batch_pages, depth, state, opened)
        meter.point("record", [[Piece(0, record_bytes)]], 1, 1, "warm", opened)
        points += meter.point("record", [[Piece(0, record_bytes)]] * 16, 1, 1, "warm", opened)
        run = [[Piece(offset, record_bytes)] for offset in sorted(places)[1 : 1 + each]]
        sequential = meter.point("record", run, 1, 1, state, opened)
    finally:
        opened.close()
    return DeviceProbe(
        device=_device_name(file),
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        record_bytes=record_bytes,
        page_bytes=page_bytes,
        batch_pages=batch_pages,
        direct_refusal=refusal,
        points=points,
        choice=choose(points, sequential[0].mib_per_s),
    )


def choose(points: Sequence[ProbePoint], sequential_mib_per_s: float) -> ProbeChoice:
    """Returns what follows from the points of one probe."""
    records = [one for one in points if one.what == "record" and one.state != "warm"]
    buffered = [one for one in records if not one.direct]
    direct = [one for one in records if one.direct]
    fastest = {False: _best(buffered), True: _best(direct)}
    wants_direct = fastest[True] > _CLEARLY * fastest[False]
    record = _fewest(direct if wants_direct else buffered)
    rows = _fewest([one for one in points if one.what == "rows"])
    return ProbeChoice(
        expert_readers=record.depth,
        ple_readers=rows.depth,
        wants_direct=wants_direct,
        record_mib_per_s=record.mib_per_s,
        sequential_mib_per_s=sequential_mib_per_s,
        batch_us=rows.p50_us,
    )


def save_probe(folder: Path, found: DeviceProbe) -> Path:
    """Writes a probe where `load_probe` finds it, and returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / _file_name(found.device, found.record_bytes, found.page_bytes)
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    draft.write_text(found.model_dump_json(by_alias=True, indent=2) + "\n", encoding="utf-8")
    draft.replace(target)
    return target


def load_probe(folder: Path, file: StoreFile, record_bytes: int, page_bytes: int) -> DeviceProbe | None:
    """Returns what was measured of this file's device with these sizes, or None: then measure anew."""
    path = folder / _file_name(_device_name(file), record_bytes, page_bytes)
    try:
        found = DeviceProbe.model_validate_json(read_bounded(path, _FILE_LIMIT))
    except (AdmissionError, ValidationError):
        return None
    asked = (_device_name(file), record_bytes, page_bytes)
    return found if (found.device, found.record_bytes, found.page_bytes) == asked else None


@dataclass(slots=True)
class _Meter:
    """Measures points."""

    device: Device
    seconds: float

    def point(
        self,
        what: str,
        batches: Sequence[list[Piece]],
        pages: int,
        depth: int,
        state: ProbeState,
        file: DeviceFile,
    ) -> list[ProbePoint]:
        """Returns one point, or none when there was nothing to read, or no time."""
        if not batches:
            return []
        size = sum(piece.size for piece in batches[0])
        memory = SlotMemory(LaneLimits(depth, depth, size))
        times: list[int] = []
        done: list[Transfer] = []
        errors: list[BaseException] = []
        todo = iter(batches)
        lock = threading.Lock()
        started = time.perf_counter_ns()
        end = started + int(self.seconds * 1e9)

        def work(number: int) -> None:
            with memory.view(number, 0, size) as into:
                while not times or time.perf_counter_ns() < end:
                    with lock:
                        pieces = next(todo, None)
                    if pieces is None:
                        return
                    begin = time.perf_counter_ns()
                    try:
                        found = transfer(self.device, file, pieces, into)
                    except AdmissionError as error:
                        errors.append(error)
                        return
                    times.append(time.perf_counter_ns() - begin)
                    done.append(found)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(depth)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall = time.perf_counter_ns() - started
        memory.close()
        if errors:
            raise errors[0]
        if not times:
            return []
        cached = [one.cached_bytes for one in done]
        total = size * len(done)
        share = None if any(one is None for one in cached) else sum(one or 0 for one in cached) / total
        ordered = sorted(times)
        return [
            ProbePoint(
                what="record" if what == "record" else "rows",
                size_bytes=size,
                pages=pages,
                depth=depth,
                state=state,
                direct=all(one.direct_bytes == size for one in done),
                cached_share=share,
                mib_per_s=total / wall * 1e9 / (1 << 20),
                p50_us=statistics.median(ordered) / 1e3,
                p99_us=ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))] / 1e3,
                reads=len(ordered),
            )
        ]


def _batches(
    places: Sequence[int], pages_of_place: int, page_bytes: int, batch_pages: int, chance: random.Random
) -> list[list[Piece]]:
    """Returns batches of pages, each page at a random spot of a place, no page twice."""
    pages = [
        place + page_bytes * number
        for place in places
        for number in chance.sample(range(pages_of_place), min(pages_of_place, batch_pages))
    ]
    chance.shuffle(pages)
    return [
        [Piece(offset, page_bytes) for offset in sorted(pages[start : start + batch_pages])]
        for start in range(0, len(pages) - batch_pages + 1, batch_pages)
    ]


def _best(points: Sequence[ProbePoint]) -> float:
    return max((one.mib_per_s for one in points), default=0.0)


def _fewest(points: Sequence[ProbePoint]) -> ProbePoint:
    """Returns the point of the smallest depth that is nearly as good as the best."""
    wanted = _ENOUGH * _best(points)
    return min((one for one in points if one.mib_per_s >= wanted), key=lambda one: one.depth)


def _device_name(file: StoreFile) -> str:
    device = file.identity[0]
    return f"{os.major(device)}:{os.minor(device)}"


def _file_name(device: str, record_bytes: int, page_bytes: int) -> str:
    return f"device-{device.replace(':', '-')}-{record_bytes}-{page_bytes}.json"
