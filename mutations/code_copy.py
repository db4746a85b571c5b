"""A private copy of a shipped package with edits of its syntax trees, beside the shipped one and never in the tree.

The copy is imported under a package name of its own: each module is compiled from its source, its imports of the
shipped package turned to the copy, so that nothing of a mutated module reaches the shipped one. Clauses are shared:
they are words, not mathematics.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import CodeType, ModuleType
from typing import Any, Final

from assay.mutations.battery import InvalidMutationError

SHARED: Final = frozenset({"clauses"})
"""Modules that a copy shares with the shipped package."""


@dataclass(frozen=True, slots=True)
class Package:
    """A shipped package and the name of its copy."""

    shipped: str
    copy: str


ORACLES: Final = Package("assay.oracles", "_assay_oracles_copy")
MODEL: Final = Package("assay.impl.model", "_assay_model_copy")


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement inside one function; its anchor must stand there exactly once.

    Attributes:
        module: of the package, such as `norms`.
        function: its name; `Class.method` for a method.
        before: an expression, or one or more statements, as source; layout does not matter.
        after: what stands there instead; may be empty for statements.
    """

    module: str
    function: str
    before: str
    after: str


class CodeCopy:
    """The modules of a private copy, imported when they are first asked for."""

    def __init__(self, package: Package) -> None:
        self._package = package

    def module(self, name: str) -> Any:
        """Returns a module of the copy."""
        return importlib.import_module(f"{self._package.copy}.{name}")


@contextmanager
def code_copy(package: Package, edits: Sequence[Edit] = ()) -> Iterator[CodeCopy]:
    """Yields a copy of a package with the edits made; it is gone from the interpreter afterwards.

    Raises:
        InvalidMutationError: when an anchor is missing, is there more than once, or the edit changes nothing.
    """
    edited: dict[str, CodeType] = {}
    for module in {edit.module for edit in edits}:
        tree = _tree(package, module)
        for edit in edits:
            if edit.module == module:
                apply_edit(tree, edit)
        edited[module] = _compiled(package, module, tree)
    finder = _Finder(package, edited)
    sys.meta_path.insert(0, finder)
    try:
        yield CodeCopy(package)
    finally:
        sys.meta_path.remove(finder)
        for name in [one for one in sys.modules if one == package.copy or one.startswith(f"{package.copy}.")]:
            del sys.modules[name]


def apply_edit(tree: ast.Module, edit: Edit) -> None:
    """Replaces the anchor inside its function, in place.

    Raises:
        InvalidMutationError: as `code_copy`.
    """
    function = _function(tree, edit)
    before, after = _parsed(edit.before), _parsed(edit.after)
    if [ast.dump(one) for one in before] == [ast.dump(one) for one in after]:
        raise InvalidMutationError(f"{edit.module}.{edit.function}: the edit changes nothing")
    found = 0
    if len(before) == len(after) == 1 and isinstance(before[0], ast.Expr) and isinstance(after[0], ast.Expr):
        swap = _Expression(ast.dump(before[0].value), after[0].value)
        swap.visit(function)
        found = swap.found
    if not found:
        found = _replace_statements(function, before, after)
    if found != 1:
        raise InvalidMutationError(
            f"{edit.module}.{edit.function}: the anchor stands there {found} times: {edit.before}"
        )


def _parsed(source: str) -> list[ast.stmt]:
    return ast.parse(source).body


def _function(tree: ast.Module, edit: Edit) -> ast.AST:
    place: ast.AST = tree
    for name in edit.function.split("."):
        below = [
            node
            for node in ast.iter_child_nodes(place)
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name
        ]
        if len(below) != 1:
            raise InvalidMutationError(f"{edit.module}.{edit.function}: no such function")
        place = below[0]
    return place


class _Expression(ast.NodeTransformer):
    """Replaces every expression that equals the anchor."""

    def __init__(self, anchor: str, after: ast.expr) -> None:
        self._anchor = anchor
        self._after = after
        self.found = 0

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and ast.dump(node) == self._anchor:
            self.found += 1
            return self._after
        return self.generic_visit(node)


def _replace_statements(function: ast.AST, before: list[ast.stmt], after: list[ast.stmt]) -> int:
    wanted = [ast.dump(one) for one in before]
    found = 0
    for node in ast.walk(function):
        for block in ("body", "orelse", "finalbody"):
            lines = getattr(node, block, None)
            if not isinstance(lines, list):
                continue
            dumps = [ast.dump(one) for one in lines]
            places = [at for at in range(len(dumps)) if dumps[at : at + len(wanted)] == wanted]
            found += len(places)
            for at in reversed(places):
                lines[at : at + len(wanted)] = after or [ast.Pass()]
    return found


class _Retarget(ast.NodeTransformer):
    """Turns imports of the shipped package to the copy."""

    def __init__(self, package: Package) -> None:
        self._package = package

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        module, shipped = node.module or "", self._package.shipped
        if module == shipped or module.startswith(f"{shipped}."):
            rest = module.removeprefix(shipped)
            if rest.removeprefix(".") not in SHARED:
                node.module = self._package.copy + rest
        return node


def _tree(package: Package, module: str) -> ast.Module:
    try:
        source = (resources.files(package.shipped) / f"{module}.py").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidMutationError(f"no module {module} in {package.shipped}") from None
    return ast.parse(source)


def _compiled(package: Package, module: str, tree: ast.Module) -> CodeType:
    turned = ast.fix_missing_locations(_Retarget(package).visit(tree))
    return compile(turned, f"<copy of {package.shipped}.{module}>", "exec")


@cache
def _unchanged(package: Package, module: str) -> CodeType:
    return _compiled(package, module, _tree(package, module))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and runs the modules of one copy."""

    def __init__(self, package: Package, edited: dict[str, CodeType]) -> None:
        self._package = package
        self._edited = edited

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns a spec for the copy's own names."""
        del path, target
        if fullname == self._package.copy:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if fullname.startswith(f"{self._package.copy}."):
            return importlib.machinery.ModuleSpec(fullname, self)
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Runs the edited code of a module, or its unchanged code."""
        name = module.__name__.removeprefix(self._package.copy).removeprefix(".")
        if name:
            exec(self._edited.get(name) or _unchanged(self._package, name), module.__dict__)  # noqa: S102 - our own source
