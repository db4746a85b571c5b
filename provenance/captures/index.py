"""Writes the index of all shipped captures: lines of tab-separated fields that a C program reads with `fscanf`."""

from pathlib import Path
from typing import Final

from assay.impl.captures.fixtures import INDEX, INDEX_HEAD, index_lines

ARRAYS: Final = "arrays.bin"
"""The one file that holds every array of a shipped capture, one after another."""


def index_bytes(root: Path, cases: list[str]) -> bytes:
    """Returns the index of the fixtures below `root`, in the order of `cases`."""
    lines = [INDEX_HEAD, *(line for case in cases for line in index_lines(root / case, case))]
    return ("\n".join(lines) + "\n").encode("ascii")


def write_index(root: Path, cases: list[str]) -> None:
    """Writes index.tsv."""
    (root / INDEX).write_bytes(index_bytes(root, cases))
