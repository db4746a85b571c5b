"""Row tables: the public one of Qwen4Exp as literals, and the rule that gives the table of any configuration.

The public numbers stand here as data, not as the rule's output, so that neither can drift with the other.
"""

from typing import Final

from assay.impl.stores.arguments import integer
from assay.impl.stores.expert_major.blocks import Block, row_bytes
from assay.impl.stores.gguf.reader import align_up
from assay.impl.stores.ple_rows.layout import (
    HEADS,
    MAX_HEADS,
    ROW_ALIGNMENT,
    STAGE,
    PleGeometry,
    RowCodec,
    RowTable,
)
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

ROOM: Final = declare(
    "ple-store.page.room",
    Authority.RULE,
    "A page has room for its header and at least one row.",
    source="PLE rows v1, page layout",
    cause="a page size that is smaller than a row",
)
HASH_ID: Final = "SplitMix64-Qwen4Exp-v1"

QWEN4EXP_ROWS: Final = RowTable(
    family=4,
    profile="qwen4exp-base-v1",
    hash_id=HASH_ID,
    rows=320_001_536,
    width=160,
    row_alignment=128,
    primes=(
        20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
        20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171,
    ),
    offsets=(
        0, 20000003, 40000026, 60000059, 80000106, 100000165, 120000228, 140000297,
        160000374, 180000455, 200000548, 220000655, 240000802, 260000955, 280001114, 300001275,
    ),
)  # fmt: skip
"""Rows of the public profile; PLE rows v1, exact numbers."""

STRUCTURAL: Final = PleGeometry(
    QWEN4EXP_ROWS,
    RowCodec("q4exp-fixture-bf16-v1", 1, 1, 320),
    rows_per_page=320_001_536,
    page_alignment=4096,
)
"""The structural fixture: every row in one page, which no reader can snapshot."""


def raw_codec(name: str, block: Block, width: int) -> RowCodec:
    """Returns the codec of rows kept in a plain or block type.

    Args:
        name: codec id.
        block: the block type of a row.
        width: values in a row.

    Raises:
        ContractError: codec.blocks.cover, when blocks don't cover a row exactly.
    """
    return RowCodec(name, 1, block.elements, row_bytes(width, block, f"row of {name}"))


def paged(table: RowTable, codec: RowCodec, page_bytes: int) -> PleGeometry:
    """Returns the geometry with as many rows in a page of `page_bytes` as fit.

    Raises:
        ContractError: ple-store.page.room, when not even one row fits beside the page header.
    """
    size = integer(page_bytes)
    rows = 0 if size is None else (size - 64) // codec.row_bytes
    if size is None or rows < 1:
        raise ContractError(
            Finding.of(
                ROOM, STAGE, "page_bytes", expected=f"at least {64 + codec.row_bytes} bytes", got=page_bytes
            )
        )
    return PleGeometry(table, codec, min(rows, table.rows), max(4096, size))


def derived_table(
    *, family: int, profile: str, base: int, heads: int, width: int, alignment: int
) -> RowTable:
    """Returns the row table of a configuration: one prime for each head, the first ones not below `base`.

    Args:
        family: family number that the store states.
        profile: profile id.
        base: ngram_vocab_size_base.
        heads: number of hash heads.
        width: values in a row.
        alignment: make_ngram_vocab_size_divisible_by.

    Raises:
        ContractError: ple-store.heads or ple-store.row-alignment, for numbers that no table can have.
    """
    for code, where, value, least, most in (
        (HEADS, "heads", heads, 1, MAX_HEADS),
        (HEADS, "base", base, 1, (1 << 32) - 1),
        (ROW_ALIGNMENT, "alignment", alignment, 1, 1 << 32),
    ):
        number = integer(value)
        if number is None or not least <= number <= most:
            raise ContractError(
                Finding.of(code, STAGE, where, expected=f"an integer in {least}..{most}", got=value)
            )
    primes: list[int] = []
    candidate = base
    while len(primes) < heads:
        if _is_prime(candidate):
            primes.append(candidate)
        candidate += 1
    offsets = [sum(primes[:head]) for head in range(heads)]
    rows = align_up(sum(primes), alignment)
    return RowTable(family, profile, HASH_ID, rows, width, alignment, tuple(primes), tuple(offsets))


def _is_prime(number: int) -> bool:
    if number < 4:
        return number > 1
    if number % 2 == 0:
        return False
    divisor = 3
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 2
    return True
