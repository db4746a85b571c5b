"""Append-only rows that many states share: what a state sees never changes, and appending copies nothing old.

A buffer is longer than what was published of it. A chunk that is published writes its rows behind the last published
one and only then becomes visible through a new length; a chunk that fails leaves garbage that no state can see. A
second state that appends to the same buffer (a fork, or a state gone back to) gets a buffer of its own.
"""

from dataclasses import dataclass
from typing import Any, Final

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

FIRST_ROWS: Final = 64


class Buffer:
    """Rows of one width, of which the first `claimed` belong to some state."""

    __slots__ = ("array", "claimed", "view")

    def __init__(self, rows: int, shape: tuple[int, ...]) -> None:
        _require_room((rows, *shape))
        self.array = mx.zeros((rows, *shape))
        mx.eval(self.array)
        self.view: NDArray[np.float32] = np.asarray(self.array)  # the same memory, writable
        self.claimed = 0


@dataclass(frozen=True, slots=True)
class Column:
    """The first `length` rows of a buffer, float32."""

    buffer: Buffer
    length: int

    @property
    def rows(self) -> NDArray[np.float32]:
        """The visible rows, read-only."""
        found = self.buffer.view[: self.length]
        found.flags.writeable = False
        return found

    @property
    def array(self) -> mx.array:
        """The whole buffer for a gather; ids must be bounded by `length` first."""
        return self.buffer.array


def empty(shape: tuple[int, ...], rows: int = 0) -> Column:
    """Returns a column without rows.

    Args:
        shape: of one row.
        rows: how many are to come, if that is known.
    """
    return Column(Buffer(max(rows, FIRST_ROWS), shape), 0)


def appended(column: Column, new: NDArray[Any]) -> Column:
    """Returns the column with rows behind it; the given column shows what it showed.

    Raises:
        MemoryError: when a larger buffer can't be had; nothing has changed then.
    """
    buffer, length = column.buffer, column.length
    stop = length + new.shape[0]
    if buffer.claimed != length or stop > buffer.view.shape[0]:
        grown = Buffer(max(stop, FIRST_ROWS, stop + stop // 2), buffer.view.shape[1:])
        grown.view[:length] = buffer.view[:length]
        buffer = grown
    buffer.view[length:stop] = new
    buffer.claimed = stop
    return Column(buffer, stop)


def released(column: Column, attempt: Column) -> None:
    """Gives back the rows of an attempt that was not published, so that a retry appends in place."""
    if attempt.buffer is column.buffer and attempt.buffer.claimed == attempt.length:
        attempt.buffer.claimed = column.length


def reserved(column: Column, rows: int) -> Column:
    """Returns an equal column whose buffer has room for `rows` rows in all."""
    if column.buffer.view.shape[0] >= rows and column.buffer.claimed == column.length:
        return column
    grown = Buffer(max(rows, column.length), column.buffer.view.shape[1:])
    grown.view[: column.length] = column.buffer.view[: column.length]
    grown.claimed = column.length
    return Column(grown, column.length)


def _require_room(shape: tuple[int, ...]) -> None:
    """Asks the allocator by way of NumPy: where malloc returns nothing, MLX on the CPU ends the process.

    Raises:
        MemoryError: when as much can't be had.
    """
    try:
        np.empty(shape, np.float32)
    except ValueError as error:  # more than an address can name
        raise MemoryError(f"{shape} values") from error
