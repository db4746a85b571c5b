"""Which way a tile of a prompt gets its experts: the records that it needs, or the whole layer one after another.

A tile that needs nearly all experts of a layer is served sooner by one sequential pass over the layer than by as many
separate reads, although it reads more. Where that turns is not a number of tokens: it follows from how many distinct
records the tile needs and misses, and from two bandwidths that were measured on this file.
"""

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How the experts of one layer come."""

    DECODE = "decode"  # one token: what the cache lacks, and guesses
    MICRO = "micro"  # the sorted union of the tile
    MACRO = "macro"  # the whole layer in the order of the store, one layer ahead


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured bandwidths of one file, in bytes a second.

    Attributes:
        record: of single records at random places.
        extent: of neighbouring records one after another.
    """

    record: float
    extent: float


def choose(needed_missing: int, all_missing: int, tokens: int, rates: Rates | None) -> Mode:
    """Returns how to read a layer, by the time that either way takes.

    Args:
        needed_missing: distinct records that the tile needs and the cache lacks.
        all_missing: records of the layer that the cache lacks, those among them.
        tokens: of the tile; one is decode.
        rates: measured; without them nothing is known about the device, and only what is needed is read.
    """
    if tokens == 1:
        return Mode.DECODE
    if rates is None or not needed_missing:
        return Mode.MICRO
    return Mode.MACRO if all_missing / rates.extent <= needed_missing / rates.record else Mode.MICRO
