"""Battery `gguf`: every metadata entry and every tensor record of the artifact, edited, removed or doubled.

The unchanged thing is the structural fixture at its true size. Each entry is changed in value, in type, by name and by
removal; each tensor record gets two edits out of seven kinds in turn, so that every record is edited and every kind
meets hundreds of records. The 107 published cases run in it as well, each at its own stage.
"""

import struct
from collections.abc import Callable
from typing import Final

from assay.impl.stores.artifact.admission import admit
from assay.impl.stores.artifact.descriptor import STAGES, fixture_descriptor
from assay.impl.stores.gguf.reader import read_gguf
from assay.impl.stores.gguf.values import Value, ValueType
from assay.mutations.artifact_cases import Case, all_cases
from assay.mutations.artifact_sketch import EXPERT, PLE, Record, Sketch, structural_sketch
from assay.mutations.battery import Battery, BatteryContext, InvalidMutationError, Mutation
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

STAGE_CLAUSE: Final = declare(
    "artifact.stage",
    Authority.PROCESS,
    "A bad artifact is rejected at the stage that is published for its fault, and the named field is the one at fault.",
    source="field note AFN-004; the published negative cases",
    cause="a check that was moved, so that an artifact fails later or earlier than a runtime expects",
)

_PRESENT = "artifact.metadata.present"
_VALUE = "artifact.metadata.value"
_TYPE = "artifact.metadata.type"
_PHYSICAL = "artifact.physical-profile"
_NARROWER: Final = {
    ValueType.UINT32: ValueType.INT32,
    ValueType.UINT64: ValueType.INT64,
    ValueType.FLOAT32: ValueType.UINT32,
    ValueType.BOOL: ValueType.UINT8,
}
"""Another type of the same width: the bytes, and mostly the printed value, survive."""


def mutations(context: BatteryContext) -> list[Mutation]:
    """Lists all mutations."""
    del context
    return [*_of_entries(), *_of_records(), *_of_cases()]


def judge(mutation: Mutation, context: BatteryContext) -> list[Finding]:
    """Judges the fixture with one change through the private seam."""
    del context
    if isinstance(mutation.payload, Case):
        return _judge_case(mutation.payload)
    kind, key = mutation.payload
    return _judged(_EDITS[kind](key))


def control(context: BatteryContext) -> list[Finding]:
    """Judges the unchanged fixture."""
    del context
    return _judged(structural_sketch())


def forced(context: BatteryContext) -> Mutation:
    """Returns a mutation that must be killed: one more expert used for a token."""
    del context
    key = "qwen4exp.text.num_experts_per_tok"
    return Mutation("forced", "metadata", key, "one more", (_VALUE,), key, payload=("entry-value", key))


def _judged(sketch: Sketch) -> list[Finding]:
    extent, descriptor = sketch.extent(), fixture_descriptor()
    try:
        gguf = read_gguf(extent)
    except AdmissionError as error:
        return [error.finding]
    found = admit(gguf, extent, descriptor, (descriptor.physical_profile_id,))
    return [one for findings in found.findings.values() for one in findings]


def _judge_case(case: Case) -> list[Finding]:
    """Returns the stage clause when a case stops at its own stage and field, and what it stopped at otherwise."""
    found = _judged(case.sketch())
    if not found:
        return []
    first = found[0]
    stages = (case.stage,) if case.stage else ("gguf", *STAGES)
    if first.stage in stages and case.where in first.where:
        return [Finding.of(STAGE_CLAUSE, first.stage, case.name, expected=case.stage, got=first.line)]
    return found


# --- What is changed -------------------------------------------------------------------------------------------------


def _of_entries() -> list[Mutation]:
    found = []
    for key, value in fixture_descriptor().entries.items():
        is_physical = fixture_descriptor().stage_of(key) == "physical_profile"
        for kind, code in (
            ("entry-value", _VALUE),
            ("entry-type", _TYPE),
            ("entry-removed", _PRESENT),
            ("entry-renamed", _PRESENT),
            ("entry-twice", "artifact.metadata.unique"),
        ):
            expected = _PHYSICAL if is_physical and kind != "entry-twice" else code
            change = {"entry-type": f"not {value.kind}"}.get(kind, kind.removeprefix("entry-"))
            found.append(
                Mutation(f"{kind}:{key}", "metadata", key, change, (expected,), key, payload=(kind, key))
            )
    closed = [(key, "artifact.metadata.absent") for key in fixture_descriptor().absent]
    closed.append(("tokenizer.ggml.tokens", "artifact.metadata.closed"))
    return found + [
        Mutation(f"entry-added:{key}", "metadata", key, "added", (code,), key, payload=("entry-added", key))
        for key, code in closed
    ]


_RECORD_KINDS: Final[tuple[tuple[str, str, str], ...]] = (
    ("record-renamed", "artifact.tensor.missing", "{name}"),
    ("record-type", "artifact.tensor.type", "{name}.type"),
    ("record-dimension", "artifact.tensor.dimension", "{name}.dim[{last}]"),
    ("record-rank", "artifact.tensor.rank", "{name}.rank"),
    ("record-unaligned", "artifact.tensor.aligned", "{name}.offset"),
    ("record-moved", "artifact.owner.coverage", ""),
    ("record-twice", "artifact.tensor.unique", "{name}"),
    ("record-removed", "artifact.tensor.missing", "{name}"),
)
"""Kind of edit, clause that must find it, and where."""


def _of_records() -> list[Mutation]:
    found = []
    records = structural_sketch().records
    for place, one in enumerate(records[:-2]):
        for step in (0, 3):
            kind, code, where = _RECORD_KINDS[(place + step) % len(_RECORD_KINDS)]
            named = where.format(name=one.name, last=len(one.dimensions) - 1)
            found.append(
                Mutation(f"{kind}:{one.name}", "tensors", one.name, kind.removeprefix("record-"), (code,), named,
                         payload=(kind, one.name))
            )  # fmt: skip
    for name, truncated in ((EXPERT, "expert-store.data"), (PLE, "ple-store.derived")):
        for kind, code, where in (
            ("record-renamed", "artifact.tensor.missing", name),
            ("record-type", "artifact.tensor.type", f"{name}.type"),
            ("record-rank", "artifact.tensor.rank", f"{name}.rank"),
            ("record-twice", "artifact.tensor.unique", name),
            ("record-removed", "artifact.tensor.missing", name),
            ("store-shorter", truncated, name),
        ):
            found.append(
                Mutation(f"{kind}:{name}", "stores", name, kind, (code,), where, payload=(kind, name))
            )
    return found


def _of_cases() -> list[Mutation]:
    return [
        Mutation(f"case:{case.name}", "published cases", case.where or "directory", case.name, (STAGE_CLAUSE,), "",
                 payload=case)
        for case in all_cases()
    ]  # fmt: skip


# --- How it is changed -----------------------------------------------------------------------------------------------


def _entry(change: Callable[[Sketch, int], None]) -> Callable[[str], Sketch]:
    return lambda key: structural_sketch(lambda sketch: change(sketch, sketch.entry(key)))


def _value(sketch: Sketch, place: int) -> None:
    key, value = sketch.entries[place]
    sketch.entries[place] = (key, Value(value.type, value.element, value.count, _changed(value)))


def _type(sketch: Sketch, place: int) -> None:
    key, value = sketch.entries[place]
    if value.element is not None:
        other = Value(value.type, _NARROWER[value.element], value.count, value.data)
    elif value.type is ValueType.STRING:
        # Text as a list of one text: the same words.
        other = Value(ValueType.ARRAY, ValueType.STRING, 1, value.data)
    else:
        other = Value(_NARROWER[value.type], None, 1, value.data)
    sketch.entries[place] = (key, other)


def _removed(sketch: Sketch, place: int) -> None:
    del sketch.entries[place]


def _renamed(sketch: Sketch, place: int) -> None:
    key, value = sketch.entries[place]
    sketch.entries[place] = (f"{key}_", value)


def _twice(sketch: Sketch, place: int) -> None:
    sketch.entries.append(sketch.entries[place])


def _added(key: str) -> Sketch:
    alignment = Value(ValueType.UINT32, None, 1, struct.pack("<I", 32))
    return structural_sketch(lambda sketch: sketch.entries.append((key, alignment)))


def _changed(value: Value) -> bytes:
    """Returns other bytes of the same length and type: the last number, letter or truth is another."""
    data = bytearray(value.data)
    if not data:
        raise InvalidMutationError("an empty value")
    kind = value.element or value.type
    if kind in {ValueType.BOOL, ValueType.UINT32, ValueType.UINT64}:
        width = 1 if kind is ValueType.BOOL else 4 if kind is ValueType.UINT32 else 8
        data[-width] ^= 1
    else:
        data[-1] ^= 1
    return bytes(data)


def _record(change: Callable[[Sketch, Record], None]) -> Callable[[str], Sketch]:
    return lambda name: structural_sketch(lambda sketch: change(sketch, sketch.record(name)))


def _rename_record(_: Sketch, record: Record) -> None:
    record.name += "_"


def _retype(_: Sketch, record: Record) -> None:
    record.type_id = 1 if record.type_id == 30 else 30


def _widen(_: Sketch, record: Record) -> None:
    record.dimensions[-1] += 1


def _rerank(_: Sketch, record: Record) -> None:
    record.dimensions.append(1)


def _double(sketch: Sketch, record: Record) -> None:
    sketch.records.insert(0, Record(record.name, list(record.dimensions), record.type_id))


def _drop(sketch: Sketch, record: Record) -> None:
    sketch.records.remove(record)


def _after(change: Callable[[Sketch, Record], None]) -> Callable[[str], Sketch]:
    def edit(name: str) -> Sketch:
        sketch = structural_sketch()
        change(sketch, sketch.record(name))
        return sketch

    return edit


def _shift(_: Sketch, record: Record) -> None:
    record.offset += 1


def _leave_a_hole(sketch: Sketch, record: Record) -> None:
    """Moves a tensor and all behind it by a page: aligned and disjoint, but with a hole in front."""
    place = sketch.records.index(record)
    for one in sketch.records[place:]:
        one.offset += 4096
    sketch.expert_at += 4096
    sketch.rows_at += 4096
    sketch.file_bytes += 4096


def _shorten(_: Sketch, record: Record) -> None:
    record.dimensions[0] -= 4096


_EDITS: Final[dict[str, Callable[[str], Sketch]]] = {
    "entry-value": _entry(_value),
    "entry-type": _entry(_type),
    "entry-removed": _entry(_removed),
    "entry-renamed": _entry(_renamed),
    "entry-twice": _entry(_twice),
    "entry-added": _added,
    "record-renamed": _record(_rename_record),
    "record-type": _record(_retype),
    "record-dimension": _record(_widen),
    "record-rank": _record(_rerank),
    "record-twice": _record(_double),
    "record-removed": _record(_drop),
    "record-unaligned": _after(_shift),
    "record-moved": _after(_leave_a_hole),
    "store-shorter": _after(_shorten),
}

BATTERY: Final = Battery(
    name="gguf",
    title="every metadata entry and tensor record of the artifact is judged, at its own stage and field",
    mutations=mutations,
    judge=judge,
    control=control,
    forced=forced,
)
