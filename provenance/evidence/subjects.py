"""What evidence is about: digests of code, contract and fixtures, so that a change makes the evidence stale.

Code is digested as syntax trees without comments and docstrings, over the import closure of the component: a comment
makes nothing stale, a changed helper does, however many imports away. The closure follows `assay` modules only, and
static imports only, wherever they stand in a module (inside functions too; `import_module("assay...")` of a literal
counts). What is reached by a computed name must be named by the component. Syntax trees differ between minor versions
of Python, so evidence holds for one of them; it records which.
"""

import ast
import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Final

from assay.provenance.components import Component
from assay.spec.clauses import Authority, declare
from assay.spec.documents.evidence import Bench, Subject
from assay.spec.errors import EvidenceError, Finding

PACKAGE: Final = "assay"
_BLOCK_BYTES: Final = 1 << 20

SOURCE_MISSING = declare(
    "evidence.subject.missing",
    Authority.PROCESS,
    "Every module, fixture and contract file that a component names is there.",
    source="design: status is computed",
    cause="a module was renamed and the row in provenance/components.py was not",
)
SOURCE_SYNTAX = declare(
    "evidence.subject.syntax",
    Authority.PROCESS,
    "Every module in the import closure of a component parses.",
    source="design: status is computed",
    cause="a module is being edited",
)


_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Module:
    digest: str
    imports: tuple[str, ...]


@dataclass
class SourceTree:
    """The source of the package as it is on disk now; parses are kept as long as a file does not change.

    Attributes:
        root: the folder that holds the rooms; by default that of the running package.
    """

    root: Path = field(default_factory=lambda: Path(str(resources.files(PACKAGE))))
    _parsed: dict[str, tuple[_Stamp, _Module]] = field(default_factory=dict)
    _digests: dict[Path, tuple[_Stamp, str]] = field(default_factory=dict)

    def subject(self, component: Component) -> Subject:
        """Returns the three digests of `component`.

        Raises:
            EvidenceError: evidence.subject.missing or evidence.subject.syntax.
        """
        return Subject(
            code=self.code_digest(component.modules),
            contract=self.data_digest(component.contract),
            fixtures=self.data_digest(component.fixtures),
        )

    def code_digest(self, modules: Iterable[str]) -> str:
        """Returns the SHA-256 over the syntax trees of `modules`, all below them, and all that they import."""
        total = hashlib.sha256()
        for name in sorted(self.closure(modules)):
            total.update(f"{name}\0{self._module(name).digest}\n".encode())
        return total.hexdigest()

    def closure(self, modules: Iterable[str]) -> set[str]:
        """Returns the names of `modules`, everything below them, and everything that these import, transitively."""
        waiting = [name for module in modules for name in self._below(module)]
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            waiting += [one for one in self._module(name).imports if one not in found]
        return found

    def data_digest(self, paths: Iterable[str]) -> str:
        """Returns the SHA-256 over the names and bytes of the files at or below `paths` (relative to the root).

        Python source counts by its syntax tree here too, so that a comment in a contract makes nothing stale.
        """
        total = hashlib.sha256()
        for path in sorted({file for named in paths for file in self._files(named)}):
            name = path.relative_to(self.root).as_posix()
            total.update(f"{name}\0{self._file_digest(path)}\n".encode())
        return total.hexdigest()

    def _file_digest(self, path: Path) -> str:
        stamp = _stamp(path)
        kept = self._digests.get(path)
        if kept is None or kept[0] != stamp:
            if path.suffix == ".py":
                kept = (stamp, _tree_digest(_tree(path, path.relative_to(self.root).as_posix())))
            else:
                with path.open("rb") as file:
                    kept = (stamp, hashlib.file_digest(file, "sha256").hexdigest())
            self._digests[path] = kept
        return kept[1]

    def _files(self, path: str) -> Iterator[Path]:
        place = self.root / path
        if place.is_file():
            yield place
        elif place.is_dir():
            for folder, _, names in os.walk(place):
                if Path(folder).name != "__pycache__":
                    yield from (Path(folder) / name for name in names if not name.startswith("."))
        else:
            raise _not_there(path)

    def _below(self, module: str) -> Iterator[str]:
        source = self._source(module)
        if source is None:
            raise _not_there(module)
        yield module
        if source.name == "__init__.py":
            for path in sorted(source.parent.rglob("*.py")):
                parts = path.relative_to(source.parent).with_suffix("").parts
                names = parts[:-1] if parts[-1] == "__init__" else parts
                yield ".".join((module, *names))

    def _source(self, module: str) -> Path | None:
        """Returns the file of an `assay` module, or None when there is no such module."""
        first, *rest = module.split(".")
        if first != PACKAGE:
            return None
        stem = self.root.joinpath(*rest)
        for path in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
            if path.is_file() and (rest or path.name == "__init__.py"):
                return path
        return None

    def _module(self, name: str) -> _Module:
        path = self._source(name)
        if path is None:
            raise _not_there(name)
        stamp = _stamp(path)
        kept = self._parsed.get(name)
        if kept is None or kept[0] != stamp:
            kept = (stamp, self._parse(name, path))
            self._parsed[name] = kept
        return kept[1]

    def _parse(self, name: str, path: Path) -> _Module:
        tree = _tree(path, name)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        imports = {one for one in _imported_names(tree, package) if self._source(one) is not None}
        for one in (name, *tuple(imports)):  # importing a.b.c runs a and a.b first
            parts = one.split(".")
            above = {".".join(parts[:length]) for length in range(1, len(parts))}
            imports |= {parent for parent in above if self._source(parent) is not None}
        return _Module(_tree_digest(tree), tuple(sorted(imports)))


def bench(packages: Iterable[str]) -> Bench:
    """Returns where this process measures: Python, platform, device, and the versions of `packages`."""
    return Bench(
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        platform=f"{sys.platform}-{platform.machine()}",
        device=device_name(),
        packages={name: package_version(name) for name in sorted(set(packages))},
    )


@cache
def package_version(name: str) -> str:
    """Returns the version of an installed distribution, or `absent`."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


@cache
def device_name() -> str:
    """Returns the name of the processor, as the system gives it; on Apple silicon it names the GPU as well."""
    try:
        if sys.platform == "darwin":
            import subprocess

            asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(
                asked, capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(("model name", "Model")):
                    return line.partition(":")[2].strip()
    except (OSError, ValueError):
        pass
    return platform.processor() or platform.machine() or "unknown"


def _tree(path: Path, name: str) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise EvidenceError(
            Finding.of(SOURCE_SYNTAX, "subjects", name, expected="Python source", got=str(error))
        ) from error


def _tree_digest(tree: ast.Module) -> str:
    """Returns the digest of a syntax tree without docstrings and attribute comments; `tree` loses them."""
    _drop_bare_strings(tree)
    return hashlib.sha256(ast.dump(tree).encode("utf-8", "surrogatepass")).hexdigest()


def _stamp(path: Path) -> _Stamp:
    facts = path.stat()
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _imported_names(tree: ast.Module, package: str) -> Iterator[str]:
    """Yields every name that may be an imported module; `from a import b` gives a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                kept = parts[: len(parts) - node.level + 1]
                base = ".".join([*kept, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and _is_import_module(node.func):
            named = node.args[0]
            if isinstance(named, ast.Constant) and isinstance(named.value, str):
                yield named.value


def _is_import_module(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in {"import_module", "__import__"}


def _drop_bare_strings(tree: ast.Module) -> None:
    """Removes every statement that is only a string: docstrings, and the comments that follow an attribute."""
    for node in ast.walk(tree):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if isinstance(statements, list):
                statements[:] = [one for one in statements if not _is_bare_string(one)]


def _is_bare_string(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _not_there(name: str) -> EvidenceError:
    return EvidenceError(
        Finding.of(
            SOURCE_MISSING, "subjects", name, expected="a module or file of assay", got="nothing there"
        )
    )
