"""Where runs, evidence and the checkpoint's description are looked for."""

from pathlib import Path

import pytest

from assay.provenance import paths
from assay.spec.errors import UsageError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".dev" / "assay").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def test_runs_go_into_the_checkout_that_one_stands_in(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    assert paths.runs_directory() == Path("reports", "out")


def test_runs_go_beside_the_user_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.runs_directory() == Path("assay-out")


def test_a_named_folder_wins(tmp_path: Path) -> None:
    assert paths.runs_directory(tmp_path / "x") == tmp_path / "x"


def test_a_named_checkpoint_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CHECKPOINT", str(tmp_path / "absent"))
    with pytest.raises(UsageError) as caught:
        paths.checkpoint_directory()
    assert (caught.value.finding.code, caught.value.finding.where) == ("usage.argument", "checkpoint")


def test_the_environment_names_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CHECKPOINT", str(tmp_path))
    assert paths.checkpoint_directory() == tmp_path
