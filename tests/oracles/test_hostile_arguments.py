"""Whatever is put into an argument, the answer is a result or one typed error, never a crash or a long wait."""

import copy
import json
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.oracles.catalogue import OPERATIONS
from assay.spec.errors import ContractError

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.sampled_from([2**31, 2**53 + 1, 2**63, 2**64, 10**30, -(2**63) - 1, "7", "x", "", "9" * 39]),
    st.sampled_from([0.5, -0.0, 1e308, -1e39, math.inf, -math.inf, math.nan]),
)
VALUES: list[Any] = [
    None, True, 0, -1, 2**31, 2**63, 10**30, -(2**63), 0.5, 1e300, 1e-300, 1e-45, -0.0, math.nan, math.inf, -math.inf,
    "", "a", "1e5", " 7", "0x10", "9" * 40, "9" * 41, [], [[]], [[[]]], {}, [1], [1.5], [None], ["1"], ["x"], [True],
    [[1], [2, 3]], [1, [2]], {"a": 1}, [math.nan], [1e39], [1e-40], [0] * 3, [-1] * 3, [0.0] * 4,
]  # fmt: skip
"""Every kind of plain value: each stands once for each argument."""

JUNK = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


def answer(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result, or nothing when it was refused with a typed error; anything else is raised and fails the test."""
    try:
        return OPERATIONS[name].call(arguments)
    except ContractError:
        return {}


def place(name: str, arguments: dict[str, Any]) -> str:
    """The name that a refusal blames, without its indices; nothing when there is a result, which JSON holds."""
    try:
        json.dumps(OPERATIONS[name].call(arguments), allow_nan=False)
    except ContractError as error:
        return re.split(r"[\[ .,(]", error.finding.where)[0]
    return ""


def mutated(value: Any, junk: Any, path: int) -> Any:
    """The value with one element, somewhere down the path, replaced."""
    if not isinstance(value, list) or not value or path % 3 == 0:
        return junk
    copied = list(value)
    copied[path % len(value)] = mutated(copied[path % len(value)], junk, path // 3)
    return copied


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "model.run"])
@settings(max_examples=60)
@given(st.data())
def test_a_hostile_argument_gives_a_result_or_a_typed_error(name: str, data: st.DataObject) -> None:
    operation = OPERATIONS[name]
    arguments = copy.deepcopy(dict(operation.example))
    argument = data.draw(st.sampled_from([one.name for one in operation.arguments]))
    arguments[argument] = mutated(arguments.get(argument), data.draw(JUNK), data.draw(st.integers(0, 80)))
    result = answer(name, arguments)
    for part in result.values():
        assert np.isfinite(np.asarray(part, dtype=np.float64)).all()


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_hostile_value_in_every_argument_gives_a_result_or_names_an_argument(name: str) -> None:
    operation = OPERATIONS[name]
    words = {one.name for one in (*operation.arguments, *operation.results)} | {"dtype"}
    asked = {one.name for one in operation.arguments} | ({"dtype"} if operation.has_dtype else set())
    elsewhere = []
    for argument in sorted(asked):
        for value in VALUES:
            arguments = {**operation.example, argument: copy.deepcopy(value)}
            where = place(name, arguments)
            if where and where not in words and argument != "config":
                elsewhere.append((argument, value, where))
    assert elsewhere == []


@pytest.mark.parametrize("field", list(OPERATIONS["model.run"].example["config"]["text_config"]))
@pytest.mark.parametrize("junk", [None, -1, 0, "4", [], {}, 2**70, math.nan, True])
def test_a_hostile_configuration_gives_a_result_or_a_typed_error(field: str, junk: Any) -> None:
    example = copy.deepcopy(dict(OPERATIONS["model.run"].example))
    example["config"]["text_config"][field] = junk
    example["tokens"] = []
    assert set(answer("model.run", example)) <= {"logits", "stages"}
