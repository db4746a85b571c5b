"""Battery `trace`: the sample trace with one lie in it, each refused for its own reason.

Told twice: each value that follows from other lines, changed alone. Form: each key of each kind of line taken away, doubled under another name, or given another type. Meaning: lines that
are moved, removed, repeated or changed so that each alone still has its form.
"""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from assay.impl.runtime.trace_judge import judge_lines
from assay.mutations.battery import Battery, BatteryContext, InvalidMutationError, Mutation
from assay.mutations.trace_sample import sample_lines
from assay.spec.errors import Finding

Lines = list[dict[str, Any]]
Edit = Callable[[Lines], object]
_KINDS: Final = ("header", "ticket", "event", "read", "generation", "route", "stage", "wait", "footer")


def sample() -> Lines:
    """Returns the lines of the sample, parsed anew."""
    return [json.loads(line) for line in sample_lines()]


def judge_sample(lines: Lines) -> list[Finding]:
    """Returns what is wrong with lines that were edited; a missing footer is told as that."""
    rules, _ = judge_lines(json.dumps(line).encode() + b"\n" for line in lines)
    return rules.findings


def _at(lines: Lines, kind: str, **fields: Any) -> int:
    """Returns the first line of a kind with these fields."""
    for number, line in enumerate(lines):
        if line.get("line") == kind and all(line.get(name) == value for name, value in fields.items()):
            return number
    raise InvalidMutationError(f"no {kind} line with {fields}")


def _set(kind: str, match: dict[str, Any], **fields: Any) -> Edit:
    def edit(lines: Lines) -> None:
        lines[_at(lines, kind, **match)].update(fields)

    return edit


def _drop(kind: str, **match: Any) -> Edit:
    def edit(lines: Lines) -> None:
        gone = lines.pop(_at(lines, kind, **match))
        lines[-1]["counts"][gone["line"]] -= 1

    return edit


def _after(kind: str, match: dict[str, Any], **fields: Any) -> Edit:
    """Repeats a line right after itself, changed."""

    def edit(lines: Lines) -> None:
        place = _at(lines, kind, **match)
        lines.insert(place + 1, {**lines[place], **fields})
        lines[-1]["counts"][kind] += 1

    return edit


def _late(kind: str, match: dict[str, Any], **fields: Any) -> Edit:
    """Repeats a line just before the footer, changed."""

    def edit(lines: Lines) -> None:
        line = {**lines[_at(lines, kind, **match)], **fields}
        line["t"] = lines[-1]["t"]
        lines.insert(len(lines) - 1, line)
        lines[-1]["counts"][kind] += 1

    return edit


def _event(ticket: int, what: str) -> dict[str, Any]:
    return {"ticket": ticket, "what": what}


_TOLD: Final = {
    "ticket": ("id", "fetch", "bytes"),
    "event": (
        "ticket", "fetch", "slot", "slot_generation", "leases", "arrived", "priority", "completion", "reason",
    ),
    "read": ("fetch", "part", "slot", "slot_generation", "bytes"),
}  # fmt: skip
"""Keys whose value follows from other lines of the same trace."""
_MEANINGS: Final = (
    "trace.after-end", "trace.bytes", "trace.counts", "trace.generation", "trace.leases", "trace.order",
    "trace.priority", "trace.slot", "trace.state", "trace.unknown",
)  # fmt: skip


def _insert_generation(lines: Lines, owner: str, generation: int, before: dict[str, Any]) -> None:
    place = _at(lines, "event", **before)
    line = {"line": "generation", "t": lines[place]["t"], "owner": owner, "generation": generation}
    lines.insert(place, line)
    lines[-1]["counts"]["generation"] += 1


def _move(lines: Lines, what: dict[str, Any], before: dict[str, Any]) -> None:
    line = lines.pop(_at(lines, "event", **what))
    place = _at(lines, "event", **before)
    lines.insert(place, {**line, "t": lines[place]["t"], "slot": 1})


def _demote(lines: Lines) -> None:
    place = _at(lines, "event", **_event(9, "promoted"))
    lines.insert(place + 1, {**lines[place], "priority": 2})
    lines[-1]["counts"]["event"] += 1


def _renumber(lines: Lines, old: int, new: int) -> None:
    for line in lines:
        for key in ("id", "ticket"):
            if line.get(key) == old and line["line"] in {"ticket", "event"}:
                line[key] = new


# id, area, what it does, expected clause, place, edit
_MEANING: Final[tuple[tuple[str, str, str, str, str, Edit], ...]] = (
    ("released-twice", "release", "a ticket is released again", "trace.release", "ticket 0",
     _late("event", _event(0, "released"))),
    ("released-unready", "release", "a ticket is released while it is read", "trace.release", "ticket 0",
     _after("event", _event(0, "reading"), what="released")),
    ("cancel-then-release", "release", "a withdrawn ticket is released", "trace.release", "ticket 2",
     _late("event", _event(2, "cancelled"), what="released", reason="")),
    ("ready-after-cancel", "after-end", "a withdrawn ticket is published", "trace.after-end", "ticket 3",
     _late("event", _event(3, "cancelled"), what="ready", reason="")),
    ("ready-after-stale", "after-end", "a stale ticket is published", "trace.after-end", "ticket 5",
     _late("event", _event(5, "cancelled"), what="ready", reason="")),
    ("part-after-failure", "after-end", "a failed ticket goes on", "trace.after-end", "ticket 6",
     _late("event", _event(6, "failed"), what="part", reason="", completion=None)),
    ("cancelled-twice", "after-end", "a ticket is withdrawn again", "trace.after-end", "ticket 2",
     _late("event", _event(2, "cancelled"))),
    ("ready-unread", "state", "a ticket is ready before it was read", "trace.state", "ticket 4",
     _after("event", _event(4, "joined"), what="ready", completion=2)),
    ("reading-twice", "state", "a ticket is read again", "trace.state", "ticket 0",
     _after("event", _event(0, "reading"))),
    ("reading-without-slot", "state", "a read has no slot", "trace.state", "ticket 7",
     _set("event", _event(7, "reading"), slot=None)),
    ("no-reason", "state", "a prediction is dropped without a word", "trace.state", "ticket 8.reason",
     _set("event", _event(8, "dropped"), reason="")),
    ("issued-lost", "state", "a ticket is ready, and its read was removed", "trace.state", "ticket 4",
     _drop("event", **_event(4, "reading"))),
    ("other-use", "generation", "what is published is another use of the slot", "trace.generation", "ticket 2",
     _set("event", _event(2, "ready"), slot_generation=0)),
    ("other-slot", "generation", "what is published lies in another slot", "trace.generation", "ticket 2",
     _set("event", _event(2, "ready"), slot=1)),
    ("other-fetch", "generation", "what is published is another read", "trace.generation", "ticket 2",
     _set("event", _event(2, "ready"), fetch=0)),
    ("other-use-begun", "generation", "two tickets of one read name two uses", "trace.generation", "ticket 4",
     _set("event", _event(4, "reading"), slot_generation=2)),
    ("stale-published", "generation", "the generation has gone by when a ticket is ready", "trace.generation", "ticket 0",
     lambda lines: _insert_generation(lines, "lane 0", 1, before=_event(0, "ready"))),
    ("stale-read", "generation", "a stale ticket is read", "trace.generation", "ticket 0",
     lambda lines: _insert_generation(lines, "lane 0", 1, before=_event(0, "reading"))),
    ("slot-shared", "slot", "a slot is handed on while somebody reads from it", "trace.slot", "ticket 3",
     _drop("event", **_event(2, "cancelled"))),
    ("slot-not-counted-up", "slot", "a slot is used again under the same number", "trace.slot", "ticket 7",
     _set("event", _event(7, "reading"), slot_generation=4)),
    ("slot-beyond", "slot", "a slot that the lane doesn't have", "trace.slot", "ticket 7",
     _set("event", _event(7, "reading"), slot=2)),
    ("read-into-recycled", "slot", "a read ends in a slot of others", "trace.slot", "read of fetch 3",
     _set("read", {"fetch": 3}, slot_generation=1)),
    ("read-of-another", "slot", "a read ends for nobody", "trace.slot", "read of fetch 9",
     _set("read", {"fetch": 3}, fetch=9)),
    ("read-elsewhere", "slot", "a read ends in a slot that nobody uses", "trace.slot", "read of fetch 3",
     _set("read", {"fetch": 3}, slot=1)),
    ("more-live", "bound", "more tickets live than the lane holds", "trace.bound", "ticket 2",
     lambda lines: lines[0]["lanes"]["expert"].update(tickets=1)),
    ("leases", "leases", "a shared read has one lease", "trace.leases", "ticket 4.leases",
     _set("event", {**_event(4, "part"), "arrived": 1}, leases=1)),
    ("ready-unwhole", "bytes", "a ticket is ready with a part missing", "trace.bytes", "ticket 0",
     _drop("read", fetch=0, part=1)),
    ("ready-after-fault", "bytes", "a ticket is ready though its read failed", "trace.bytes", "ticket 0",
     _set("read", {"fetch": 0, "part": 1}, ok=False)),
    ("short-read", "bytes", "a read is a byte short", "trace.bytes", "read of fetch 0 part 1",
     _set("read", {"fetch": 0, "part": 1}, bytes=4)),
    ("part-twice", "bytes", "a part is read twice", "trace.bytes", "read of fetch 0 part 0",
     _after("read", {"fetch": 0, "part": 0})),
    ("no-such-part", "bytes", "a part that the request doesn't have", "trace.bytes", "read of fetch 0 part 2",
     _set("read", {"fetch": 0, "part": 1}, part=2)),
    ("parts-sum", "bytes", "the parts are not the ticket", "trace.bytes", "ticket 9.bytes",
     _set("ticket", {"id": 9}, bytes=14)),
    ("too-large", "bytes", "a ticket is larger than a slot", "trace.bytes", "ticket 9.bytes",
     _set("ticket", {"id": 9}, bytes=16, parts=[11, 5])),
    ("more-cached", "bytes", "more was cached than read", "trace.bytes", "read of fetch 1",
     _set("read", {"fetch": 1}, cached=11)),
    ("cached-and-direct", "bytes", "the same bytes were cached and read directly", "trace.bytes", "read of fetch 1",
     _set("read", {"fetch": 1}, direct=10)),
    ("claims-exact", "priority", "a prediction claims to be exact", "trace.priority", "ticket 9.priority",
     _set("ticket", {"id": 9}, exact=True)),
    ("other-layer", "layer", "a record is read for another layer", "trace.layer", "ticket 6.layer",
     _set("ticket", {"id": 6}, layer=9)),
    ("exact-as-near", "priority", "an exact request runs as a prediction", "trace.priority", "ticket 6.priority",
     _set("ticket", {"id": 6}, priority=1)),
    ("exact-dropped", "priority", "an exact ticket is dropped in silence", "trace.priority", "ticket 6",
     _set("event", _event(6, "failed"), what="dropped")),
    ("prediction-fails", "priority", "a prediction fails aloud", "trace.priority", "ticket 7",
     _set("event", _event(7, "dropped"), what="failed")),
    ("demoted", "priority", "a promotion makes less urgent", "trace.priority", "ticket 9",
     _demote),
    ("prediction-first", "exact-first", "a prediction starts before an exact ticket", "trace.exact-first", "ticket 7",
     lambda lines: _move(lines, _event(7, "reading"), _event(6, "reading"))),
    ("ticket-number", "order", "a ticket is numbered anew", "trace.order", "ticket 11",
     lambda lines: _renumber(lines, 9, 11)),
    ("ticket-lost", "order", "a ticket line is removed", "trace.order", "ticket 9", _drop("ticket", id=8)),
    ("time-backwards", "order", "an event happens before the one before it", "trace.order", "ticket 2",
     _set("event", _event(2, "ready"), t=22999)),
    ("read-backwards", "order", "a read ends before it starts", "trace.order", "read of fetch 1",
     _set("read", {"fetch": 1}, start=5001)),
    ("stage-backwards", "order", "a stage ends before it starts", "trace.order", "stage moe",
     _set("stage", {}, end=15999)),
    ("wait-backwards", "order", "a wait ends before it starts", "trace.order", "wait of lane 0",
     _set("wait", {}, end=6999)),
    ("ends-too-early", "order", "the run ends before its last event", "trace.order", "footer.t",
     _set("footer", {}, t=41999)),
    ("completion-repeated", "order", "two tickets are the same completion", "trace.order", "ticket 4.completion",
     _set("event", _event(4, "ready"), completion=2)),
    ("event-of-nobody", "unknown", "an event of a ticket that was never issued", "trace.unknown", "ticket 44",
     _set("event", _event(8, "dropped"), ticket=44)),
    ("wait-for-nobody", "unknown", "a wait for a ticket that was never issued", "trace.unknown", "ticket 44",
     _set("wait", {}, ticket=44)),
    ("store-unnamed", "unknown", "a store that the header doesn't name", "trace.unknown", "ticket 9.store",
     _set("ticket", {"id": 9}, store="b" * 64)),
    ("lane-unnamed", "unknown", "a lane that the header doesn't name", "trace.unknown", "target",
     lambda lines: lines[0]["lanes"].pop("ple")),
    ("expert-twice", "route", "a route names an expert twice", "trace.route", "route of lane 0",
     _set("route", {}, experts=[0, 0])),
    ("weights-lost", "route", "a route has one weight for two experts", "trace.route", "route of lane 0",
     _set("route", {}, weights=[0.75])),
    ("residency-lost", "route", "a route has one residency for two experts", "trace.route", "route of lane 0",
     _set("route", {}, resident=[True])),
    ("never-ended", "leak", "a ticket is live at the end", "trace.leak", "ticket 9", _drop("event", **_event(9, "cancelled"))),
    ("never-released", "leak", "bytes are held at the end", "trace.leak", "ticket 1", _drop("event", **_event(1, "released"))),
    ("event-lost", "counts", "an event is removed", "trace.counts", "footer.counts.event",
     lambda lines: lines.pop(_at(lines, "event", **_event(0, "part")))),
    ("route-lost", "counts", "a route is removed", "trace.counts", "footer.counts.route",
     lambda lines: lines.pop(_at(lines, "route"))),
    ("stage-lost", "counts", "a stage is removed", "trace.counts", "footer.counts.stage",
     lambda lines: lines.pop(_at(lines, "stage"))),
    ("wait-lost", "counts", "a wait is removed", "trace.counts", "footer.counts.wait",
     lambda lines: lines.pop(_at(lines, "wait"))),
    ("generation-lost", "counts", "a generation is removed", "trace.counts", "footer.counts.generation",
     lambda lines: lines.pop(_at(lines, "generation"))),
    ("read-lost", "counts", "a read is removed", "trace.counts", "footer.counts.read",
     lambda lines: lines.pop(_at(lines, "read", fetch=4))),
    ("ticket-counted", "counts", "the footer counts a ticket more", "trace.counts", "footer.counts.ticket",
     lambda lines: lines[-1]["counts"].update(ticket=11)),
    ("logical", "counts", "the footer says fewer bytes", "trace.counts", "footer.logical_bytes",
     _set("footer", {}, logical_bytes=1)),
    ("direct", "counts", "the footer claims direct reads", "trace.counts", "footer.direct_bytes",
     _set("footer", {}, direct_bytes=10)),
    ("cached", "counts", "the footer claims cached bytes", "trace.counts", "footer.cached_bytes",
     _set("footer", {}, cached_bytes=11)),
    ("cached-unknown", "counts", "the footer forgets what was cached", "trace.counts", "footer.cached_bytes",
     _set("footer", {}, cached_bytes=None)),
    ("two-headers", "form", "a second header", "trace.form", "header", lambda lines: lines.insert(1, lines[0])),
    ("no-header", "form", "the header is missing", "trace.form", "header", lambda lines: lines.pop(0)),
    ("after-footer", "form", "a line after the footer", "trace.form", "stage",
     lambda lines: lines.append(lines[_at(lines, "stage")])),
    ("two-footers", "form", "a second footer", "trace.form", "footer", lambda lines: lines.append(lines[-1])),
    ("other-version", "form", "a schema of the future", "trace.form", "line", _set("header", {}, schema="assay.trace/2")),
    ("weight-nan", "form", "a weight that is no number", "trace.form", "line",
     _set("route", {}, weights=[float("nan"), 0.25])),
    ("confidence", "form", "a confidence above 1", "trace.form", "line", _set("ticket", {"id": 9}, confidence=1.1)),
    ("mask", "form", "a mask that is not hexadecimal", "trace.form", "line", _set("ticket", {"id": 9}, tokens="x")),
    ("other-kind", "form", "a kind of line that doesn't exist", "trace.form", "line", _set("stage", {}, line="phase")),
)  # fmt: skip


@functools.cache
def _listed() -> tuple[tuple[Mutation, Edit], ...]:
    found: list[tuple[Mutation, Edit]] = [
        (Mutation(f"meaning:{name}", area, area, change, (code,), where), edit)
        for name, area, change, code, where, edit in _MEANING
    ]
    lines = sample()
    for kind in _KINDS:
        place = next(number for number, line in enumerate(lines) if line["line"] == kind)
        for path in _paths(lines[place]):
            for how in ("removed", "doubled", "type"):
                name = ".".join([kind, *map(str, path)])
                lacks_lane = (
                    kind == "header" and path[:1] == ("lanes",) and len(path) == 2 and how == "removed"
                )
                code, where = (
                    ("trace.unknown", "target") if lacks_lane else ("trace.form", f"line {place + 1}: line")
                )
                mutation = Mutation(f"form:{name}:{how}", "form", name, how, (code,), where)
                found.append((mutation, functools.partial(_edit_key, place, path, how)))
    for place, line in enumerate(lines):
        for key in _TOLD.get(line["line"], ()):
            name = f"{line['line']}.{key}"
            mutation = Mutation(
                f"told:{place + 1}:{name}", "told twice", name, f"{line[key]!r} told otherwise", _MEANINGS
            )
            found.append((mutation, functools.partial(_tell_otherwise, place, key)))
    return tuple(found)


def _tell_otherwise(place: int, key: str, lines: Lines) -> None:
    """Changes what another line of the trace tells as well."""
    value = lines[place][key]
    lines[place][key] = (
        0 if value is None else ("" if value else "late") if isinstance(value, str) else value + 1
    )


def _paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the way to each key, nested ones included; of a list, to its first item."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*before, key)
            yield from _paths(item, (*before, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from _paths(value[0], (*before, 0))


def _edit_key(place: int, path: tuple[Any, ...], how: str, lines: Lines) -> None:
    """Takes a key away, doubles it under another name, or gives it a value of another type."""
    holder: Any = lines[place]
    for step in path[:-1]:
        holder = holder[step]
    key = path[-1]
    if how == "removed":
        del holder[key]
    elif how == "doubled":
        holder[f"{key}_"] = holder[key]
    else:
        holder[key] = "7" if isinstance(holder[key], int | float) else 7.5


def mutations(context: BatteryContext) -> list[Mutation]:
    """Lists the lies of meaning, then three of form for each key of each kind of line."""
    del context
    return [mutation for mutation, _ in _listed()]


def judge(mutation: Mutation, context: BatteryContext) -> list[Finding]:
    """Judges the sample with one lie in it."""
    del context
    edit = next(edit for one, edit in _listed() if one.id == mutation.id)
    lines = sample()
    edit(lines)
    if lines == sample():
        raise InvalidMutationError("nothing changed")
    return judge_sample(lines)


BATTERY: Final = Battery(
    name="trace",
    title="A trace that tells of a run that can't have been is refused for the reason that it can't.",
    mutations=mutations,
    judge=judge,
    control=lambda _context: judge_sample(sample()),
    forced=lambda _context: _listed()[0][0],
)
