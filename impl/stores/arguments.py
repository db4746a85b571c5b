"""What callers hand to a store: numbers and buffers, refused in one typed line instead of whatever Python raises.

A number is an integer of any type that says so (`numpy.int64` does, `True` and `1.0` don't). A buffer is contiguous
memory counted in bytes, whatever its elements are called; it is looked at before anything is read.
"""

import operator
from collections.abc import Iterable
from typing import Any, Final

from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

BUFFER: Final = declare(
    "store.buffer",
    Authority.FORM,
    "A buffer is contiguous memory of exactly the bytes that go into or come from it, writable where it is filled.",
    source="ExpertMajor v2 and PLE rows v1, access calls",
    cause="a strided view, a read-only one, a list, or a buffer of another record size",
    fix="hand over a bytearray, an mmap or a memoryview of contiguous memory with the size that `locate_*` says",
)
BOUND: Final = declare(
    "store.bound",
    Authority.FORM,
    "A budget or a number of threads is an integer in its range.",
    source="assay: calls of the stores",
    cause="a negative or fractional budget",
)

STAGE: Final = "arguments"


def integer(value: object) -> int | None:
    """Returns an integer that isn't a truth value, or None for everything else."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type] # that is the question
    except TypeError:
        return None


def bound(value: object, least: int, where: str) -> int:
    """Returns an argument that must be an integer of at least `least`.

    Raises:
        ContractError: store.bound.
    """
    number = integer(value)
    if number is None or number < least:
        raise ContractError(Finding.of(BOUND, STAGE, where, expected=f"an integer from {least}", got=value))
    return number


def numbers(values: object, code: str, stage: str, where: str) -> list[Any]:
    """Returns what a sequence of numbers holds; the numbers themselves are judged where their range is known.

    Raises:
        ContractError: with `code`, when it can't be iterated over.
    """
    if isinstance(values, Iterable):
        return list(values)
    raise ContractError(Finding.of(code, stage, where, expected="a sequence of integers", got=kind(values)))


def readable(buffer: object, size: int | None, where: str, code: str = BUFFER) -> memoryview:
    """Returns the bytes of a buffer that holds exactly `size` of them, if that is given.

    Raises:
        ContractError: store.buffer, or with another `code`.
    """
    try:
        view = memoryview(buffer)  # type: ignore[arg-type] # that is the question
        if not view.c_contiguous:
            raise _wrong(code, where, "contiguous memory", f"a view with strides {view.strides}")
        flat = view if view.format == "B" and view.ndim == 1 else _flat(view)
    except (TypeError, ValueError, BufferError):
        raise _wrong(
            code, where, "a buffer" if size is None else f"a buffer of {size} bytes", kind(buffer)
        ) from None
    if size is not None and flat.nbytes != size:
        raise _wrong(code, where, f"{size} bytes", f"{flat.nbytes} bytes")
    return flat


def writable(buffer: object, size: int | None, where: str, code: str = BUFFER) -> memoryview:
    """Returns the bytes of a buffer that can be filled with exactly `size` of them, if that is given.

    Raises:
        ContractError: store.buffer, or with another `code`.
    """
    view = readable(buffer, size, where, code)
    if view.readonly:
        raise _wrong(code, where, "a writable buffer", f"a read-only {type(buffer).__name__}")
    return view


def kind(value: object) -> str:
    """Returns how a refused argument is called: its type, and what it is where that is short."""
    name = type(value).__name__
    return f"{name} {value!r}" if isinstance(value, (int, float, str, type(None))) else name


def _flat(view: memoryview) -> memoryview:
    """Casts to bytes; one without elements has nothing to cast."""
    return view.cast("B") if view.nbytes else memoryview(b"" if view.readonly else bytearray())


def _wrong(code: str, where: str, expected: str, got: str) -> ContractError:
    return ContractError(Finding.of(code, STAGE, where, expected=expected, got=got))
