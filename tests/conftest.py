"""What all tests share: seeds, and where the real checkpoint's description lies."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from assay.provenance.paths import checkpoint_directory

# Derandomised: a red run must be red again for whoever repeats it. No deadline: speed is no test's business.
settings.register_profile(
    "assay", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.load_profile("assay")


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    """The directory that describes the real checkpoint; its tests are not run without it."""
    found = checkpoint_directory()
    if found is None:
        pytest.skip("not-run: the real checkpoint's description is absent (ASSAY_CHECKPOINT)")
    return found
