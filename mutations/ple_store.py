"""Battery `ple-store`: every field of header, digest table and page headers, signed again and not, and page damage.

Three digests guard a row store, and each mutation says which of them was made again: a change dies at the first
guard that was left, or at the clause of its own field when all of them were made again.
"""

import functools
import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.ple_rows.layout import (
    DIGEST_BYTES,
    HEADER_BYTES,
    PAGE_HEADER,
    PAGE_HEADER_BYTES,
    RowCodec,
    pack_ple_header,
    unpack_ple_header,
)
from assay.impl.stores.ple_rows.rules import manifest_hash
from assay.impl.stores.ple_rows.store import PleStore, judge_ple_store
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.mutations.battery import Battery, BatteryContext, InvalidMutationError, Mutation
from assay.mutations.store_memory import memory_extent
from assay.mutations.store_samples import GOLDEN_PLE, golden_ple, golden_rows
from assay.spec.errors import AdmissionError, Finding

_P: Final = "ple-store."
HEADER_CLAUSES: Final = {
    "magic": "magic", "version": "version", "header_bytes": "version", "family": "family",
    "head_count": "heads.match", "profile": "profile", "hash_id": "hash-id", "codec_id": "codec.match",
    "codec_version": "codec.match", "group_size": "codec.match", "row_bytes": "codec.match",
    "rows_per_page": "pages", "page_alignment": "pages", "page_header_bytes": "pages", "rows": "table",
    "width": "table", "row_alignment": "table", "page_count": "derived", "page_stride": "derived",
    "table_offset": "derived", "table_bytes": "derived", "payload_offset": "derived", "payload_bytes": "derived",
    "store_bytes": "derived", "payload_sha256": "payload-digest", "manifest_sha256": "manifest-digest",
    "reserved": "reserved",
}  # fmt: skip
"""Header field -> clause that must catch it when the manifest was signed again."""
PAGE_FIELDS: Final = (
    "magic", "version", "header_bytes", "page_index", "first_row", "valid_rows", "width", "row_bytes",
    "rows_per_page", "codec_version", "group_size", "family", "zero",
)  # fmt: skip
GUARDS: Final = ("none", "page", "manifest", "all")
"""What is made again after a change in a page: nothing, its digest, the manifest digest as well, the payload's too."""

_WIDE: Final = frozenset(
    {"rows", "page_count", "page_stride", "table_offset", "table_bytes", "payload_offset", "payload_bytes",
     "store_bytes", "page_index", "first_row"}
)  # fmt: skip
_STRIDE: Final = 4096
_PAYLOAD: Final = 4096
_PAGES: Final = 13


@functools.cache
def sample() -> bytes:
    """Returns the bytes of the published row store."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "store"
        golden_ple(target)
        return target.read_bytes()


@functools.cache
def other_store() -> bytes:
    """Returns a store of the same shape whose codec has another group."""
    codec = RowCodec(GOLDEN_PLE.codec.id, 1, 2, 8)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "store"
        write_ple_store(target, replace(GOLDEN_PLE, codec=codec), golden_rows)
        return target.read_bytes()


def judge_store(data: bytes, start: int = 0) -> list[Finding]:
    """Returns everything wrong with a copy of the sample: manifest, and when that holds every page."""
    extent = memory_extent(data, start)
    try:
        header, findings = judge_ple_store(extent, GOLDEN_PLE)
        if findings or header is None:
            return findings
        return list(PleStore.open(extent, GOLDEN_PLE).verify_all(threads=1).findings)
    except AdmissionError as error:
        return [error.finding]


def signed_again(data: bytes) -> bytes:
    """Returns the store with the manifest digest that header, table and padding now have."""
    digest = manifest_hash(data[:HEADER_BYTES])
    digest.update(data[HEADER_BYTES:_PAYLOAD])
    return data[:376] + digest.digest() + data[408:]


def with_page(data: bytes, page: int, content: bytes, guard: str) -> bytes:
    """Returns the store with one page replaced, and as many digests made again as `guard` says."""
    start = _PAYLOAD + page * _STRIDE
    data = data[:start] + content + data[start + _STRIDE :]
    if guard == "none":
        return data
    entry = HEADER_BYTES + DIGEST_BYTES * page
    data = data[:entry] + hashlib.sha256(content).digest() + data[entry + DIGEST_BYTES :]
    if guard == "all":
        data = data[:344] + hashlib.sha256(data[_PAYLOAD:]).digest() + data[376:]
    return data if guard == "page" else signed_again(data)


def page_of(data: bytes, page: int) -> bytes:
    """Returns one page of a store of the sample's shape."""
    return data[_PAYLOAD + page * _STRIDE : _PAYLOAD + (page + 1) * _STRIDE]


def mutations(context: BatteryContext) -> list[Mutation]:
    """Lists every mutation."""
    del context
    found = []
    for name, clause in HEADER_CLAUSES.items():
        found += _header_field(name, clause, ("header", name))
    for head in range(16):
        for name in ("primes", "offsets"):
            found += _header_field(f"{name}[{head}]", "heads.match", ("head", name, head))
    found = [one for one in found if apply(one) != sample()]
    for page in (0, 1, _PAGES - 1):
        for index, name in enumerate(PAGE_FIELDS):
            found += [_page_field(page, index, name, guard) for guard in GUARDS]
    return found + _table() + _pages() + _whole()


def judge(mutation: Mutation, context: BatteryContext) -> list[Finding]:
    """Judges one mutated copy."""
    del context
    if mutation.payload[0] == "move":
        return judge_store(bytes(mutation.payload[1]) + sample(), mutation.payload[1])
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
        changed = _set_header(data, place, change)
        return signed_again(changed) if is_signed else changed
    if how == "page":
        page, content, guard = arguments
        return with_page(data, page, content, guard)
    if how == "swap":
        one, other = page_of(data, 0), page_of(data, 1)
        return with_page(with_page(data, 0, other, arguments[0]), 1, one, arguments[0])
    if how == "flip":
        offset, is_signed = arguments
        changed = data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]
        return signed_again(changed) if is_signed else changed
    if how == "cut":
        return data[: arguments[0]]
    return data + bytes(arguments[0])  # grow


def _header_field(name: str, clause: str, place: tuple[Any, ...]) -> list[Mutation]:
    found = []
    for change in ("+1", "zero", "ones"):
        for is_signed in (True, False):
            expected = clause if is_signed or name == "magic" else "manifest-digest"
            if name == "manifest_sha256" and is_signed:
                continue  # signing again undoes it
            found.append(
                Mutation(
                    id=f"{name}:{change}:{'signed' if is_signed else 'unsigned'}",
                    area="header",
                    field=name,
                    change=f"{change}, manifest digest {'made again' if is_signed else 'left'}",
                    expected=(_P + expected,),
                    payload=("field", place, change, is_signed),
                )
            )
    return found


def _page_field(page: int, index: int, name: str, guard: str) -> Mutation:
    fields = list(PAGE_HEADER.unpack(page_of(sample(), page)[:PAGE_HEADER_BYTES]))
    fields[index] = _value(fields[index], name, "+1")
    content = PAGE_HEADER.pack(*fields) + page_of(sample(), page)[PAGE_HEADER_BYTES:]
    clause = {"none": "page.digest", "page": "manifest-digest"}.get(guard, "page.header")
    where = (
        f"pages[{page}]" if guard == "none" else f"pages[{page}].{name}" if clause == "page.header" else ""
    )
    return Mutation(
        id=f"pages[{page}].{name}:{guard}",
        area="page-header",
        field=f"pages[{page}].{name}",
        change=f"+1, made again: {guard}",
        expected=(_P + clause,),
        where=where,
        payload=("page", page, content, guard),
    )


def _table() -> list[Mutation]:
    found = []
    for page in range(_PAGES):
        offset = HEADER_BYTES + DIGEST_BYTES * page + page
        for is_signed in (True, False):
            clause = "page.digest" if is_signed else "manifest-digest"
            found.append(
                Mutation(
                    id=f"table[{page}]:{'signed' if is_signed else 'unsigned'}",
                    area="digest-table",
                    field=f"table[{page}]",
                    change="one bit",
                    expected=(_P + clause,),
                    where=f"pages[{page}]" if is_signed else "",
                    payload=("flip", offset, is_signed),
                )
            )
    found.append(
        Mutation("padding:signed", "digest-table", "padding", "one bit behind the table", (_P + "padding",),
                 payload=("flip", _PAYLOAD - 1, True))
    )  # fmt: skip
    return found


def _pages() -> list[Mutation]:
    found = []
    for page in (0, 6, _PAGES - 1):
        plain = page_of(sample(), page)
        row = plain[:70] + bytes([plain[70] ^ 16]) + plain[71:]
        tail = plain[:-1] + b"\1"
        for guard, clause in (
            ("none", "page.digest"),
            ("page", "manifest-digest"),
            ("manifest", "payload-digest"),
        ):
            where = f"pages[{page}]" if guard == "none" else ""
            found.append(
                Mutation(f"pages[{page}].row:{guard}", "page", f"pages[{page}].rows", f"one bit, made again: {guard}",
                         (_P + clause,), where, payload=("page", page, row, guard))
            )  # fmt: skip
        found.append(
            Mutation(f"pages[{page}].tail:all", "page", f"pages[{page}].tail", "one bit, everything made again",
                     (_P + "page.tail",), f"pages[{page}]", payload=("page", page, tail, "all"))
        )  # fmt: skip
        foreign = page_of(other_store(), page)
        found.append(
            Mutation(f"pages[{page}].foreign:all", "page", f"pages[{page}]",
                     "the page of a store with another codec group, everything made again",
                     (_P + "page.header",), f"pages[{page}].group_size", payload=("page", page, foreign, "all"))
        )  # fmt: skip
    found += [
        Mutation(f"swap:{guard}", "page", "pages", f"pages 0 and 1 exchanged, made again: {guard}",
                 (_P + clause,), payload=("swap", guard))
        for guard, clause in (("none", "page.digest"), ("all", "page.header"))
    ]  # fmt: skip
    return found


def _whole() -> list[Mutation]:
    end = len(sample())
    cuts = {
        0: "size",
        HEADER_BYTES - 1: "size",
        HEADER_BYTES: "derived",
        _PAYLOAD: "derived",
        end - 1: "derived",
    }
    cuts |= {_PAYLOAD + page * _STRIDE: "derived" for page in range(1, _PAGES)}
    found = [
        Mutation(f"cut:{size}", "truncation", "file", f"ends after {size} bytes", (_P + clause,),
                 payload=("cut", size))
        for size, clause in sorted(cuts.items())
    ]  # fmt: skip
    found.append(
        Mutation("grow", "truncation", "file", "a page more", (_P + "derived",), payload=("grow", _STRIDE))
    )
    found += [
        Mutation(f"move:{by}", "truncation", "store offset", f"moved by {by} bytes", (_P + "store-alignment",),
                 payload=("move", by))
        for by in (1, 32)
    ]  # fmt: skip
    return found


def _set_header(data: bytes, place: tuple[Any, ...], change: str) -> bytes:
    header = unpack_ple_header(data[:HEADER_BYTES])
    if place[0] == "header":
        name = place[1]
        header = replace(header, **{name: _value(getattr(header, name), name, change)})
    else:
        _, name, head = place
        values = list(getattr(header, name))
        values[head] = _value(values[head], name, change)
        changed: dict[str, Any] = {name: tuple(values)}
        header = replace(header, **changed)
    return pack_ple_header(header) + data[HEADER_BYTES:]


def _value(value: Any, name: str, change: str) -> Any:
    if isinstance(value, bytes):
        if change == "zero":
            return bytes(len(value))
        return bytes([value[0] ^ 1]) + value[1:] if change == "+1" else b"\xff" * len(value)
    most = (1 << 64) - 1 if name in _WIDE else (1 << 32) - 1
    return {"+1": (value + 1) & most, "zero": 0, "ones": most}[change]


BATTERY: Final = Battery(
    name="ple-store",
    title="A row store with any field, digest or page changed is refused at the first guard that was left.",
    mutations=mutations,
    judge=judge,
    control=lambda _context: judge_store(sample()),
    forced=lambda _context: Mutation(
        "forced", "page", "pages[0].rows", "one bit", (_P + "page.digest",), "pages[0]",
        payload=("flip", _PAYLOAD + 70, False),
    ),
)  # fmt: skip
