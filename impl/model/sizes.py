"""How many bytes the state of a sequence takes, owner by owner, before any of it is allocated."""

from dataclasses import dataclass
from typing import Final

from assay.impl.model.clauses import SIZE, refuse
from assay.impl.model.geometry import Geometry

LARGEST: Final = (1 << 64) - 1
ELEMENT_BYTES: Final = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class StateSize:
    """Bytes of every owner; the first four do not grow with the context.

    Attributes:
        qsa: keys and values of all attention layers.
        raw_index: raw index keys.
        pooled_index: pooled index keys, a quarter of the raw ones; derived, so not part of `total`.
    """

    gdn_conv: int
    gdn_recurrent: int
    ple_history: int
    ple_conv: int
    qsa: int
    raw_index: int
    pooled_index: int

    @property
    def fixed(self) -> int:
        """Bytes that do not grow with the context."""
        return self.gdn_conv + self.gdn_recurrent + self.ple_history + self.ple_conv

    @property
    def total(self) -> int:
        """Bytes of all owners that a saved state needs."""
        return self.fixed + self.qsa + self.raw_index


def state_size(
    geometry: Geometry, context: int, *, recurrent_bytes: int = 4, cache_bytes: int = 2
) -> StateSize:
    """Returns the bytes of a sequence of `context` tokens.

    Args:
        geometry: dimensions.
        context: tokens.
        recurrent_bytes: bytes of a value of the recurrent layers' state.
        cache_bytes: bytes of a value of keys, values, index keys and the dilated convolution.

    Raises:
        ContractError: model.state-size.

    Source: facts, state owners and sizes.
    """
    g = geometry
    for name, size in (("recurrent_bytes", recurrent_bytes), ("cache_bytes", cache_bytes)):
        if size not in ELEMENT_BYTES:
            raise refuse(SIZE, name, expected="1, 2 or 4", got=size)
    if context < 0:
        raise refuse(SIZE, "context", expected="at least 0", got=context)
    recurrent, attending = g.kinds.count("gdn"), g.kinds.count("qsa")
    found = StateSize(
        gdn_conv=recurrent * g.channels * (g.kernel - 1) * recurrent_bytes,
        gdn_recurrent=recurrent * g.value_heads * g.key_dim * g.value_dim * recurrent_bytes,
        ple_history=4 * (g.ngram_size - 1) if g.ple_layers else 0,
        ple_conv=len(g.ple_layers) * g.ple_span * g.wide * cache_bytes,
        qsa=attending * 2 * g.kv_heads * g.head_dim * context * cache_bytes,
        raw_index=attending * g.index_dim * context * cache_bytes,
        pooled_index=attending * g.index_dim * (context // g.ratio) * cache_bytes,
    )
    if found.total > LARGEST:
        raise refuse(SIZE, "total", expected=f"at most {LARGEST} bytes", got=found.total)
    return found
