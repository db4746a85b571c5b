"""What holds for every operation: its refusals name the argument, its results have the working type."""

import inspect
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from assay.oracles.catalogue import OPERATIONS
from assay.oracles.signature import Argument, Operation, read_argument
from assay.spec.errors import ContractError

PLAIN = {name: one for name, one in OPERATIONS.items() if name not in {"model.run", "weights.values"}}
UNCHECKED = {"prepared", "contiguous", "bf16"}
"""Flags: anything is true or false."""


def ready(name: str) -> dict[str, Any]:
    """The example, as the function takes it."""
    operation = PLAIN[name]
    known = {one.name: one for one in operation.arguments}
    return {key: read_argument(known[key], value) for key, value in operation.example.items()}


def pairs(kind: str) -> Iterator[tuple[str, str]]:
    """Each operation with each argument of a kind that its example gives."""
    for name, operation in PLAIN.items():
        for one in operation.arguments:
            if one.kind == kind and one.name in operation.example and one.name not in UNCHECKED:
                yield name, one.name


def refusal(name: str, **changes: Any) -> tuple[str, str]:
    with pytest.raises(ContractError) as caught:
        PLAIN[name].function(**{**ready(name), **changes})
    return caught.value.finding.code, caught.value.finding.where


def first(value: Any, replacement: Any) -> Any:
    """The value with its first element, at any depth, replaced."""
    if isinstance(value, list) and value:
        return [first(value[0], replacement), *value[1:]]
    return replacement


@pytest.mark.parametrize(("name", "argument"), [*pairs("real")])
def test_text_for_numbers_is_refused_by_the_argument(name: str, argument: str) -> None:
    code, where = refusal(name, **{argument: "text"})
    late = {("qsa.dense", "q"), ("moe.forward", "gate_up"), ("moe.forward", "down")}
    assert where == argument
    assert code == "oracle.argument.type" or (name, argument) in late  # refused by its extent first


@pytest.mark.parametrize(("name", "argument"), [*pairs("real")])
def test_another_rank_is_refused_by_the_argument(name: str, argument: str) -> None:
    if (name, argument) in {("norm.rms", "x"), ("gdn.gates", "a"), ("norm.gated", "x")}:
        pytest.skip("any number of leading axes is taken")
    assert refusal(name, **{argument: np.zeros((1,) * 7)}) == ("oracle.argument.shape", argument)


@pytest.mark.parametrize(("name", "argument"), [*pairs("real")])
def test_a_nan_is_refused_by_the_argument(name: str, argument: str) -> None:
    array = np.array(ready(name)[argument], dtype=np.float64)
    array.reshape(-1)[:] = np.nan  # all of it: experts that are not chosen are not read
    code, where = refusal(name, **{argument: array})
    if (name, argument) == ("qsa.select", "scores"):
        assert (code, where) == ("oracle.qsa.nan-score", "scores[0]")
    else:
        assert code == "oracle.argument.finite"
        assert where.partition("[")[0] == argument


@pytest.mark.parametrize(("name", "argument"), [*pairs("integer")])
@pytest.mark.parametrize("value", [-(2**70), 0.5, "text", True])
def test_an_integer_out_of_range_or_type_is_refused_by_the_argument(
    name: str, argument: str, value: Any
) -> None:
    given = first(ready(name)[argument], value)
    code, where = refusal(name, **{argument: given})
    nested = (name, argument, value) in {("qsa.attend", "tokens", 0.5), ("qsa.attend", "tokens", "text")}
    expected = "oracle.argument.shape" if nested else "oracle.argument.type"
    assert code == ("oracle.argument.domain" if value == -(2**70) else expected)
    assert where.partition("[")[0].partition(" ")[0] == argument


@pytest.mark.parametrize("name", [name for name, one in PLAIN.items() if one.has_dtype])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_have_the_working_type_and_ids_are_64_bits(name: str, dtype: str) -> None:
    operation = PLAIN[name]
    answer = operation.function(**ready(name), dtype=dtype)
    values = dict(answer._asdict()) if hasattr(answer, "_asdict") else {}
    if not values:
        parts = answer if isinstance(answer, tuple) else (answer,)
        values = {str(place): part for place, part in enumerate(parts)}
    for part, value in values.items():
        if isinstance(value, np.ndarray):
            assert value.dtype in (np.dtype(dtype), np.dtype(np.int64)), part
            assert value.dtype.kind == "i" or value.dtype == np.dtype(dtype), part
        else:
            assert isinstance(value, int), part


@pytest.mark.parametrize("name", [name for name, one in PLAIN.items() if one.has_dtype])
def test_the_working_type_is_float32_unless_asked(name: str) -> None:
    answer = PLAIN[name].function(**ready(name))
    parts = answer if isinstance(answer, tuple) else (answer,)
    assert {part.dtype.name for part in parts if isinstance(part, np.ndarray)} <= {"float32", "int64"}


@pytest.mark.parametrize("name", [name for name, one in PLAIN.items() if one.has_dtype])
@pytest.mark.parametrize("dtype", ["float16", "a", "<f4", "", np.int32])
def test_another_working_type_is_refused(name: str, dtype: Any) -> None:
    assert refusal(name, dtype=dtype) == ("oracle.argument.domain", "dtype")


def test_a_result_that_is_not_printed_is_judged_too() -> None:
    """An id that was chosen among NaNs is no answer, although the id itself is a number."""

    class Chosen(NamedTuple):
        id: int
        probabilities: Any

    def choose() -> Chosen:
        return Chosen(0, np.array([np.nan]))

    part = Argument("id", "integer", (), "chosen")
    with pytest.raises(ContractError) as caught:
        Operation("a.b", choose, (), (part,), {}).call({})
    found = caught.value.finding
    assert (found.code, found.where) == ("oracle.result.finite", "probabilities")


def test_hundreds_of_ties_keep_the_order_of_ids() -> None:
    """A sort that is not stable keeps small lists in order by accident; 512 equals show it."""
    topk = OPERATIONS["router.topk"].function([0.0] * 512, 10)
    assert topk.ids.tolist() == list(range(10))
    falling = OPERATIONS["logits.candidates"].function([0.0, 1.0] * 300, 600, "top-k", k=400)
    assert falling.candidates.tolist() == [*range(1, 600, 2), *range(0, 200, 2)]


@pytest.mark.parametrize("name", PLAIN)
def test_an_argument_of_another_operation_is_refused_and_a_required_one_is_asked_for(name: str) -> None:
    operation = PLAIN[name]

    def called(given: dict[str, Any]) -> tuple[str, str]:
        with pytest.raises(ContractError) as caught:
            operation.call(given)
        return caught.value.finding.code, caught.value.finding.where

    assert called({**operation.example, "nonsense": 1}) == ("oracle.argument.unknown", "nonsense")
    first_required = next((one.name for one in operation.arguments if one.name in operation.example), "")
    assert called({"nonsense": 1}) == ("oracle.argument.unknown", "nonsense")
    if operation.default(first_required) is inspect.Parameter.empty:
        rest = {key: value for key, value in operation.example.items() if key != first_required}
        assert called(rest) == ("oracle.argument.missing", first_required)
    if not operation.has_dtype:
        assert called({**operation.example, "dtype": "float32"}) == ("oracle.argument.unknown", "dtype")


def called_wrongly(name: str, **changes: Any) -> tuple[str, str]:
    """Code and place of the refusal of the example with changed plain values, as the command line gives them."""
    with pytest.raises(ContractError) as caught:
        PLAIN[name].call({**PLAIN[name].example, **changes})
    return caught.value.finding.code, caught.value.finding.where


def test_plain_values_are_refused_by_the_element() -> None:
    assert called_wrongly("ple.rows", tokens=[5, "x"]) == ("oracle.argument.type", "tokens[1]")
    assert called_wrongly("qsa.attend", tokens=[[0], [1, None]]) == ("oracle.argument.type", "tokens[1][1]")
    assert called_wrongly("qsa.scores", q=[[1.0, "x"]]) == ("oracle.argument.type", "q[0][1]")


def test_a_printed_result_that_is_not_finite_is_named() -> None:
    assert called_wrongly("norm.rms", x=[1.0, 0.0], weight=[3e38, 0.0]) == ("oracle.result.finite", "y")


def test_the_working_type_is_asked_for_by_name() -> None:
    """1 / sqrt(12.5 + 1e-6) times 3: the next digits tell which type it was computed in."""
    half, double = (PLAIN["norm.rms"].call({**PLAIN["norm.rms"].example, "dtype": one})["y"][0]
                    for one in ("float32", "float64"))  # fmt: skip
    assert double == pytest.approx(3 / math.sqrt(12.500001), rel=1e-15)
    assert half != double
    assert half == float(np.float32(half))


def test_a_null_stands_for_an_absent_argument_only_where_absence_has_a_meaning() -> None:
    step = PLAIN["gdn.step"]
    given = {name: value for name, value in step.example.items() if name != "state"}
    assert step.call({**given, "state": None}) == step.call(given)
    assert called_wrongly("norm.rms", x=None) == ("oracle.argument.type", "x")


def test_text_is_text_and_is_named() -> None:
    assert called_wrongly("norm.rms", convention=5) == ("oracle.argument.type", "convention")
    assert called_wrongly("norm.rms", dtype=5) == ("oracle.argument.type", "dtype")
    assert called_wrongly("norm.rms", convention=np.array(["conventional"])) == (
        "oracle.argument.type",
        "convention",
    )
    given = {**PLAIN["norm.rms"].example, "convention": np.array("conventional")}
    assert PLAIN["norm.rms"].call(given)["y"] == [0.0, 0.0]


def test_an_overflow_on_the_way_is_a_refusal_and_no_warning() -> None:
    decay = {"log_decay": [100.0, 100.0, 100.0]}
    assert called_wrongly("gdn.step", **decay) == ("oracle.result.finite", "y")
