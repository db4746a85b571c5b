"""The folders are the architecture: who may import whom, and what may be imported at all."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("spec", "oracles", "impl", "mutations", "provenance", "reports")
HEAVY = {"mlx", "torch", "transformers"}
ALLOWED = {
    "spec": {"spec"},
    "oracles": {"spec", "oracles"},
    "impl": {"spec", "impl"},
    "mutations": {"spec", "oracles", "impl", "mutations"},
    "provenance": set(ROOMS),
    "reports": {"spec", "provenance", "reports"},
}
MLX_ROOMS = ("impl/model/", "impl/runtime/", "impl/draft/", "impl/replay/")
BANNED_IN_SPEC = HEAVY | {"numpy", "jsonschema", "rich", "tokenizers", "jinja2"}
ADMISSION = ("impl/stores/",)

MODULES = sorted(path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def imported(path: str) -> set[str]:
    """The dotted names that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", MODULES)
def test_a_room_imports_only_what_it_may(path: str) -> None:
    room = path.split("/", maxsplit=1)[0]
    rooms = {
        name.split(".")[1] for name in imported(path) if name.startswith("assay.") and name.count(".") >= 1
    }
    assert {name for name in rooms if name in ROOMS} <= ALLOWED[room]


@pytest.mark.parametrize("path", [path for path in MODULES if path.startswith("spec/")])
def test_spec_stands_on_the_standard_library_and_pydantic(path: str) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & BANNED_IN_SPEC


@pytest.mark.parametrize("path", MODULES)
def test_mlx_and_torch_stay_where_they_belong(path: str) -> None:
    heavy = {name.split(".")[0] for name in imported(path)} & HEAVY
    if path.startswith(MLX_ROOMS):
        heavy -= {"mlx"}
    if path.startswith(("provenance/capture", "provenance/gates/")):
        heavy = set()
    assert not heavy


def test_the_package_can_be_imported_without_numpy_and_mlx() -> None:
    """Admission must run where they can't be imported; a finder that refuses them proves it."""
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'mlx', 'torch', 'numpy', 'transformers'}:\n"
        "            raise ImportError(f'{name} is refused')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from assay.provenance.cli import main\n"
        "sys.exit(main(['explain', '--list']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
