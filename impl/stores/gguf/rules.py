"""What must hold between the records of a GGUF file: unique names, whole blocks, and an exact partition of bytes.

Every byte of the data has one owner or is padding that alignment asks for; two tensors never share a byte. The
records are sorted by offset first, because the order of the directory says nothing about the order of the data.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from assay.impl.stores.expert_major.blocks import GGML
from assay.impl.stores.extents import Extent
from assay.impl.stores.gguf.reader import STAGE, Gguf, Tensor, align_up
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AssayError, Finding

_SOURCE = "GGUF v3 format; bug reports A20 and A21"


def _rule(name: str, meaning: str, cause: str, authority: Authority = Authority.RULE) -> str:
    return declare(f"gguf.{name}", authority, meaning, source=_SOURCE, cause=cause)


KEY_UNIQUE: Final = _rule(
    "metadata.unique", "Every metadata key stands once.", "an editor that appended a key"
)
VALUE: Final = _rule(
    "metadata.value",
    "A BOOL byte is 0 or 1 and text is UTF-8.",
    "a damaged directory",
    Authority.FORM,
)
NAME_UNIQUE: Final = _rule("tensor.unique", "Every tensor name stands once.", "two files merged")
DIMENSION: Final = _rule("tensor.dimension", "No dimension is zero.", "a damaged directory", Authority.FORM)
TENSOR_TYPE: Final = _rule(
    "tensor.type", "The tensor type is one whose size is known.", "a type of a newer writer", Authority.FORM
)
ROW: Final = _rule(
    "tensor.blocks", "The rows of a tensor are whole blocks of its type.", "a wrong type or width"
)
ALIGNED: Final = _rule("tensor.aligned", "A tensor starts on the alignment of the file.", "an edited offset")
OVERLAP: Final = _rule("tensor.overlap", "No two tensors share a byte.", "two records with the same range")
HOLE: Final = _rule(
    "tensor.hole", "Between tensors lies only the padding that alignment asks for.", "a tensor left out"
)
PADDING: Final = _rule("padding", "Padding is zero.", "bytes hidden between tensors")
TRAILING: Final = _rule(
    "trailing", "The file ends with its last tensor, aligned.", "bytes appended, or a tensor left out"
)

MORE: Final = _rule(
    "findings",
    "A directory has few enough findings to list them all.",
    "a damaged directory",
    Authority.PROCESS,
)

MAX_FINDINGS: Final = 64
_MAX_PADDING: Final = 1 << 31
"""What padding may add up to: it is read, and a hole in the file would let a small one hold the reader for hours."""
OPAQUE_ALIGNMENT: Final = 4096
OPAQUE_NAMES: Final = frozenset({"ds4.expert_major.v2", "ds4.dspark.expert_major.v2", "ds4.ple_rows.v1"})


def judge_gguf(gguf: Gguf, extent: Extent | None = None) -> list[Finding]:
    """Returns the disagreements inside one directory; beyond the first 64 they are counted.

    Args:
        gguf: what the file declares.
        extent: the whole file, to read the padding; without it the padding is not judged.
    """
    found = chain(_metadata(gguf), _records(gguf), _partition(gguf))
    findings = list(islice(found, MAX_FINDINGS))
    if more := sum(1 for _ in found):
        findings.append(_finding(MORE, "directory", f"at most {MAX_FINDINGS} findings", f"{more} more"))
    if extent is not None and not findings:
        findings += islice(_padding(gguf, extent), MAX_FINDINGS)
    return findings


def split_unknown(findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Returns faults, and gaps: that a type is newer than the table here says nothing against somebody else's file."""
    found = list(findings)
    return [one for one in found if one.code != TENSOR_TYPE], [
        one for one in found if one.code == TENSOR_TYPE
    ]


def _metadata(gguf: Gguf) -> Iterator[Finding]:
    for key, count in Counter(entry.key for entry in gguf.entries).items():
        if count > 1:
            yield _finding(KEY_UNIQUE, key, "one entry", f"{count} entries")
    for entry in gguf.entries:
        if entry.value.element is not None and entry.value.element.name == "ARRAY":
            continue
        try:
            entry.value.python()
        except ValueError as error:
            yield _finding(VALUE, entry.key, f"a well-formed {entry.value.kind}", error)


def _records(gguf: Gguf) -> Iterator[Finding]:
    for name, count in Counter(tensor.name for tensor in gguf.tensors).items():
        if count > 1:
            yield _finding(NAME_UNIQUE, name, "one record", f"{count} records")
    for tensor in gguf.tensors:
        for axis, extent in enumerate(tensor.dimensions):
            if extent == 0:
                yield _finding(DIMENSION, f"{tensor.name}.dim[{axis}]", "at least 1", 0)
        block = GGML.get(tensor.type_id)
        if block is None:
            yield _finding(TENSOR_TYPE, f"{tensor.name}.type", "a type of known size", tensor.type_id)
        elif tensor.bytes is None:
            left = tensor.dimensions[0] % block.elements
            yield _finding(
                ROW,
                f"{tensor.name}.dim[0]",
                f"a multiple of {block.elements} ({block.name})",
                f"{tensor.dimensions[0]}, which leaves {left}",
            )
        if tensor.offset % gguf.alignment:
            yield _finding(ALIGNED, f"{tensor.name}.offset", f"a multiple of {gguf.alignment}", tensor.offset)


def _partition(gguf: Gguf) -> Iterator[Finding]:
    """Walks the data in the order of offsets; a tensor of unknown size ends what can be said of its neighbour."""
    end: int | None = 0
    last = "the directory"
    for tensor in sorted(gguf.tensors, key=lambda one: (one.offset, one.bytes or 0)):
        if end is not None:
            if tensor.offset < end:
                yield _finding(
                    OVERLAP, f"{tensor.name}.offset", f"at least {end}, where {last} ends", tensor.offset
                )
            elif tensor.offset not in _starts(gguf, tensor, end):
                yield _finding(
                    HOLE,
                    f"{tensor.name}.offset",
                    f"{_starts(gguf, tensor, end)[0]} after {last}",
                    tensor.offset,
                )
        last = tensor.name
        end = None if tensor.bytes is None else max(end or 0, tensor.offset + tensor.bytes)
    if end is not None:
        ends = {gguf.data_start + end, gguf.data_start + align_up(end, gguf.alignment)}
        if not gguf.tensors:
            ends.add(gguf.directory_end)
        if gguf.file_bytes not in ends:
            yield _finding(TRAILING, "file length", max(ends), gguf.file_bytes)


def _starts(gguf: Gguf, tensor: Tensor, end: int) -> list[int]:
    """Returns where a tensor may start after `end`; an opaque store may start on the next page of the file."""
    starts = [align_up(end, gguf.alignment)]
    if tensor.name in OPAQUE_NAMES:
        starts.insert(0, align_up(gguf.data_start + end, OPAQUE_ALIGNMENT) - gguf.data_start)
    return starts


def _padding(gguf: Gguf, extent: Extent) -> Iterator[Finding]:
    gaps = [(gguf.directory_end, gguf.data_start, "before the data")]
    end = gguf.data_start
    for tensor in sorted(gguf.tensors, key=lambda one: one.offset):
        start = gguf.data_start + tensor.offset
        gaps.append((end, start, f"before {tensor.name}"))
        end = start + (tensor.bytes or 0)
    gaps.append((end, gguf.file_bytes, "at the end"))
    total = sum(max(0, stop - begin) for begin, stop, _ in gaps)
    if total > _MAX_PADDING:
        yield _finding(PADDING, "all padding", f"at most {_MAX_PADDING} bytes", total)
        return
    for begin, stop, where in gaps:
        if not begin < stop <= extent.size:
            continue
        try:
            used = _first_used(extent, begin, stop)
        except AssayError as error:
            yield error.finding
            return
        if used is not None:
            yield _finding(PADDING, where, "zeros", f"byte {used[1]:#04x} at {used[0]}")


def _first_used(extent: Extent, begin: int, stop: int) -> tuple[int, int] | None:
    """Returns place and value of the first byte that isn't zero; a file may declare any gap, so it reads in pieces."""
    for piece in extent.pieces(begin, stop - begin):
        used = piece.lstrip(b"\0")
        if used:
            return begin + len(piece) - len(used), used[0]
        begin += len(piece)
    return None


def _finding(code: str, where: str, expected: object, got: object) -> Finding:
    return Finding.of(code, STAGE, where, expected=expected, got=got)
