"""Text that knows its origin: an immutable rope of pieces, opaque to everything that would forget the origin.

It is deliberately not a `str`: C functions raise TypeError by themselves, and `str()`, `format()` and pickling
refuse. Concatenation is lazy, so that a template that accumulates its output piece by piece stays linear.
"""
# ruff: noqa: SLF001 - the functions beside the class belong to it

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from assay.impl.text.budget import SHORT, copied, sized, spend
from assay.impl.text.origin import COMPUTED, Origin, OriginKind, Spot, Unit, refuse

Piece = tuple[str, Origin]
_new = object.__new__
_PIECES_A_STEP: Final = 5  # log2 of the pieces that are walked over in the time of one step
_FEW: Final = (1 << _PIECES_A_STEP) - 1


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
        """The pieces in order, none empty; neighbours of one origin are merged, except for the template's own.

        A piece of the template's is a stretch of its source, and two stretches may not have stood together there.
        """
        if self._pieces is not None:
            return self._pieces
        if self._origin is not None and self._text is not None:
            return ((self._text, self._origin),)
        self._pieces = merged(_leaves(self))
        self._children = ()
        if len(self._pieces) > _FEW:
            spend(len(self._pieces) >> _PIECES_A_STEP)
        return self._pieces

    @property
    def text(self) -> str:
        """The characters alone. Only for questions whose answer is not text."""
        if self._length > SHORT:
            copied(self._length)
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
            if stop - start > SHORT:
                copied(stop - start)
            return rope(text[start:stop], origin.part(start, stop))
        if self._starts is None:
            self._starts = list(accumulate((len(text) for text, _ in pieces[:-1]), initial=0))
        kept: list[Piece] = []
        for index in range(bisect_right(self._starts, start) - 1, len(pieces)):
            at = self._starts[index]
            if at >= stop:
                break
            text, origin = pieces[index]
            if at < start or at + len(text) > stop:
                first, last = max(start - at, 0), min(stop - at, len(text))
                text, origin = text[first:last], origin.part(first, last)
            kept.append((text, origin))
        if len(kept) > _FEW:
            spend(len(kept) >> _PIECES_A_STEP)
        return Rope(tuple(kept))

    def relabelled(self, text: str) -> "Rope":
        """Returns `text`, of the same length, with the origins of this rope character by character."""
        out: list[Piece] = []
        at = 0
        spend(len(self.pieces) >> 2)
        for piece, origin in self.pieces:
            out.append((text[at : at + len(piece)], origin))
            at += len(piece)
        return Rope(tuple(out))

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return self._length > 0

    def __hash__(self) -> int:
        return hash(self.text if self._text is None else self._text)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Rope):
            if self is other or self._length != other._length:
                return self is other
            one, two = self._text, other._text
            if one is None or two is None or self._length > SHORT:
                one, two = self.text, other.text
            return one == two
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
        if not isinstance(other, Rope):
            return NotImplemented
        if not self._length or not other._length:
            return other if not self._length else self
        return _whole((self, other), self._length + other._length)

    def __mul__(self, times: object) -> "Rope":
        if not isinstance(times, int):
            return NotImplemented
        if times <= 1 or not self._length:
            return self if times == 1 else EMPTY
        sized("repetition", self._length * times)
        spend(times * len(self.pieces))
        return joined((self,) * times)

    __rmul__ = __mul__

    def __getitem__(self, index: Any) -> "Rope":
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1:
                return self.cut(start, stop)
            spend(len(range(start, stop, step)))
            return joined([self.cut(at, at + 1) for at in range(start, stop, step)])
        if not isinstance(index, int):
            raise TypeError(f"string indices must be integers, not {type(index).__name__!r}")
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError("string index out of range")
        return self.cut(at, at + 1)

    def __iter__(self) -> Iterator["Rope"]:
        for text, origin in self.pieces:
            for at, character in enumerate(text):
                spend(1)
                yield rope(character, origin if len(text) == 1 else origin.part(at, at + 1))

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
    return _whole(parts, sum([part._length for part in parts]))


def _whole(parts: tuple[Rope, ...], length: int) -> Rope:
    whole = _new(Rope)
    whole._pieces = whole._starts = whole._text = whole._origin = None
    whole._children = parts
    whole._length = sized("concatenation", length) if length > SHORT else length
    return whole


def written(text: str, line: int = 0) -> Rope:
    """Returns a text that stands alone in the template's source, or that counts as if it did."""
    return rope(text, Origin(OriginKind.TEMPLATE, spot=Spot(Unit(line), 0, len(text))))


@lru_cache(maxsize=1024)
def field_name(key: str) -> Rope:
    """Returns the name of a message's field: the same few words in every message, and the same object in every search."""
    return rope(key, Origin(OriginKind.CALLER, "messages[*] (key)"))


def placed(value: Rope, spot: Spot) -> Rope:
    """Returns a closed word of the contract as it stands at a spot of the source; any other text as it is."""
    if value._origin is not None and value._text is not None:
        text, origin = value._text, value._origin
    elif value._pieces is not None and len(value._pieces) == 1:
        text, origin = value._pieces[0]
    else:
        return value  # more than a word
    if origin.kind is not OriginKind.VOCABULARY:
        return value
    return rope(text, Origin(origin.kind, origin.place, spot))


def computed(value: object) -> Rope:
    """Returns the text of a number, a boolean or None, which no template and no caller wrote."""
    return rope(str(value), COMPUTED)


def merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Returns the pieces without empty ones, neighbours of one origin merged, except for the template's and closed words."""
    out: list[Piece] = []
    run: list[str] = []
    current: Origin | None = None
    whole = (OriginKind.TEMPLATE, OriginKind.VOCABULARY)
    for text, origin in pieces:
        if not text:
            continue
        if origin.kind in whole:
            if current is not None:
                out.append((run[0] if len(run) == 1 else "".join(run), current))
                current = None
            out.append((text, origin))
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
    return one.kind is other.kind and one.place == other.place and one.spot == other.spot


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
