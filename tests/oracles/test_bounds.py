"""Every bounded oracle answers its last accepted input and refuses the first beyond it, with the clause it names."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from assay.oracles import conv, logits, ple, qsa, rope
from assay.oracles.bounds import BOUNDS
from assay.oracles.catalogue import OPERATIONS, rule_model, rule_values
from assay.oracles.fixture import FIXTURE_CONFIG
from assay.spec.errors import ContractError


def dense(visible: int) -> Any:
    rows = np.zeros((visible, 1, 1))
    return qsa.dense(np.zeros((1, 1, 1)), rows, rows)


def product(excess: int) -> Any:
    """7 * 1317624576693539401 = 2^63 - 1; with token 2^63 and multiplier 1 one more."""
    tokens, factor = ([7], 1317624576693539401) if excess == 0 else ([2**63], 1)
    return ple.rows(tokens, [factor, 1], [3], [0], 1, 0)


def vocabulary(rows: int) -> Any:
    config = copy.deepcopy(FIXTURE_CONFIG)
    config["text_config"]["vocab_size"] = rows
    return rule_model(config, [])


def selection(visible: int) -> Any:
    return qsa.select(np.zeros(visible // 65536), 1, visible, 65536)


def dilated(dilation: int) -> Any:
    return conv.causal(np.zeros((1, 1)), np.zeros((1, 2)), dilation=dilation)


def position(last: int) -> Any:
    return rope.apply(np.zeros((1, 1, 2)), [last], 2, sections=(1, 0, 0))


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "qsa.dense": (lambda: dense(2051), lambda: dense(2052)),
    "qsa.select": (lambda: selection(2**24), lambda: selection(2**24 + 1)),
    "qsa.groups": (lambda: qsa.groups([0], 65536), lambda: qsa.groups([0], 65537)),
    "rope.apply": (lambda: position(2**53), lambda: position(2**53 + 1)),
    "conv.causal": (lambda: dilated(1024), lambda: dilated(1025)),
    "ple.multipliers": (lambda: ple.multipliers(ngram_size=64), lambda: ple.multipliers(ngram_size=65)),
    "logits.mask": (lambda: logits.mask(2**24, 1), lambda: logits.mask(2**24 + 1, 1)),
    "weights.values": (lambda: rule_values("a", count=2**20), lambda: rule_values("a", count=2**20 + 1)),
    "ple.rows": (lambda: product(0), lambda: product(1)),
    "ple.primes": (lambda: ple.primes(2**32, 1), lambda: ple.primes(2**32 + 1, 1)),
    "model.run": (lambda: vocabulary(8_000_000), lambda: vocabulary(8_400_000)),
}


@pytest.mark.parametrize(("where", "change"), [("count", {"count": -1}), ("first", {"first": -1})])
def test_a_count_below_zero_of_values_is_refused_by_name(where: str, change: dict[str, int]) -> None:
    with pytest.raises(ContractError) as caught:
        rule_values("a", **change)
    assert (caught.value.finding.code, caught.value.finding.where) == ("oracle.argument.domain", where)


def test_a_configuration_that_is_too_large_is_refused_as_a_whole() -> None:
    with pytest.raises(ContractError) as caught:
        vocabulary(8_400_000)
    assert caught.value.finding.where == "config"


def test_every_bound_has_a_case_and_an_operation() -> None:
    assert {bound.operation for bound in BOUNDS} == set(CASES)
    assert {bound.operation for bound in BOUNDS} <= set(OPERATIONS)


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.operation)
def test_the_last_accepted_input_is_answered(bound: Any) -> None:
    assert CASES[bound.operation][0]() is not None


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.operation)
def test_the_first_rejected_input_is_refused_with_the_clause_named(bound: Any) -> None:
    with pytest.raises(ContractError) as caught:
        CASES[bound.operation][1]()
    assert caught.value.finding.code == bound.clause


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.operation)
def test_every_bound_says_why_and_what_comes_after(bound: Any) -> None:
    """AFN-011: domain, first rejected input, complexity, replacement, gate."""
    assert all((bound.domain, bound.first_rejected, bound.complexity, bound.replacement, bound.lifted_by))
