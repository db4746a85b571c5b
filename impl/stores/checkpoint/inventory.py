"""The inventory: every stored tensor, owned by the one file that the index names, and the digest of them all."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from assay.impl.stores.checkpoint.safetensors import Header
from assay.impl.stores.checkpoint.shard_index import INDEX_NAME, TOTAL_SIZE, ShardIndex
from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding

UNOWNED: Final = declare(
    "inventory.unowned", Authority.RULE,
    "Every tensor stored in a shard is indexed to that shard; a copy elsewhere is refused, not loaded last.",
    source="vllm-project/vllm#54230: old expert tensors in reused shards overwrote the right ones",
    cause="shards reused from another conversion, or an index that was not rewritten",
    fix="rewrite the file that holds the extra copy, or correct the index",
)  # fmt: skip
ABSENT: Final = declare(
    "inventory.absent", Authority.RULE, "Every indexed tensor lies in the file that the index names.",
    source="Hugging Face sharded checkpoint index", cause="a shard from another revision, or an edited index",
)  # fmt: skip
STAGE: Final = "inventory"


@dataclass(frozen=True, slots=True)
class InventoryRow:
    """One tensor with its owner; the span is in bytes of the owner's payload."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """The owned tensors, by name, and the bytes that they take."""

    rows: tuple[InventoryRow, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all spans."""
        return sum(row.end - row.begin for row in self.rows)

    @property
    def digest(self) -> str:
        """The inventory digest."""
        return inventory_digest(self.rows)


def inventory_digest(rows: Iterable[InventoryRow]) -> str:
    """Returns the SHA-256 over all rows sorted by name.

    Each row is name, dtype, comma-joined shape, shard, begin and end, separated by NUL and ended by a line feed.

    Source: the published inventory of the pinned revision, whose digest is a639efc7...1dc434.
    """
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda one: one.name.encode("utf-8")):
        shape = ",".join(map(str, row.shape))
        fields = (row.name, row.dtype, shape, row.shard, str(row.begin), str(row.end))
        digest.update("\0".join(fields).encode("utf-8") + b"\n")
    return digest.hexdigest()


def gather_inventory(
    index: ShardIndex | None, headers: Mapping[str, Header], absent_files: Iterable[str] = ()
) -> tuple[Inventory, list[Finding]]:
    """Joins headers and index; without an index, the single header owns its tensors.

    Args:
        index: who owns what; None for a checkpoint of one file.
        headers: by file name, in any order: the order has no influence.
        absent_files: files whose header could not be read; their tensors are not said to be absent.

    Returns:
        The owned tensors sorted by name, and every disagreement.
    """
    stored: dict[str, list[InventoryRow]] = {}
    for header in headers.values():
        for tensor in header.tensors:
            row = InventoryRow(tensor.name, tensor.dtype, tensor.shape, header.file, tensor.begin, tensor.end)
            stored.setdefault(tensor.name, []).append(row)
    owners = index.owners if index is not None else {name: rows[0].shard for name, rows in stored.items()}
    unjudged = set(absent_files)
    unread = {(header.file, name) for header in headers.values() for name in header.unread}
    owned: list[InventoryRow] = []
    findings: list[Finding] = []
    for name in sorted(stored.keys() | owners.keys()):
        rows, owner = stored.get(name, []), owners.get(name)
        if len(rows) == 1 and rows[0].shard == owner:
            owned.append(rows[0])
            continue
        rows = sorted(rows, key=lambda row: row.shard)
        mine = next((row for row in rows if row.shard == owner), None)
        if mine is not None:
            owned.append(mine)
        elif owner is not None and owner not in unjudged and (owner, name) not in unread:
            got = (
                f"it lies in {', '.join(row.shard for row in rows)}" if rows else _why_absent(owner, headers)
            )
            findings.append(
                Finding.of(ABSENT, STAGE, name, expected=f"in {owner}, as the index says", got=got)
            )
            continue  # where it lies instead is part of the same fault
        findings += [
            Finding.of(
                UNOWNED, STAGE, f"{row.shard}: {name}",
                expected=f"only in {owner}{', as the index says' if index is not None else ''}" if owner
                else "an entry in the index",
                got=f"stored in {row.shard} as well" if mine is not None else f"stored in {row.shard}, unindexed"
                if owner is None else f"stored in {row.shard}",
            )
            for row in rows
            if row.shard != owner
        ]  # fmt: skip
    inventory = Inventory(tuple(owned))
    total = index.total_size if index is not None else None
    if total is not None and not unjudged and not unread and not findings and total != inventory.total_bytes:
        findings.append(
            Finding.of(
                TOTAL_SIZE,
                "index",
                f"{INDEX_NAME}: metadata.total_size",
                expected=inventory.total_bytes,
                got=total,
            )
        )
    return inventory, findings


def _why_absent(owner: str, headers: Mapping[str, Header]) -> str:
    return "that file's header has no such tensor" if owner in headers else "no such file was read"
