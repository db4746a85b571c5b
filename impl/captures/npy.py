"""Reads the header of a NumPy `.npy` file without NumPy, and refuses what a capture can't hold."""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from assay.impl.stores.files import open_regular, read_exactly
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

NPY: Final = declare(
    "capture.file.npy", Authority.FORM,
    "A .npy file has version 1 or 2, C order, a little-endian dtype that captures know, and its entry's shape.",
    source="NumPy: the NPY format", cause="an array saved with objects, in Fortran order, or in float64",
    fix="convert the array before it is saved, for example to float32 in C order",
)  # fmt: skip
_STAGE: Final = "capture"
_HEADER_LIMIT_BYTES: Final = 1 << 14
_DTYPES: Final = {"<f4": "f32", "<f2": "f16", "<i4": "i32", "<i8": "i64"}


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What the header says: dtype in a capture's words, shape, and the first byte of the data."""

    dtype: str
    shape: tuple[int, ...]
    start: int


def npy_header(path: Path, where: str) -> NpyHeader:
    """Returns the header of a `.npy` file.

    Raises:
        AdmissionError: `capture.file.npy` or `input.file.*`.
    """
    with open_regular(path, stage=_STAGE, where=where) as file:
        lead = read_exactly(file, 10, stage=_STAGE, where=where)
        if lead[:6] != b"\x93NUMPY" or lead[6] not in {1, 2}:
            _refuse(where, "NumPy magic and version 1 or 2", lead[:8])
        length, start = int.from_bytes(lead[8:10], "little"), 10
        if lead[6] == 2:
            more = read_exactly(file, 2, stage=_STAGE, where=where)
            length, start = int.from_bytes(lead[8:10] + more, "little"), 12
        if length > _HEADER_LIMIT_BYTES:
            _refuse(where, f"a header of at most {_HEADER_LIMIT_BYTES} bytes", length)
        text = read_exactly(file, length, stage=_STAGE, where=where)
    try:
        header = ast.literal_eval(text.decode("latin-1").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        _refuse(where, "a literal header", text[:40])
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        _refuse(where, "descr, fortran_order and shape", header)
    shape, descr = header["shape"], header["descr"]
    if not isinstance(descr, str) or descr not in _DTYPES or header["fortran_order"] is not False:
        _refuse(where, f"C order and one of {', '.join(_DTYPES)}", {"descr": descr, **header})
    if not isinstance(shape, tuple) or not all(type(axis) is int and axis >= 0 for axis in shape):
        _refuse(where, "a shape of whole numbers", shape)
    return NpyHeader(_DTYPES[descr], shape, start + length)


def _refuse(where: str, expected: str, got: object) -> NoReturn:
    raise AdmissionError(Finding.of(NPY, _STAGE, where, expected=expected, got=got))
