"""The tables of gates and components are consistent."""

import importlib
import importlib.util
import re

import pytest

from assay.provenance.components import COMPONENTS, Component
from assay.provenance.gates.base import Gate
from assay.provenance.gates.inputs import INPUTS
from assay.provenance.gates.registry import GATES, SUPPORT_GATES, all_gates
from assay.provenance.paths import fixture_path
from assay.spec.profiles import load_profile
from assay.spec.verdicts import Label

WORD_ID = re.compile(r"^[a-z][a-z0-9-]*(\.[a-z0-9][a-z0-9-]*)*$")
PACKAGE = fixture_path().parent


def test_gate_and_component_ids_are_unique_word_ids() -> None:
    for ids in ([gate.id for gate in all_gates()], [component.id for component in COMPONENTS]):
        assert len(set(ids)) == len(ids)
        assert [one for one in ids if not WORD_ID.match(one)] == []


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.id)
def test_a_gate_names_known_components_inputs_and_an_existing_function(gate: Gate) -> None:
    assert gate.components
    assert set(gate.components) <= {component.id for component in COMPONENTS}
    assert set(gate.needs) <= set(INPUTS)
    assert gate.rung is not Label.HYPOTHESIS
    assert not gate.blocked
    module, _, name = gate.function.partition(":")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.id)
def test_a_component_names_modules_and_data_that_exist(component: Component) -> None:
    assert component.modules
    for module in component.modules:
        assert importlib.util.find_spec(module) is not None, module
    for path in (*component.fixtures, *component.contract):
        assert (PACKAGE / path).exists(), path


def test_the_six_support_gates_of_the_profile_are_registered_and_blocked() -> None:
    gates = SUPPORT_GATES["qwen4exp"]
    assert len(gates) == 6
    assert all(gate.blocked and not gate.function and gate.rung is Label.SUPPORTED for gate in gates)
    assert all(gate.id.startswith("support.") for gate in gates)


def test_the_support_gates_are_those_that_the_contract_names() -> None:
    gates = load_profile("qwen4exp").support_gates
    assert gates is not None
    assert [gate.id for gate in SUPPORT_GATES["qwen4exp"]] == [gate.id for gate in gates]


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.id)
def test_a_component_has_a_sentence_for_exactly_the_rungs_that_its_gates_decide(component: Component) -> None:
    rungs = {gate.rung for gate in GATES if component.id in gate.components}
    assert set(component.claims) == rungs
    assert all(text.endswith(".") for text in (*component.claims.values(), component.boundary))
