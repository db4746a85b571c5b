r"""The data path in plain Python: NFC, the seven alternatives of the pattern, byte-level BPE by rank.

No regular expression is run, so that no engine's hidden Unicode tables decide anything. Slow on purpose.

Source: field note AFN-007; the published pattern; the published list of stages.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.oracles.unicode_tables import WHITE_SPACE, letter, mark, nfc, number

_SUFFIXES = (("s",), ("t",), ("r", "e"), ("v", "e"), ("m",), ("l", "l"), ("d",))
_LINE_ENDS = frozenset("\r\n")


@dataclass(frozen=True, slots=True)
class Tables:
    """What the tokenizer's files hold.

    Attributes:
        vocabulary: token in the byte alphabet -> id.
        merges: pairs by rank.
        added: spelling -> id, in table order.
        marks_in_words: whether combining marks belong to words (the published pattern) or not (the older one).
    """

    vocabulary: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    added: Mapping[str, int]
    marks_in_words: bool = True


class Oracle:
    """Tokenizes with the tables of one checkpoint."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._ranks = {pair: rank for rank, pair in enumerate(tables.merges)}
        self._alphabet = _alphabet()

    def encode_data(self, text: str) -> list[int]:
        """Returns the ids of data: never an added token."""
        return [id_ for piece in pieces(nfc(text), self._tables.marks_in_words) for id_ in self._bpe(piece)]

    def encode_trusted(self, text: str) -> list[int]:
        """Returns the ids of trusted text: at each position the added spellings are tried in table order."""
        out: list[int] = []
        plain = at = 0
        while at < len(text):
            found = next((one for one in self._tables.added if text.startswith(one, at)), None)
            if found is None:
                at += 1
                continue
            out += self.encode_data(text[plain:at])
            out.append(self._tables.added[found])
            at += len(found)
            plain = at
        return out + self.encode_data(text[plain:])

    def _bpe(self, piece: str) -> list[int]:
        symbols = [self._alphabet[value] for value in piece.encode()]
        while len(symbols) > 1:
            pairs = list(itertools.pairwise(symbols))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            at = pairs.index(best)  # one merge at a time, the leftmost of the lowest rank
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
        return [self._tables.vocabulary[symbol] for symbol in symbols]


def pieces(text: str, marks_in_words: bool = True) -> list[str]:
    r"""Returns what the pattern makes of normalised text; every character lies in exactly one piece.

    Order of the alternatives: contraction; letters and marks with one character before; one number; punctuation with
    a space before and line ends after; whitespace up to its last line end; whitespace before whitespace; whitespace.
    """
    out: list[str] = []
    at = 0
    while at < len(text):
        end = (
            _contraction(text, at)
            or _word(text, at, marks_in_words)
            or (at + 1 if number(text[at]) else 0)
            or _punctuation(text, at, marks_in_words)
            or _whitespace(text, at)
        )
        out.append(text[at:end])
        at = end
    return out


def _contraction(text: str, at: int) -> int:
    if text[at] != "'":
        return 0
    for suffix in _SUFFIXES:
        found = text[at + 1 : at + 1 + len(suffix)]
        # Caseless: the long s folds to s; no other character beyond ASCII folds to one of these letters.
        if len(found) == len(suffix) and all(
            one in (want, want.upper()) or (want == "s" and one == "\u017f")
            for one, want in zip(found, suffix, strict=True)
        ):
            return at + 1 + len(suffix)
    return 0


def _word(text: str, at: int, marks_in_words: bool) -> int:
    def in_word(character: str) -> bool:
        return letter(character) or (marks_in_words and mark(character))

    first = text[at]
    leads = first not in _LINE_ENDS and not letter(first) and not number(first)
    start = at + 1 if leads and at + 1 < len(text) and in_word(text[at + 1]) else at
    end = start
    while end < len(text) and in_word(text[end]):
        end += 1
    return end if end > start else 0


def _punctuation(text: str, at: int, marks_in_words: bool) -> int:
    def is_other(character: str) -> bool:
        if character in WHITE_SPACE or letter(character) or number(character):
            return False
        return not (marks_in_words and mark(character))

    start = at + 1 if text[at] == " " else at
    end = start
    while end < len(text) and is_other(text[end]):
        end += 1
    if end == start:
        return 0
    while end < len(text) and text[end] in _LINE_ENDS:
        end += 1
    return end


def _whitespace(text: str, at: int) -> int:
    end = at
    while end < len(text) and text[end] in WHITE_SPACE:
        end += 1
    last = max((index for index in range(at, end) if text[index] in _LINE_ENDS), default=-1)
    if last >= 0:
        return last + 1
    return end if end == len(text) or end == at + 1 else end - 1


def _alphabet() -> dict[int, str]:
    table: dict[int, str] = {}
    spare = 0x100
    for value in range(256):
        if 0x21 <= value <= 0x7E or 0xA1 <= value <= 0xAC or 0xAE <= value <= 0xFF:
            table[value] = chr(value)
        else:
            table[value] = chr(spare)
            spare += 1
    return table
