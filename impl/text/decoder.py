"""From ids back to text, one id at a time: any split of a stream gives the text of the whole."""

import codecs
from collections.abc import Sequence

from assay.impl.text.facts import TokenizerFacts
from assay.impl.text.ids import integer


class TokenBytes:
    """The bytes of every id, made when they are asked for."""

    def __init__(self, facts: TokenizerFacts, alphabet: Sequence[str]) -> None:
        self._tokens: list[str] = [""] * len(facts.vocabulary)
        for token, id_ in facts.vocabulary.items():
            self._tokens[id_] = token
        self._added = {token.id: token for token in facts.added}
        self._values = {character: value for value, character in enumerate(alphabet)}

    def of(self, id_: int) -> bytes | None:
        """Returns the bytes of an id; None for one without text: negative, unassigned or beyond every row."""
        if 0 <= id_ < len(self._tokens):
            return bytes([self._values[one] for one in self._tokens[id_]])
        added = self._added.get(id_)
        return None if added is None else added.content.encode()

    def is_special(self, id_: int) -> bool:
        """Whether an id is an added token that `skip_special` leaves out."""
        added = self._added.get(id_)
        return added is not None and added.special


class IncrementalDecoder:
    """Holds an incomplete character until its last byte; replaces what can't become one.

    An id without text, and a special one when those are skipped, is as if it weren't there: it doesn't flush what is
    held.
    """

    def __init__(self, table: TokenBytes, *, skip_special: bool = False) -> None:
        self._table = table
        self._skip_special = skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id_: int) -> str:
        """Takes one id and returns the text that is now certain.

        Raises:
            ContractError: vocabulary.id, for what is no integer; any integer is legal, and most have no text.
        """
        found = self._table.of(id_ if type(id_) is int else integer(id_, "id"))
        if not found or (self._skip_special and self._table.is_special(id_)):
            return ""
        return self._utf8.decode(found)

    def finish(self) -> str:
        """Ends the stream; an incomplete character becomes U+FFFD. The decoder can then be used for a new one."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text
