"""What the JSON Schema of a contract can't say, and how a second reader must read it."""

from typing import Final

SCHEMA_CANNOT_SAY: Final[tuple[str, ...]] = (
    "Recomputation: derived constants, formulas, primes, offsets, multipliers, digests and totals.",
    "Agreement of two sections, such as the family of the identity and of both stores.",
    "That a pinned leaf equals the packaged profile, or upstream's data.",
    "That only a private profile may have a null section.",
    "That tensor names are distinct once the roles are expanded.",
    (
        "That 1.0 is no integer and 1 is no number: draft 2020-12 compares values, a contract compares what is "
        "written. A second reader must read the keyword `type` so: an integer is a literal without fraction and "
        "exponent, a number is one with."
    ),
    "That a pattern's end is the end of the text: some readers let one line end follow it.",
)
"""Rules that hold for a contract although its schema does not state them; they stand in the schema's `$comment`."""
