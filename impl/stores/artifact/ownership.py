"""Stage `ownership`: every byte of the file has one owner, owners are disjoint, and dense pages touch no opaque one.

The file is header, dense tensors in the byte order of their names, the expert store, the row store, end of file.
Between them lies only the padding that alignment asks for. What is computed here is what a runtime may rely on when
it warms up the dense pages: rounded out to whole pages, they must not pull in a byte of a store.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from assay.impl.stores.artifact.descriptor import EXPERT_TENSOR, PLE_TENSOR
from assay.impl.stores.extents import Extent
from assay.impl.stores.gguf.reader import Gguf, align_up
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

STAGE: Final = "ownership"
PAGE: Final = 4096
_SOURCE = "field note AFN-004; the layout rules of the artifact; bug report A21"


def _clause(name: str, meaning: str, cause: str) -> str:
    return declare(f"artifact.owner.{name}", Authority.RULE, meaning, source=_SOURCE, cause=cause)


SPANS: Final = _clause("spans", "No two tensors share a byte.", "two records with the same range")
COVERAGE: Final = _clause(
    "coverage", "Between owners lies only the gap that alignment asks for.", "a tensor left out, or bytes hidden"
)  # fmt: skip
ORDER: Final = _clause(
    "order", "Dense tensors come first, then the expert store, then the row store.", "a writer with another order"
)  # fmt: skip
DENSE_ORDER: Final = _clause(
    "dense-order", "Dense tensors lie in the byte order of their names.", "a writer that keeps the source's order"
)  # fmt: skip
OPAQUE: Final = _clause(
    "opaque", "A store starts and ends on a page of 4096 bytes.", "a store packed like a tensor"
)
END: Final = _clause("end", "The row store ends the file.", "bytes appended, or a store moved")
PADDING: Final = _clause("padding", "Padding is zero.", "bytes hidden between owners")
PAGES: Final = _clause(
    "pages", "Dense spans rounded out to pages touch no opaque owner.",
    "a store that starts in the page in which the dense tensors end",
)  # fmt: skip
WHOLE: Final = _clause(
    "whole", "Header, owners and padding together are the whole file.", "bytes that nobody owns"
)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [start, end) of the file under one name."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who owns which bytes.

    Attributes:
        header: bytes before the data.
        dense: spans of the dense tensors, in the order of the file.
        expert: the expert store.
        ple: the row store.
        padding: bytes between owners.
        warm: page-rounded union of the dense spans: what a runtime may touch at start.
    """

    header: int
    dense: tuple[Span, ...]
    expert: Span
    ple: Span
    padding: int
    warm: tuple[Span, ...]

    @property
    def dense_bytes(self) -> int:
        """Bytes of the dense tensors."""
        return sum(one.end - one.start for one in self.dense)

    @property
    def expert_bytes(self) -> int:
        """Bytes of the expert store."""
        return self.expert.end - self.expert.start

    @property
    def ple_bytes(self) -> int:
        """Bytes of the row store."""
        return self.ple.end - self.ple.start

    @property
    def owned_bytes(self) -> int:
        """Bytes of the three owners."""
        return self.dense_bytes + self.expert_bytes + self.ple_bytes

    @property
    def warm_bytes(self) -> int:
        """Bytes of the page-rounded dense spans."""
        return sum(one.end - one.start for one in self.warm)


def judge_ownership(
    gguf: Gguf, extent: Extent, *, ends_on_page: bool = True
) -> tuple[Ownership | None, list[Finding]]:
    """Returns who owns what, or None when there is no telling, and every disagreement.

    Args:
        gguf: the directory.
        extent: the whole file, for the bytes of the padding.
        ends_on_page: whether the expert store must end on a page; small private ones need not, and the rest of
            their last page is padding that belongs to nobody else.
    """
    spans = {
        tensor.name: Span(
            tensor.name,
            gguf.data_start + tensor.offset,
            gguf.data_start + tensor.offset + (tensor.bytes or 0),
        )
        for tensor in gguf.tensors
    }
    if EXPERT_TENSOR not in spans or PLE_TENSOR not in spans or len(spans) != len(gguf.tensors):
        return None, []  # the inventory has said so
    expert, ple = spans[EXPERT_TENSOR], spans[PLE_TENSOR]
    dense = tuple(
        sorted(
            (one for one in spans.values() if one not in {expert, ple}),
            key=lambda one: (one.start, one.end, one.name),
        )
    )
    ordered = sorted(spans.values(), key=lambda one: (one.start, one.end, one.name))
    gaps = list(_gaps(gguf, ordered))
    padding = sum(stop - begin for begin, stop in gaps)
    owned = Ownership(gguf.data_start, dense, expert, ple, padding, tuple(page_spans(dense)))
    findings = [
        *_overlaps(gguf, ordered),
        *_layout(gguf, owned),
        *_opaque(owned, ends_on_page=ends_on_page),
        *_pages(owned),
        *_extent(gguf, owned),
    ]
    if not findings:
        findings += _padding(extent, [(gguf.directory_end, gguf.data_start), *gaps])
    return owned, findings


def page_spans(spans: Iterable[Span]) -> Iterator[Span]:
    """Yields the union of spans rounded out to pages, in order; touching ones are one."""
    start = end = -1
    for one in sorted(spans, key=lambda span: span.start):
        if one.start == one.end:
            continue
        first, last = one.start // PAGE * PAGE, align_up(one.end, PAGE)
        if end < 0:
            start, end = first, last
        elif first <= end:
            end = max(end, last)
        else:
            yield Span("dense pages", start, end)
            start, end = first, last
    if end >= 0:
        yield Span("dense pages", start, end)


def _overlaps(gguf: Gguf, ordered: Sequence[Span]) -> Iterator[Finding]:
    end, last = gguf.data_start, "the directory"
    for one in ordered:
        if one.start < end:
            expected = f"a start from {end}, where {last} ends"
            yield _finding(SPANS, f"raw tensor spans: {one.name}", expected, one.start)
        if one.end > end:
            end, last = one.end, one.name


def _layout(gguf: Gguf, owned: Ownership) -> Iterator[Finding]:
    names = [one.name for one in owned.dense]
    wanted = sorted(names, key=lambda name: name.encode("utf-8"))
    for name, expected in zip(names, wanted, strict=True):
        if name != expected:
            yield _finding(DENSE_ORDER, "dense physical order", expected, name)
            break
    owners = [("dense", owned.dense[0].start if owned.dense else owned.header)]
    owners += [("expert store", owned.expert.start), ("row store", owned.ple.start)]
    found = [name for name, _ in sorted(owners, key=lambda pair: pair[1])]
    if found != [name for name, _ in owners]:
        yield _finding(ORDER, "physical owner order", "dense, expert store, row store", ", ".join(found))
    end = owned.header
    for one in owned.dense:
        start = align_up(end - owned.header, gguf.alignment) + owned.header
        if one.start > start:
            yield _finding(COVERAGE, f"raw tensor coverage: {one.name}", start, one.start)
        end = max(end, one.end)
    for where, one in (("ExpertMajor owner", owned.expert), ("PLE owner", owned.ple)):
        start = align_up(end, PAGE)
        if one.start > start:
            yield _finding(COVERAGE, f"{where}: {one.name}", start, one.start)
        end = max(end, one.end)


def _opaque(owned: Ownership, *, ends_on_page: bool) -> Iterator[Finding]:
    for where, one in (("ExpertMajor owner", owned.expert), ("PLE owner", owned.ple)):
        is_free = one is owned.expert and not ends_on_page
        for name, place in (("start", one.start), ("end", one.end)):
            if place % PAGE and not (name == "end" and is_free):
                yield _finding(OPAQUE, f"{where}: {one.name} {name}", f"a multiple of {PAGE}", place)


def _pages(owned: Ownership) -> Iterator[Finding]:
    for page, store in itertools.product(owned.warm, (owned.expert, owned.ple)):
        if page.start < store.end and store.start < page.end:
            expected = f"no byte of {store.name} [{store.start}, {store.end})"
            yield _finding(PAGES, "dense page spans", expected, f"[{page.start}, {page.end})")


def _extent(gguf: Gguf, owned: Ownership) -> Iterator[Finding]:
    last = max((*owned.dense, owned.expert, owned.ple), key=lambda one: one.end)
    if owned.ple.end != gguf.file_bytes:
        yield _finding(END, "PLE end", gguf.file_bytes, owned.ple.end)
    if last.name != PLE_TENSOR:
        yield _finding(END, "final tensor extent", PLE_TENSOR, last.name)
    total = owned.header + owned.owned_bytes + owned.padding
    if total != gguf.file_bytes:
        yield _finding(WHOLE, "whole-file ownership", gguf.file_bytes, total)


def _gaps(gguf: Gguf, ordered: Sequence[Span]) -> Iterator[tuple[int, int]]:
    end = gguf.data_start
    for one in ordered:
        if one.start > end:
            yield end, one.start
        end = max(end, one.end)


def _padding(extent: Extent, gaps: Iterable[tuple[int, int]]) -> Iterator[Finding]:
    """Yields the first byte of each gap that isn't zero; the layout was judged, so that every gap is below a page."""
    for begin, stop in gaps:
        try:
            data = extent.read(begin, stop - begin).lstrip(b"\0")
        except AdmissionError as error:
            yield _finding(PADDING, f"padding bytes: {begin}", "readable zeros", error.finding.got)
            return
        if data:
            yield _finding(PADDING, f"padding bytes: {stop - len(data)}", "0x00", f"{data[0]:#04x}")


def _finding(code: str, where: str, expected: object, got: object) -> Finding:
    return Finding.of(code, STAGE, where, expected=expected, got=got)
