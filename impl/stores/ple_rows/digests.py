"""Where page digests come from after open: memory, or the file behind seals that were taken at open.

A sealed table keeps a digest of each 4 KiB of itself, 1/128 of its size; no entry is trusted that the manifest digest
didn't cover.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

from assay.impl.stores.extents import PIECE_BYTES, Extent
from assay.impl.stores.overlap import in_order
from assay.impl.stores.ple_rows.layout import DIGEST_BYTES, HEADER_BYTES, STAGE
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

TABLE_CHANGED: Final = declare(
    "ple-store.table-changed",
    Authority.RULE,
    "The digest table is still the one that the manifest digest covered at open.",
    source="PLE rows v1; AFN-003, no check of one read and use of another",
    cause="the file was written to after it was opened",
)

_SEAL_BYTES: Final = 4096


class DigestTable:
    """Where page digests come from."""

    memory_bytes = 0

    def entry(self, page: int) -> bytes:
        """Returns the digest of one page, as covered by the manifest digest."""
        raise AssertionError(page)  # pragma: no cover - both kinds override it

    def entries(self, first: int, count: int) -> bytes:
        """Returns the digests of consecutive pages, one after another; each part of the table is read once."""
        return b"".join(self.entry(page) for page in range(first, first + count))

    def places(self, pages: Sequence[int]) -> list[tuple[int, int]]:
        """Returns the (offset, size) ranges that `entry` will read for these pages."""
        del pages
        return []


class ResidentDigests(DigestTable):
    """A table that is kept in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.memory_bytes = len(data)

    def entry(self, page: int) -> bytes:
        """Returns the digest of one page."""
        return self._data[DIGEST_BYTES * page : DIGEST_BYTES * page + DIGEST_BYTES]

    def entries(self, first: int, count: int) -> bytes:
        """Returns the digests of consecutive pages."""
        return self._data[DIGEST_BYTES * first : DIGEST_BYTES * (first + count)]


class SealedDigests(DigestTable):
    """A table that stays on disk, behind a digest of each 4 KiB of it."""

    def __init__(self, extent: Extent, table_bytes: int, seals: bytes) -> None:
        self._extent = extent
        self._table_bytes = table_bytes
        self._seals = seals
        self.memory_bytes = len(seals)

    @classmethod
    def streamed(cls, extent: Extent, table_bytes: int, feed: Callable[[bytes], None]) -> "SealedDigests":
        """Reads a table once, hands its bytes on, and keeps the seals."""
        seals = bytearray()

        def work(offset: int) -> tuple[bytes, bytes]:
            data = extent.read(HEADER_BYTES + offset, min(PIECE_BYTES, table_bytes - offset))
            view = memoryview(data)
            return data, b"".join(
                hashlib.sha256(view[start : start + _SEAL_BYTES]).digest()
                for start in range(0, len(data), _SEAL_BYTES)
            )

        threads = 2 if table_bytes > 8 * PIECE_BYTES else 1  # starting threads costs more than a small table
        for data, seal in in_order(work, range(0, table_bytes, PIECE_BYTES), threads):
            feed(data)
            seals += seal
        return cls(extent, table_bytes, bytes(seals))

    def entry(self, page: int) -> bytes:
        """Returns the digest of one page, read again and checked against its seal.

        Raises:
            AdmissionError: ple-store.table-changed or store.file.*.
        """
        return self.entries(page, 1)

    def entries(self, first: int, count: int) -> bytes:
        """Returns the digests of consecutive pages, read again and checked against their seals.

        Raises:
            AdmissionError: ple-store.table-changed, naming the first page of the changed part that was asked for, or
                store.file.*.
        """
        start, stop = DIGEST_BYTES * first, DIGEST_BYTES * (first + count)
        begin = start // _SEAL_BYTES * _SEAL_BYTES
        end = min(-(-stop // _SEAL_BYTES) * _SEAL_BYTES, self._table_bytes)
        data = self._extent.read(HEADER_BYTES + begin, end - begin)
        view = memoryview(data)
        for place in range(begin, end, _SEAL_BYTES):
            number = place // _SEAL_BYTES
            seal = self._seals[DIGEST_BYTES * number : DIGEST_BYTES * number + DIGEST_BYTES]
            found = hashlib.sha256(view[place - begin : place - begin + _SEAL_BYTES]).digest()
            if found != seal:
                page = max(first, place // DIGEST_BYTES)
                raise AdmissionError(
                    Finding.of(TABLE_CHANGED, STAGE, f"pages[{page}]", expected=seal.hex(), got=found.hex())
                )
        return data[start - begin : stop - begin]

    def places(self, pages: Sequence[int]) -> list[tuple[int, int]]:
        """Returns the sealed parts that hold the digests of these pages."""
        parts = sorted({DIGEST_BYTES * page // _SEAL_BYTES for page in pages})
        return [
            (
                HEADER_BYTES + part * _SEAL_BYTES,
                min(_SEAL_BYTES, self._table_bytes - part * _SEAL_BYTES),
            )
            for part in parts
        ]
