"""The tokenizer: two paths into ids, and no way from a caller's text to a control id.

The engine of the data path knows no added token at all, so a spelling can't be promoted. The trusted path resolves
exact spellings of added tokens by itself and hands everything between them to the data path.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from assay.impl.text.collector import collector_paused
from assay.impl.text.decoder import IncrementalDecoder, TokenBytes
from assay.impl.text.facts import BYTES, FORM, PATTERN, TokenizerFacts, finding, load_files, read_facts
from assay.impl.text.ids import integer
from assay.impl.text.segments import Kind, Prompt, Segment, check_segments, utf8
from assay.spec.errors import AdmissionError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


def byte_alphabet() -> tuple[str, ...]:
    """Returns the printable character that stands for each byte value in byte-level BPE."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {value: chr(value) for value in shown}
    hidden = (value for value in range(256) if value not in table)
    table |= {value: chr(0x100 + index) for index, value in enumerate(hidden)}
    return tuple(table[value] for value in range(256))


ALPHABET: Final = byte_alphabet()


class Tokenizer:
    """Tokenizes and decodes by the facts of a checkpoint's own files.

    Args:
        facts: what the files say.
    """

    def __init__(self, facts: TokenizerFacts) -> None:
        _closed(facts)
        self.facts = facts
        self._backend = backend(facts)
        self._by_content = {token.content: token.id for token in facts.added}
        # Table order, as the published scanner has it; no spelling is the beginning of another, which is checked.
        self._atoms = re.compile("|".join(re.escape(token.content) for token in facts.added))
        self._bytes = TokenBytes(facts, ALPHABET)

    @classmethod
    def of_directory(cls, directory: Path) -> "Tokenizer":
        """Reads the tokenizer files of a checkpoint.

        Raises:
            AdmissionError: when they can't be read or say something that the engine doesn't do.
        """
        return cls(read_facts(load_files(directory)))

    def encode_data(self, text: str | bytes, where: str = "text") -> list[int]:
        """Returns the ids of a text that is data: never an added token, whatever it spells.

        Raises:
            ContractError: text.utf8, when the text is not well-formed.
        """
        return self._encode([utf8(text, where).decode()])[0] if text else []

    def encode_trusted(self, text: str | bytes, where: str = "text") -> list[int]:
        """Returns the ids of a text that may hold control: exact spellings of added tokens become their ids.

        Raises:
            ContractError: text.utf8, when the text is not well-formed.
        """
        whole = utf8(text, where).decode()
        out: list[int] = []
        at = 0
        for match in self._atoms.finditer(whole):
            if at < match.start():
                out += self._encode([whole[at : match.start()]])[0]
            out.append(self._by_content[match[0]])
            at = match.end()
        return out + self._encode([whole[at:]])[0] if at < len(whole) else out

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Returns the ids of a rendered prompt."""
        with collector_paused():
            return self.encode_segments(prompt.stream, prompt.segments)

    def encode_segments(self, stream: bytes, segments: Sequence[Segment]) -> list[int]:
        """Returns the ids of a byte stream by its segments; nothing is returned unless every segment is right.

        Raises:
            ContractError: chat.segments.cover, chat.segments.kind or text.utf8.
        """
        check_segments(stream, segments)
        texts: list[tuple[int, str]] = []
        for kind, offset, length in _merged(segments):
            piece = utf8(stream[offset : offset + length], f"bytes {offset} to {offset + length}")
            texts.append((kind, piece.decode()))
        wanted = list(dict.fromkeys(text for kind, text in texts if kind == Kind.DATA))
        data = dict(
            zip(wanted, self._encode(wanted), strict=True)
        )  # most data between controls is a line end
        out: list[int] = []
        for kind, text in texts:
            if kind == Kind.DATA:
                out += data[text]
            elif text in self._by_content:
                out.append(self._by_content[text])
            else:
                out += self.encode_trusted(text)
        return out

    def extend(self, tokens: list[int], stream: bytes, segments: Sequence[Segment]) -> None:
        """Appends the ids of a byte stream to the caller's list, all of them or, on an error, none."""
        tokens.extend(self.encode_segments(stream, segments))

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """Returns the text of ids; an id without text gives none, and bytes that are not UTF-8 become U+FFFD."""
        decoder = self.decoder(skip_special=skip_special)
        return "".join([decoder.push(one) for one in ids]) + decoder.finish()

    def decoder(self, *, skip_special: bool = False) -> IncrementalDecoder:
        """Returns a decoder that takes one id at a time."""
        return IncrementalDecoder(self._bytes, skip_special=skip_special)

    def token_bytes(self, id_: int) -> bytes | None:
        """Returns the bytes of an id, None for an id without text."""
        return self._bytes.of(integer(id_, "id"))

    def pieces(self, text: str) -> list[str]:
        """Returns what the pattern makes of a text after normalisation, before any merge."""
        normalizer, splitter = self._backend.normalizer, self._backend.pre_tokenizer
        assert normalizer is not None  # noqa: S101 - `backend` sets both
        assert splitter is not None  # noqa: S101 - as above
        raw = [piece for piece, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
        table = {character: value for value, character in enumerate(ALPHABET)}
        return [bytes(table[one] for one in piece).decode() for piece in raw]

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [found.ids for found in self._backend.encode_batch_fast(texts, add_special_tokens=False)]


def backend(facts: TokenizerFacts) -> "Backend":
    """Builds the library's engine for the data path: NFC, pattern, byte alphabet, merges, and no added token."""
    from tokenizers import Regex, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as LibraryTokenizer

    engine = LibraryTokenizer(models.BPE(vocab=dict(facts.vocabulary), merges=list(facts.merges)))
    engine.normalizer = normalizers.NFC()
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(facts.pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return engine


def _closed(facts: TokenizerFacts) -> None:
    """Refuses facts under which encoding could fail, drop text or depend on the order of added tokens."""
    if facts.normalizer != "NFC":
        raise AdmissionError(finding(FORM, "normalizer", "NFC", facts.normalizer))
    if not facts.pattern:
        raise AdmissionError(finding(PATTERN, "pattern", "an expression", "nothing"))
    lacking = [value for value in range(256) if ALPHABET[value] not in facts.vocabulary]
    if lacking:
        raise AdmissionError(
            finding(BYTES, "vocabulary", "all 256 byte symbols", f"no byte 0x{lacking[0]:02x}")
        )
    strange = set("".join(facts.vocabulary)) - set(ALPHABET)
    if strange:
        raise AdmissionError(
            finding(BYTES, "vocabulary", "tokens of byte symbols", f"U+{ord(min(strange)):04X}")
        )
    for rank, (left, right) in enumerate(facts.merges):
        for symbol in (left, right):
            if symbol not in facts.vocabulary:
                raise AdmissionError(finding(BYTES, f"merges[{rank}]", "symbols of the vocabulary", symbol))
        if left + right not in facts.vocabulary:
            raise AdmissionError(
                finding(BYTES, f"merges[{rank}]", "a result in the vocabulary", left + right)
            )
    contents = sorted(token.content for token in facts.added)
    for first, second in itertools.pairwise(contents):
        if second.startswith(first):
            raise AdmissionError(finding(FORM, "added tokens", "no spelling that begins another", first))
    base = len(facts.vocabulary)
    for token in facts.added:
        if token.id < base or token.content in facts.vocabulary:
            raise AdmissionError(
                finding(FORM, f"added token {token.content}", f"an id from {base} up", token.id)
            )
        if facts.flags.get(token.id):
            raise AdmissionError(
                finding(FORM, f"added token {token.content}", "no matching flag", facts.flags[token.id])
            )


def _merged(segments: Sequence[Segment]) -> list[tuple[int, int, int]]:
    """Joins neighbours of one kind, so that a foreign adapter's cuts inside data change no id."""
    out: list[tuple[int, int, int]] = []
    for segment in segments:
        if out and out[-1][0] == segment.kind:
            kind, offset, length = out.pop()
            out.append((kind, offset, length + segment.length))
        else:
            out.append((segment.kind, segment.offset, segment.length))
    return out
