"""Battery `expert-store`: every field of every header and descriptor, signed again and not, and payload damage.

A change that isn't signed again must die at the manifest digest; one that is, at the clause of its own field. What
a store can't know by itself (its source) must die against the identity that an artifact or plan states.
"""

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.expert_major.layout import (
    HEADER_BYTES,
    LAYER_BYTES,
    ROLES,
    Component,
    Manifest,
    manifest_digest,
    pack_manifest,
    unpack_header,
    unpack_layers,
)
from assay.impl.stores.expert_major.rules import ExpectedSource
from assay.impl.stores.expert_major.store import ExpertStore, judge_expert_store
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.mutations.battery import Battery, BatteryContext, InvalidMutationError, Mutation
from assay.mutations.store_memory import memory_extent
from assay.mutations.store_samples import SMALL_FAMILY, small_component, small_manifest
from assay.spec.errors import AdmissionError, Finding

_P: Final = "expert-store."
HEADER_CLAUSES: Final = {
    "magic": "magic", "version": "version", "header_bytes": "header-bytes", "family": "family",
    "experts_used": "experts-used", "layer_count": "layers", "expert_count": "experts",
    "source_tensor_count": "identity", "descriptor_count": "descriptors", "descriptor_bytes": "descriptors",
    "descriptor_offset": "descriptors", "data_offset": "data", "data_bytes": "data", "store_bytes": "data",
    "source_bytes": "identity", "source_sha256": "identity", "payload_sha256": "payload-digest",
    "storage": "storage", "group_size": "storage", "manifest_sha256": "manifest-digest", "reserved": "reserved",
}  # fmt: skip
LAYER_CLAUSES: Final = {
    "layer_id": "layer.id", "expert_count": "layer.experts", "record_bytes": "layer.record",
    "data_offset": "layer.start", "data_bytes": "layer.bytes", "reserved": "reserved",
}  # fmt: skip
COMPONENT_CLAUSES: Final = {
    "role": "component.role", "type_id": "component.type", "rank": "component.rank",
    "block_elements": "component.block", "dimensions[0]": "layer.geometry", "dimensions[1]": "layer.geometry",
    "dimensions[2]": "component.dimensions", "expert_bytes": "component.bytes",
    "record_offset": "component.offset",
}  # fmt: skip
"""Field -> clause that must catch it when the manifest was signed again."""

CHANGES: Final = ("+1", "zero", "ones")
_WIDE: Final = frozenset(
    {"source_tensor_count", "descriptor_count", "descriptor_bytes", "descriptor_offset", "data_offset",
     "data_bytes", "store_bytes", "source_bytes", "record_bytes", "dimensions[0]", "dimensions[1]",
     "dimensions[2]", "expert_bytes", "record_offset"}
)  # fmt: skip


@functools.cache
def sample() -> bytes:
    """Returns the bytes of the small private store."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "store"
        write_expert_store(target, small_manifest(), SMALL_FAMILY, small_component)
        return target.read_bytes()


@functools.cache
def sample_identity() -> ExpectedSource:
    """Returns what an artifact would say of the sample's source."""
    header = unpack_header(sample()[:HEADER_BYTES])
    return ExpectedSource(header.source_tensor_count, header.source_bytes, header.source_sha256)


def judge_store(data: bytes) -> list[Finding]:
    """Returns everything wrong with a copy of the sample: manifest, and when that holds the payload."""
    extent = memory_extent(data)
    try:
        manifest, findings = judge_expert_store(extent, SMALL_FAMILY, sample_identity())
        if findings or manifest is None:
            return findings
        return list(ExpertStore(extent, manifest).verify_all(threads=1).findings)
    except AdmissionError as error:
        return [error.finding]


def signed_again(data: bytes) -> bytes:
    """Returns the store with the manifest digest that its manifest now has."""
    header = unpack_header(data[:HEADER_BYTES])
    count = min(header.layer_count, (len(data) - HEADER_BYTES) // LAYER_BYTES)
    end = HEADER_BYTES + LAYER_BYTES * count
    digest = manifest_digest(data[:end])
    return data[:168] + digest + data[200:]


def mutations(context: BatteryContext) -> list[Mutation]:
    """Lists every mutation."""
    del context
    found = []
    for name, clause in HEADER_CLAUSES.items():
        found += _field("header", name, clause, f"{name}", ("header", name))
    layers = len(small_manifest().layers)
    for slot in range(layers):
        for name, clause in LAYER_CLAUSES.items():
            found += _field("layer", name, clause, f"layers[{slot}].{name}", ("layer", slot, name))
        for role in range(len(ROLES)):
            for name, clause in COMPONENT_CLAUSES.items():
                where = f"layers[{slot}].{ROLES[role]}.{name}"
                found += _field("component", name, clause, where, ("component", slot, role, name))
    return [one for one in found if _changes(one)] + _damage()


def judge(mutation: Mutation, context: BatteryContext) -> list[Finding]:
    """Judges one mutated copy."""
    del context
    data = apply(mutation)
    if data == sample():
        raise InvalidMutationError(f"{mutation.id} changes nothing")
    return judge_store(data)


def apply(mutation: Mutation) -> bytes:
    """Returns the mutated bytes."""
    how, *arguments = mutation.payload
    data = sample()
    if how == "field":
        place, change, is_signed = arguments
        changed = _set(data, place, change)
        return signed_again(changed) if is_signed else changed
    if how == "flip":
        offset, is_signed = arguments
        changed = data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]
        return signed_again(changed) if is_signed else changed
    if how == "cut":
        return data[: arguments[0]]
    if how == "grow":
        return data + bytes(arguments[0])
    first, second, size = arguments  # swap
    one, other = data[first : first + size], data[second : second + size]
    changed = data[:first] + other + data[first + size :]
    changed = changed[:second] + one + changed[second + size :]
    return signed_again(changed)


def _field(area: str, name: str, clause: str, where: str, place: tuple[Any, ...]) -> list[Mutation]:
    found = []
    for change in CHANGES:
        for is_signed in (True, False):
            expected = clause if is_signed or name in {"magic", "layer_count"} else "manifest-digest"
            if name == "manifest_sha256" and is_signed:
                continue  # signing again undoes it
            found.append(
                Mutation(
                    id=f"{where}:{change}:{'signed' if is_signed else 'unsigned'}",
                    area=area,
                    field=where,
                    change=f"{change}, manifest digest {'made again' if is_signed else 'left'}",
                    expected=(_P + expected,),
                    payload=("field", place, change, is_signed),
                )
            )
    return found


def _changes(mutation: Mutation) -> bool:
    """Says whether a field mutation changes a byte; setting a zero to zero doesn't."""
    try:
        return apply(mutation) != sample()
    except InvalidMutationError:
        return False


def _damage() -> list[Mutation]:
    layers = unpack_layers(sample()[HEADER_BYTES : HEADER_BYTES + 3 * LAYER_BYTES])
    end = len(sample())
    first = layers[0]
    cuts = {0: "size", HEADER_BYTES - 1: "size", HEADER_BYTES: "data", HEADER_BYTES + LAYER_BYTES: "data"}
    cuts |= {one.data_offset: "data" for one in layers} | {end - 1: "data", end - 4096: "data"}
    found = [
        Mutation(f"cut:{size}", "truncation", "file", f"ends after {size} bytes", (_P + clause,),
                 payload=("cut", size))
        for size, clause in sorted(cuts.items())
    ]  # fmt: skip
    found.append(Mutation("grow", "truncation", "file", "one byte more", (_P + "data",), payload=("grow", 1)))
    hidden = HEADER_BYTES + 3 * LAYER_BYTES + 5
    places = {
        "descriptor-padding": (hidden, "padding"),
        "record.first": (first.data_offset, "payload-digest"),
        "record.middle": (first.data_offset + first.record_bytes + 77, "payload-digest"),
        "record.last": (end - 1, "payload-digest"),
    }
    gap = first.data_offset + first.data_bytes
    if gap < layers[1].data_offset:
        places["layer-padding"] = (gap, "padding")
    found += [
        Mutation(f"flip:{name}", "payload", name, f"one bit at {offset}", (_P + clause,),
                 payload=("flip", offset, True))
        for name, (offset, clause) in places.items()
    ]  # fmt: skip
    size = first.record_bytes
    found.append(
        Mutation("swap:experts", "payload", "records", "experts 0 and 1 of layer 0 exchanged",
                 (_P + "payload-digest",), payload=("swap", first.data_offset, first.data_offset + size, size))
    )  # fmt: skip
    found.append(
        Mutation("swap:layers", "descriptors", "layers", "descriptors 0 and 1 exchanged", (_P + "layer.id",),
                 payload=("swap", HEADER_BYTES, HEADER_BYTES + LAYER_BYTES, LAYER_BYTES))
    )  # fmt: skip
    overlap = ("layer", 1, "data_offset")
    found.append(
        Mutation("overlap:layers", "descriptors", "layers[1].data_offset", "the start of layer 0",
                 (_P + "layer.start",), payload=("field", overlap, "overlap", True))
    )  # fmt: skip
    return found


def _set(data: bytes, place: tuple[Any, ...], change: str) -> bytes:
    """Returns the store with one field of its manifest changed."""
    header = unpack_header(data[:HEADER_BYTES])
    layers = list(unpack_layers(data[HEADER_BYTES : HEADER_BYTES + LAYER_BYTES * header.layer_count]))
    kind, *rest = place
    if kind == "header":
        header = _changed(header, rest[0], change)
    elif kind == "layer":
        slot, name = rest
        if change == "overlap":
            layers[slot] = replace(layers[slot], data_offset=layers[0].data_offset)
        else:
            layers[slot] = _changed(layers[slot], name, change)
    else:
        slot, role, name = rest
        components = list(layers[slot].components)
        components[role] = _changed_component(components[role], name, change)
        gate, up, down = components
        layers[slot] = replace(layers[slot], components=(gate, up, down))
    table = pack_manifest(Manifest(header, tuple(layers)))
    return table + data[len(table) :]


def _changed(record: Any, name: str, change: str) -> Any:
    return replace(record, **{name: _value(getattr(record, name), name, change)})


def _changed_component(one: Component, name: str, change: str) -> Component:
    if not name.startswith("dimensions"):
        changed: Component = _changed(one, name, change)
        return changed
    axis = int(name[-2])
    dims = list(one.dimensions)
    dims[axis] = _value(dims[axis], name, change)
    return replace(one, dimensions=(dims[0], dims[1], dims[2]))


def _value(value: Any, name: str, change: str) -> Any:
    if isinstance(value, bytes):
        if change == "zero":
            return bytes(len(value))
        return bytes([value[0] ^ 1]) + value[1:] if change == "+1" else b"\xff" * len(value)
    most = (1 << 64) - 1 if name in _WIDE else (1 << 32) - 1
    return {"+1": (value + 1) & most, "zero": 0, "ones": most}[change]


BATTERY: Final = Battery(
    name="expert-store",
    title="A store with any field of its manifest or any part of its payload changed is refused at the right clause.",
    mutations=mutations,
    judge=judge,
    control=lambda _context: judge_store(sample()),
    forced=lambda _context: Mutation(
        "forced", "payload", "records", "one bit", (_P + "payload-digest",),
        payload=("flip", len(sample()) - 1, True),
    ),
)  # fmt: skip
