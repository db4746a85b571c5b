"""The root folders become one importable package, from a checkout and from what is built of it."""

import ast
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("spec", "oracles", "fixtures", "impl", "mutations", "provenance", "reports")


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_one_relative_link(room: str) -> None:
    link = ROOT / ".dev" / "assay" / room
    assert link.is_symlink()
    assert link.readlink() == Path("..", "..", room)


def test_both_archives_say_what_they_hold_and_exclude_no_room() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"][
        "targets"
    ]
    assert set(ROOMS) <= set(targets["sdist"]["only-include"])
    assert set(ROOMS) <= set(targets["wheel"]["only-include"])
    assert "exclude" not in targets["sdist"]
    assert not [one for one in targets["wheel"].get("exclude", []) if one.split("/")[0] != "reports"]


def test_no_file_imports_a_room_by_its_bare_name() -> None:
    """Two module objects for one file would make two registers of clauses."""
    folders = [ROOT / room for room in (*ROOMS, "tests")]
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not {name.split(".")[0] for name in names} & set(ROOMS), path


@pytest.mark.slow
def test_the_wheel_of_the_sdist_holds_the_whole_package_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    _build(ROOT, "sdist", tmp_path)
    archive = next(tmp_path.glob("*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    source = next((tmp_path / "unpacked").iterdir())
    _build(source, "wheel", tmp_path)
    names = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"assay"}
    modules = {
        f"assay/{path.relative_to(ROOT).as_posix()}" for room in ROOMS for path in (ROOT / room).rglob("*.py")
    }
    assert len(modules) > 50
    assert modules <= names
    assert "assay/reports/templates/run.html.j2" in names
    assert "assay/spec/profiles/qwen4exp.json" in names


def _build(source: Path, target: str, directory: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
