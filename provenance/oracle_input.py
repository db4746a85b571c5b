"""Reads the arguments of an oracle: one JSON object, or an .npz file of arrays; bounded, closed, no pickles.

An input is untrusted: its size is limited before it is read, and no array is allocated from a header's word alone.
"""

import io
import json
import math
import zipfile
from pathlib import Path
from typing import IO, Any, Final

from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding, usage_error

LARGEST_BYTES: Final = 256 * 2**20
STAGE: Final = "input"

MALFORMED: Final = declare(
    "oracle.input.malformed",
    Authority.INPUT,
    "The input of an oracle is one JSON object whose keys are named once, or an .npz file of plain arrays.",
    source="`assay oracle OP --example`",
    cause="several objects without `--lines`, a truncated file, a pickled array, or an array at top level",
)
TOO_LARGE: Final = declare(
    "oracle.input.size",
    Authority.INPUT,
    "The input of an oracle holds at most 256 MiB.",
    source="one operation's arguments; whole models go by rule or by checkpoint",
    cause="a whole tensor table passed where a few rows are meant",
)


def read_arguments(path: Path | None, stream: IO[bytes]) -> dict[str, Any]:
    """Returns the arguments in a file (`.npz` or JSON), or in the stream when no file is named.

    Raises:
        ContractError: oracle.input.malformed or oracle.input.size.
        UsageError: when the file can't be opened.
    """
    if path is None:
        return parse_object(_bounded(stream, "stdin"), "stdin")
    try:
        with path.open("rb") as file:
            if path.suffix == ".npz":
                return _read_npz(file, path.name)
            return parse_object(_bounded(file, path.name), path.name)
    except OSError as error:
        raise usage_error("--input", expected="a readable file", got=f"{path}: {error.strerror}") from None


def read_lines(path: Path | None, stream: IO[bytes]) -> Any:
    """Yields (number from 1, bytes) of every line, blank ones too, each of bounded length."""
    if path is not None:
        try:
            with path.open("rb") as file:
                yield from read_lines(None, file)
        except OSError as error:
            raise usage_error(
                "--input", expected="a readable file", got=f"{path}: {error.strerror}"
            ) from None
        return
    number = 0
    while line := stream.readline(LARGEST_BYTES + 1):
        number += 1
        if len(line) > LARGEST_BYTES:
            raise _refuse(TOO_LARGE, f"line {number}", f"at most {LARGEST_BYTES} bytes", "more")
        yield number, line


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """Returns a JSON object; NaN and Infinity are read, for the operation judges them by the argument's name.

    Raises:
        ContractError: oracle.input.malformed.
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except _DuplicateKeyError as error:
        raise _refuse(MALFORMED, where, "each key once", f"{error} twice") from None
    except RecursionError:
        raise _refuse(MALFORMED, where, "a JSON object", "nesting too deep to read") from None
    except UnicodeDecodeError as error:
        raise _refuse(MALFORMED, where, "UTF-8", f"byte {data[error.start]:#04x} at {error.start}") from None
    except json.JSONDecodeError as error:
        place = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise _refuse(MALFORMED, where, "a JSON object", place if data.strip() else "nothing") from None
    except ValueError:  # an integer of more digits than Python converts
        raise _refuse(MALFORMED, where, "integers of at most 4,300 digits", "a longer one") from None
    if not isinstance(value, dict):
        raise _refuse(MALFORMED, where, "a JSON object", type(value).__name__)
    return value


def _read_npz(file: IO[bytes], where: str) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > LARGEST_BYTES:
                raise _refuse(TOO_LARGE, where, f"at most {LARGEST_BYTES} bytes", "more")
            found = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as entry:
                    found[name] = _read_npy(entry.read(LARGEST_BYTES), f"{where}:{name}")
            if len(found) != len(members):
                raise _refuse(MALFORMED, where, "each array once", "a name twice")
            return found
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise _refuse(MALFORMED, where, "an .npz file of plain arrays", str(error)) from None


def _read_npy(data: bytes, where: str) -> Any:
    """Returns the array whose extents the bytes bear out; the header is read before anything is allocated."""
    import numpy as np
    from numpy.lib import format as npy

    stream = io.BytesIO(data)
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise _refuse(MALFORMED, where, "format version 1.0 or 2.0", version)
    shape, fortran, dtype = read(stream)
    rest = data[stream.tell() :]
    count = math.prod(shape)
    if dtype.hasobject or dtype.kind not in "fiubU" or count * dtype.itemsize != len(rest):
        expected = f"{dtype} {shape} in {count * dtype.itemsize} plain bytes"
        raise _refuse(MALFORMED, where, expected, f"{len(rest)} bytes")
    array = np.frombuffer(rest, dtype=dtype)
    return array.reshape(shape, order="F" if fortran else "C")


class _DuplicateKeyError(Exception):
    """A key that stands twice in one object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(repr(key))
        found[key] = value
    return found


def _bounded(stream: IO[bytes], where: str) -> bytes:
    data = stream.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise _refuse(TOO_LARGE, where, f"at most {LARGEST_BYTES} bytes", "more")
    return data


def _refuse(code: str, where: str, expected: Any, got: Any) -> ContractError:
    return ContractError(Finding.of(code, STAGE, where, expected=expected, got=got))
