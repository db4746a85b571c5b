"""Segments: which bytes of a prompt may become control tokens, and which are data whatever they spell.

Origin says who wrote a byte; kind says what it may become. Template text is data too, except where it spells one
of the contract's control atoms. So data on both sides of a message boundary meets the tokenizer as one stretch, and
the ids equal those of the flat prompt wherever no caller spells an added token.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from assay.impl.text.origin import Origin
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


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the byte stream of one kind."""

    kind: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class OriginSpan:
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


def prompt_of(pieces: Iterable[Piece], atoms: Sequence[str]) -> Prompt:
    """Returns the prompt that rendered pieces make.

    An atom counts where it lies wholly in neighbouring pieces that may spell control.

    Raises:
        ContractError: text.utf8, when a piece holds a lone surrogate.
    """
    matcher = re.compile("|".join(map(re.escape, atoms))) if atoms else None
    chunks: list[bytes] = []
    spans: list[OriginSpan] = []
    segments: list[tuple[int, int]] = []  # kind, length
    trusted: list[str] = []
    offset = 0

    def note(kind: Kind, length: int) -> None:
        if not length:
            return
        if segments and segments[-1][0] == kind:
            length += segments.pop()[1]
        segments.append((kind, length))

    def flush() -> None:
        text = "".join(trusted)
        trusted.clear()
        at = 0
        for match in matcher.finditer(text) if matcher else ():
            start, end = match.span()
            if start > at:
                note(Kind.DATA, len(text[at:start].encode()))
            note(Kind.TRUSTED_CONTROL, len(text[start:end].encode()))
            at = end
        if at < len(text):
            note(Kind.DATA, len(text[at:].encode()))

    for text, origin in pieces:
        try:
            encoded = text.encode()
        except UnicodeEncodeError:  # the place is put into words only where it is needed
            encoded = utf8(text, origin.path or origin.kind.value)
        chunks.append(encoded)
        spans.append(OriginSpan(origin, offset, len(encoded)))
        offset += len(encoded)
        if origin.may_spell_control:
            trusted.append(text)
        else:
            if trusted:
                flush()
            note(Kind.DATA, len(encoded))
    if trusted:
        flush()
    placed: list[Segment] = []
    at = 0
    for kind, length in segments:
        placed.append(Segment(kind, at, length))
        at += length
    return Prompt(b"".join(chunks), tuple(placed), tuple(spans))


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


def _broken(code: str, where: str, expected: str, got: str) -> ContractError:
    return ContractError(Finding.of(code, "text", where, expected=expected, got=got))
