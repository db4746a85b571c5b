"""Counts the discrete cuts of a capture anew, from its scores and logits, and compares them with what its record states.

How many choices were too near to ask parity of is a claim of its own: a record that states fewer would hide them.
"""

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np

from assay.provenance.captures.arrays import OpenCapture
from assay.provenance.captures.tolerances import NEAR_CUT
from assay.spec.documents.fixture import CutStatistics, Fixture


def other_cuts(fixture: Fixture, capture: OpenCapture) -> list[tuple[str, str, str | None]]:
    """Returns (kind, counted, stated) of each kind of cut whose stated figures are not those of the arrays."""
    text = fixture.configuration
    taken = {
        "selection": ("qsa", "index_scores", text["indexer_budget"] // text["indexer_compress_ratio"]),
        "routing": ("router", "logits", text["num_experts_per_tok"]),
    }
    found = []
    for kind, (stage, part, size) in taken.items():
        counted, stated = _counted(capture, stage, part, size), fixture.cuts.get(kind)
        if stated != counted:
            found.append((kind, _figures(counted), None if stated is None else _figures(stated)))
    return found


def _counted(capture: OpenCapture, stage: str, part: str, size: int) -> CutStatistics:
    gaps = [
        one
        for key in capture.rungs()
        if (key[0], key[2]) == (stage, part)
        for one in _gaps(capture, key, size)
    ]
    near = [place for place, gap in gaps if gap <= NEAR_CUT]
    return CutStatistics(
        cuts=len(gaps),
        near=len(near),
        ties=sum(gap == 0 for _, gap in gaps),
        smallest_gap=min((gap for _, gap in gaps), default=None),
        near_places=near,
    )


def _gaps(capture: OpenCapture, key: Any, size: int) -> Iterator[tuple[list[int], float]]:
    """Yields ([layer, token], distance of the last one taken from the first one left) of every row that leaves one."""
    first = capture.segments(key)[0][0]
    for place, row in enumerate(capture.whole(key)):
        scores = row[row >= 0] if key[0] == "qsa" else row
        best = heapq.nlargest(size + 1, scores.tolist())
        if len(best) > size:
            yield [key[1] or 0, first + place], float(np.float32(best[size - 1]) - np.float32(best[size]))


def _figures(one: CutStatistics) -> str:
    return f"{one.cuts} cuts, {one.near} near, {one.ties} ties, smallest gap {one.smallest_gap}, at {one.near_places}"
