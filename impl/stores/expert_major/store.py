"""Reader and verifier of ExpertMajor v2: opening judges the manifest, never the payload.

The format has one digest over the payload and none over a record. A record read is therefore *unverified* unless
the caller brings record digests that a build or `verify_all` derived on this machine (`record_digests`).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from assay.impl.stores.arguments import bound, integer, readable
from assay.impl.stores.expert_major.families import ExpertFamily
from assay.impl.stores.expert_major.layout import (
    HEADER_BYTES,
    LAYER_BYTES,
    ROLES,
    Layer,
    Manifest,
    unpack_header,
    unpack_layers,
)
from assay.impl.stores.expert_major.rules import (
    SIZE,
    STAGE,
    ExpectedSource,
    canonical_starts,
    is_walkable,
    judge_header,
    judge_manifest,
)
from assay.impl.stores.extents import Extent
from assay.impl.stores.overlap import in_order
from assay.impl.stores.recycled import RecycledBuffers
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, ContractError, Finding

_SOURCE = "ExpertMajor v2, offline verifier"

PADDING: Final = declare(
    "expert-store.padding",
    Authority.FORM,
    "Bytes before the payload and between layers are zero.",
    source=_SOURCE,
    cause="bytes hidden in the store, or a damaged one",
)
CANONICAL: Final = declare(
    "expert-store.layer.canonical",
    Authority.RULE,
    "Payload and layers start on the first page after what is before them.",
    source=_SOURCE,
    cause="a writer that leaves larger gaps; readers accept it, publication doesn't",
)
PAYLOAD_DIGEST: Final = declare(
    "expert-store.payload-digest",
    Authority.RULE,
    "The payload digest is that of all bytes from the data offset to the end of the store.",
    source=_SOURCE,
    cause="a damaged record, or a structural store whose payload is a hole",
)
PLACE: Final = declare(
    "expert-store.place",
    Authority.FORM,
    "Layer, expert and role exist in the store.",
    source="ExpertMajor v2, access calls",
    cause="an id of another model, or an off-by-one",
)
RECORD_SIZE: Final = declare(
    "expert-store.record-size",
    Authority.FORM,
    "A record that is read whole has at most 256 MiB.",
    source="assay: no allocation is driven by a file",
    cause="a store with absurd dimensions",
)
RECORD_DIGEST: Final = declare(
    "expert-store.record-digest",
    Authority.RULE,
    "A record has the digest that was derived when the store was built or verified.",
    source="assay: local evidence bound to the payload digest",
    cause="a damaged disk block, or a store that changed after it was verified",
    fix="run the verifier over the whole store again",
)
BINDING: Final = declare(
    "expert-store.record-digests.binding",
    Authority.RULE,
    "Record digests belong to exactly this store: manifest and payload digest agree.",
    source="assay: local evidence bound to the payload digest",
    cause="evidence of another store, or of an earlier state of this one",
)

MAX_RECORD_BYTES: Final = 1 << 28
_RUN_BYTES: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class RecordDigests:
    """SHA-256 of every record of one store, by slot of the layer and expert.

    Attributes:
        manifest_sha256: manifest digest of the store.
        payload_sha256: payload digest of the store.
        layers: for each slot the digests of its experts, 32 bytes each, one after another.
    """

    manifest_sha256: bytes
    payload_sha256: bytes
    layers: tuple[bytes, ...]

    def of(self, slot: int, expert: int) -> bytes:
        """Returns the digest of one record."""
        return self.layers[slot][32 * expert : 32 * expert + 32]


@dataclass(frozen=True, slots=True)
class Record:
    """One expert: gate, up and down as they lie in the store, weights with their scales and biases.

    Attributes:
        layer_id: model layer.
        expert: expert id.
        data: the record's bytes, read-only; never used again while this or any view of it lives.
        is_verified: whether its digest was checked.
        layer: descriptor of the layer.
    """

    layer_id: int
    expert: int
    data: memoryview
    is_verified: bool
    layer: Layer

    def component(self, role: int) -> memoryview:
        """Returns the bytes of gate (0), up (1) or down (2).

        Raises:
            ContractError: expert-store.place.
        """
        one = self.layer.components[_index("role", role, len(self.layer.components))]
        return self.data[one.record_offset : one.record_offset + one.expert_bytes]


@dataclass(frozen=True, slots=True)
class ExpertVerification:
    """What `verify_all` found; digests only when nothing is wrong and they were wanted."""

    findings: tuple[Finding, ...]
    payload_sha256: bytes
    digests: RecordDigests | None


class ExpertStore:
    """A store whose manifest holds."""

    def __init__(self, extent: Extent, manifest: Manifest, digests: RecordDigests | None = None) -> None:
        self.extent = extent
        self.manifest = manifest
        self._slots = {layer.layer_id: slot for slot, layer in enumerate(manifest.layers)}
        self._digests = digests

    @classmethod
    def open(
        cls, extent: Extent, family: ExpertFamily, expected: ExpectedSource | None = None
    ) -> "ExpertStore":
        """Opens a store of one family; payload is not read.

        Raises:
            AdmissionError: the first of `judge_expert_store`.
        """
        manifest, findings = judge_expert_store(extent, family, expected)
        if findings or manifest is None:
            raise AdmissionError(findings[0])
        return cls(extent, manifest)

    def with_digests(self, digests: RecordDigests) -> "ExpertStore":
        """Returns this store with verified record reads.

        Raises:
            AdmissionError: expert-store.record-digests.binding, when the digests are another store's.
        """
        header = self.manifest.header
        found = (digests.manifest_sha256, digests.payload_sha256)
        wanted = (header.manifest_sha256, header.payload_sha256)
        counts = tuple(len(one) for one in digests.layers)
        if found != wanted or counts != tuple(32 * one.expert_count for one in self.manifest.layers):
            raise AdmissionError(
                Finding.of(
                    BINDING,
                    STAGE,
                    self.extent.name,
                    expected=f"manifest {wanted[0].hex()}, payload {wanted[1].hex()}",
                    got=f"manifest {found[0].hex()}, payload {found[1].hex()}",
                )
            )
        return ExpertStore(self.extent, self.manifest, digests)

    def layer(self, layer_id: int) -> Layer:
        """Returns the descriptor of a model layer.

        Raises:
            ContractError: expert-store.place.
        """
        return self.manifest.layers[self._slot(layer_id)]

    def locate(self, layer_id: int, expert: int, role: int) -> tuple[int, int]:
        """Returns absolute file offset and bytes of one role of one expert.

        Raises:
            ContractError: expert-store.place.
        """
        slot, expert = self._place(layer_id, expert)
        layer = self.manifest.layers[slot]
        one = layer.components[_index("role", role, len(ROLES))]
        offset = layer.data_offset + expert * layer.record_bytes + one.record_offset
        return self.extent.start + offset, one.expert_bytes

    def locate_record(self, layer_id: int, expert: int) -> tuple[int, int]:
        """Returns absolute file offset and bytes of one whole record: gate, up and down without a gap.

        Raises:
            ContractError: expert-store.place.
        """
        slot, expert = self._place(layer_id, expert)
        layer = self.manifest.layers[slot]
        return self.extent.start + layer.data_offset + expert * layer.record_bytes, layer.record_bytes

    def record_digest(self, layer_id: int, expert: int) -> bytes | None:
        """Returns the SHA-256 of one whole record, or None in a store without record digests.

        A part of a record, such as one role, has no digest anywhere.

        Raises:
            ContractError: expert-store.place.
        """
        slot, expert = self._place(layer_id, expert)
        return None if self._digests is None else self._digests.of(slot, expert)

    def check_record(self, layer_id: int, expert: int, data: bytes | bytearray | memoryview) -> bool:
        """Judges a record in memory, wherever its bytes were read, in these very bytes and without a copy.

        Args:
            layer_id: model layer.
            expert: expert id.
            data: the whole record, as `locate_record` says where it lies.

        Returns:
            True when its digest was compared and is right, False when this store has no record digests.

        Raises:
            ContractError: expert-store.place or store.buffer.
            AdmissionError: expert-store.record-digest.
        """
        slot, expert = self._place(layer_id, expert)
        view = readable(data, self.manifest.layers[slot].record_bytes, "data")
        if self._digests is None:
            return False
        digest, wanted = hashlib.sha256(view).digest(), self._digests.of(slot, expert)
        if digest != wanted:
            where = f"layer {layer_id} expert {expert}"
            raise AdmissionError(
                Finding.of(RECORD_DIGEST, STAGE, where, expected=wanted.hex(), got=digest.hex())
            )
        return True

    def read_record(self, layer_id: int, expert: int) -> Record:
        """Reads one record; verified if the store has record digests.

        Raises:
            ContractError: expert-store.place.
            AdmissionError: expert-store.record-digest, expert-store.record-size or store.file.*.
        """
        return self._read_record(layer_id, expert, RecycledBuffers(1))

    def read_records(self, places: Iterable[tuple[int, int]], threads: int = 3) -> Iterator[Record]:
        """Yields records in the order of `places` (layer id, expert); reading and hashing overlap.

        The system is told of every record as it comes into flight, at most twice as many as threads, so that the disk
        goes on reading while all threads hash. The memory of a record is used again once nobody looks at it: who goes
        through them one by one needs a few buffers in all, who keeps them all gets memory for all.

        Raises:
            ContractError: expert-store.place or store.bound.
            AdmissionError: expert-store.record-digest, expert-store.record-size or store.file.*.
        """
        threads = bound(threads, 1, "threads")
        if not isinstance(places, Iterable):
            raise _no_place("places", "pairs of layer and expert", places)
        buffers = RecycledBuffers(2 * threads + 2)

        def announce(place: tuple[int, int]) -> None:
            with suppress(ContractError):  # the read says it, in its turn
                offset, size = self.locate_record(*_pair(place))
                self.extent.will_need([(offset - self.extent.start, size)])

        def read(place: tuple[int, int]) -> Record:
            return self._read_record(*_pair(place), buffers)

        yield from in_order(read, places, threads, announce)

    def verify_all(
        self,
        threads: int = 3,
        progress: Callable[[int, int], None] | None = None,
        *,
        derive: bool = True,
    ) -> ExpertVerification:
        """Reads the whole store once: canonical places, zero padding, payload digest, record digests.

        The payload digest is one chain, so that one core's SHA-256 bounds the speed; other threads read ahead and
        derive the record digests meanwhile, which hashes every byte a second time.

        Args:
            threads: threads that read and derive record digests.
            progress: called with bytes done and bytes in all.
            derive: whether record digests are wanted; without, nothing less is verified.

        Raises:
            ContractError: store.bound.
            AdmissionError: expert-store.record-size or store.file.*.
        """
        threads = bound(threads, 1, "threads")
        buffers = RecycledBuffers(2 * threads + 2)

        def read(run: _Run) -> tuple[memoryview, list[bytes]]:
            return self._read_run(run, buffers, derive=derive)

        findings = list(self._canonical())
        if not findings:
            findings += self._padding_before_data()
        payload = hashlib.sha256()
        table: list[list[bytes]] = [[] for _ in self.manifest.layers]
        total, done = self.manifest.data_bytes, 0
        for run, (data, digests) in zip(self._runs(), in_order(read, self._runs(), threads), strict=True):
            payload.update(data)
            if run.slot is None:
                findings += _nonzero(data, run.offset)
            else:
                table[run.slot] += digests
            done += len(data)
            if progress is not None:
                progress(done, total)
        self.extent.file.check_unchanged()
        digest, wanted = payload.digest(), self.manifest.header.payload_sha256
        if digest != wanted:
            findings.append(
                Finding.of(PAYLOAD_DIGEST, STAGE, "payload_sha256", expected=wanted.hex(), got=digest.hex())
            )
        if findings or not derive:
            return ExpertVerification(tuple(findings), digest, None)
        layers = tuple(b"".join(one) for one in table)
        digests_of_store = RecordDigests(self.manifest.header.manifest_sha256, digest, layers)
        return ExpertVerification((), digest, digests_of_store)

    def _read_record(self, layer_id: int, expert: int, buffers: RecycledBuffers) -> Record:
        slot, expert = self._place(layer_id, expert)
        layer = self.manifest.layers[slot]
        if layer.record_bytes > MAX_RECORD_BYTES:
            raise AdmissionError(
                Finding.of(
                    RECORD_SIZE,
                    STAGE,
                    f"layer {layer.layer_id}",
                    expected=f"at most {MAX_RECORD_BYTES}",
                    got=layer.record_bytes,
                )
            )
        data = buffers.take(layer.record_bytes)
        self.extent.fill(layer.data_offset + expert * layer.record_bytes, data)
        is_verified = self.check_record(layer.layer_id, expert, data)
        return Record(layer.layer_id, expert, data.toreadonly(), is_verified=is_verified, layer=layer)

    def _slot(self, layer_id: int) -> int:
        number = integer(layer_id)
        slot = None if number is None else self._slots.get(number)
        if slot is None:
            raise _no_place("layer", f"one of {sorted(self._slots)}", layer_id)
        return slot

    def _place(self, layer_id: int, expert: int) -> tuple[int, int]:
        """Returns slot of the layer and number of the expert, both judged."""
        slot = self._slot(layer_id)
        layer = self.manifest.layers[slot]
        return slot, _index(f"layer {layer.layer_id} expert", expert, layer.expert_count)

    def _canonical(self) -> Iterator[Finding]:
        starts = canonical_starts(self.manifest)
        first = starts[0]
        places = [("data_offset", first, self.manifest.header.data_offset)]
        places += [
            (f"layers[{slot}].data_offset", start, layer.data_offset)
            for slot, (start, layer) in enumerate(zip(starts, self.manifest.layers, strict=True))
        ]
        for where, expected, got in places:
            if expected != got:
                yield Finding.of(CANONICAL, STAGE, where, expected=expected, got=got)

    def _padding_before_data(self) -> Iterator[Finding]:
        start = HEADER_BYTES + LAYER_BYTES * len(self.manifest.layers)
        yield from _nonzero(self.extent.read(start, self.manifest.header.data_offset - start), start)

    def _runs(self) -> Iterator["_Run"]:
        """Yields the payload in order: runs of whole records of up to 2 MiB, pieces of larger ones, gaps."""
        end = self.manifest.header.data_offset
        for slot, layer in enumerate(self.manifest.layers):
            for offset in range(end, layer.data_offset, _RUN_BYTES):
                yield _Run(None, offset, min(_RUN_BYTES, layer.data_offset - offset), 1)
            step = max(1, _RUN_BYTES // layer.record_bytes)
            for expert in range(0, layer.expert_count, step):
                count = min(step, layer.expert_count - expert)
                start = layer.data_offset + expert * layer.record_bytes
                yield _Run(slot, start, layer.record_bytes, count)
            end = layer.data_offset + layer.data_bytes

    def _read_run(
        self, run: "_Run", buffers: RecycledBuffers, *, derive: bool
    ) -> tuple[memoryview, list[bytes]]:
        if run.size > MAX_RECORD_BYTES:
            raise AdmissionError(
                Finding.of(
                    RECORD_SIZE, STAGE, self.extent.name, expected=f"at most {MAX_RECORD_BYTES}", got=run.size
                )
            )
        data = buffers.take(run.size * run.count)
        self.extent.fill(run.offset, data)
        if run.slot is None or not derive:
            return data, []
        return data, [
            hashlib.sha256(data[start : start + run.size]).digest() for start in range(0, len(data), run.size)
        ]


def judge_expert_store(
    extent: Extent, family: ExpertFamily, expected: ExpectedSource | None = None
) -> tuple[Manifest | None, list[Finding]]:
    """Reads header and descriptors and returns them with everything that is wrong.

    Args:
        extent: exactly the store.
        family: the family that the caller expects.
        expected: what artifact or plan says of the source.

    Returns:
        The manifest, or None when it couldn't be read, and the findings in the order of the reader's checks.

    Raises:
        AdmissionError: store.file.*, when the file can't be read.
    """
    if extent.size < HEADER_BYTES:
        finding = Finding.of(
            SIZE, STAGE, extent.name, expected=f"at least {HEADER_BYTES} bytes", got=extent.size
        )
        return None, [finding]
    head = extent.read(0, HEADER_BYTES)
    header = unpack_header(head)
    findings = judge_header(header, family, extent.size)
    if not is_walkable(header, extent.size):
        return None, findings
    descriptors = extent.read(HEADER_BYTES, LAYER_BYTES * header.layer_count)
    manifest = Manifest(header, unpack_layers(descriptors))
    findings += judge_manifest(manifest, head + descriptors, family, expected)
    return manifest, findings


@dataclass(frozen=True, slots=True)
class _Run:
    slot: int | None  # None: a gap between layers
    offset: int
    size: int
    count: int


def _nonzero(data: Sequence[int] | bytes, offset: int) -> list[Finding]:
    used = bytes(data).lstrip(b"\0")
    if not used:
        return []
    where = f"byte {offset + len(data) - len(used)}"
    return [Finding.of(PADDING, STAGE, where, expected="0x00", got=f"{used[0]:#04x}")]


def _pair(place: object) -> tuple[int, int]:
    if isinstance(place, Sequence) and len(place) == 2 and not isinstance(place, str | bytes):
        return place[0], place[1]
    raise _no_place("places", "pairs of layer and expert", place)


def _index(where: str, value: int, count: int) -> int:
    """Returns a number in 0..count-1.

    Raises:
        ContractError: expert-store.place.
    """
    number = integer(value)
    if number is None or not 0 <= number < count:
        raise _no_place(where, f"0..{count - 1}", value)
    return number


def _no_place(where: str, expected: object, got: object) -> ContractError:
    return ContractError(Finding.of(PLACE, STAGE, where, expected=expected, got=got))
