"""The benchmarks of streaming print figures of their schema, and leave nothing but the probe."""

import json
import shutil
from pathlib import Path

import jsonschema
import pytest

from assay.provenance.benchmarks.stream_large import layers_of
from assay.provenance.catalogue import json_schema
from assay.provenance.cli import main
from assay.spec.documents.device_probe import DeviceProbe


@pytest.mark.slow
@pytest.mark.parametrize("name", ["device", "runtime.reader"])
def test_a_benchmark_of_streaming_prints_figures_of_its_schema(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("fio") is None:
        pytest.skip("not-run: needs fio")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "disk").mkdir()
    options = ["--dir", str(tmp_path / "disk"), "--size", "64", "--rounds", "1", "--format", "json", "-q"]
    assert main(["bench", name, *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, json_schema("assay.bench/1"))
    assert all(figure["value"] > 0 for figure in printed["benchmarks"][0]["measurements"])
    assert list((tmp_path / "disk").iterdir()) == []
    saved = [
        DeviceProbe.model_validate_json(one.read_bytes()) for one in (tmp_path / "cache").rglob("*.json")
    ]
    assert [one.record_bytes for one in saved] == ([2_764_800] if name == "device" else [])


@pytest.mark.parametrize(("size_mib", "layers"), [(16, 4), (256, 4), (1400, 8), (100_000, 16)])
def test_the_large_model_takes_about_the_size_that_was_asked_for(size_mib: int, layers: int) -> None:
    assert layers_of(size_mib) == layers
