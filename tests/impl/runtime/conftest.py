"""Lets the tests of this folder import their shared toys by name, and gives them two small stores."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an expert store and a row store."""
    from runtime_toys import write_stores

    folder = tmp_path_factory.mktemp("stores")
    write_stores(folder)
    return folder


@pytest.fixture
def stores(written: Path) -> Iterator[Any]:
    """The two stores, opened, as `runtime_toys.Stores`."""
    from runtime_toys import opened

    with opened(written) as found:
        yield found
