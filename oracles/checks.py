"""Refuses arguments that an oracle has no answer for: one typed error that names the argument and both values.

Every oracle states its domain. Outside of it there is no number to give, and a plausible one would be worse than
an error; so shapes, types and finiteness are judged here before any arithmetic.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from assay.oracles.clauses import DOMAIN, FINITE, RESULT, SHAPE, TYPE
from assay.spec.errors import ContractError, Finding

Array = NDArray[Any]
"""An array of the working type, or of integers where the docstring says so."""

STAGE: Final = "oracle"


def refuse(code: str, where: str, *, expected: Any, got: Any, hint: str = "") -> ContractError:
    """Makes the error for an argument outside the domain."""
    return ContractError(Finding.of(code, STAGE, where, expected=expected, got=got, hint=hint))


def working(dtype: DTypeLike) -> np.dtype[Any]:
    """Returns the working type, float32 or float64.

    Raises:
        ContractError: oracle.argument.domain, for any other type.
    """
    try:  # text is compared as it stands: NumPy's aliases, some of them deprecated, are no words of ours
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in ("float32", "float64"):
        raise refuse(DOMAIN, "dtype", expected="float32 or float64", got=name)
    return np.dtype(name)


def real(name: str, value: Any, dtype: DTypeLike, shape: Sequence[int | None] | None = None) -> Array:
    """Returns `value` as a finite array of the working type, of this shape (None: any extent).

    Raises:
        ContractError: oracle.argument.type, oracle.argument.shape or oracle.argument.finite.
    """
    array = numbers(name, value, dtype, shape)
    if not np.isfinite(array).all():
        raise refuse(FINITE, name, expected="finite numbers", got=first_non_finite(array))
    return array


def numbers(name: str, value: Any, dtype: DTypeLike, shape: Sequence[int | None] | None = None) -> Array:
    """Returns `value` as `real` does, but lets infinities and NaN pass to the caller's own rule."""
    try:
        raw = np.asarray(value)
    except ValueError:
        raise refuse(TYPE, name, expected="rows of equal length", got="a ragged array") from None
    if raw.dtype.kind not in "fiu":
        raise refuse(TYPE, name, expected="numbers", got=f"values of type {raw.dtype}")
    if shape is not None:
        shaped(name, raw, shape)
    with np.errstate(over="ignore"):  # a double beyond float32 becomes an infinity, which `real` refuses
        return raw.astype(dtype)


def shaped(name: str, array: Array, shape: Sequence[int | None]) -> None:
    """Refuses an array of another rank or extent; None in `shape` allows any extent.

    Raises:
        ContractError: oracle.argument.shape.
    """
    fits = array.ndim == len(shape) and all(
        want is None or want == have for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise refuse(SHAPE, name, expected=shape_text(shape), got=shape_text(array.shape))


def shape_text(shape: Sequence[int | None]) -> str:
    """Returns a shape as text, `*` for any extent."""
    return f"shape [{', '.join('*' if extent is None else str(extent) for extent in shape)}]"


def integer(name: str, value: Any, low: int | None = None, high: int | None = None) -> int:
    """Returns an exact integer within [low, high].

    Raises:
        ContractError: oracle.argument.type or oracle.argument.domain.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise refuse(TYPE, name, expected="an integer", got=value)
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = f"{'' if low is None else low} .. {'' if high is None else high}"
        raise refuse(DOMAIN, name, expected=f"an integer in {bounds}", got=int(value))
    return int(value)


def integers(name: str, values: Any, low: int | None = None, high: int | None = None) -> list[int]:
    """Returns a list of exact integers, each within [low, high]; the error names the element."""
    if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)):
        raise refuse(TYPE, name, expected="a list of integers", got=values)
    if isinstance(values, np.ndarray):
        shaped(name, values, (None,))
    return [integer(f"{name}[{index}]", value, low, high) for index, value in enumerate(values)]


def positive(name: str, value: float) -> float:
    """Returns a finite number above zero.

    Raises:
        ContractError: oracle.argument.type or oracle.argument.domain.
    """
    number = float(real(name, value, np.float64, ()))
    if number <= 0:
        raise refuse(DOMAIN, name, expected="a number above 0", got=number)
    return number


def result(name: str, array: Array) -> Array:
    """Returns a result unless it holds a NaN or an infinity.

    Raises:
        ContractError: oracle.result.finite.
    """
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise refuse(RESULT, name, expected="finite numbers", got=first_non_finite(array))
    return array


def first_non_finite(array: Array) -> str:
    """Says which the first NaN or infinity is and where it stands."""
    index = np.argwhere(~np.isfinite(array))[0]
    place = "".join(f"[{part}]" for part in index)
    return f"{array[tuple(index)]} at {place}" if place else str(array[()])
