"""Writes a trace while a run goes on: events are noted as tuples, and a thread of its own makes lines of them.

The buffer is bounded. Who finds it full empties it itself, so that nothing is lost; a disk that refuses ends the
recording and not the run. What a killed run leaves is a prefix of whole lines, perhaps with a piece of the next one.
"""

import errno
import fcntl
import json
import os
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from assay.impl.runtime.clauses import STAGE
from assay.impl.runtime.device import Transfer
from assay.impl.runtime.limits import Limits
from assay.impl.runtime.schedule import Change, Read
from assay.impl.runtime.targets import TRACE_HEAD, obstacle
from assay.impl.runtime.tickets import NEVER, ExpertRecord, Ticket
from assay.spec.clauses import Authority, declare
from assay.spec.documents.trace import StartLabel, TraceHeader
from assay.spec.errors import Finding

WRITE: Final = declare(
    "trace.write", Authority.PROCESS, "A trace that was asked for is written to its end.",
    source="assay: runtime", cause="a full disk, or a folder that can't be written to",
)  # fmt: skip

_ENDED: Final = frozenset({"failed", "dropped", "cancelled"})
_PAUSE_S: Final = 0.2


class Recorder:
    """An observer of a reader that also takes routes and stage times; a context manager that writes the footer."""

    def __init__(
        self,
        path: Path,
        header: TraceHeader,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        buffer_lines: int = 1 << 14,
    ) -> None:
        """Opens the file and writes the header; an earlier trace is replaced, and nothing else is.

        What forbids it is in `finding` at once.

        Args:
            path: where the trace goes.
            header: its first line; `trace_header` makes one.
            clock: the reader's clock.
            buffer_lines: notes that are kept at most.
        """
        self.finding: Finding | None = None
        self._path, self._clock, self._most = path, clock, buffer_lines
        self._notes: deque[tuple[Any, ...]] = deque()
        self._counts: Counter[str] = Counter()
        self._bytes = {"logical": 0, "direct": 0, "cached": 0}
        self._knows_cached = True
        self._writing = threading.Lock()
        self._is_closing = threading.Event()
        self._physical = physical_bytes()
        self._origin = clock()
        self._descriptor = -1
        try:
            self._descriptor = _opened(path)
            self._put(_json(header.model_dump(mode="json", by_alias=True)))
        except OSError as error:
            self._fail(error)
        self._thread = threading.Thread(target=self._run, name="trace", daemon=True)
        self._thread.start()

    def changed(self, change: Change) -> None:
        """Notes what happened to a ticket."""
        ticket = change.ticket
        if change.what == "issued":
            self._note(("ticket", change.now_ns, ticket.id, ticket.request, ticket.fetch))
            return
        self._note((
            "event", change.now_ns, ticket.id, change.what, ticket.fetch, ticket.slot, ticket.slot_generation,
            change.leases, change.arrived_parts, int(ticket.priority),
            change.completion,
            ticket.reason if change.what in _ENDED else "",
        ))  # fmt: skip

    def read(self, read: Read, done: Transfer | None, started_ns: int, ended_ns: int) -> None:
        """Notes a read that ended."""
        self._note(("read", ended_ns, started_ns, read, done))

    def advanced(self, owner: str, generation: int, now_ns: int) -> None:
        """Notes that older generations of an owner are stale."""
        self._note(("generation", now_ns, owner, generation))

    def waited(self, ticket: Ticket, part: int | None, started_ns: int, ended_ns: int) -> None:
        """Notes that somebody waited for a ticket."""
        exact = ticket.request.is_exact or ticket.priority == 0
        self._note(("wait", ticket.request.owner, ticket.id, part, started_ns, ended_ns, exact))

    def routed(
        self,
        owner: str,
        layer: int,
        token: int,
        experts: Sequence[int],
        weights: Sequence[float],
        resident: Sequence[bool],
    ) -> None:
        """Notes what the router chose for one token in one layer, by rank, and what of it was resident then."""
        self._note(
            ("route", self._clock(), owner, layer, token, tuple(experts), tuple(weights), tuple(resident))
        )

    def staged(self, owner: str, layer: int | None, stage: str, started_ns: int, ended_ns: int) -> None:
        """Notes a stage of compute."""
        self._note(("stage", owner, layer, stage, started_ns, ended_ns))

    @contextmanager
    def stage(self, owner: str, layer: int | None, stage: str) -> Iterator[None]:
        """Times a stage of compute."""
        started = self._clock()
        try:
            yield
        finally:
            self.staged(owner, layer, stage, started, self._clock())

    def close(self, *, is_whole: bool = True) -> None:
        """Writes what is left and the footer; `finding` then says whether the whole trace is on the disk.

        Args:
            is_whole: whether the run came to its end; otherwise there is no footer, and the trace stays inconclusive.
        """
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        self._thread.join()
        self._drain()
        physical = physical_bytes()
        footer = {
            "line": "footer",
            "t": self._clock() - self._origin,
            "counts": {name: self._counts[name] for name in _LINES},
            "logical_bytes": self._bytes["logical"],
            "direct_bytes": self._bytes["direct"],
            "cached_bytes": self._bytes["cached"] if self._knows_cached else None,
            "physical_bytes": None
            if physical is None or self._physical is None
            else physical - self._physical,
        }
        try:
            if is_whole:
                self._put(_json(footer))
        except OSError as error:
            self._fail(error)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, note: tuple[Any, ...]) -> None:
        self._notes.append(note)
        if len(self._notes) >= self._most:
            self._drain()

    def _run(self) -> None:
        while not self._is_closing.wait(_PAUSE_S):
            self._drain()

    def _drain(self) -> None:
        """Writes all notes; one thread at a time, so that lines stay in order."""
        with self._writing:
            while self._notes:
                some = min(len(self._notes), 1024)
                lines = [_json(self._line(self._notes.popleft())) for _ in range(some)]
                if self._descriptor < 0:
                    continue
                try:
                    self._put(b"".join(lines))
                except OSError as error:
                    self._fail(error)

    def _put(self, data: bytes) -> None:
        if self._descriptor < 0:
            return
        left = memoryview(data)
        while left:
            left = left[os.write(self._descriptor, left) :]

    def _fail(self, error: OSError) -> None:
        if self.finding is None:
            got = error.strerror or type(error).__name__
            self.finding = Finding.of(WRITE, STAGE, str(self._path), expected="a whole trace", got=got)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _line(self, note: tuple[Any, ...]) -> dict[str, Any]:
        kind = note[0]
        self._counts[kind] += 1
        line: dict[str, Any] = _LINES[kind](note, self._origin)
        if kind == "read" and line["ok"]:
            self._bytes["logical"] += line["bytes"]
            self._bytes["direct"] += line["direct"]
            self._bytes["cached"] += line["cached"] or 0
            self._knows_cached = self._knows_cached and line["cached"] is not None
        return line


def trace_header(
    limits: Limits,
    stores: Mapping[str, str],
    *,
    producer: str,
    start: StartLabel = "unknown",
    is_private: bool = False,
    wants_direct: bool = False,
    refusals: Mapping[str, str] | None = None,
) -> TraceHeader:
    """Returns the first line of a trace.

    Args:
        limits: of the reader.
        stores: digest -> `experts`, `rows` or `other`.
        producer: who writes, with its version.
        start: what was warm when the run began.
        is_private: whether the private seam was used.
        wants_direct: whether direct reads were asked for.
        refusals: digest -> why a file is not read directly.
    """
    return TraceHeader.model_validate(
        {
            "schema": "assay.trace/1",
            "line": "header",
            "started": datetime.now(UTC).astimezone().isoformat(timespec="seconds"),
            "producer": producer,
            "seam": "private" if is_private else None,
            "start": start,
            "stores": [
                {
                    "sha256": digest,
                    "kind": kind,
                    "wants_direct": wants_direct,
                    "direct_refusal": (refusals or {}).get(digest, ""),
                }
                for digest, kind in stores.items()
            ],
            "lanes": {
                lane.value: {
                    "readers": one.readers, "slots": one.slots, "slot_bytes": one.slot_bytes, "queue": one.queue,
                    "tickets": one.tickets
                }
                for lane, one in limits.items()
            },
        }
    )  # fmt: skip


def physical_bytes() -> int | None:
    """Returns what this process has fetched from storage so far, by the system's account; None without one."""
    try:
        text = Path("/proc/self/io").read_text(encoding="ascii")
    except OSError:
        return None
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields["read_bytes"]) if "read_bytes" in fields else None


def _ticket_line(note: tuple[Any, ...], origin: int) -> dict[str, Any]:
    _, now, id_, request, fetch = note
    target = request.target
    what: dict[str, Any] = {"kind": "rows", "pages": list(getattr(target, "pages", ()))}
    if isinstance(target, ExpertRecord):
        what = {
            "kind": "expert", "layer": target.layer, "expert": target.expert, "components": list(target.components)
        }  # fmt: skip
    return {
        "line": "ticket",
        "id": id_,
        "t": now - origin,
        "fetch": _known(fetch),
        "store": request.store,
        "owner": request.owner,
        "generation": request.generation,
        "phase": request.phase.value,
        "layer": request.layer,
        "tokens": f"{request.tokens:x}",
        "target": what,
        "exact": request.is_exact,
        "confidence": request.confidence,
        "priority": int(request.priority),
        "deadline": None if request.deadline_ns >= NEVER else max(0, request.deadline_ns - origin),
        "bytes": request.size_bytes,
        "parts": [sum(piece.size for piece in part) for part in request.parts],
    }


def _event_line(note: tuple[Any, ...], origin: int) -> dict[str, Any]:
    _, now, ticket, what, fetch, slot, generation, leases, arrived, priority, completion, reason = note
    return {
        "line": "event",
        "t": now - origin,
        "ticket": ticket,
        "what": what,
        "fetch": _known(fetch),
        "slot": _known(slot),
        "slot_generation": _known(generation),
        "leases": leases,
        "arrived": arrived,
        "priority": priority,
        "completion": _known(completion),
        "reason": reason,
    }


def _read_line(note: tuple[Any, ...], origin: int) -> dict[str, Any]:
    _, ended, started, read, done = note
    return {
        "line": "read",
        "t": ended - origin,
        "start": started - origin,
        "lane": read.lane.value,
        "fetch": read.fetch,
        "part": read.part,
        "slot": read.slot,
        "slot_generation": read.slot_generation,
        "bytes": sum(piece.size for piece in read.pieces),
        "cached": None if done is None else done.cached_bytes,
        "direct": 0 if done is None else done.direct_bytes,
        "calls": 0 if done is None else done.calls,
        "ok": done is not None,
        "priority": int(read.priority),
    }


def _generation_line(note: tuple[Any, ...], origin: int) -> dict[str, Any]:
    return {"line": "generation", "t": note[1] - origin, "owner": note[2], "generation": note[3]}


def _route_line(note: tuple[Any, ...], origin: int) -> dict[str, Any]:
    _, now, owner, layer, token, experts, weights, resident = note
    return {
        "line": "route",
        "t": now - origin,
        "owner": owner,
        "layer": layer,
        "token": token,
        "experts": [int(one) for one in experts],
        "weights": [float(one) for one in weights],
        "resident": [bool(one) for one in resident],
    }


def _stage_line(note: tuple[Any, ...], origin: int) -> dict[str, Any]:
    _, owner, layer, stage, started, ended = note
    return {
        "line": "stage", "owner": owner, "layer": layer, "stage": stage,
        "start": started - origin, "end": ended - origin,
    }  # fmt: skip


def _wait_line(note: tuple[Any, ...], origin: int) -> dict[str, Any]:
    _, owner, ticket, part, started, ended, exact = note
    return {
        "line": "wait", "owner": owner, "ticket": ticket, "part": part,
        "start": started - origin, "end": ended - origin, "exact": exact,
    }  # fmt: skip


_LINES: Final[dict[str, Callable[[tuple[Any, ...], int], dict[str, Any]]]] = {
    "ticket": _ticket_line,
    "event": _event_line,
    "read": _read_line,
    "generation": _generation_line,
    "route": _route_line,
    "stage": _stage_line,
    "wait": _wait_line,
}


def _opened(path: Path) -> int:
    """Opens what a trace may be written to and empties it, once no other run holds it."""
    got = obstacle(path, TRACE_HEAD)
    if got is not None:
        raise OSError(errno.EEXIST, got)
    # not emptied by opening: the file may be another run's
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        os.set_blocking(descriptor, True)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _hold(descriptor)
            os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _hold(descriptor: int) -> None:
    """Keeps other runs from writing to the same file until it is closed, where the file system can say so."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another run is writing it") from None
    except OSError:  # a file system without locks
        return


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _json(line: dict[str, Any]) -> bytes:
    return (
        json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")
        + b"\n"
    )
