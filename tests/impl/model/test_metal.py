"""On an Apple GPU: the captures, partitions and faults once more, with products in tiles."""

from typing import Any

import pytest
from model_toys import ids

pytestmark = pytest.mark.metal


@pytest.fixture
def metal_model() -> Any:
    """Makes models for the GPU; skips where there is none."""
    import mlx.core as mx

    if not mx.metal.is_available():
        pytest.skip("needs an Apple GPU")
    from assay.impl.model.backend import choose_numerics
    from assay.provenance.captures.geometries import GEOMETRIES
    from assay.provenance.captures.mlx_run import rule_model

    numerics = choose_numerics(fast=False)
    assert numerics.tile_rows > 0
    return lambda name: rule_model(GEOMETRIES[name], numerics, by_role=name == "contract-fixture")


@pytest.mark.parametrize(
    "case", ["small/one-shot", "two-ple/one-shot", "contract-fixture/tokens", "miniature/long"]
)
def test_captures_are_the_models_own_on_the_gpu(case: str, metal_model: Any) -> None:
    from assay.impl.captures.fixtures import read_fixture
    from assay.provenance.captures.arrays import OpenCapture
    from assay.provenance.captures.mlx_run import run_case
    from assay.provenance.captures.oracle_run import OracleRun
    from assay.provenance.captures.parity import compare_case
    from assay.provenance.paths import fixture_path

    root = fixture_path("captures") / case
    fixture = read_fixture(root)
    arrays, _ = run_case(metal_model(fixture.geometry), fixture)
    rows = {key: list(array) for key, array in arrays.items() if key[0] != "state"}
    states = {key: array for key, array in arrays.items() if key[0] == "state"}
    found = compare_case(case, fixture, OpenCapture(root), OracleRun(rows, states))
    assert {one.rung: one.outcome for one in found.arrays if one.outcome != "agrees"} == {}


def test_single_tokens_are_one_shot_on_the_gpu(metal_model: Any) -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.model.state import differing

    model, tokens = metal_model("small"), ids("small", 41)
    whole, single = Bank(model), Bank(model)
    whole.advance({0: tokens})
    for token in tokens:
        single.advance({0: [token]})
    assert differing(whole.state(), single.state()) == []


def test_faults_leave_nothing_on_the_gpu(metal_model: Any) -> None:
    from assay.provenance.captures.geometries import GEOMETRIES
    from assay.provenance.captures.mlx_faults import surviving_faults

    wrong, counts = surviving_faults(GEOMETRIES["small"], metal_model("small").numerics)
    assert wrong == []
    assert counts["stageCalls"] == 33
