"""An admitted artifact in the form of a checkpoint: the same names, shapes and bytes, from three owners instead of shards.

A loader that reads checkpoints reads artifacts through it. Experts come as fused tensors again, rows as one table whose
every row is from a verified page, hash buffers as the configuration derives them. Quantised experts come as the float32
values that their codec gives.
"""

from collections.abc import Iterator
from math import prod
from typing import Final

from assay.impl.stores.artifact.geometry import PREFIX, hash_values, read_geometry, routed_shapes, table_stem
from assay.impl.stores.artifact.opened import Artifact
from assay.impl.stores.checkpoint.inventory import InventoryRow
from assay.impl.stores.checkpoint.reader import ABSENT
from assay.impl.stores.expert_major.layout import Storage
from assay.spec.errors import AdmissionError, Finding

PIECE_BYTES: Final = 1 << 20
_WIDTHS: Final = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8}


class ArtifactTensors:
    """The tensors of an artifact by their checkpoint names; nothing is read until it is asked for.

    Attributes:
        rows: name -> record, as a checkpoint reader has them; the shard is the owner.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        geometry = read_geometry(artifact.config)
        self.rows: dict[str, InventoryRow] = {}
        for name in artifact.names:
            dtype, shape, _ = artifact.dense(name)
            self._add(name, dtype, shape, "dense")
        self._is_affine = artifact.experts.manifest.header.storage == Storage.MLX_AFFINE4
        experts = "F32" if self._is_affine or artifact.descriptor.facts["expertCodec"] == "f32" else "BF16"
        for name, shape in routed_shapes(geometry).items():
            self._add(name, experts, shape, "experts")
        self._table = f"{table_stem(geometry)}weight"
        table = artifact.rows.geometry.table
        kind = artifact.rows.geometry.codec.id.removeprefix("assay-raw-").removesuffix("-v1").upper()
        self._add(self._table, kind, (table.rows, table.width), "rows")
        self._buffers = {
            name: b"".join(value.to_bytes(8, "little", signed=True) for value in values)
            for name, values in hash_values(geometry).items()
        }
        for name, data in self._buffers.items():
            self._add(name, "I64", (len(data) // 8,), "metadata")

    def pieces(self, name: str, *, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the little-endian bytes [begin, end) of a tensor in pieces of about 1 MiB, or of an expert's role.

        Raises:
            AdmissionError: checkpoint.tensor for an unknown name or a range outside it; store.file.*;
                ple-store.page.* for a damaged page.
        """
        row = self.rows.get(name)
        size = row.end - row.begin if row is not None else 0
        last = size if end is None else end
        if row is None or not 0 <= begin <= last <= size:
            got = "none" if row is None else f"[{begin}, {last})"
            raise AdmissionError(
                Finding.of(
                    ABSENT,
                    "payload",
                    name,
                    expected="a tensor of the artifact and a range inside it",
                    got=got,
                )
            )
        if name in self._buffers:
            yield self._buffers[name][begin:last]
        elif row.shard == "dense":
            yield from self._artifact.dense(name)[2].pieces(begin, last - begin)
        elif row.shard == "rows":
            yield from self._row_pieces(begin, last)
        else:
            yield from self._expert_pieces(row, begin, last)

    def read(self, name: str) -> bytes:
        """Returns all bytes of a tensor that is known to be small."""
        return b"".join(self.pieces(name))

    def _add(self, name: str, dtype: str, shape: tuple[int, ...], owner: str) -> None:
        self.rows[name] = InventoryRow(name, dtype, shape, owner, 0, prod(shape) * _WIDTHS[dtype])

    def _row_pieces(self, begin: int, end: int) -> Iterator[bytes]:
        size = self._artifact.rows.geometry.codec.row_bytes
        step = max(1, PIECE_BYTES // size)
        for first in range(begin // size, -(-end // size), step):
            stop = min(first + step, -(-end // size))
            data = self._artifact.rows.read_rows(range(first, stop))
            yield data[max(0, begin - first * size) : end - first * size]

    def _expert_pieces(self, row: InventoryRow, begin: int, end: int) -> Iterator[bytes]:
        """Yields roles in the order of the fused tensor: of each expert gate and up, or down."""
        layer = int(row.name.removeprefix(f"{PREFIX}layers.").split(".")[0])
        roles = (0, 1) if row.name.endswith("gate_up_proj") else (2,)
        size = (row.end - row.begin) // (row.shape[0] * len(roles))
        for number in range(begin // size, -(-end // size)):
            expert, place = divmod(number, len(roles))
            data = self._component(layer, expert, roles[place])
            yield data[max(0, begin - number * size) : end - number * size]

    def _component(self, layer: int, expert: int, role: int) -> bytes:
        data = bytes(self._artifact.experts.read_record(layer, expert).component(role))
        if not self._is_affine:
            return data
        import numpy as np

        from assay.impl.stores.expert_major.affine4 import decode

        return decode(np.frombuffer(data, dtype=np.uint8), "f32").astype("<f4").tobytes()
