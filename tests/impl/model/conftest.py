"""The small geometries of the captures as MLX models, made once; MLX is imported when a test runs, not at collection."""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@cache
def _model(name: str) -> Any:
    from assay.impl.model.numerics import Numerics
    from assay.provenance.captures.geometries import GEOMETRIES
    from assay.provenance.captures.mlx_run import rule_model

    by_role = name == "contract-fixture"
    return rule_model(GEOMETRIES[name], Numerics(is_deterministic=True), by_role=by_role)


@pytest.fixture
def model() -> Any:
    """Returns the MLX model of a geometry by name."""
    return _model
