"""How far an oracle may lie from upstream, operation by operation, each with its reason; integers and copies not at all.

Rounding of a sum grows with what is summed, so the absolute part is a share of the root mean square of upstream's own
array: routed experts of the small geometries are of size 1e-4, where the 2e-5 of the published fixtures would let an
error of a quarter pass. The shares are three to five times the largest that was seen over all shipped captures
(`seen`); one operation never borrows the room of another. |a - b| <= share * rms + 2e-5 * max(|a|, |b|), and the sum
is never above the published 2e-5 plus as much of the value, index scores and keys of the cache apart.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.spec.documents.diff import Tolerance

RELATIVE: Final = 2e-5
PUBLISHED: Final = 2e-5
"""Absolute, of the published fixtures; no share gives more unless its operation says so."""


@dataclass(frozen=True, slots=True)
class Share:
    """The room of one kind of operation.

    Attributes:
        of_rms: of the root mean square of the array.
        seen: largest distance over rms in the shipped captures.
        limit: of the absolute part.
        reason: why there is any distance.
    """

    of_rms: float
    seen: float
    reason: str
    limit: float = PUBLISHED


_PRODUCT: Final = Share(1e-6, 2.1e-7, "one product of a copied row, summed in another order")
_FIRST_NORM: Final = Share(3e-6, 7.2e-7, "a norm of one product of a copied row")
_PLE: Final = Share(5e-6, 1.2e-6, "gate, value and convolution of the embedded rows")
_WEIGHTS: Final = Share(5e-6, 1.4e-6, "a sigmoid or a softmax, which narrows what comes in")
_PROJECTION: Final = Share(
    2e-5, 6.3e-6, "a product of the block input, which carries the noise of the layers before"
)
_NORM: Final = Share(2e-5, 6.5e-6, "a norm of what carries the noise of the layers before")
_STREAM: Final = Share(3e-5, 8.8e-6, "the residual, or what is read from it, after all layers so far")
_BLOCK: Final = Share(
    4e-5, 1.3e-5, "a whole block: products, an attention or a recurrence, a gate, a product"
)
_SCORE: Final = Share(3e-5, 8.0e-6, "a sum over heads of dots of normed vectors, not averaged", 6e-5)
_STATE: Final = Share(6e-5, 2.0e-5, "what a block carries on over all tokens")
_KEY: Final = Share(
    6e-5, 1.9e-5, "a normed and turned key: the angle, too, is rounded at every position", 6e-5
)

BY_RUNG: Final[dict[tuple[str, str], Share]] = {
    ("ple", "key"): _PRODUCT,
    ("ple", "value"): _PRODUCT,
    ("ple", "norm_key"): _FIRST_NORM,
    ("ple", "norm_conv"): _FIRST_NORM,
    ("ple", "norm_query"): _NORM,
    ("ple", ""): _PLE,
    ("attn_gr_prepare", "normed"): _NORM,
    ("attn_gr_prepare", "mix"): _PROJECTION,
    ("attn_gr_prepare", "injection"): _WEIGHTS,
    ("attn_gr_prepare", ""): _STREAM,
    ("gdn", "qkv"): _PROJECTION,
    ("gdn", "z"): _PROJECTION,
    ("gdn", "b"): _PROJECTION,
    ("gdn", "a"): _PROJECTION,
    ("gdn", "gated_norm"): _BLOCK,
    ("gdn", ""): _BLOCK,
    ("qsa", "index_qk"): _PROJECTION,
    ("qsa", "index_query"): _NORM,
    ("qsa", "index_scores"): _SCORE,
    ("qsa", "q_proj"): _PROJECTION,
    ("qsa", "k_proj"): _PROJECTION,
    ("qsa", "v_proj"): _PROJECTION,
    ("qsa", "q_norm"): _NORM,
    ("qsa", "k_norm"): _NORM,
    ("qsa", "gated"): _BLOCK,
    ("qsa", ""): _BLOCK,
    ("attn_gr_apply", ""): _STREAM,
    ("moe_gr_prepare", "normed"): _NORM,
    ("moe_gr_prepare", "mix"): _PROJECTION,
    ("moe_gr_prepare", "injection"): _WEIGHTS,
    ("moe_gr_prepare", ""): _STREAM,
    ("router", "logits"): _PROJECTION,
    ("router", "weights"): _WEIGHTS,
    ("routed_shared_moe", "routed"): _BLOCK,
    ("routed_shared_moe", "shared"): _BLOCK,
    ("routed_shared_moe", "shared_gate"): _PROJECTION,
    ("routed_shared_moe", ""): _BLOCK,
    ("moe_gr_apply", ""): _STREAM,
    ("final_gr_mixer", "normed"): _NORM,
    ("final_gr_mixer", "mix"): _PROJECTION,
    ("final_gr_mixer", ""): _STREAM,
    ("output_head", ""): _STREAM,
    ("state", "gdn_conv"): _PROJECTION,
    ("state", "gdn_recurrent"): _STATE,
    ("state", "ple_conv"): _FIRST_NORM,
    ("state", "qsa_key"): _KEY,
    ("state", "qsa_value"): _STATE,
    ("state", "qsa_raw_index"): _STATE,
}
"""(stage, part) -> room of the floats that an oracle computes."""

COPIES: Final = frozenset({("embedding", ""), ("four_stream_residual", "")})
_COPY: Final = Tolerance(rtol=0.0, atol=0.0, reason="a row is copied, not computed: every bit must agree")
_EXACT: Final = Tolerance(rtol=0.0, atol=0.0, reason="ids, rows and positions are integers")
_UNLISTED: Final = Tolerance(
    rtol=0.0, atol=0.0, reason="no tolerance is stated for this rung, so none is given"
)


def parity_tolerance(stage: str, part: str, upstream: NDArray[Any]) -> Tolerance:
    """Returns the tolerance of a rung, given upstream's array of it; a float rung that no table lists has none."""
    if upstream.dtype.kind != "f":
        return _EXACT
    if (stage, part) in COPIES:
        return _COPY
    share = BY_RUNG.get((stage, part))
    if share is None:
        return _UNLISTED
    rms = float(np.sqrt(np.square(upstream.astype(np.float64)).mean())) if upstream.size else 0.0
    atol = min(share.limit, share.of_rms * rms)
    return Tolerance(rtol=RELATIVE, atol=atol, reason=f"{share.reason}; {share.of_rms:g} of the array's rms")
