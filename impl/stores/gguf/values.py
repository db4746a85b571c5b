"""Typed metadata values of GGUF: equal only when type and bytes are equal.

A number that prints the same in another type is another value: 20000003 as INT32 is not 20000003 as UINT64, and
an editor that rewrites every integer array as INT32 turns 5000000011 into 705032715 without a trace.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

UNWRITABLE: Final = declare(
    "gguf.write.value",
    Authority.FORM,
    "A value to write fits its type: a number its range, a truth value BOOL, Unicode text STRING.",
    source="GGUF v3 format",
    cause="a number of another type, or text with a lone surrogate",
)


class ValueType(IntEnum):
    """GGUF value type codes."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


FORMATS: Final = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "B",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}
"""struct format of each type of fixed width."""

WIDTHS: Final = {kind: struct.calcsize(code) for kind, code in FORMATS.items()}
"""Bytes of each type of fixed width."""


@dataclass(frozen=True, slots=True)
class Value:
    """One metadata value, as the bytes that stand in the file.

    Attributes:
        type: type code of the entry.
        element: type code of the elements of an array, else None.
        count: number of elements of an array, else 1.
        data: encoded payload: after the type code, and for an array after element type and count.
    """

    type: ValueType
    element: ValueType | None
    count: int
    data: bytes

    @property
    def kind(self) -> str:
        """The type in words: `UINT32`, `UINT64[3]`."""
        return self.type.name if self.element is None else f"{self.element.name}[{self.count}]"

    def python(self) -> object:
        """Returns the value as int, float, bool, str, or a list of them.

        Raises:
            ValueError: for a BOOL byte other than 0 and 1, text that is not UTF-8, or an array of arrays.
        """
        if self.element is None:
            return _scalar(self.type, self.data)
        if self.element is ValueType.STRING:
            return _texts(self.data, self.count)
        if self.element is ValueType.ARRAY:
            raise ValueError("an array of arrays has no use here")
        values = list(struct.unpack(f"<{self.count}{FORMATS[self.element]}", self.data))
        if self.element is ValueType.BOOL:
            return [_truth(one) for one in values]
        return values

    def shown(self, limit: int = 80) -> str:
        """Returns type and value on one line, for findings."""
        if len(self.data) > 4096:
            return f"{self.kind} of {len(self.data)} bytes"
        try:
            text = repr(self.python())
        except ValueError as error:
            text = f"{self.data[:24].hex()} ({error})"
        return f"{self.kind} {text if len(text) <= limit else text[: limit - 1] + '…'}"


def scalar(kind: ValueType, value: float | bool | str) -> Value:
    """Makes a value of one element.

    Raises:
        ContractError: gguf.write.value, when the value doesn't fit the type.
    """
    if kind is ValueType.ARRAY:
        raise _unwritable("a type of one element (`array` makes arrays)", kind.name)
    if kind is ValueType.STRING:
        return Value(kind, None, 1, _text(value))
    return Value(kind, None, 1, _packed(kind, [value]))


def array(kind: ValueType, values: list[float] | list[int] | list[bool] | list[str]) -> Value:
    """Makes an array of one element type.

    Raises:
        ContractError: gguf.write.value, when a value doesn't fit the type, or for an array of arrays.
    """
    if kind is ValueType.ARRAY:
        raise _unwritable("elements that are no arrays", "an array of arrays")
    elements: object = values
    if not isinstance(elements, list | tuple):
        raise _unwritable("a list of elements", elements)
    if kind is ValueType.STRING:
        return Value(ValueType.ARRAY, kind, len(values), b"".join(_text(one) for one in values))
    return Value(ValueType.ARRAY, kind, len(values), _packed(kind, list(values)))


def encoded(value: Value) -> bytes:
    """Returns the bytes of an entry after its key: type code, array head if any, payload."""
    head = struct.pack("<I", value.type)
    if value.element is not None:
        head += struct.pack("<IQ", value.element, value.count)
    return head + value.data


def _packed(kind: ValueType, values: list[object]) -> bytes:
    for one in values:
        if isinstance(one, bool) is not (kind is ValueType.BOOL) or isinstance(one, str):
            raise _unwritable(f"a value of type {kind.name}", one)
        try:
            struct.pack(f"<{FORMATS[kind]}", one)
        except (struct.error, OverflowError):
            raise _unwritable(f"a value of type {kind.name}", one) from None
    return struct.pack(f"<{len(values)}{FORMATS[kind]}", *values)


def _unwritable(expected: str, got: object) -> ContractError:
    return ContractError(Finding.of(UNWRITABLE, "gguf", "value", expected=expected, got=got))


def _text(value: object) -> bytes:
    if not isinstance(value, str):
        raise _unwritable("a value of type STRING", value)
    try:
        data = value.encode("utf-8")
    except UnicodeEncodeError:
        raise _unwritable("Unicode text", value) from None
    return struct.pack("<Q", len(data)) + data


def _scalar(kind: ValueType, data: bytes) -> object:
    if kind is ValueType.STRING:
        return data[8:].decode("utf-8")
    (value,) = struct.unpack(f"<{FORMATS[kind]}", data)
    return _truth(value) if kind is ValueType.BOOL else value


def _texts(data: bytes, count: int) -> list[str]:
    texts, offset = [], 0
    for _ in range(count):
        (size,) = struct.unpack_from("<Q", data, offset)
        texts.append(data[offset + 8 : offset + 8 + size].decode("utf-8"))
        offset += 8 + size
    return texts


def _truth(value: int) -> bool:
    if value not in {0, 1}:
        raise ValueError(f"BOOL byte {value}")
    return bool(value)
