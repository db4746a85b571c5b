"""Reads the values of a checkpoint's tensors in pieces, each from the one file that the index names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from assay.impl.stores.checkpoint.inventory import Inventory, InventoryRow, gather_inventory
from assay.impl.stores.checkpoint.layout import read_layout
from assay.impl.stores.files import open_regular, read_exactly
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

ABSENT: Final = declare(
    "checkpoint.tensor", Authority.RULE, "A tensor that is asked for is owned by a shard of the checkpoint.",
    source="assay: reading checkpoints", cause="a name of another family or revision",
)  # fmt: skip
PIECE_BYTES: Final = 1 << 20
_STAGE: Final = "payload"


class CheckpointReader:
    """The tensors of a directory by name; nothing is read until it is asked for, and never more than a piece."""

    def __init__(self, folder: Path, inventory: Inventory, data_starts: dict[str, int]) -> None:
        self.folder = folder
        self.rows: dict[str, InventoryRow] = {row.name: row for row in inventory.rows}
        self._data_starts = data_starts

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Reads index and headers.

        Raises:
            AdmissionError: the first finding of index, headers or ownership; nothing doubtful is read from.
        """
        layout = read_layout(folder)
        findings = [*layout.found("index")[0], *layout.found("headers")[0], *layout.found("headers")[1]]
        inventory, owners = gather_inventory(layout.index, layout.headers)
        findings += owners
        if findings:
            raise AdmissionError(findings[0])
        return cls(folder, inventory, {header.file: header.data_start for header in layout.headers.values()})

    def pieces(self, name: str, *, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the little-endian bytes [begin, end) of a tensor in pieces of at most 1 MiB.

        Raises:
            AdmissionError: `checkpoint.tensor` for an unknown name or a range outside it, or `input.file.*`.
        """
        row = self.rows.get(name)
        if row is None:
            raise AdmissionError(
                Finding.of(ABSENT, _STAGE, name, expected="a tensor of the index", got="none")
            )
        size = row.end - row.begin
        last = size if end is None else end
        if not 0 <= begin <= last <= size:
            got = f"[{begin}, {last})"
            raise AdmissionError(
                Finding.of(ABSENT, _STAGE, name, expected=f"a range inside {size} bytes", got=got)
            )
        with open_regular(self.folder / row.shard, stage=_STAGE, where=row.shard) as file:
            file.seek(self._data_starts[row.shard] + row.begin + begin)
            left = last - begin
            while left:
                piece = read_exactly(file, min(left, PIECE_BYTES), stage=_STAGE, where=f"{row.shard}: {name}")
                left -= len(piece)
                yield piece

    def read(self, name: str) -> bytes:
        """Returns all bytes of a tensor that is known to be small."""
        return b"".join(self.pieces(name))
