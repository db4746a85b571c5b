"""Which mutants of the oracles' code no test is asked to kill, each kind with its reason; and reasons for single ones.

A kind is a normal form: two functions whose syntax trees are equal in it differ in nothing that the kind's reason
does not cover. `TEXT` is out of scope and never run; the other kinds excuse a survivor, and are counted as such.
"""

import ast
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_REFUSALS: Final = frozenset({"refuse", "of"})
_TEXTS: Final = frozenset({"expected", "got", "hint"})
_MAKERS: Final = frozenset({"array", "asarray", "zeros", "ones", "arange"})


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of mutant that no test is asked to kill.

    Attributes:
        name: a word.
        reason: why.
        normal: brings a syntax tree to the normal form in which the kind's mutants equal the original.
    """

    name: str
    reason: str
    normal: Callable[[], ast.NodeTransformer]


class _WithoutTexts(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _name(node.func) in _REFUSALS:
            node.keywords = [one for one in node.keywords if one.arg not in _TEXTS]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A local that is named like a text of a refusal holds one."""
        self.generic_visit(node)
        names = {one.id for one in node.targets if isinstance(one, ast.Name)}
        if names and names <= _TEXTS | {"lengths", "names", "bounds", "bad"}:
            node.value = ast.Constant(0)
        return node


class _WithoutDefaultTypes(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = _name(node.func)
        if name == "astype" and len(node.args) == 1 and _is_none(node.args[0]):
            node.args = [ast.parse("np.float64", mode="eval").body]
        if name in {"real", "numbers"} and len(node.args) >= 3 and _is_none(node.args[2]):
            node.args[2] = ast.parse("np.float64", mode="eval").body
        if name in _MAKERS and len(node.args) == 2 and _is_default_type(node.args[1]):
            node.args = node.args[:1]
        return node


class _WithoutWorkingType(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.args = [one for one in node.args if not _is_working_type(one)]
        node.keywords = [one for one in node.keywords if one.arg != "dtype"]
        return node


class _Folded(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and node.value.casefold() in {"utf-8", "ascii", "stable"}:
            return ast.Constant(node.value.casefold())
        return node


class _WithoutStrict(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _name(node.func) == "zip":
            node.keywords = [one for one in node.keywords if one.arg != "strict"]
        return node


TEXT: Final = Kind(
    "text",
    "the words of a refusal (expected, got, hint) are for a reader; tests hold its code and its place",
    _WithoutTexts,
)
KINDS: Final = (
    Kind(
        "default-type",
        "the same type, spelt otherwise: NumPy reads None as float64 in astype, and makes int64 of integers and "
        "float64 of floats",
        _WithoutDefaultTypes,
    ),
    Kind(
        "later-rounding",
        "an intermediate in float64 instead of the working type moves less than every tolerance; that the results "
        "have the working type is tested for every operation",
        _WithoutWorkingType,
    ),
    Kind("spelling", "Python and NumPy read the name of an encoding or a sort in any case", _Folded),
    Kind("strict-zip", "the lengths were compared before; strict is a second lock", _WithoutStrict),
)

_AT_IMPORT: Final = (
    "it runs while its module is imported, before mutmut switches a mutant on, so no test can see one"
)
_OF_TEXT: Final = "it makes the words of a refusal"
FUNCTIONS: Final = {
    "catalogue._real": _AT_IMPORT,
    "catalogue._whole": _AT_IMPORT,
    "catalogue._named": _AT_IMPORT,
    "signature._form": _OF_TEXT,
    "checks.shape_text": _OF_TEXT,
    "checks.first_non_finite": _OF_TEXT,
}
"""`module.function` -> why none of its mutants is asked for."""

SINGLE: Final[dict[str, str]] = {
    "chat.literals_of:20d818ee362ce126": "a missing text is refused by its length, and no pinned text has four bytes",
    "chat.render:a798e6c3837e5e4d": "the last query is a user's turn, so that no assistant's turn has its index",
    "fixture.FixtureWeights.ple_rows:874103c06609610f": "NumPy reads any negative extent as the one to work out",
    "geometry._require_agreement:5b9acf6aaf98c247": "it is the words of a refusal",
    "ple._is_prime:c059ab8790a5a58e": "one more divisor, below the number itself, divides no prime",
    "tokenizer.Oracle.encode_trusted:280d8ed6474f7224": "at the end of the text no spelling begins, and the loop ends",
    "tokenizer._whitespace:477c78096c11d576": "any number below 0 says that there is no line end",
    "tokenizer._alphabet:0033977b463f1af9": "a byte is at most 255",
}
"""`module.function:digest of the diff` -> why this one mutant changes nothing that matters."""


def kind_of(original: str, mutant: str) -> Kind | None:
    """Returns the kind of a mutant, given both functions as source; None when a test must kill it."""
    for kind in (TEXT, *KINDS):
        if _normal(original, kind) == _normal(mutant, kind):
            return kind
    return None


@lru_cache(maxsize=4096)  # an original is compared with hundreds of mutants
def _normal(source: str, kind: Kind) -> str:
    tree = ast.parse(textwrap.dedent(source))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            node.name = "f"  # the generator of mutants renames them
    return ast.dump(kind.normal().visit(tree))


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_default_type(node: ast.expr) -> bool:
    return _is_none(node) or (isinstance(node, ast.Attribute) and node.attr in {"int64", "float64"})


def _is_working_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Name) and node.id in {"kind", "dtype"}:
        return True
    return _is_none(node) or (isinstance(node, ast.Attribute) and node.attr == "dtype")
