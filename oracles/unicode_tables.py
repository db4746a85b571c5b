"""Character data for the text oracles, from the interpreter's own database, with its version beside it.

An engine may carry newer or older tables. A disagreement about an unassigned character is then a fact about two
versions and not a fault of either; so the version belongs to every result that stands on these tables.
"""

import unicodedata
from functools import cache
from typing import Final

VERSION: Final = unicodedata.unidata_version
"""Unicode version of the category and decomposition tables."""

WHITE_SPACE: Final = frozenset(
    map(
        chr,
        [
            *range(0x09, 0x0E),
            0x20,
            0x85,
            0xA0,
            0x1680,
            *range(0x2000, 0x200B),
            0x2028,
            0x2029,
            0x202F,
            0x205F,
            0x3000,
        ],
    )
)
"""White_Space; unchanged since Unicode 6.3."""

STRIPPED: Final = WHITE_SPACE | frozenset(map(chr, range(0x1C, 0x20)))
"""What Python's `str.strip` removes: White_Space and the four information separators."""

_S_BASE, _L_BASE, _V_BASE, _T_BASE = 0xAC00, 0x1100, 0x1161, 0x11A7
_L_COUNT, _V_COUNT, _T_COUNT = 19, 21, 28
_EXCLUDED: Final = frozenset([
    *range(0x0958, 0x0960), 0x09DC, 0x09DD, 0x09DF, 0x0A33, 0x0A36, *range(0x0A59, 0x0A5C), 0x0A5E, 0x0B5C, 0x0B5D,
    0x0F43, 0x0F4D, 0x0F52, 0x0F57, 0x0F5C, 0x0F69, 0x0F76, 0x0F78, 0x0F93, 0x0F9D, 0x0FA2, 0x0FA7, 0x0FAC, 0x0FB9,
    0xFB1D, 0xFB1F, *range(0xFB2A, 0xFB37), *range(0xFB38, 0xFB3D), 0xFB3E, 0xFB40, 0xFB41, 0xFB43, 0xFB44,
    *range(0xFB46, 0xFB4F), 0x2ADC, *range(0x1D15E, 0x1D165), *range(0x1D1BB, 0x1D1C1),
])  # fmt: skip
"""Composition exclusions of Unicode, which the standard lists one by one."""


def letter(character: str) -> bool:
    r"""Whether `\p{L}` holds."""
    return unicodedata.category(character)[0] == "L"


def mark(character: str) -> bool:
    r"""Whether `\p{M}` holds."""
    return unicodedata.category(character)[0] == "M"


def number(character: str) -> bool:
    r"""Whether `\p{N}` holds."""
    return unicodedata.category(character)[0] == "N"


def trimmed(text: str) -> str:
    """Returns the text without the code points of `STRIPPED` at both ends."""
    start, stop = 0, len(text)
    while start < stop and text[start] in STRIPPED:
        start += 1
    while start < stop and text[stop - 1] in STRIPPED:
        stop -= 1
    return text[start:stop]


def nfc(text: str) -> str:
    """Returns the canonical composition: full decomposition, canonical order, then pairs from left to right.

    Source: Unicode Standard, section 3.11 and its Hangul arithmetic of section 3.12.
    """
    if all(character < "\u0300" for character in text):
        return text  # nothing below U+0300 decomposes into what would not compose again
    return _composed(_ordered([part for character in text for part in _decomposed(character)]))


def composing_pairs() -> list[tuple[str, str]]:
    """Returns every pair of characters that composes to one, Hangul left out."""
    return list(_pairs())


@cache
def _decomposed(character: str) -> tuple[str, ...]:
    code = ord(character)
    if _S_BASE <= code < _S_BASE + _L_COUNT * _V_COUNT * _T_COUNT:
        index = code - _S_BASE
        leading = chr(_L_BASE + index // (_V_COUNT * _T_COUNT))
        vowel = chr(_V_BASE + index % (_V_COUNT * _T_COUNT) // _T_COUNT)
        trailing = index % _T_COUNT
        return (leading, vowel, chr(_T_BASE + trailing)) if trailing else (leading, vowel)
    rule = unicodedata.decomposition(character)
    if not rule or rule.startswith("<"):
        return (character,)
    return tuple(part for field in rule.split() for part in _decomposed(chr(int(field, 16))))


def _ordered(characters: list[str]) -> list[str]:
    out: list[str] = []
    run: list[str] = []
    for character in characters:
        if unicodedata.combining(character):
            run.append(character)
            continue
        out += sorted(run, key=unicodedata.combining)
        run = []
        out.append(character)
    return out + sorted(run, key=unicodedata.combining)


def _composed(characters: list[str]) -> str:
    out: list[str] = []
    starter = -1
    last_class = 0
    for character in characters:
        own = unicodedata.combining(character)
        if starter >= 0 and (starter == len(out) - 1 or last_class < own):
            whole = _pair(out[starter], character)
            if whole is not None:
                out[starter] = whole
                continue
        out.append(character)
        last_class = own
        if own == 0:
            starter = len(out) - 1
    return "".join(out)


def _pair(first: str, second: str) -> str | None:
    left, right = ord(first), ord(second)
    if _L_BASE <= left < _L_BASE + _L_COUNT and _V_BASE <= right < _V_BASE + _V_COUNT:
        return chr(_S_BASE + ((left - _L_BASE) * _V_COUNT + right - _V_BASE) * _T_COUNT)
    whole = _S_BASE <= left < _S_BASE + _L_COUNT * _V_COUNT * _T_COUNT
    if whole and (left - _S_BASE) % _T_COUNT == 0 and _T_BASE < right < _T_BASE + _T_COUNT:
        return chr(left + right - _T_BASE)
    return _pairs().get((first, second))


@cache
def _pairs() -> dict[tuple[str, str], str]:
    table: dict[tuple[str, str], str] = {}
    for code in range(0x110000):
        if code in _EXCLUDED or 0xD800 <= code < 0xE000:
            continue
        rule = unicodedata.decomposition(chr(code))
        fields = rule.split()
        if len(fields) != 2 or rule.startswith("<"):
            continue
        first, second = (chr(int(field, 16)) for field in fields)
        if not unicodedata.combining(first) and not unicodedata.combining(chr(code)):
            table[first, second] = chr(code)
    return table
