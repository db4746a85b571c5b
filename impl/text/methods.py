"""The string, list and dict methods that a template may call, each following the origin of every character.

What is not here is refused by the environment: default deny.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from jinja2 import Undefined

from assay.impl.text.budget import counted, sized, spend
from assay.impl.text.origin import COMPUTED, Spot, refuse
from assay.impl.text.rope import EMPTY, Rope, computed, field_name, joined, placed, rope, written


class Method:
    """A method that a template took from a value; calling it is all that can be done with it."""

    __slots__ = ("function", "name", "receiver")

    def __init__(self, name: str, function: Callable[..., Any], receiver: Any) -> None:
        self.name = name
        self.function = function
        self.receiver = receiver

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method on its receiver."""
        spend(1)
        return self.function(self.receiver, *args, **kwargs)


def strip(text: Rope, characters: Rope | None = None) -> Rope:
    """`str.strip`: Python's whitespace set, or the characters given; whole code points at both edges."""
    return rstrip(lstrip(text, characters), characters)


def lstrip(text: Rope, characters: Rope | None = None) -> Rope:
    """`str.lstrip`."""
    plain = text.text
    return text.cut(len(plain) - len(plain.lstrip(_plain_or_none(characters))), len(plain))


def rstrip(text: Rope, characters: Rope | None = None) -> Rope:
    """`str.rstrip`."""
    return text.cut(0, len(text.text.rstrip(_plain_or_none(characters))))


def split(text: Rope, sep: Rope | None = None, maxsplit: int = -1) -> list[Rope]:
    """`str.split`; each part keeps the origins of the characters that it was cut from."""
    plain = _plain_or_none(sep)
    return _located(text, text.text.split(plain, maxsplit), len(plain or ""))


def rsplit(text: Rope, sep: Rope | None = None, maxsplit: int = -1) -> list[Rope]:
    """`str.rsplit`."""
    plain = _plain_or_none(sep)
    return _located(text, text.text.rsplit(plain, maxsplit), len(plain or ""))


def splitlines(text: Rope, keepends: bool = False) -> list[Rope]:
    """`str.splitlines`."""
    lines: list[Rope] = []
    at = 0
    spend(len(text) >> 3)
    for whole, kept in zip(text.text.splitlines(True), text.text.splitlines(keepends), strict=True):
        lines.append(text.cut(at, at + len(kept)))
        at += len(whole)
    return lines


def partition(text: Rope, sep: Rope) -> tuple[Rope, Rope, Rope]:
    """`str.partition`; the middle part is the separator as it stands in the text, not as it was asked for."""
    head, middle, _ = text.text.partition(_plain(sep))
    return _three(text, len(head), len(middle))


def rpartition(text: Rope, sep: Rope) -> tuple[Rope, Rope, Rope]:
    """`str.rpartition`."""
    head, middle, _ = text.text.rpartition(_plain(sep))
    return _three(text, len(head), len(middle))


def removeprefix(text: Rope, prefix: Rope) -> Rope:
    """`str.removeprefix`."""
    return text.cut(len(text) - len(text.text.removeprefix(_plain(prefix))), len(text))


def removesuffix(text: Rope, suffix: Rope) -> Rope:
    """`str.removesuffix`."""
    return text.cut(0, len(text.text.removesuffix(_plain(suffix))))


def replace(text: Rope, old: Rope, new: Rope, count: int | None = None) -> Rope:
    """`str.replace`.

    Where a caller's characters are replaced, or looked for, the new text is `computed`, even if the template wrote
    it: it stands there because a caller spelled the old one, and must not become control for that. So is what stands
    around every character when nothing is looked for: whose that nothing was isn't known.
    """
    plain, needle, limit = text.text, _plain(old), -1 if count is None else count
    asked = _is_of_template(old)
    if not isinstance(limit, int):
        raise TypeError(f"{type(limit).__name__!r} object cannot be interpreted as an integer")
    _plain(new)
    parts: list[Rope] = []
    at = done = 0
    while limit < 0 or done < limit:
        found = plain.find(needle, at) if needle else at + bool(done)
        if found < 0 or found > len(plain):
            break
        parts.append(text.cut(at, found))
        hit = text.cut(found, found + len(needle))
        owned = asked and bool(hit) and _is_of_template(hit)
        parts.append(new if owned else rope(new.text, COMPUTED))
        spend(1)
        at = found + len(needle)
        done += 1
    parts.append(text.cut(at, len(text)))
    return joined(parts)


def join(separator: Rope, items: Any) -> Rope:
    """`str.join`: every item must be text already."""
    parts: list[Rope] = []
    for index, item in enumerate(items):
        if not isinstance(item, Rope):
            raise TypeError(f"sequence item {index}: expected str instance, {type(item).__name__} found")
        if index:
            parts.append(separator)
        parts.append(item)
    spend(len(parts) >> 3)
    return joined(parts)


def startswith(text: Rope, prefix: Rope | tuple[Rope, ...], *bounds: int) -> bool:
    """`str.startswith`."""
    return text.text.startswith(_plain_or_tuple(prefix), *bounds)


def endswith(text: Rope, suffix: Rope | tuple[Rope, ...], *bounds: int) -> bool:
    """`str.endswith`."""
    return text.text.endswith(_plain_or_tuple(suffix), *bounds)


def recased(name: str) -> Callable[[Rope], Rope]:
    """Returns a case mapping that keeps origins; refused where the number of characters changes.

    Unicode case mappings never shrink a text, so equal length means that each character became one character.
    """

    def mapping(text: Rope) -> Rope:
        changed = getattr(text.text, name)()
        if len(changed) == len(text):
            return text.relabelled(changed)
        if len(text.pieces) == 1:
            return rope(changed, text.pieces[0][1].without_spot())
        raise refuse(name, "a text of several origins whose length changes with its case")

    mapping.__doc__ = f"`str.{name}`."
    return mapping


def padded(name: str) -> Callable[..., Rope]:
    """Returns `ljust`, `rjust` or `center`; the padding was written by nobody."""

    def pad(text: Rope, width: int, fill: Rope | None = None) -> Rope:
        arguments = (width,) if fill is None else (width, _plain(fill))
        sized(name, width)
        stand_in = "\0" if (fill is None or fill.text != "\0") else "\1"
        shape = getattr(stand_in * len(text), name)(*arguments)
        left = len(shape) - len(shape.lstrip(shape[0])) if shape and shape[0] != stand_in else 0
        if not len(text):
            return rope(shape, COMPUTED)
        return joined((rope(shape[:left], COMPUTED), text, rope(shape[left + len(text) :], COMPUTED)))

    pad.__doc__ = f"`str.{name}`."
    return pad


def formatted(text: Rope, *args: Any, **kwargs: Any) -> Rope:
    """`str.format` with plain fields `{}`, `{0}` and `{name}`; specifications, conversions and paths are refused."""
    parts: list[Rope] = []
    plain, at, automatic, numbered = text.text, 0, 0, False
    while at < len(plain):
        mark = min((found for found in (plain.find("{", at), plain.find("}", at)) if found >= 0), default=-1)
        if mark < 0:
            break
        if plain[mark : mark + 2] in {"{{", "}}"}:
            parts.append(text.cut(at, mark + 1))
            at = mark + 2
            continue
        end = plain.find("}", mark)
        if plain[mark] == "}" or end < 0:
            raise ValueError("Single '}' encountered in format string")
        field = plain[mark + 1 : end]
        if field and not field.isidentifier() and not field.isdigit():
            raise refuse("format", f"the field {{{field}}}", expected="a plain field such as {} or {name}")
        parts.append(text.cut(at, mark))
        if not field or field.isdigit():
            numbered = numbered or bool(field)
            if numbered and (automatic or not field):
                raise ValueError("cannot mix automatic field numbering and manual field specification")
            index = int(field) if field else automatic
            automatic += not field
            value = as_text("format", args[index])
        else:
            value = as_text("format", kwargs[field])
        parts.append(_in_field(text, mark, end + 1, value))
        at = end + 1
    parts.append(text.cut(at, len(plain)))
    return joined(parts)


def percent(text: Rope, values: Any) -> Rope:
    """`%` with the conversions `%s` and `%d`, also by name; others are refused, since `%c` makes text of a number."""
    arguments = list(values) if isinstance(values, tuple) else [values]
    parts: list[Rope] = []
    plain, at = text.text, 0
    while (mark := plain.find("%", at)) >= 0:
        name, after = _named(plain, mark + 1)
        kind = plain[after : after + 1]
        if kind == "%" and name is None:
            parts.append(text.cut(at, mark + 1))
        elif kind in {"s", "d"}:
            if name is not None:
                if not isinstance(values, dict):
                    raise TypeError("format requires a mapping")
                value = values[field_name(name)]
            elif not arguments:
                raise TypeError("not enough arguments for format string")
            else:
                value = arguments.pop(0)
            if kind == "d" and not isinstance(value, int | float):
                raise TypeError(f"%d format: a real number is required, not {type(value).__name__}")
            shown = as_text("%", int(value) if kind == "d" else value)
            parts += [text.cut(at, mark), _in_field(text, mark, after + 1, shown)]
        else:
            raise refuse("%", f"the conversion %{plain[mark + 1 : after + 1]}", expected="%s, %d or %%")
        at = after + 1
    if arguments and not isinstance(values, (dict, list)):  # Python takes a list for a mapping here
        raise TypeError("not all arguments converted during string formatting")
    parts.append(text.cut(at, len(plain)))
    return joined(parts)


def as_text(operation: str, value: Any) -> Rope:
    """Returns the text that `str(value)` would give, where its origin is known; containers are refused."""
    if isinstance(value, Rope):
        return value
    if isinstance(value, Undefined):
        return EMPTY
    if value is None or isinstance(value, (bool, int, float)):
        return computed(value)
    if isinstance(value, str) and not value:
        return EMPTY
    raise refuse(
        operation, f"a value of type {type(value).__name__}", expected="text, a number, a boolean or none"
    )


def template_words(mapping: dict[str, Any]) -> dict[Any, Any]:
    """Returns a mapping whose keys, spelled in the template as keyword arguments, are template text."""
    return {written(key): value for key, value in mapping.items()}


def _asking(name: str) -> Callable[..., Any]:
    """Returns a method whose answer is not text, so that plain arguments will do."""

    def ask(text: Rope, *args: Any) -> Any:
        plain = [_plain(item) if isinstance(item, Rope) else item for item in args]
        return getattr(text.text, name)(*plain)

    return ask


TEXT_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "strip": strip, "lstrip": lstrip, "rstrip": rstrip, "split": split, "rsplit": rsplit, "splitlines": splitlines,
    "partition": partition, "rpartition": rpartition, "removeprefix": removeprefix, "removesuffix": removesuffix,
    "replace": replace, "join": join, "startswith": startswith, "endswith": endswith, "format": formatted,
    **{name: recased(name) for name in ("upper", "lower", "title", "capitalize", "swapcase")},
    **{name: padded(name) for name in ("ljust", "rjust", "center")},
    **{name: _asking(name) for name in (
        "find", "rfind", "index", "rindex", "count", "isdigit", "isalpha", "isalnum", "isspace", "isupper",
        "islower", "istitle", "isnumeric", "isdecimal", "isascii", "isidentifier", "isprintable")},
}  # fmt: skip

SEQUENCE_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "index": lambda items, value, *bounds: counted(items) and items.index(value, *bounds),
    "count": lambda items, value: counted(items) and items.count(value),
}

MAPPING_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "items": lambda mapping: mapping.items(),
    "keys": lambda mapping: mapping.keys(),
    "values": lambda mapping: mapping.values(),
    "get": lambda mapping, key, default=None: mapping.get(key, default),
    "copy": dict,
}


def _is_of_template(text: Rope) -> bool:
    """Whether no character is a caller's or computed: all are the template's, or words of a closed set."""
    return all(origin.may_spell_control for _, origin in text.pieces)


def _named(plain: str, at: int) -> tuple[str | None, int]:
    """Returns the name in parentheses at a place of a format and the place after it; None where none stands."""
    end = plain.find(")", at)
    if not plain.startswith("(", at) or end < 0 or "(" in plain[at + 1 : end]:
        return None, at
    return plain[at + 1 : end], end + 1


def _in_field(text: Rope, start: int, stop: int, value: Rope) -> Rope:
    """Returns a value as it stands in a field of a format.

    A field that a caller spelled makes no control of what the template puts there, as in `replace`.
    """
    if not _is_of_template(text.cut(start, stop)):
        return joined([rope(part, COMPUTED if one.may_spell_control else one) for part, one in value.pieces])
    pieces = text.pieces
    spot = pieces[0][1].spot if len(pieces) == 1 else None
    return value if spot is None else placed(value, Spot(spot.unit, spot.start + start, spot.start + stop))


def _plain(value: Any) -> str:
    if not isinstance(value, Rope):
        raise TypeError(f"must be str, not {type(value).__name__}")
    return value.text


def _plain_or_none(value: Any) -> str | None:
    return None if value is None else _plain(value)


def _plain_or_tuple(value: Any) -> str | tuple[str, ...]:
    return tuple(_plain(item) for item in value) if isinstance(value, tuple) else _plain(value)


def _located(text: Rope, parts: Sequence[str], gap: int) -> list[Rope]:
    """Finds the parts of a split in the text; `gap` is the separator's length, 0 when whitespace separates."""

    def cuts() -> Iterator[Rope]:
        at = 0
        spend(len(parts))
        for part in parts:
            start = at if gap else text.text.index(part, at)
            yield text.cut(start, start + len(part))
            at = start + len(part) + gap

    return list(cuts())


def _three(text: Rope, head: int, middle: int) -> tuple[Rope, Rope, Rope]:
    return text.cut(0, head), text.cut(head, head + middle), text.cut(head + middle, len(text))
