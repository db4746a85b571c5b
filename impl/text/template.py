"""One chat template, rendered twice: with provenance, and plainly to hold the first rendering to it."""

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from assay.impl.text.budget import MAX_STEPS, Meter, exceeded
from assay.impl.text.environment import ProvenanceEnvironment
from assay.impl.text.origin import Origin, OriginError, OriginKind, Place, watching
from assay.impl.text.rope import Piece, Rope, field_name, rope, written
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

SYNTAX = declare(
    "chat.template.syntax",
    Authority.INPUT,
    "A chat template must be a template that Jinja can compile.",
    source="Jinja 3.1",
    cause="a damaged file, or a template of another engine",
)
RAISED = declare(
    "chat.template.raised",
    Authority.UPSTREAM,
    "The template itself refuses the conversation.",
    source="the checkpoint's chat template",
    cause="a message order, role or value that the template's author excluded",
)
DIFFERS = declare(
    "chat.render.differs",
    Authority.RULE,
    "Rendering with provenance gives the bytes, or the kind of error, that plain Jinja gives.",
    source="field note AFN-006",
    cause="an operation that is followed in another way than Jinja does it; a fault of assay or a new Jinja",
)
INPUT = declare(
    "chat.input.json",
    Authority.FORM,
    "What a caller hands to a template is JSON: objects with text keys, arrays, text, numbers, booleans, null.",
    source="field note AFN-006",
    cause="an object of the calling program, a byte string, a set or a number that JSON lacks",
)
MAX_DEPTH: Final = 100
MAX_TEMPLATE_CHARACTERS: Final = 1 << 20
"""Published templates have some ten thousand; a long one takes long to compile."""


class ChatTemplate:
    """A compiled template.

    Args:
        source: the text of the template.
        clock: the moment that `strftime_now` shows; without one a template that asks for it is refused.
        constants: words of the tokenizer that templates use, such as `bos_token`; they count as template text.
        max_steps: what one render may take, see `budget`.
    """

    def __init__(
        self,
        source: str,
        *,
        clock: datetime | None = None,
        constants: Mapping[str, str] | None = None,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.source = source
        self._constants = dict(constants or {})
        self._max_steps = max_steps
        self._environment = ProvenanceEnvironment(clock)
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            raise _no_template("template", f"at most {MAX_TEMPLATE_CHARACTERS} characters", len(source))
        plain = plain_environment(clock)
        try:
            self._environment.check(self._environment.parse(source))
            self._template = self._environment.from_string(source)
            self._plain = plain.from_string(source)
        except TemplateSyntaxError as error:
            raise _no_template(f"line {error.lineno}", "Jinja syntax", error.message or "") from None
        except (RecursionError, MemoryError, SyntaxError, ValueError) as error:
            # Nesting that Jinja's parser or Python's compiler can't follow, or a number of too many digits.
            raise _no_template("template", "a template that can be compiled", _named(error)) from None

    def render(
        self, variables: Mapping[str, Any], *, vocabulary: Mapping[str, frozenset[str]] | None = None
    ) -> tuple[Piece, ...]:
        """Returns the rendered pieces with their origins.

        Args:
            variables: what the caller gives, plain JSON.
            vocabulary: closed sets by the last word of a path, such as `role`; a caller's value that was found in its
                set is trusted as far as the set goes.

        Raises:
            OriginError: chat.origin.lost, when the template needs an operation that loses origins.
            ContractError: chat.template.raised, when the template refuses; chat.render.differs, when the two
                renderings part; chat.input.json, when a value is not JSON.
        """
        wrapped = wrap_all(variables, vocabulary or {})
        wrapped |= {name: written(word) for name, word in self._constants.items()}
        # First: it is the one that bounds what a template may do.
        result, error = self._render_followed(wrapped)
        plain, plain_error = self._render_plain({**variables, **self._constants})
        if (plain_error is None) != (error is None) or type(plain_error) is not type(error):
            raise _differs(_named(plain_error) or "text", _named(error) or "text")
        if error is not None:
            message = str(plain_error) if type(error) is TemplateError else f"{_named(error)}: {plain_error}"
            raise ContractError(
                Finding.of(
                    RAISED,
                    "template",
                    _line_of(error),
                    expected="a conversation that it renders",
                    got=message,
                )
            )
        if result is None or plain is None or result.text != plain:
            raise _differs(f"{len(plain or '')} characters", f"{len(result or ())} characters, other text")
        return result.pieces

    def _render_followed(self, wrapped: dict[str, Any]) -> tuple[Rope | None, Exception | None]:
        result: Rope | None = None
        failure: Exception | None = None
        with watching() as watched, Meter(self._max_steps):
            try:
                result = self._environment.concat(
                    self._template.root_render_func(self._template.new_context(wrapped))
                )
            except Exception as error:  # noqa: BLE001 - a template can raise anything; it is compared with plain Jinja
                failure = error
            if isinstance(failure, (RecursionError, MemoryError)):
                exceeded(_line_of(failure), "no endless nesting", _named(failure))
            lost = watched.first
        if lost is not None:
            raise lost
        return result, failure

    def _render_plain(self, variables: dict[str, Any]) -> tuple[str | None, Exception | None]:
        try:
            return self._plain.render(variables), None
        except Exception as error:  # noqa: BLE001 - as above
            return None, error


def wrap_all(variables: Mapping[str, Any], vocabulary: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    """Returns the caller's values with text as ropes, each labelled with its path."""
    return {name: _wrap(value, Place(None, name), name, vocabulary, 0) for name, value in variables.items()}


def _wrap(value: Any, place: Place, word: str, vocabulary: Mapping[str, frozenset[str]], depth: int) -> Any:
    kind = type(value)
    if kind is str:
        known = word in vocabulary and value in vocabulary[word]
        return rope(value, Origin(OriginKind.VOCABULARY if known else OriginKind.CALLER, place))
    if value is None or kind in {bool, int}:
        return value
    if kind is float and math.isfinite(value):
        return value
    if depth > MAX_DEPTH:
        raise _not_json(str(place), f"nesting of at most {MAX_DEPTH}", "more")
    if kind in {list, tuple}:
        return [
            _wrap(item, Place(place, index), "", vocabulary, depth + 1) for index, item in enumerate(value)
        ]
    if kind is dict:
        # Only fields of a message itself are closed vocabularies, not a tool parameter of the same name.
        in_message = depth == 1 and place.parent is not None and place.parent.step == "messages"
        keys = Origin(OriginKind.CALLER, Place(place, None))
        out: dict[Rope, Any] = {}
        for key, item in value.items():
            if type(key) is not str:
                raise _not_json(str(place), "text keys", f"a key of type {type(key).__name__}")
            label = field_name(key) if in_message else rope(key, keys)
            out[label] = _wrap(item, Place(place, key), key if in_message else "", vocabulary, depth + 1)
        return out
    raise _not_json(str(place), "a JSON value", f"a value of type {kind.__name__}")


class _PlainGenerationTag(Extension):
    """`{% generation %}` of the plain environment: the body as a call block, as upstream has it."""

    tags = {"generation"}  # noqa: RUF012 - the name and form that Jinja asks for

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    @staticmethod
    def body(caller: Any) -> Any:
        return caller()


class _PlainGenerator(CodeGenerator):
    """Jinja's own, except that it computes nothing while compiling: a constant expression may be of any size."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, (nodes.TemplateData, nodes.Const)):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


def plain_environment(clock: datetime | None) -> ImmutableSandboxedEnvironment:
    """Returns the environment in which the public library renders chat templates, with a pinned clock.

    The optimizer is off: it would run a template's constant expressions, of any size, while compiling; so would the
    code generator for outputs.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[_PlainGenerationTag, loopcontrols]
    )

    environment.code_generator_class = _PlainGenerator

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(format: str) -> str:  # noqa: A002 - the name that the public library gives it
        return "" if clock is None else clock.strftime(format)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def _named(error: Exception | None) -> str:
    return "" if error is None else type(error).__name__


def _line_of(error: Exception) -> str:
    """Returns the place of the template at which an error came up."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        line = template.get_corresponding_lineno(trace.tb_lineno) if template is not None else line
        trace = trace.tb_next
    return f"line {line}" if line else "chat template"


def _no_template(where: str, expected: Any, got: Any) -> ContractError:
    return ContractError(Finding.of(SYNTAX, "template", where, expected=expected, got=got))


def _differs(expected: str, got: str) -> OriginError:
    return OriginError(
        Finding.of(DIFFERS, "render", "chat template", expected=f"plain Jinja's {expected}", got=got)
    )


def _not_json(where: str, expected: str, got: str) -> ContractError:
    return ContractError(Finding.of(INPUT, "request", where, expected=expected, got=got))
