"""`assay capture` from the outside: what needs no upstream, and what is refused."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.provenance.captures.geometries import CASES
from assay.provenance.captures.regenerate import capture_into
from assay.provenance.cli import main
from assay.provenance.gates.base import GateContext
from assay.provenance.gates.parity import fixtures_battery
from assay.provenance.paths import fixture_path
from assay.spec.documents.capture_check import CaptureCheck
from assay.spec.errors import EvidenceError


def test_the_list_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--list"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.split("\t")[0] for line in lines] == [case.id for case in CASES]


def test_the_offline_check_passes_and_follows_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--offline", "--format", "json"]) == 0
    result = CaptureCheck.model_validate_json(capsys.readouterr().out)
    assert (result.outcome, result.facts["fixtures"]) == ("pass", 14)


def test_a_set_without_its_index_is_a_finding_of_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(fixture_path("captures"), tmp_path / "captures")
    (tmp_path / "captures" / "index.tsv").unlink()
    assert main(["capture", "--offline", "--fixtures", str(tmp_path / "captures"), "--format", "json"]) == 4
    result = CaptureCheck.model_validate_json(capsys.readouterr().out)
    assert [(one.code, one.where) for one in result.findings] == [("input.file.missing", "index.tsv")]


def test_the_offline_check_and_validate_need_neither_torch_nor_numpy() -> None:
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'mlx', 'torch', 'numpy', 'transformers'}:\n"
        "            raise ImportError(f'{name} is refused')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from assay.provenance.cli import main\n"
        "sys.exit(main(['capture', '--offline']) or main(['validate', sys.argv[1]]))\n"
    )
    command = [sys.executable, "-c", code, str(fixture_path("captures"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("arguments", "where"), [(["nothing/like-it", "--check"], "capture"), ([], "--out")])
def test_what_cannot_be_asked_is_a_usage_error(
    arguments: list[str], where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capture", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"assay: error: usage.argument: {where}: expected ")


def test_without_upstream_the_capture_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that can't import torch ends in one finding, not in a traceback."""
    (tmp_path / "torch.py").write_text("raise ImportError('torch is not here')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{_import_root()}")
    with pytest.raises(EvidenceError) as caught:
        capture_into(tmp_path / "out", ["contract-fixture/tokens"])
    finding = caught.value.finding
    assert finding.code in {"capture.upstream.run", "capture.upstream.installed"}
    assert finding.where in {"upstream", "torch", "transformers"}
    assert "assay[capture]" in finding.hint


def _import_root() -> Path:
    import assay

    return Path(assay.__file__).parent.parent


@pytest.mark.slow
def test_the_battery_gate_kills_everything(tmp_path: Path) -> None:
    result = fixtures_battery(GateContext(None, tmp_path))
    counts = result.measurements["battery"]["batteries"]["fixtures"]
    assert (result.outcome, counts["survived"], counts["killed_elsewhere"]) == ("pass", 0, 0)
    assert counts["total"] >= 100
