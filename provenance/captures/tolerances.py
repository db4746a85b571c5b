"""How far two computations of the same rung may lie apart, each with its reason; integers and copies not at all.

An absolute and a relative part: |a - b| <= atol + rtol * max(|a|, |b|).
"""

from typing import Final

from assay.spec.documents.diff import Tolerance

_COPY: Final = Tolerance(rtol=0.0, atol=0.0, reason="a row is copied, not computed: every bit must agree")
_EXACT: Final = Tolerance(rtol=0.0, atol=0.0, reason="ids, rows and positions are integers")
_STAGE: Final = Tolerance(
    rtol=2e-5, atol=2e-5,
    reason="float32 sums in another order; the tolerance of the published fixtures, and four times the 5e-6 by "
    "which upstream differs from itself between one shot and token by token",
)  # fmt: skip
_SCORE: Final = Tolerance(
    rtol=2e-5, atol=5e-5,
    reason="a sum over heads of dots of normed vectors, not averaged: upstream moves by 1.2e-5 between partitions",
)  # fmt: skip

BY_RUNG: Final[dict[tuple[str, str], Tolerance]] = {
    ("embedding", ""): _COPY,
    ("four_stream_residual", ""): _COPY,
    ("qsa", "index_scores"): _SCORE,
}
"""(stage, part) -> tolerance for float32; all others have the stage tolerance."""

STORED: Final[dict[str, tuple[float, str]]] = {
    "f16": (2.0**-9, "stored in float16: two of its steps"),
    "bf16": (2.0**-6, "stored in bfloat16: two of its steps, and every stage before was rounded as well"),
}
"""Coarser stored type -> (smallest rtol, reason)."""

NEAR_CUT: Final = 1e-4
"""A discrete choice whose gap is at most this is called rounding: ten times what float32 moves scores and logits."""


def tolerance(stage: str, part: str, dtypes: tuple[str, str]) -> Tolerance:
    """Returns the tolerance of a rung for arrays stored in these types."""
    if all(dtype.startswith("i") for dtype in dtypes):
        return _EXACT
    found = BY_RUNG.get((stage, part), _STAGE)
    for coarse in ("bf16", "f16"):
        if coarse in dtypes:
            floor, reason = STORED[coarse]
            return Tolerance(rtol=max(found.rtol, floor), atol=max(found.atol, floor / 8), reason=reason)
    return found
