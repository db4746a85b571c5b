"""Which Unicode the engine and the oracle stand on: every code point asked of both, differences counted and named.

Neither side is right where they differ: their tables are of different ages. Such code points are left out of the
random strings and reported, so that agreement is claimed for exactly the rest.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from assay.oracles import unicode_tables as oracle

CLASSES: Final[dict[str, Callable[[str], bool]]] = {
    r"\p{L}": oracle.letter,
    r"\p{M}": oracle.mark,
    r"\p{N}": oracle.number,
    r"\s": oracle.WHITE_SPACE.__contains__,
}
SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class TableReport:
    """What the two sides' tables say.

    Attributes:
        oracle_version: Unicode version of the interpreter's database.
        engine: name and version of the library whose tables were asked.
        differing: code points by class, and under `nfc` those that compose differently.
    """

    oracle_version: str
    engine: str
    differing: dict[str, frozenset[str]]

    @property
    def excluded(self) -> frozenset[str]:
        """All code points on which the tables differ."""
        return frozenset().union(*self.differing.values())

    def measurements(self) -> dict[str, Any]:
        """Returns the report as JSON: counts, and the first code points of each class."""
        return {
            "unicode_oracle": self.oracle_version,
            "engine": self.engine,
            "table_differences": {name: len(found) for name, found in self.differing.items()},
            "first_differences": {
                name: [f"U+{ord(one):04X}" for one in sorted(found)[:SHOWN]]
                for name, found in self.differing.items()
                if found
            },
        }


def compare_tables() -> TableReport:
    """Asks engine and oracle about every code point: its class, and what it and every composing pair normalise to."""
    import tokenizers
    from tokenizers import Regex, normalizers, pre_tokenizers

    everything = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    whole = "".join(everything)
    differing: dict[str, frozenset[str]] = {}
    marks: set[str] = set()
    for name, holds in CLASSES.items():
        inverse = rf"[^{name}]+" if name != r"\s" else r"\S+"
        kept = pre_tokenizers.Split(Regex(inverse), "removed").pre_tokenize_str(whole)
        engine = {character for piece, _ in kept for character in piece}
        if name == r"\p{M}":
            marks = engine | {one for one in everything if holds(one)}
        differing[name] = frozenset(one for one in everything if holds(one) != (one in engine))
    probes = [one for one in everything if one != "\n"]
    pairs = ["".join(pair) for pair in oracle.composing_pairs()]
    normalise = normalizers.NFC().normalize_str
    found = normalise("\n".join([*probes, *pairs])).split("\n")
    wrong = (text for text, got in zip([*probes, *pairs], found, strict=True) if oracle.nfc(text) != got)
    differing["nfc"] = frozenset(character for text in wrong for character in text if character >= "\u0300")
    # The class that decides the order of marks, seen from both ends: 240 before the mark, 1 after it.
    orders = [(one, text) for one in sorted(marks) for text in (f"a\u0345{one}", f"a{one}\u0334")]
    found = normalise("\n".join(text for _, text in orders)).split("\n")
    differing["order of marks"] = frozenset(
        one for (one, text), got in zip(orders, found, strict=True) if oracle.nfc(text) != got
    )
    return TableReport(oracle.VERSION, f"tokenizers {tokenizers.__version__}", differing)


def without(characters: Iterable[str], excluded: frozenset[str]) -> list[str]:
    """Returns the characters on which both sides' tables agree."""
    return [one for one in characters if one not in excluded]
