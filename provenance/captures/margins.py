"""How near a discrete choice was to another: tells a tie, rounding noise and a real disagreement apart."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.provenance.captures.arrays import OpenCapture, Rung
from assay.provenance.captures.tolerances import NEAR_CUT
from assay.spec.documents.diff import Margin

COMPRESS_RATIO: Final = 4
"""Tokens of one group; the same for the whole family."""

CUTS: Final[dict[tuple[str, str], tuple[str, str]]] = {
    ("router", "ids"): ("router", "logits"),
    ("qsa", "selected"): ("qsa", "index_scores"),
    ("qsa", "selection_mask"): ("qsa", "index_scores"),
    ("sampled_id", ""): ("output_head", ""),
}
"""Discrete rung -> the rung that it was chosen by."""


def margin(key: Rung, token: int, index: int, a: OpenCapture, b: OpenCapture) -> Margin | None:
    """Returns the gap at the cut in both captures for a discrete rung that differs at `token`; None for other rungs.

    For ids in rank order (router, sampled id) it is the distance of the scores of the two ids that stand at `index`;
    for a selection it is the distance between the last group inside and the first outside.
    """
    stage, layer, part = key
    if (stage, part) not in CUTS:
        return None
    by_stage, by_part = CUTS[(stage, part)]
    scores_key = (by_stage, layer, by_part)
    gap = _selection_gap if stage == "qsa" else _rank_gap
    gaps = [gap(one, key, scores_key, token, index, (a, b)) for one in (a, b)]
    known = [value for value in gaps if value is not None]
    name = "index score" if stage == "qsa" else "logit"
    judged: Any = "unknown"
    if known:
        judged = "tie" if min(known) == 0 else "rounding" if min(known) <= NEAR_CUT else "disagreement"
    return Margin(of=name, a=gaps[0], b=gaps[1], judged=judged)


def _rank_gap(
    one: OpenCapture, key: Rung, scores: Rung, token: int, index: int, both: tuple[OpenCapture, OpenCapture]
) -> float | None:
    row = _row(one, scores, token)
    ids = [_row(capture, key, token) for capture in both]
    if row is None or any(found is None or index >= found.size for found in ids):
        return None
    chosen = [int(found[index]) for found in ids if found is not None]
    if not all(0 <= id_ < row.size for id_ in chosen):
        return None
    return _finite(abs(float(row[chosen[0]]) - float(row[chosen[1]])))


def _selection_gap(
    one: OpenCapture, key: Rung, scores: Rung, token: int, _index: int, _both: tuple[OpenCapture, OpenCapture]
) -> float | None:
    row, chosen = _row(one, scores, token), _row(one, key, token)
    if row is None or chosen is None:
        return None
    count = int((chosen != 0).sum()) if key[2] == "selection_mask" else int((chosen >= 0).sum())
    ranked = np.sort(row[row >= 0])[::-1]
    groups = count // COMPRESS_RATIO
    if not 0 < groups < ranked.size:
        return None
    return _finite(float(ranked[groups - 1] - ranked[groups]))


def _row(capture: OpenCapture, key: Rung, token: int) -> NDArray[Any] | None:
    for first, end in capture.segments(key):
        if first <= token < end:
            row: NDArray[Any] = capture.rows(key, token, token + 1).values()[0]
            return row
    return None


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
