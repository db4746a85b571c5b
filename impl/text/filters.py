"""The filters and tests that a template may use, each following the origin of every character.

Names that Jinja knows and that are not here are refused when they run; names that Jinja doesn't know are template
errors, as they are in plain Jinja.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, Final

from jinja2 import Undefined, filters, tests
from jinja2.exceptions import FilterArgumentError, TemplateRuntimeError

from assay.impl.text.budget import MAX_ITEMS, copied, counted, exceeded, sized, spend
from assay.impl.text.methods import as_text, join, padded, percent, recased, replace, strip, template_words
from assay.impl.text.origin import COMPUTED, refuse
from assay.impl.text.rope import EMPTY, Piece, Rope, joined, merged, rope

Lookup = Callable[[Any, Any], Any]
_MAX_PRECISION: Final = 400
"""Digits of a rounding; no float has more."""


class Safe:
    """Text after `safe`: printed or joined to other text it is that text; what else follows would escape the other."""

    __slots__ = ("text",)

    def __init__(self, text: Rope) -> None:
        self.text = text

    def __str__(self) -> str:
        raise refuse("str()", "text after `safe`")

    def __bool__(self) -> bool:
        return bool(self.text)

    def __len__(self) -> int:
        return len(self.text)

    def __eq__(self, _: object) -> bool:
        raise refuse("comparison", "text after `safe`")

    def __hash__(self) -> int:
        raise refuse("lookup", "text after `safe`")


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> Rope:
    """JSON in the caller's order; text keeps its origin, punctuation and numbers are computed."""
    between, after_key = (
        (_text(separators[0]), _text(separators[1]))
        if separators is not None
        else ((", " if indent is None else ","), ": ")
    )
    step = (
        None if indent is None else _text(indent) if isinstance(indent, Rope) else _spaces("tojson", indent)
    )
    quote = json.encoder.encode_basestring_ascii if ensure_ascii else json.encoder.encode_basestring
    out: list[Piece] = []

    def string(text: Rope) -> None:
        pieces = text.pieces
        if ensure_ascii and len(pieces) > 1 and any(ord(character) > 0xFFFF for character in text.text):
            raise refuse("tojson", "text of several origins beyond the basic plane, escaped")
        out.append(('"', COMPUTED))
        copied(len(text))
        for piece, origin in pieces:
            quoted = quote(piece)[1:-1]
            out.append((quoted, origin if quoted == piece else origin.without_spot()))
        out.append(('"', COMPUTED))

    def container(ends: str, items: Iterable[Any], emit: Callable[[Any], None], depth: int) -> None:
        out.append((ends[0], COMPUTED))
        line = "" if step is None else "\n" + step * (depth + 1)
        copied(len(line))
        count = 0
        for count, item in enumerate(items, 1):
            out.append(((between if count > 1 else "") + line, COMPUTED))
            emit(item)
        if count and step is not None:
            out.append(("\n" + step * depth, COMPUTED))
        out.append((ends[1], COMPUTED))

    def emit(item: Any, depth: int) -> None:
        spend(1)
        if isinstance(item, Rope):
            string(item)
        elif item is None or isinstance(item, (bool, int, float)):
            out.append((json.dumps(item), COMPUTED))
        elif isinstance(item, Mapping):

            def pair(entry: tuple[Any, Any]) -> None:
                if not isinstance(entry[0], Rope):
                    raise refuse("tojson", f"a key of type {type(entry[0]).__name__}", expected="text keys")
                string(entry[0])
                out.append((after_key, COMPUTED))
                emit(entry[1], depth + 1)

            entries = item.items()
            container(
                "{}", sorted(entries, key=lambda entry: entry[0]) if sort_keys else entries, pair, depth
            )
        elif isinstance(item, (list, tuple)):
            container("[]", item, lambda one: emit(one, depth + 1), depth)
        else:
            raise TypeError(f"Object of type {type(item).__name__} is not JSON serializable")

    emit(value, 0)
    return Rope(merged(out))


def _spaces(operation: str, width: Any) -> str:
    """Returns as many spaces as a template asks for, within bounds."""
    return " " * sized(operation, width) if isinstance(width, int) else " " * width


def _text(value: Any) -> str:
    if not isinstance(value, Rope):
        raise refuse("filter argument", type(value).__name__, expected="text")
    return value.text


def _soft(operation: str, value: Any) -> Rope:
    return as_text(operation, value)


def _plainly(operation: str, value: Any) -> Rope:
    """Returns the text of a value where Jinja joins plain texts, so that `safe` makes no difference."""
    return value.text if isinstance(value, Safe) else _soft(operation, value)


def concatenate(values: tuple[Any, ...]) -> Rope:
    """Returns what `~` makes."""
    return joined([value if type(value) is Rope else _plainly("~", value) for value in values])


def _trim(value: Any, chars: Rope | None = None) -> Rope:
    return strip(_soft("trim", value), chars)


def _format(value: Any, *args: Any, **kwargs: Any) -> Rope:
    if args and kwargs:
        raise FilterArgumentError("can't handle positional and keyword arguments at the same time")
    return percent(_soft("format", value), template_words(kwargs) if kwargs else args)


def _case(name: str) -> Callable[[Any], Rope]:
    return lambda value: recased(name)(_soft(name, value))


def _title(value: Any) -> Rope:
    text = _soft("title", value)
    changed = filters.do_title(text.text)
    if len(changed) != len(text):
        raise refuse("title", "a text whose length changes with its case")
    return text.relabelled(changed)


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> Rope:
    return replace(_soft("replace", value), _soft("replace", old), _soft("replace", new), count)


def _default(value: Any, default_value: Any = EMPTY, boolean: bool = False) -> Any:
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Undefined):
        return
    if not isinstance(value, Mapping):
        raise TypeError("Can only get item pairs from a mapping.")
    yield from value.items()


def _length(value: Any) -> int:
    return len(value)


def _list(value: Any) -> list[Any]:
    return list(value)


def _reverse(value: Any) -> Any:
    if isinstance(value, Rope):
        return value[::-1]
    try:
        return reversed(value)
    except TypeError:
        return iter(list(value)[::-1])


def _safe(value: Any) -> Safe:
    return value if isinstance(value, Safe) else Safe(_soft("safe", value))


def _number(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turns a filter that answers with a number into one that reads the plain text of its value."""
    return lambda value, *args, **kwargs: function(
        value.text if isinstance(value, Rope) else value, *args, **kwargs
    )


def _round(value: Any, precision: Any = 0, method: Rope | None = None) -> Any:
    if isinstance(precision, int) and abs(precision) > _MAX_PRECISION:
        raise exceeded("round", f"at most {_MAX_PRECISION} digits", precision)
    return filters.do_round(value, precision, "common" if method is None else method.text)  # type: ignore[arg-type]


def _indent(value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> Rope:
    from assay.impl.text.methods import splitlines

    text = _soft("indent", value)
    pad = width if isinstance(width, Rope) else rope(_spaces("indent", width), COMPUTED)
    lines = splitlines(text + rope("\n", COMPUTED), True)
    # Jinja indents what `splitlines` finds and joins with line feeds, whatever the line ends were.
    bare = splitlines(text + rope("\n", COMPUTED))
    parts: list[Rope] = []
    for number, line in enumerate(bare):
        if number:
            before = lines[number - 1]
            parts.append(before[-1:].relabelled("\n"))
        if number and (blank or line):
            parts.append(pad)
        parts.append(line)
    whole = joined(parts)
    return pad + whole if first else whole


def _folded(value: Any, case_sensitive: bool) -> Any:
    return value.text if case_sensitive and isinstance(value, Rope) else _lower(value)


def _lower(value: Any) -> Any:
    return value.text.lower() if isinstance(value, Rope) else value


def make_filters(lookup: Lookup, undefined: type[Undefined]) -> dict[str, Callable[..., Any]]:
    """Returns the filters; `lookup` is the environment's item access, which also bounds what attributes exist."""

    def part(item: Any, attribute: Any, default: Any = None) -> Any:
        words = attribute.text.split(".") if isinstance(attribute, Rope) else [attribute]
        for word in words:
            key = int(word) if isinstance(word, str) and word.isdigit() else word
            item = lookup(item, rope(key, COMPUTED) if isinstance(key, str) else key)
            if default is not None and isinstance(item, Undefined):
                item = default
        return item

    def mapped(value: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        if not value:
            return  # as Jinja has it, and only once something is asked of the iterator
        if not args and "attribute" in kwargs:
            attribute, default = kwargs.pop("attribute"), kwargs.pop("default", None)
            if kwargs:
                raise FilterArgumentError(f"Unexpected keyword argument {next(iter(kwargs))!r}")
            for item in value:
                yield part(item, attribute, default)
            return
        function = named(table, "filter", args)
        for item in value:
            yield function(item, *args[1:], **kwargs)

    def selected(wanted: bool, by_attribute: bool) -> Callable[..., Iterator[Any]]:
        def select(value: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            if not value:
                return
            attribute = args[0] if by_attribute else None
            rest = args[1:] if by_attribute else args
            function = named(TESTS, "test", rest) if rest else bool
            for item in value:
                subject = part(item, attribute) if by_attribute else item
                if bool(function(subject, *rest[1:], **kwargs)) is wanted:
                    yield item

        return select

    def joined_with(value: Any, d: Any = EMPTY, attribute: Any = None) -> Rope:
        items = [item if attribute is None else part(item, attribute) for item in value]
        return join(_plainly("join", d), [_plainly("join", item) for item in items])

    def first(value: Any) -> Any:
        return next(iter(value), undefined("No first item, sequence was empty."))

    def last(value: Any) -> Any:
        items = value if isinstance(value, (list, tuple, Rope)) else list(value)
        return next(iter(items[-1:]), undefined("No last item, sequence was empty."))

    def ordered(
        value: Any, reverse: bool = False, case_sensitive: bool = False, attribute: Any = None
    ) -> list[Any]:
        names = attribute.text.split(",") if isinstance(attribute, Rope) else [attribute]

        def key(item: Any) -> list[Any]:
            parts = [item if name is None else part(item, rope(name, COMPUTED)) for name in names]
            return [_folded(one, case_sensitive) for one in parts]

        items = list(value)
        counted(items)
        return sorted(items, key=key, reverse=reverse)

    def dictsort(
        value: Any, case_sensitive: bool = False, by: Any = None, reverse: bool = False
    ) -> list[Any]:
        word = "key" if by is None else by.text
        if word not in {"key", "value"}:
            raise FilterArgumentError('You can only sort by either "key" or "value"')
        at = 0 if word == "key" else 1
        counted(value)
        return sorted(value.items(), key=lambda pair: _folded(pair[at], case_sensitive), reverse=reverse)

    def unique(value: Any, case_sensitive: bool = False, attribute: Any = None) -> Iterator[Any]:
        seen = set()
        for item in value:
            counted(item)
            key = _folded(item if attribute is None else part(item, attribute), case_sensitive)
            if key not in seen:
                seen.add(key)
                yield item

    def extreme(function: Callable[..., Any]) -> Callable[..., Any]:
        def pick(value: Any, case_sensitive: bool = False, attribute: Any = None) -> Any:
            items = list(value)
            counted(items)
            if not items:
                return undefined("No aggregated item, sequence was empty.")
            return function(
                items,
                key=lambda item: _folded(
                    item if attribute is None else part(item, attribute), case_sensitive
                ),
            )

        return pick

    def total(value: Any, attribute: Any = None, start: Any = 0) -> Any:
        return sum((item if attribute is None else part(item, attribute) for item in value), start)

    def attribute_of(value: Any, name: Rope) -> Any:
        if isinstance(value, Mapping):
            raise refuse("attr", "a mapping", expected="item access")
        return lookup(value, name)

    table: dict[str, Callable[..., Any]] = {
        "trim": _trim, "upper": _case("upper"), "lower": _case("lower"), "title": _title, "capitalize": _case("capitalize"),
        "replace": _replace, "default": _default, "d": _default, "items": _items, "length": _length,
        "count": _length, "list": _list, "reverse": _reverse, "string": lambda value: _soft("string", value),
        "safe": _safe, "tojson": tojson, "int": _number(filters.do_int), "float": _number(filters.do_float),
        "abs": abs, "center": lambda value, width=80: padded("center")(_soft("center", value), width), "round": _round, "wordcount": _number(filters.do_wordcount), "indent": _indent,
        "format": _format, "map": mapped,
        "select": selected(wanted=True, by_attribute=False), "reject": selected(wanted=False, by_attribute=False),
        "selectattr": selected(wanted=True, by_attribute=True),
        "rejectattr": selected(wanted=False, by_attribute=True), "join": joined_with, "first": first, "last": last,
        "sort": ordered, "dictsort": dictsort, "unique": unique, "min": extreme(min), "max": extreme(max),
        "sum": total, "attr": attribute_of,
        "batch": lambda value, linecount, fill_with=None: filters.do_batch(value, _items_of("batch", linecount), fill_with),
        "slice": lambda value, slices, fill_with=None: filters.sync_do_slice(value, _items_of("slice", slices), fill_with),
    }  # fmt: skip
    table |= {name: _metered(table[name]) for name in _WALKERS}
    for name in filters.FILTERS:
        table.setdefault(name, _refusing("filter", name))
    return table


def named(table: Mapping[str, Callable[..., Any]], kind: str, args: tuple[Any, ...]) -> Callable[..., Any]:
    """Returns the filter or test that a template names as text."""
    if not args:
        raise FilterArgumentError(f"map requires a {kind} argument")
    name = _text(args[0])
    if name not in table:
        raise TemplateRuntimeError(f"No {kind} named {name!r} found.")
    return table[name]


_WALKERS: Final = (
    "list", "map", "select", "reject", "selectattr", "rejectattr", "join", "sort", "dictsort", "unique", "min", "max",
    "sum", "batch", "slice",
)  # fmt: skip


def _metered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a filter cost what its value has items, since it walks over all of them."""

    @wraps(function)
    def metered(value: Any, *args: Any, **kwargs: Any) -> Any:
        spend(1 + len(value) if isinstance(value, (list, tuple, dict, range)) else 1)
        return function(value, *args, **kwargs)

    return metered


def _items_of(operation: str, count: Any) -> Any:
    if isinstance(count, int) and count > MAX_ITEMS:
        raise exceeded(operation, f"at most {MAX_ITEMS} items", count)
    if isinstance(count, int):
        spend(max(count, 0) >> 3)
    return count


def _refusing(kind: str, name: str) -> Callable[..., Any]:
    def refusing(*_: Any, **__: Any) -> Any:
        raise refuse(f"{kind} {name}", "a call")

    return refusing


def _same(value: Any, other: Any) -> bool:
    """Whether two values are one object; only of none, true and false is that the same with and without origins."""
    if any(one is None or isinstance(one, bool) for one in (value, other)):
        return value is other
    raise refuse("test sameas", "two values of which none is none, true or false")


def _sequence(value: Any) -> bool:
    return isinstance(value, (Rope, list, tuple, dict, range, Undefined))


_JINJA_TESTS: Final[Mapping[str, Any]] = tests.TESTS
TESTS: Final[dict[str, Callable[..., Any]]] = {
    **{name: _JINJA_TESTS[name] for name in (
        "defined", "undefined", "none", "boolean", "false", "true", "integer", "float", "number", "odd", "even",
        "divisibleby", "in", "==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", ">=", "ge", "<", "lt",
        "lessthan", "<=", "le")},
    "string": lambda value: isinstance(value, Rope),
    "mapping": lambda value: isinstance(value, Mapping),
    "iterable": lambda value: isinstance(value, Rope) or tests.test_iterable(value),
    "sequence": _sequence,
    "sameas": _same,
    "lower": lambda value: _soft("lower", value).text.islower(),
    "upper": lambda value: _soft("upper", value).text.isupper(),
    **{name: _refusing("test", name) for name in ("callable", "escaped", "filter", "test")},
}  # fmt: skip
