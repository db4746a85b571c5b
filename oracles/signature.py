"""What an operation takes and gives, said once: for `--list`, for reading input, and for running.

An `Operation` pairs a function with its arguments as data. `call` turns plain JSON values (or arrays of an .npz
file) into the function's arguments and its results back into plain values.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from assay.oracles.checks import refuse, result, shape_text
from assay.oracles.clauses import FINITE, MISSING, SHAPE, TYPE, UNKNOWN

Kind = Literal["real", "integer", "text", "flag", "object"]


_DECIMAL: Final = re.compile(r"-?[0-9]{1,40}")
_EXACT_FLOAT: Final = 2.0**53


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or one result.

    Attributes:
        name: as in the function's signature.
        kind: `real`, `integer`, `text`, `flag` or `object`.
        shape: names of the axes, () for a single value; None when more than one rank is taken.
        unit: what the numbers mean.
        nullable: null elements are meaningful.
    """

    name: str
    kind: Kind
    shape: tuple[str, ...] | None
    unit: str
    nullable: bool = False

    @property
    def dtype(self) -> str:
        """The type as `--list` shows it."""
        kinds = {"real": "float32 or float64", "integer": "exact integer"}
        return kinds.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class Operation:
    """One oracle as the command line offers it.

    Attributes:
        name: such as `qsa.select`.
        function: the oracle; its parameters are the arguments, in any order, and `dtype`.
        arguments: what it takes.
        results: what it gives: fields of a named tuple, or in the order of the result.
        example: a runnable input.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]
    example: Mapping[str, Any]

    @property
    def summary(self) -> str:
        """First line of the oracle's docstring."""
        return (self.function.__doc__ or "").split("\n", 1)[0]

    @property
    def has_dtype(self) -> bool:
        """Whether the operation can be asked in float64."""
        return "dtype" in inspect.signature(self.function).parameters

    def default(self, name: str) -> Any:
        """The default of an argument; `inspect.Parameter.empty` when it is required."""
        return inspect.signature(self.function).parameters[name].default

    def call(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Runs the oracle on plain values and returns its results as plain values.

        Raises:
            ContractError: oracle.argument.*, or whatever the oracle itself refuses, naming the argument.
        """
        known = {argument.name: argument for argument in self.arguments}
        names = ", ".join([*known, *(["dtype"] if self.has_dtype else [])])
        for name in given:
            if name not in known and not (name == "dtype" and self.has_dtype):
                raise refuse(UNKNOWN, name, expected=f"one of {names}", got="an unknown argument")
        ready: dict[str, Any] = {}
        for name, argument in known.items():
            if name in given and not (given[name] is None and self.default(name) is None):
                ready[name] = read_argument(argument, given[name])
            elif self.default(name) is inspect.Parameter.empty:
                raise refuse(MISSING, name, expected=f"an argument {_form(argument)}", got="none")
        if "dtype" in given:
            ready["dtype"] = _text("dtype", given["dtype"])
        with np.errstate(over="ignore", invalid="ignore"):  # judged below, by name
            answer = self.function(**ready)
        for name in getattr(
            answer, "_fields", ()
        ):  # also what is not printed: an id chosen among NaNs is no answer
            _plain(name, getattr(answer, name))
        return {part.name: _plain(part.name, value) for part, value in self._parts(answer)}

    def _parts(self, answer: Any) -> list[tuple[Argument, Any]]:
        """Pairs each result with its value: by name out of a named tuple, else by place."""
        if hasattr(answer, "_fields"):
            return [(part, getattr(answer, part.name)) for part in self.results]
        parts = answer if isinstance(answer, tuple) else (answer,)
        return list(zip(self.results, parts, strict=True))


def read_argument(argument: Argument, value: Any) -> Any:
    """Returns a JSON value or array as the oracle takes it: integers exact, reals as a float64 array.

    Raises:
        ContractError: oracle.argument.type or oracle.argument.shape, naming the argument.
    """
    if argument.kind == "text":
        return _text(argument.name, value)
    if argument.kind == "flag":
        if not isinstance(value, (bool, np.bool_)):
            raise refuse(TYPE, argument.name, expected="true or false", got=value)
        return bool(value)
    if argument.kind == "object":
        if not isinstance(value, dict):
            raise refuse(TYPE, argument.name, expected="an object", got=value)
        return value
    plain = value.tolist() if isinstance(value, np.ndarray) and argument.kind == "integer" else value
    if argument.kind == "integer":
        whole = _whole(argument, argument.name, plain)
        _require_rank(argument, _rank(whole), whole)
        return whole
    array = _reals(argument, value)
    _require_rank(argument, array.ndim, array)
    return float(array) if argument.shape == () else array


def _reals(argument: Argument, value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiu":
            raise refuse(TYPE, argument.name, expected="numbers", got=f"type {value.dtype}")
        return value.astype(np.float64)
    _require_numbers(argument.name, value)
    try:
        return np.asarray(value, dtype=np.float64)
    except OverflowError:
        raise refuse(
            FINITE, argument.name, expected="numbers that a double holds", got="a larger integer"
        ) from None
    except ValueError:
        raise refuse(SHAPE, argument.name, expected="rows of equal length", got="a ragged array") from None


def _require_numbers(place: str, value: Any) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            if type(item) is not float and type(item) is not int:
                _require_numbers(f"{place}[{index}]", item)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refuse(TYPE, place, expected="a number", got=value)


def _whole(argument: Argument, place: str, value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, list):
        return [_whole(argument, f"{place}[{index}]", item) for index, item in enumerate(value)]
    if value is None and argument.nullable and place != argument.name:
        return None
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return int(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < _EXACT_FLOAT:
        return int(value)
    raise refuse(TYPE, place, expected="an integer, as a number or a decimal string", got=value)


def _rank(value: Any) -> int:
    return 1 + max((_rank(item) for item in value), default=0) if isinstance(value, list) else 0


def _require_rank(argument: Argument, rank: int, value: Any) -> None:
    if argument.shape is not None and rank != len(argument.shape):
        got = shape_text(np.shape(value)) if isinstance(value, np.ndarray) else f"{rank} axes"
        raise refuse(SHAPE, argument.name, expected=_form(argument), got=got)


def _form(argument: Argument) -> str:
    if argument.shape is None:
        return argument.dtype
    return f"of shape [{', '.join(argument.shape)}]" if argument.shape else "of a single value"


def _text(name: str, value: Any) -> str:
    text = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if not isinstance(text, str):
        raise refuse(TYPE, name, expected="text", got=text)
    return text


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return result(name, value).tolist()
    if isinstance(value, np.generic):
        return value.item()
    return value
