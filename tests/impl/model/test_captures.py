"""The MLX model against what upstream held, every array of every shipped capture."""

from typing import Any

import pytest

from assay.provenance.captures.geometries import CASES
from assay.provenance.paths import fixture_path


@pytest.mark.parametrize("case", [case.id for case in CASES])
def test_every_array_of_a_capture_is_the_models_own(case: str, model: Any) -> None:
    from assay.impl.captures.fixtures import read_fixture
    from assay.provenance.captures.arrays import OpenCapture
    from assay.provenance.captures.mlx_run import run_case
    from assay.provenance.captures.oracle_run import OracleRun
    from assay.provenance.captures.parity import compare_case

    root = fixture_path("captures") / case
    fixture = read_fixture(root)
    arrays, _ = run_case(model(fixture.geometry), fixture)
    rows = {key: list(array) for key, array in arrays.items() if key[0] != "state"}
    states = {key: array for key, array in arrays.items() if key[0] == "state"}
    found = compare_case(case, fixture, OpenCapture(root), OracleRun(rows, states))
    assert found.without_oracle == []
    assert {one.rung: one.outcome for one in found.arrays if one.outcome != "agrees"} == {}
    assert len(found.arrays) > 60
