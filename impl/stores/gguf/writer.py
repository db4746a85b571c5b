"""Writer of GGUF v3: plan every offset first, then stream the tensors through an atomic publication.

Offsets are packed: each tensor starts at the next multiple of the file's alignment, an opaque store at the next
page of the file. The file ends on its alignment; all padding is zero.
"""

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.impl.stores.arguments import integer
from assay.impl.stores.expert_major.blocks import GGML, Block, row_bytes
from assay.impl.stores.extents import SYSTEM, Extent, Filesystem
from assay.impl.stores.gguf.reader import (
    DEFAULT_ALIGNMENT,
    MAX_NAME_BYTES,
    MAX_RANK,
    Entry,
    align_up,
    read_gguf,
)
from assay.impl.stores.gguf.rules import judge_gguf
from assay.impl.stores.gguf.values import ValueType, encoded
from assay.impl.stores.publication import Draft, publish
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, ContractError, Finding, shown

GGML_I8: Final = 24
PLAN: Final = declare(
    "gguf.write.plan",
    Authority.FORM,
    "A planned file has names, dimensions and alignments that every reader accepts, and each name once.",
    source="GGUF v3 format",
    cause="a tensor without a name, a shape with a zero, or an alignment that is no power of two",
)


@dataclass(frozen=True, slots=True)
class Planned:
    """One tensor to write.

    Attributes:
        name: tensor name.
        dimensions: fastest first.
        type_id: GGML type number.
        page: alignment of the start in the file when it is more than the file's own, such as 4096.
    """

    name: str
    dimensions: tuple[int, ...]
    type_id: int
    page: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A GGUF file with every offset known.

    Attributes:
        head: the bytes from the magic to the start of the data, padding included.
        tensors: what was asked for, in directory order.
        starts: absolute offset of each tensor.
        sizes: bytes of each tensor.
        file_bytes: length of the file.
    """

    head: bytes
    tensors: tuple[Planned, ...]
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    file_bytes: int


def plan_gguf(
    entries: Sequence[Entry],
    tensors: Sequence[Planned],
    *,
    blocks: dict[int, Block] = GGML,
    metadata: bytes | None = None,
) -> Plan:
    """Returns the layout of a file with these entries and tensors.

    Args:
        entries: metadata in the order in which it is written.
        tensors: tensors in the order of directory and data.
        blocks: block sizes by type number.
        metadata: the encoded entries, to copy another file's metadata verbatim; must encode `entries`.

    Raises:
        ContractError: codec.blocks.cover, for a row that isn't whole blocks; codec.type.known; gguf.write.plan, for an
            unusable general.alignment, name, rank, dimension or page, or a name that stands twice.
    """
    for tensor in tensors:
        _check(tensor)
    for entry in entries:
        _name(entry.key)
    for names in ([tensor.name for tensor in tensors], [entry.key for entry in entries]):
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise _error(twice, "a name that stands once", "one that stands twice")
    alignment = DEFAULT_ALIGNMENT
    for entry in entries:
        if entry.key == "general.alignment":
            number = entry.value.python()
            is_power = isinstance(number, int) and 1 <= number <= 1 << 30 and not number & (number - 1)
            if entry.value.type is not ValueType.UINT32 or not isinstance(number, int) or not is_power:
                raise _error(entry.key, "UINT32, a power of two up to 2^30", entry.value.shown())
            alignment = number
    body = metadata if metadata is not None else b"".join(_entry(entry) for entry in entries)
    sizes = tuple(_bytes(tensor, blocks) for tensor in tensors)
    directory = sum(len(_name(tensor.name)) + 16 + 8 * len(tensor.dimensions) for tensor in tensors)
    data_start = align_up(24 + len(body) + directory, alignment)
    starts, end = [], data_start
    for tensor, size in zip(tensors, sizes, strict=True):
        start = align_up(end, max(alignment, tensor.page or 1))
        starts.append(start)
        end = start + size
    records = b"".join(
        _name(tensor.name)
        + struct.pack(
            f"<I{len(tensor.dimensions)}QIQ",
            len(tensor.dimensions),
            *tensor.dimensions,
            tensor.type_id,
            start - data_start,
        )
        for tensor, start in zip(tensors, starts, strict=True)
    )
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + body + records
    file_bytes = align_up(end, alignment)
    return Plan(head.ljust(data_start, b"\0"), tuple(tensors), tuple(starts), sizes, file_bytes)


def write_gguf(
    target: Path,
    plan: Plan,
    fill: Callable[[Draft, int, int], None],
    *,
    verify: Callable[[Extent], None] | None = None,
    blocks: dict[int, Block] = GGML,
    system: Filesystem = SYSTEM,
    replace: bool = True,
) -> None:
    """Publishes the planned file.

    Args:
        target: where the file shall be.
        plan: from `plan_gguf`.
        fill: writes one tensor: (draft, index of the tensor, absolute offset); what it doesn't write reads as zeros.
        verify: judges the file beyond its structure, which is always judged.
        blocks: the block sizes of the plan.
        system: the seam for injected faults.
        replace: whether a file that is at `target` at the commit point is replaced.

    Raises:
        PublicationError: publish.<step>.
        AssayError: what the structure or `verify` finds wrong with the reopened file.
    """

    def fill_all(draft: Draft) -> None:
        draft.write(0, plan.head)
        for index, start in enumerate(plan.starts):
            fill(draft, index, start)

    def verify_all(extent: Extent) -> None:
        if extent.read(0, len(plan.head)) != plan.head:
            raise AdmissionError(
                Finding.of(
                    "publish.verify", "publish", "directory", expected="the planned bytes", got="other bytes"
                )
            )
        findings = judge_gguf(read_gguf(extent, blocks=blocks), extent)
        if findings:
            raise AdmissionError(findings[0])
        if verify is not None:
            verify(extent)

    publish(target, plan.file_bytes, fill_all, verify_all, system, replace=replace)


def _entry(entry: Entry) -> bytes:
    return _name(entry.key) + encoded(entry.value)


def _check(tensor: Planned) -> None:
    where = shown(tensor.name)
    kinds: tuple[object, object] = tensor.dimensions, tensor.name
    if not isinstance(kinds[0], tuple) or not isinstance(kinds[1], str):
        raise _error(where, "a name and a tuple of dimensions", f"{shown(kinds[1])} and {shown(kinds[0])}")
    if not 1 <= len(tensor.dimensions) <= MAX_RANK:
        raise _error(where, f"1..{MAX_RANK} dimensions", len(tensor.dimensions))
    size = 1
    for extent in tensor.dimensions:
        number = integer(extent)
        if number is None or not 1 <= number < 1 << 63:
            raise _error(where, "dimensions in 1..2^63 - 1", tensor.dimensions)
        size *= number
    if size >= 1 << 63:
        raise _error(where, "fewer than 2^63 values", tensor.dimensions)
    page = integer(tensor.page or 1)
    if page is None or page < 1 or page & (page - 1):
        raise _error(where, "pages of a power of two", tensor.page)


def _name(text: object) -> bytes:
    if not isinstance(text, str):
        raise _error(shown(text), "text", text)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _error(text, "Unicode text", error.reason) from None
    if not 1 <= len(data) <= MAX_NAME_BYTES:
        raise _error(text, f"a name of 1..{MAX_NAME_BYTES} bytes", f"{len(data)} bytes")
    return struct.pack("<Q", len(data)) + data


def _error(where: str, expected: object, got: object) -> ContractError:
    return ContractError(Finding.of(PLAN, "gguf", where, expected=expected, got=got))


def _bytes(tensor: Planned, blocks: dict[int, Block]) -> int:
    number = integer(tensor.type_id)
    block = None if number is None else blocks.get(number)
    if block is None:
        raise ContractError(
            Finding.of(
                "codec.type.known", "gguf", tensor.name, expected="a type of known size", got=tensor.type_id
            )
        )
    size = row_bytes(tensor.dimensions[0], block, f"{tensor.name}.dim[0]")
    for extent in tensor.dimensions[1:]:
        size *= extent
    return size
