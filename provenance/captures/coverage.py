"""What of a ladder was compared: tokens of a rung, rungs that should be there, and what bounds a difference.

A rung that was compared at some tokens says nothing about the others; these functions keep that apart.
"""

from collections.abc import Iterable
from typing import Final

from assay.provenance.captures.arrays import OpenCapture, Rung
from assay.spec.documents.diff import FirstDifference, RungRecord
from assay.spec.stages import GRAPH_STAGES, LAYER_STAGES

Ranges = tuple[tuple[int, int], ...]
"""Token ranges [first, end), ascending and apart."""

AGREES: Final = frozenset({"equal", "within"})
_CARRIES_EARLIER_TOKENS: Final = frozenset({"gdn", "qsa", "ple", "ple_rows", "state"})
"""Stages whose result at a token depends on earlier tokens, not on this one alone."""
_OF_SOME_LAYERS: Final = frozenset({"gdn", "qsa", "ple"})


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Returns the union of token ranges."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif first < end:
            found.append((first, end))
    return tuple(found)


def total_tokens(a: OpenCapture, b: OpenCapture, key: Rung) -> int:
    """Returns how many tokens of a rung at least one of two captures holds; for a state, the latest it stands after."""
    if key[0] == "state":
        return max([*a.states(key), *b.states(key)], default=0)
    return sum(end - first for first, end in merged([*a.segments(key), *b.segments(key)]))


def absent_rungs(a: OpenCapture, b: OpenCapture) -> list[Rung]:
    """Returns the rungs that every run passes, up to the deepest layer seen, and that neither capture has in any part.

    Which layers have PLE is the model's own matter and isn't asked here; every layer has GDN or QSA.
    """
    keys = {*a.rungs(), *b.rungs()}
    present = {(stage, layer) for stage, layer, _ in keys}
    layers = range(1 + max((layer for _, layer, _ in keys if layer is not None), default=-1))
    wanted: list[tuple[str, int | None]] = [
        (stage, None) for stage in GRAPH_STAGES if stage not in LAYER_STAGES
    ]
    for layer in layers:
        wanted += [(stage, layer) for stage in LAYER_STAGES if stage not in _OF_SOME_LAYERS]
        if ("qsa", layer) not in present:
            wanted.append(("gdn", layer))
    return [(stage, layer, "") for stage, layer in wanted if (stage, layer) not in present]


def is_partial(record: RungRecord) -> bool:
    """Whether a rung that agrees was compared at some of its tokens only."""
    return record.state in AGREES and record.tokens < record.total


def bounds(first: FirstDifference, before: list[RungRecord]) -> tuple[str | None, list[str]]:
    """Returns the last rung before a difference that rules out an earlier cause, and the rungs between that don't.

    A rung rules it out when it agrees at the token of the difference; behind a rung that mixes tokens and wasn't
    compared there, or when the differing rung mixes tokens itself, it must agree at all tokens up to this one.

    Args:
        first: the difference.
        before: the records of the rungs before it, in the order of the ladder.
    """
    between: list[str] = []
    from_start = first.stage in _CARRIES_EARLIER_TOKENS
    for record in reversed(before):
        if record.state in AGREES and _covers(record, first.token, from_start=from_start):
            return record.rung, between[::-1]
        between.append(record.rung)
        from_start = from_start or _stage(record.rung) in _CARRIES_EARLIER_TOKENS
    return None, between[::-1]


def _covers(record: RungRecord, token: int | None, *, from_start: bool) -> bool:
    if record.tokens >= record.total and (token is None or not record.compared):
        return True  # the prompt, or a difference of the whole rung
    if token is None:
        return False
    needed = 0 if from_start else token
    return any(first <= needed and token < end for first, end in record.compared)


def _stage(name: str) -> str:
    parts = name.split(".")
    return parts[2] if parts[0] == "layers" else parts[0]
