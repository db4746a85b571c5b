"""Text that knows its origin: an immutable rope of pieces, opaque to everything that would forget the origin.

It is deliberately not a `str`: C functions raise TypeError by themselves, and `str()`, `format()` and pickling
refuse. Concatenation is lazy, so that a template that accumulates its output piece by piece stays linear.
"""
# ruff: noqa: SLF001 - the functions beside the class belong to it

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Final

from assay.impl.text.origin import COMPUTED, Origin, refuse

Piece = tuple[str, Origin]
_new = object.__new__
MAX_CHARACTERS: Final = 1 << 28
"""A rendered prompt of a quarter of a billion characters is a runaway template, not a conversation."""


class Rope:
    """Text with the origin of each character.

    Equality, order and hash are those of the plain text: they decide what a template does, and the origin must not
    change that. So nothing may be cached by equality of ropes.
    """

    __slots__ = ("_children", "_length", "_origin", "_pieces", "_starts", "_text")

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        self._pieces: tuple[Piece, ...] | None = pieces
        self._children: tuple[Rope, ...] = ()
        self._origin: Origin | None = None  # of a rope that is one piece, which then needs no tuple
        self._length = sum(len(text) for text, _ in pieces)
        self._starts: list[int] | None = None  # of the pieces, once something is cut
        self._text: str | None = pieces[0][0] if len(pieces) == 1 else None

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces in order, none empty, neighbours of one origin merged."""
        if self._pieces is not None:
            return self._pieces
        if self._origin is not None and self._text is not None:
            return ((self._text, self._origin),)
        self._pieces = merged(_leaves(self))
        self._children = ()
        return self._pieces

    @property
    def text(self) -> str:
        """The characters alone. Only for questions whose answer is not text."""
        if self._text is None:
            self._text = "".join([text for text, _ in self.pieces])
        return self._text

    def cut(self, start: int, stop: int) -> "Rope":
        """Returns the characters of `[start, stop)`, both within the text."""
        if start >= stop:
            return EMPTY
        if start == 0 and stop == self._length:
            return self
        pieces = self.pieces
        if len(pieces) == 1:
            text, origin = pieces[0]
            return rope(text[start:stop], origin)
        if self._starts is None:
            self._starts = list(accumulate((len(text) for text, _ in pieces[:-1]), initial=0))
        kept: list[Piece] = []
        for index in range(bisect_right(self._starts, start) - 1, len(pieces)):
            at = self._starts[index]
            if at >= stop:
                break
            text, origin = pieces[index]
            kept.append((text[max(start - at, 0) : stop - at], origin))
        return Rope(tuple(kept))

    def relabelled(self, text: str) -> "Rope":
        """Returns `text`, of the same length, with the origins of this rope character by character."""
        out: list[Piece] = []
        at = 0
        for piece, origin in self.pieces:
            out.append((text[at : at + len(piece)], origin))
            at += len(piece)
        return Rope(tuple(out))

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return self._length > 0

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rope):
            return self is other or (self._length == other._length and self.text == other.text)
        if isinstance(other, str):
            raise refuse("comparison", "a plain string, whose origin is unknown")
        return NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.text < other.text if isinstance(other, Rope) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self.text <= other.text if isinstance(other, Rope) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self.text > other.text if isinstance(other, Rope) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self.text >= other.text if isinstance(other, Rope) else NotImplemented

    def __contains__(self, item: object) -> bool:
        if isinstance(item, Rope):
            return item.text in self.text
        if isinstance(item, str):
            raise refuse("containment", "a plain string, whose origin is unknown")
        raise TypeError(f"'in <string>' requires string as left operand, not {type(item).__name__}")

    def __add__(self, other: object) -> "Rope":
        return joined((self, other)) if isinstance(other, Rope) else NotImplemented

    def __mul__(self, times: object) -> "Rope":
        if not isinstance(times, int):
            return NotImplemented
        if self._length * max(times, 0) > MAX_CHARACTERS:
            raise refuse(
                "repetition", f"{self._length} characters {times} times", expected=f"at most {MAX_CHARACTERS}"
            )
        return joined((self,) * times)

    __rmul__ = __mul__

    def __getitem__(self, index: Any) -> "Rope":
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1:
                return self.cut(start, stop)
            return joined([self.cut(at, at + 1) for at in range(start, stop, step)])
        if not isinstance(index, int):
            raise TypeError(f"string indices must be integers, not {type(index).__name__!r}")
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError("string index out of range")
        return self.cut(at, at + 1)

    def __iter__(self) -> Iterator["Rope"]:
        for text, origin in self.pieces:
            for character in text:
                yield rope(character, origin)

    def __repr__(self) -> str:
        return f"<text of {self._length} characters>"  # never the characters: a repr is plain text

    def __str__(self) -> str:
        raise refuse("str()", "text with an origin")

    def __format__(self, spec: str) -> str:
        raise refuse("format()", "text with an origin")

    def __reduce__(self) -> str:
        raise refuse("pickling", "text with an origin")


EMPTY: Final = Rope(())


def rope(text: str, origin: Origin) -> Rope:
    """Returns `text` as one piece."""
    if not text:
        return EMPTY
    # Past the constructor: a conversation makes hundreds of thousands of these.
    leaf = _new(Rope)
    leaf._pieces = leaf._starts = None
    leaf._origin = origin
    leaf._length = len(text)
    leaf._text = text
    return leaf


def joined(ropes: Iterable[Rope]) -> Rope:
    """Returns the ropes one after the other, without copying their text yet."""
    parts = tuple([part for part in ropes if part._length])
    if len(parts) < 2:
        return parts[0] if parts else EMPTY
    whole = _new(Rope)
    whole._pieces = whole._starts = whole._text = whole._origin = None
    whole._children = parts
    whole._length = sum([part._length for part in parts])
    if whole._length > MAX_CHARACTERS:
        raise refuse("concatenation", f"{whole._length} characters", expected=f"at most {MAX_CHARACTERS}")
    return whole


def computed(value: object) -> Rope:
    """Returns the text of a number, a boolean or None, which no template and no caller wrote."""
    return rope(str(value), COMPUTED)


def merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Returns the pieces without empty ones, neighbours of one origin merged."""
    out: list[Piece] = []
    run: list[str] = []
    current: Origin | None = None
    for text, origin in pieces:
        if not text:
            continue
        if current is None or (origin is not current and not _same(origin, current)):
            if current is not None:
                out.append((run[0] if len(run) == 1 else "".join(run), current))
            run, current = [], origin
        run.append(text)
    if current is not None:
        out.append((run[0] if len(run) == 1 else "".join(run), current))
    return tuple(out)


def _same(one: Origin, other: Origin) -> bool:
    return one.kind is other.kind and one.place == other.place


def _leaves(whole: Rope) -> Iterator[Piece]:
    """Yields the pieces below a rope, first to last; a stack, since an accumulator nests thousands of levels."""
    stack = [whole]
    while stack:
        node = stack.pop()
        if node._origin is not None and node._text is not None:
            yield node._text, node._origin
        elif node._pieces is not None:
            yield from node._pieces
        else:
            stack.extend(reversed(node._children))
