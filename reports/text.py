"""Makes foreign text safe to show: one line, printable, bounded; and its Markdown and HTML forms."""

import re
from typing import Any, Final

from markupsafe import Markup, escape

TEXT_LIMIT: Final = 600
"""Characters of one text that a report shows; the rest is counted, not dropped silently."""

_FENCE = re.compile(r"`+")
_TICKS = re.compile(r"`([^`]+)`")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&@#])")
_NOT_IN_ANCHOR = re.compile(r"[^A-Za-z0-9._-]+")


def clean(value: Any, limit: int = TEXT_LIMIT) -> str:
    """Returns `value` as one printable line of about `limit` characters.

    Control characters, line ends, direction overrides and lone surrogates are escaped, so that a hostile file name
    can't forge a second line or hide what it says. What was cut is counted at the end.
    """
    text = value if isinstance(value, str) else str(value)
    cut = len(text) - limit
    kept = text[:limit] if cut > 0 else text
    if not kept.isprintable():
        kept = "".join(one if one.isprintable() else _escaped(one) for one in kept)
    return f"{kept}… (+{cut:,} characters)" if cut > 0 else kept


def html(value: Any) -> Markup:
    """Returns cleaned, escaped HTML in which `ticked` words are code."""
    return Markup(_TICKS.sub(r"<code>\1</code>", str(escape(clean(value)))))  # noqa: S704 - escaped just here


def markdown(value: Any) -> str:
    """Returns cleaned text in which nothing is Markdown, except `ticked` words, which stay code."""
    pieces = re.split(r"(`[^`]+`)", clean(value))
    return "".join(
        markdown_code(piece[1:-1]) if index % 2 else _MARKDOWN.sub(r"\\\1", piece)
        for index, piece in enumerate(pieces)
    )


def markdown_code(value: Any) -> str:
    """Returns a code span that holds any text, also inside a table; a dash for no text."""
    text = clean(value)
    if not text.strip():
        return "—"
    fence = "`" * (max((len(run) for run in _FENCE.findall(text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", r"\|")


def anchor(*parts: str) -> str:
    """Returns a name that can stand in an `id` and behind `#`; long names keep their end."""
    return "-".join(_NOT_IN_ANCHOR.sub("-", part).strip("-")[-80:] or "x" for part in parts)


def plural(count: int, noun: str, many: str = "") -> str:
    """Returns `1 gate`, `2 gates`, `10,000 findings`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
