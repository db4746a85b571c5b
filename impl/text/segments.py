"""Segments: which bytes of a prompt may become control tokens, and which are data whatever they spell.

Origin says who wrote a byte; kind says what it may become. Template text is data too, except where it spells one
of the contract's control atoms in one stretch of its source. So data on both sides of a message boundary meets the
tokenizer as one stretch, and the ids equal those of the flat prompt wherever no caller spells an added token. Where
that can't hold, because template text spells an added token that is no control atom, or spells one in pieces that
its source doesn't have together, the prompt is refused: it would silently be another one.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from assay.impl.text.origin import TEMPLATE, Origin, OriginKind
from assay.impl.text.rope import Piece
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

SEGMENTS = declare(
    "chat.segments.cover",
    Authority.RULE,
    "Segments are non-empty, contiguous and merged, and cover the whole byte stream.",
    source="field note AFN-006",
    cause="an adapter changed offsets, or bytes and segments come from different renders",
)
KIND = declare(
    "chat.segments.kind",
    Authority.RULE,
    "A segment is DATA (0) or TRUSTED_CONTROL (1).",
    source="field note AFN-006",
    cause="a foreign adapter wrote another number",
)
SPLIT = declare(
    "chat.control.split",
    Authority.RULE,
    "Template text that spells an added token spells it in one stretch of the template's source.",
    source="field note AFN-006",
    cause="parts of a template met because a caller's text between them was empty or was removed",
    fix="write the token whole where the template writes it",
)
UNLISTED = declare(
    "chat.control.unlisted",
    Authority.RULE,
    "Of the added tokens a template writes only the contract's control atoms.",
    source="field note AFN-006; the control atoms of the profile",
    cause="another template, whose token would turn into plain text here and into an id elsewhere",
    fix="take the template from the pinned revision",
)
UTF8 = declare(
    "text.utf8",
    Authority.RULE,
    "Text is well-formed UTF-8; surrogates, overlong forms and cut sequences are refused, never replaced.",
    source="RFC 3629; field note AFN-007",
    cause="bytes were cut inside a character, or a lone surrogate came in through JSON escapes",
)


class Kind(IntEnum):
    """What the bytes of a segment may become."""

    DATA = 0
    TRUSTED_CONTROL = 1


class Segment(NamedTuple):
    """A stretch of the byte stream of one kind."""

    kind: int
    offset: int
    length: int


class OriginSpan(NamedTuple):
    """A stretch of the byte stream of one origin."""

    origin: Origin
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt: bytes, segments over them, and beside those who wrote what."""

    stream: bytes
    segments: tuple[Segment, ...]
    origins: tuple[OriginSpan, ...]

    def of_kind(self, kind: Kind) -> list[bytes]:
        """Returns the bytes of each segment of one kind."""
        return [self.stream[s.offset : s.offset + s.length] for s in self.segments if s.kind == kind]


def prompt_of(pieces: Iterable[Piece], atoms: Sequence[str], spellings: Iterable[str] = ()) -> Prompt:
    """Returns the prompt that rendered pieces make.

    Args:
        pieces: texts with their origins.
        atoms: what template text may spell as control.
        spellings: all added tokens; those that are no atom are refused in template text.

    Raises:
        ContractError: text.utf8, when a piece holds a lone surrogate; chat.control.split or chat.control.unlisted.
    """
    scanner = _Scanner(atoms, spellings)
    chunks: list[bytes] = []
    spans: list[OriginSpan] = []
    segments: list[tuple[int, int]] = []  # kind, length
    trusted: list[Piece] = []
    offset, begun = 0, -1  # where the template's own text began, negative outside of it

    def note(kind: Kind, length: int) -> None:
        if segments and segments[-1][0] == kind:
            length += segments.pop()[1]
        segments.append((kind, length))

    def end_of_template() -> None:
        spans.append(OriginSpan(TEMPLATE, begun, offset - begun))

    for text, origin in pieces:
        if not text:
            continue
        try:
            encoded = text.encode()
        except UnicodeEncodeError:  # the place is put into words only where it is needed
            encoded = utf8(text, origin.path or origin.kind.value)
        length = len(encoded)
        chunks.append(encoded)
        kind = origin[0]
        if kind is OriginKind.TEMPLATE:  # who wrote it is one answer, wherever in the source it stands
            begun = offset if begun < 0 else begun
            trusted.append((text, origin))
            offset += length
            continue
        if begun >= 0:
            end_of_template()
            begun = -1
        spans.append(OriginSpan(origin, offset, length))
        offset += length
        if kind is OriginKind.VOCABULARY:
            trusted.append((text, origin))
            continue
        if trusted:
            for one, size in scanner.segments(trusted):
                note(one, size)
            trusted.clear()
        note(Kind.DATA, length)
    if begun >= 0:
        end_of_template()
    for one, size in scanner.segments(trusted):
        note(one, size)
    placed: list[Segment] = []
    at = 0
    for number, size in segments:
        placed.append(Segment(number, at, size))
        at += size
    return Prompt(b"".join(chunks), tuple(placed), tuple(spans))


class _Scanner:
    """Finds the control atoms in template text; a text that was seen before costs nothing."""

    def __init__(self, atoms: Sequence[str], spellings: Iterable[str]) -> None:
        self._atoms = frozenset(atoms)
        wanted = dict.fromkeys([*atoms, *spellings])
        self._expression = re.compile("|".join(map(re.escape, wanted))) if wanted else None
        self._known: dict[tuple[str, ...], list[tuple[Kind, int]]] = {}

    def segments(self, pieces: Sequence[Piece]) -> list[tuple[Kind, int]]:
        """Returns kinds and lengths in bytes for neighbouring pieces that may spell control.

        Raises:
            ContractError: chat.control.split or chat.control.unlisted.
        """
        if not pieces:
            return []
        stretches: list[list[str]] = []
        before: Origin | None = None
        for text, origin in pieces:
            if before is not None and before.leads_to(origin):
                stretches[-1].append(text)
            else:
                stretches.append([text])
            before = origin
        key = tuple(["".join(one) for one in stretches])
        if key not in self._known:
            self._known[key] = self._scan(key, pieces)
        return self._known[key]

    def _scan(self, stretches: tuple[str, ...], pieces: Sequence[Piece]) -> list[tuple[Kind, int]]:
        out: list[tuple[Kind, int]] = []
        if self._expression is None:
            return [(Kind.DATA, len("".join(stretches).encode()))]
        found: set[tuple[int, int]] = set()
        start = 0
        for text in stretches:
            at = 0
            for match in self._expression.finditer(text):
                first, last = match.span()
                if match[0] not in self._atoms:
                    raise _misspelled(UNLISTED, pieces, start + first, "a control atom", match[0])
                found.add((start + first, start + last))
                out += [(Kind.DATA, len(text[at:first].encode()))] if first > at else []
                out.append((Kind.TRUSTED_CONTROL, len(match[0].encode())))
                at = last
            out += [(Kind.DATA, len(text[at:].encode()))] if at < len(text) else []
            start += len(text)
        for match in self._expression.finditer("".join(stretches)) if len(stretches) > 1 else ():
            if match.span() not in found:
                raise _misspelled(SPLIT, pieces, match.start(), "the token in one stretch", match[0])
        return out


def check_segments(stream: bytes, segments: Sequence[Segment]) -> None:
    """Holds the geometry of segments, from any producer, before a byte is tokenized.

    Neighbours of one kind are legal here: a foreign adapter may not merge, and tokenizing merges by itself.

    Raises:
        ContractError: chat.segments.cover or chat.segments.kind, at the first segment that breaks it.
    """
    if not segments:
        raise _broken(SEGMENTS, "segments", "at least one segment", "none")
    cursor = 0
    for index, segment in enumerate(segments):
        where = f"segments[{index}]"
        if segment.offset != cursor:
            raise _broken(SEGMENTS, f"{where}.offset", str(cursor), str(segment.offset))
        if not 0 < segment.length <= len(stream) - cursor:
            raise _broken(SEGMENTS, f"{where}.length", f"1 to {len(stream) - cursor}", str(segment.length))
        if segment.kind not in (Kind.DATA, Kind.TRUSTED_CONTROL):
            raise _broken(KIND, f"{where}.kind", "0 or 1", str(segment.kind))
        cursor += segment.length
    if cursor != len(stream):
        raise _broken(SEGMENTS, "segments", f"{len(stream)} bytes covered", str(cursor))


def utf8(text: str | bytes, where: str) -> bytes:
    """Returns well-formed UTF-8 of text or bytes.

    Raises:
        ContractError: text.utf8, naming the first bad position.
    """
    try:
        if isinstance(text, str):
            return text.encode("utf-8")
        text.decode("utf-8")
    except UnicodeError as error:
        start = error.start if isinstance(error, (UnicodeDecodeError, UnicodeEncodeError)) else 0
        bad = text[start : start + 4]
        shown = bad.hex(" ") if isinstance(bad, bytes) else " ".join(f"U+{ord(one):04X}" for one in bad[:1])
        raise _broken(UTF8, where, "well-formed UTF-8", f"{shown} at {start}") from None
    return text


def _misspelled(code: str, pieces: Sequence[Piece], start: int, expected: str, spelled: str) -> ContractError:
    """Returns the error for a token that begins at character `start` of the pieces, with its line of the source."""
    ends = [0]
    for text, _ in pieces:
        ends.append(ends[-1] + len(text))
    line = pieces[bisect_right(ends, start) - 1][1].line
    where = f"line {line}" if line else "chat template"
    return ContractError(Finding.of(code, "render", where, expected=expected, got=spelled))


def _broken(code: str, where: str, expected: str, got: str) -> ContractError:
    return ContractError(Finding.of(code, "text", where, expected=expected, got=got))
