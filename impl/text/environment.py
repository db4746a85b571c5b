"""Jinja with provenance: compiles a template so that every text in it carries its origin, or refuses.

Jinja's own parser, scoping and code generator do the work; the generator is told to write constants as ropes that
know where they stand in the source, and to send every operation through this environment, which allows what it can
follow and refuses the rest.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MethodType
from typing import Any, Final

from jinja2 import TemplateError, Undefined, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace

from assay.impl.text.budget import MAX_BITS, MAX_ITEMS, counted, exceeded, spend
from assay.impl.text.filters import TESTS, Safe, concatenate, make_filters
from assay.impl.text.methods import (
    MAPPING_METHODS,
    SEQUENCE_METHODS,
    TEXT_METHODS,
    Method,
    as_text,
    percent,
    template_words,
)
from assay.impl.text.origin import COMPUTED, Origin, OriginKind, Spot, Unit, refuse
from assay.impl.text.rope import Rope, field_name, joined, placed, rope
from assay.impl.text.spots import COMPARED, OPERAND, SPOT, STEP, mark

LOOP_NAMES: Final = frozenset({
    "index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem", "nextitem", "depth",
    "depth0", "cycle", "changed",
})  # fmt: skip
REFUSED_GLOBALS: Final = ("lipsum", "cycler", "joiner")
REFUSED_NODES: Final = (
    nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block, nodes.EvalContextModifier,
    nodes.ScopedEvalContextModifier, nodes.MarkSafe, nodes.MarkSafeIfAutoescape, nodes.EnvironmentAttribute,
    nodes.ExtensionAttribute, nodes.ImportedName, nodes.InternalName, nodes.ContextReference,
    nodes.DerivedContextReference, nodes.OverlayScope,
)  # fmt: skip
_ITEMS_A_STEP: Final = 8  # log2 of the items that are copied in the time of one step
_NAMES_OF_DICT: Final = frozenset(dir(dict))
_ABSENT: Final = object()  # not None, which a namespace may hold


class Function:
    """A function that the environment offers to templates; what isn't one can't be called."""

    __slots__ = ("function", "name")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self.function(*args, **kwargs)


class ChatNamespace(Namespace):
    """`namespace(...)`: names are the template's, values are followed like any other."""


class GenerationTag(Extension):
    """`{% generation %}`: marks the assistant's own text for training; here only its body counts."""

    tags = {"generation"}  # noqa: RUF012 - the name and form that Jinja asks for

    def parse(self, parser: Parser) -> nodes.Node:
        """Reads the tag up to `endgeneration`."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class ProvenanceGenerator(CodeGenerator):
    """Writes constants as ropes, and outputs and concatenations as calls of the environment."""

    environment: "ProvenanceEnvironment"

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Writes a node, and around an operand or a compared value the call that looks at it."""
        spot = getattr(node, OPERAND, None)
        wrapped = spot is not None or hasattr(node, COMPARED)
        if wrapped:
            self.write("environment.compared(" if spot is None else "environment.operand(")
        result = super().visit(node, *args, **kwargs)
        if wrapped:
            self.write(")" if spot is None else f", {self.environment.spot(spot)})")
        return result

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802 - the name that Jinja calls
        """Writes a constant; text becomes a rope of the template's own origin."""
        if hasattr(node, STEP):
            self.write("environment.step()")
        elif isinstance(node.value, str):
            self.write(self.environment.literal(node.value, node))
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, _: Frame) -> None:  # noqa: N802 - the name that Jinja calls
        """Writes the text between tags."""
        self.write(self.environment.literal(node.data, node))

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - the name that Jinja calls
        """Writes `~`."""
        self.write("environment.concatenate((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:  # noqa: N802 - the name that Jinja calls
        """Writes a call; keyword arguments taken from a value are refused, since their names are text."""
        if node.dyn_kwargs is not None:
            raise refuse(
                f"line {node.lineno}: call",
                "keyword arguments from a mapping (**)",
                expected="named arguments",
            )
        super().visit_Call(node, frame, forward_caller=forward_caller)

    def _output_child_to_const(self, *_: Any) -> str:
        raise nodes.Impossible

    def _output_child_pre(self, *_: Any) -> None:
        self.write("environment.printed(")

    def _output_child_post(self, *_: Any) -> None:
        self.write(")")


class ProvenanceEnvironment(ImmutableSandboxedEnvironment):
    """The environment of one template."""

    code_generator_class = ProvenanceGenerator
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, clock: datetime | None) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[GenerationTag, loopcontrols]
        )
        self.literals: list[Rope] = []
        self.spots: list[Spot] = []
        self.filters = make_filters(self.getitem, self.undefined)
        self.tests = dict(TESTS)
        self.globals = {
            "raise_exception": Function("raise_exception", _raise_exception),
            "namespace": Function("namespace", _namespace),
            "range": Function("range", _range),
            "dict": Function("dict", _dict),
            "strftime_now": Function("strftime_now", _clock(clock)),
            **{name: Function(name, _refused_global(name)) for name in REFUSED_GLOBALS},
        }

    @staticmethod
    def concat(pieces: Iterable[Any]) -> Rope:  # type: ignore[override]
        """Joins the output of a template, macro or block."""
        return joined([ProvenanceEnvironment.printed(piece) for piece in pieces])

    @staticmethod
    def printed(value: Any) -> Rope:
        """Returns the text that `{{ value }}` prints."""
        if isinstance(value, Rope):
            return value
        return value.text if isinstance(value, Safe) else as_text("output", value)

    concatenate = staticmethod(concatenate)

    @staticmethod
    def step() -> bool:
        """Counts one turn of a loop."""
        spend(1)
        return True

    @staticmethod
    def compared(value: Any) -> Any:
        """Counts what a comparison with this value may touch."""
        if isinstance(value, (list, tuple, dict)):
            counted(value)
        return value

    def operand(self, value: Any, spot: int) -> Any:
        """Returns an operand beside a constant: a closed word of the contract gets its place in the source."""
        return placed(value, self.spots[spot]) if isinstance(value, Rope) else value

    def literal(self, text: str, node: nodes.Node) -> str:
        """Returns the source of a constant: an entry of the table of the template's own texts."""
        spot = getattr(node, SPOT, None) or Spot(Unit(node.lineno), 0, len(text))
        self.literals.append(rope(text, Origin(OriginKind.TEMPLATE, spot=spot)))
        return f"environment.literals[{len(self.literals) - 1}]"

    def spot(self, spot: Spot) -> int:
        """Returns the number of a spot in the table of spots."""
        self.spots.append(spot)
        return len(self.spots) - 1

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        mark(source)
        return super()._generate(source, name, filename, defer_init)

    def check(self, tree: nodes.Template) -> None:
        """Refuses statements whose text would come from somewhere else."""
        for kind in REFUSED_NODES:
            found = tree.find(kind)
            if found is not None:
                raise refuse(
                    f"line {found.lineno}", type(found).__name__.lower(), expected="a self-contained template"
                )

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805, PYI063 - as Jinja has it
        """Calls what a template may call: offered functions, methods, macros, loops."""
        allowed = isinstance(__obj, (Function, Method, Macro, LoopContext, Undefined)) or (
            isinstance(__obj, MethodType) and isinstance(__obj.__self__, LoopContext)
        )
        if not allowed:
            if not callable(__obj):
                raise TypeError(f"{type(__obj).__name__!r} object is not callable")
            raise refuse("call", f"an object of type {type(__obj).__name__}")
        spend(1)
        return __context.call(__obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Applies an arithmetic operator; formatting follows origins, powers are bounded."""
        if operator == "+" and type(left) is Rope and type(right) is Rope:
            return left + right
        if operator == "%" and isinstance(left, Rope):
            return percent(left, right)
        if isinstance(left, Safe) or isinstance(right, Safe):
            raise refuse(operator, "text after `safe`", expected="output only")
        if isinstance(left, int) and isinstance(right, int):
            _bounded(operator, left, right)
        elif isinstance(left, (list, tuple)) or isinstance(right, (list, tuple)):
            _bounded_items(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Returns `obj.attribute` as plain Jinja would: a method of the value's type first, then an item."""
        if type(obj) is dict and attribute not in _NAMES_OF_DICT:  # a field of a message: by far the most
            try:
                return obj[field_name(attribute)]
            except KeyError:
                return self._missing(obj, attribute)
        method = self._method(obj, attribute)
        if method is not _ABSENT:
            return method
        return self._item(obj, field_name(attribute), attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Returns `obj[argument]`: an item first, then a method of the value's type."""
        if isinstance(argument, str):
            raise refuse("item access", "a plain string, whose origin is unknown")
        name = argument.text if isinstance(argument, Rope) else None
        try:
            found = self._subscript(obj, argument)
        except (TypeError, LookupError, AttributeError):
            method = self._method(obj, name) if name is not None else _ABSENT
            return (
                method
                if method is not _ABSENT
                else self._missing(obj, name if name is not None else argument)
            )
        return found

    def _item(self, obj: Any, key: Rope, name: str) -> Any:
        try:
            return self._subscript(obj, key)
        except (TypeError, LookupError, AttributeError):
            return self._missing(obj, name)

    def _subscript(self, obj: Any, key: Any) -> Any:
        if type(obj) is dict:
            return obj[key]
        if isinstance(obj, (Rope, Mapping, list, tuple, range)):
            if isinstance(key, slice) and isinstance(obj, (list, tuple)):
                spend(len(obj) >> _ITEMS_A_STEP)
            return obj[key]
        if isinstance(obj, Undefined):
            return obj[key]
        raise TypeError(f"{type(obj).__name__!r} object is not subscriptable")

    def _method(self, obj: Any, name: str) -> Any:
        """Returns the attribute that plain Jinja would find on a value, `_ABSENT` if it has none."""
        if type(obj) is ChatNamespace:  # which answers even `isinstance` by itself, and slowly
            if name.startswith("_"):
                return self.unsafe_undefined(obj, name)
            try:
                return getattr(obj, name)
            except AttributeError:
                return _ABSENT
        if isinstance(obj, Rope):
            return self._from_table(obj, name, TEXT_METHODS, str)
        if isinstance(obj, dict):
            return self._from_table(obj, name, MAPPING_METHODS, dict)
        if isinstance(obj, (list, tuple)):
            return self._from_table(obj, name, SEQUENCE_METHODS, type(obj))
        if isinstance(obj, LoopContext) and name in LOOP_NAMES:
            return getattr(obj, name)
        if isinstance(obj, Undefined):
            return _ABSENT if name.startswith("__") else getattr(obj, name)
        if obj is None or isinstance(obj, (bool, int, float)):
            if hasattr(obj, name):
                raise refuse(f"attribute {name}", f"of a {type(obj).__name__}")
            return _ABSENT
        if name.startswith("_"):
            return self.unsafe_undefined(obj, name)
        raise refuse(f"attribute {name}", f"of an object of type {type(obj).__name__}")

    def _from_table(self, obj: Any, name: str, table: Mapping[str, Any], plain: type) -> Any:
        if name in table:
            return Method(name, table[name], obj)
        if not hasattr(plain, name):
            return _ABSENT
        stand_in = plain()
        if name.startswith("_") or not self.is_safe_attribute(stand_in, name, None):
            return self.unsafe_undefined(stand_in, name)
        raise refuse(f"method {name}", f"of a {plain.__name__}")

    def _missing(self, obj: Any, name: Any) -> Undefined:
        return self.undefined(obj="" if isinstance(obj, Rope) else obj, name=name)


def _bounded(operator: str, left: int, right: int) -> None:
    """Refuses arithmetic whose result has more bits than any number of a conversation."""
    one, two = left.bit_length(), right.bit_length()
    bits = one * abs(right) if operator == "**" else one + two if operator == "*" else max(one, two)
    if bits > MAX_BITS:
        raise exceeded(operator, f"at most {MAX_BITS} bits", bits)


def _bounded_items(operator: str, left: Any, right: Any) -> None:
    """Counts the items that adding or repeating lists copies."""
    lengths = [len(one) for one in (left, right) if isinstance(one, (list, tuple))]
    times = [one for one in (left, right) if isinstance(one, int)]
    items = sum(lengths) if operator == "+" else lengths[0] * max(times[0], 0) if times else 0
    if operator == "*" and items > MAX_ITEMS:
        raise exceeded(operator, f"at most {MAX_ITEMS} items", items)
    spend(items >> _ITEMS_A_STEP)


def _range(*bounds: int) -> range:
    spend(1)
    return safe_range(*bounds)


def _raise_exception(message: Any) -> Any:
    raise TemplateError(
        message.text if isinstance(message, Rope) else as_text("raise_exception", message).text
    )


def _namespace(*args: Any, **kwargs: Any) -> ChatNamespace:
    if args:
        raise refuse("namespace", "positional arguments", expected="named values")
    for name in kwargs:
        if name.startswith("_"):
            raise SecurityError(f"a namespace can't hold the name {name!r}")
    return ChatNamespace(**kwargs)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return {**dict(*args), **template_words(kwargs)}


def _clock(clock: datetime | None) -> Callable[[Rope], Rope]:
    def strftime_now(format: Rope) -> Rope:  # noqa: A002 - the name that the public library gives it
        if clock is None:
            raise refuse(
                "strftime_now",
                "no clock",
                expected="a moment given with the request, so that a prompt repeats",
            )
        return rope(clock.strftime(format.text), COMPUTED)

    return strftime_now


def _refused_global(name: str) -> Callable[..., Any]:
    def refused(*_: Any, **__: Any) -> Any:
        raise refuse(f"function {name}", "a call")

    return refused
