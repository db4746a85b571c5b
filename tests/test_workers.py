"""No worker is forked: MLX hangs in a forked child once its parent has evaluated anything."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("spec", "oracles", "impl", "mutations", "provenance", "reports")
MODULES = sorted(path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def forks(source: str) -> list[str]:
    """Calls in `source` that fork, or that leave it to the platform whether they do."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = {keyword.arg for keyword in node.keywords}
        first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if name in {"fork", "forkpty"} or (
            name in {"Process", "Pool"} and ast.unparse(node.func).startswith("multiprocessing.")
        ):
            found.append(name)
        elif name == "ProcessPoolExecutor" and "mp_context" not in given:
            found.append("ProcessPoolExecutor without mp_context")
        elif name in {"get_context", "set_start_method"} and first not in {"spawn", "forkserver"}:
            found.append(f"{name}({first!r})")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_every_worker_is_spawned(module: str) -> None:
    assert forks((ROOT / module).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "os.fork()",
        "multiprocessing.Process(target=f)",
        "multiprocessing.Pool(2)",
        "ProcessPoolExecutor(2)",
        "futures.ProcessPoolExecutor(max_workers=2)",
        "multiprocessing.get_context()",
        "get_context('fork')",
        "multiprocessing.set_start_method('fork')",
    ],
)
def test_a_fork_would_be_seen(source: str) -> None:
    assert len(forks(source)) == 1
