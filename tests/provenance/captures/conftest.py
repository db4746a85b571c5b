"""A small writer of captures, and the shipped fixtures."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.provenance.paths import fixture_path

WORDS = {"float32": "f32", "float16": "f16", "uint16": "bf16", "int32": "i32", "int64": "i64"}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a capture: `write(name, {(stage, layer, part): array}, token_ids=..., first=...)`; uint16 means bf16."""

    def make(
        name: str, arrays: dict[tuple[str, int | None, str], Any], *, first: int = 0, **fields: Any
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        entries = []
        for number, ((stage, layer, part), array) in enumerate(arrays.items()):
            array.tofile(folder / f"{number}.bin")
            entries.append(
                {
                    "stage": stage, "layer": layer, "part": part, "first_token": first, "tokens": array.shape[0],
                    "dtype": WORDS[array.dtype.name], "shape": list(array.shape), "file": f"{number}.bin",
                }
            )  # fmt: skip
        document = {
            "schema": "assay.capture/1", "producer": {"name": "test"}, "token_ids": None, **fields,
            "entries": entries,
        }  # fmt: skip
        (folder / "capture.json").write_text(json.dumps(document))
        return folder

    return make


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A private copy of the shipped fixtures of the contract's own geometry and one more, without their index."""
    root = tmp_path / "shipped"
    for case in ("contract-fixture/tokens", "small/short-row-alone"):
        shutil.copytree(fixture_path("captures", case), root / case)
    return root


@pytest.fixture
def hidden() -> np.ndarray:
    """Four tokens of eight values."""
    return np.random.default_rng(5).standard_normal((4, 8)).astype(np.float32)
