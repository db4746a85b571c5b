"""`assay bench` prints figures that its schema describes; speed itself is never asserted."""

import json
from pathlib import Path

import jsonschema
import pytest

from assay.provenance.benchmarks import BENCHMARKS
from assay.provenance.benchmarks.base import measurement
from assay.provenance.catalogue import json_schema
from assay.provenance.cli import main


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stores.verify", "stores.rows", "stores.experts", "artifact"])
def test_a_benchmark_prints_figures_of_its_schema(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--dir", str(tmp_path), "--size", "16", "--rounds", "1", "--format", "json", "-q"]
    assert main(["bench", name, *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, json_schema("assay.bench/1"))
    assert [one["name"] for one in printed["benchmarks"]] == [name]
    assert all(figure["value"] > 0 for figure in printed["benchmarks"][0]["measurements"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["nothing"], "benchmark"),
        (["--size", "1"], "--size"),
        (["--rounds", "0"], "--rounds"),
        (["--dir", "/nowhere/at/all"], "--dir"),
    ],
)
def test_arguments_that_can_not_be_used_are_named(
    arguments: list[str], where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert f"usage.argument: {where}:" in capsys.readouterr().err


def test_benchmarks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(BENCHMARKS)


@pytest.mark.parametrize(("bound", "value", "met"), [("at-least", 9.0, True), ("at-least", 8.9, False), ("at-most", 9.0, True), ("at-most", 9.1, False)])  # fmt: skip
def test_a_target_is_met_at_its_bound(bound: str, value: float, met: bool) -> None:
    found = measurement("x", value, "s", "", reference=("y", 10.0), target=("ratio", bound, 0.9))
    assert found.target is not None
    assert (found.ratio, found.target.met) == (value / 10, met)


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--fail-on-miss"], 1)])
def test_a_missed_target_is_in_the_summary_and_on_request_in_the_exit_code(
    options: list[str], code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.provenance.benchmarks import stores_rows

    figures = [
        measurement("slow", 9.0, "us", "here", target=("value", "at-most", 1.0)),
        measurement("fast", 0.5, "us", "here", target=("value", "at-most", 1.0)),
    ]
    monkeypatch.setattr(stores_rows, "run", lambda _: figures)
    assert main(["bench", "stores.rows", "--format", "pretty", "-q", *options]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["targets: 2, MISSED: 1", "  MISSED  stores.rows: slow"]
    assert any(line.startswith("  not measured: LMDB") for line in lines)
