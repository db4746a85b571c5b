"""Lets the tests of this folder import their shared toys by name, and gives them the models of the captures."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def model() -> Any:
    """Returns the MLX model of a geometry by name."""
    from model_toys import made

    return made


@pytest.fixture(autouse=True)
def own_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures that one test injects don't end the work of the next one."""
    from assay.impl.model import backend

    monkeypatch.setattr(backend.DEVICE, "failures", 0)
