"""Sequences by slot, and the one point at which anything becomes public.

`advance` runs a batch on private images and then lets the bank's one name point at the new states. A failure at any
moment before leaves every slot, and the caller's output, as they were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.impl.model import columns, state
from assay.impl.model.clauses import PADDING, REWIND, SLOT, refuse
from assay.impl.model.geometry import Geometry
from assay.impl.model.graph import Chunk, Done, Model
from assay.impl.model.qsa import Cache
from assay.impl.model.state import State
from assay.impl.model.trace import Trace

FILLER: Final = -1
"""Slot of a row that is only there to fill a batch; outside the slots, so that slot 0 is a slot like any other."""


class Bank:
    """The public states of a fixed number of slots."""

    def __init__(self, model: Model, slots: int = 1, rows: int = 0) -> None:
        """Makes fresh sequences; `rows` tokens are to come in each, if that is known."""
        self.model = model
        self._rows = rows
        self._public: tuple[State, ...] = tuple(state.fresh(model.geometry, rows=rows) for _ in range(slots))
        self._kept: dict[int, list[State]] = {slot: [] for slot in range(slots)}

    def state(self, slot: int = 0) -> State:
        """Returns the public state of a slot."""
        return self._public[self._slot(slot)]

    def digest(self) -> str:
        """Returns the digest of all public states."""
        return "".join(state.digest(one) for one in self._public)

    def advance(
        self,
        chunks: Mapping[int, Sequence[int]],
        trace: Trace | None = None,
        *,
        every_logit: bool = False,
        into: NDArray[np.float32] | None = None,
        positions: Mapping[int, NDArray[np.int64]] | None = None,
    ) -> Done:
        """Runs one chunk for each named slot and publishes all of them together, or none.

        Args:
            chunks: slot -> ids.
            trace: told of every stage.
            every_logit: logits of all rows, not only of the newest.
            into: float32 [slot named, physical row], filled with the newest logits after publication and not before.
            positions: slot -> rotary positions [token, 3], where they are not those of text.

        Raises:
            ContractError: model.slot, and what `Model.run` raises; every slot and `into` are then as they were.
        """
        slots = [self._slot(slot) for slot in chunks]
        shape = (len(slots), self.model.geometry.physical_rows)
        if into is not None and (into.shape != shape or into.dtype != np.float32 or not into.flags.writeable):
            got = f"{into.dtype} {list(into.shape)}"
            raise refuse(SLOT, "into", expected=f"writable float32 {list(shape)}", got=got)
        if into is not None and self._shares_memory(into):
            raise refuse(SLOT, "into", expected="memory of its own", got="memory of the public state")
        asked = [Chunk(self._public[slot], chunks[slot], (positions or {}).get(slot)) for slot in slots]
        done = self.model.run(asked, trace, every_logit=every_logit)
        after = dict(zip(slots, done.states, strict=True))
        newest = np.stack([np.asarray(one.logits) for one in done.states])
        self._public = tuple(after.get(slot, one) for slot, one in enumerate(self._public))
        if into is not None:
            into[:] = newest
        return done

    def advance_padded(
        self,
        slots: Sequence[int],
        ids: Sequence[Sequence[int]],
        mask: Sequence[Sequence[bool]],
        trace: Trace | None = None,
        *,
        every_logit: bool = False,
    ) -> Done:
        """Runs a rectangular batch with padding on the left; padding is dropped before anything sees it.

        Args:
            slots: slot of each row, or FILLER for a row that only fills the batch.
            ids: [row][place].
            mask: [row][place], true where a token stands.
            trace: told of every stage.
            every_logit: logits of all rows.

        Raises:
            ContractError: model.padding or model.slot, and what `advance` raises.
        """
        chunks: dict[int, list[int]] = {}
        for row, (slot, line, seen) in enumerate(zip(slots, ids, mask, strict=True)):
            if slot == FILLER:
                continue
            first = next((place for place, here in enumerate(seen) if here), len(line))
            if len(seen) != len(line) or first == len(line) or not all(seen[first:]):
                raise refuse(
                    PADDING, f"rows[{row}]", expected="padding on the left, then tokens", got=list(seen)
                )
            if slot in chunks:
                raise refuse(SLOT, f"rows[{row}]", expected="each slot once", got=slot)
            chunks[self._slot(slot)] = list(line[first:])
        return self.advance(chunks, trace, every_logit=every_logit)

    def copy(self, source: int, target: int) -> None:
        """Makes one slot continue from where another stands; every owner moves, and neither sees the other again."""
        self._publish(self._slot(target), self._public[self._slot(source)])

    def reset(self, slot: int = 0, first_position: int = 0) -> None:
        """Makes a slot a sequence without tokens."""
        fresh = state.fresh(self.model.geometry, first_position, self._rows)
        self._kept[self._slot(slot)] = []
        self._publish(slot, fresh)

    def reserve(self, slot: int, rows: int) -> None:
        """Makes room for a sequence of `rows` tokens, so that no cache moves on the way there."""
        old = self._public[self._slot(slot)]
        ratio = self.model.geometry.ratio
        roomy = {
            layer: Cache(
                columns.reserved(cache.keys, rows),
                columns.reserved(cache.values, rows),
                columns.reserved(cache.raw, rows),
                columns.reserved(cache.pooled, rows // ratio),
            )
            for layer, cache in old.qsa.items()
        }
        self._publish(slot, replace(old, positions=columns.reserved(old.positions, rows), qsa=roomy))

    def keep(self, slot: int = 0) -> None:
        """Keeps the state of a slot, so that `rewind` can go back to it."""
        self._kept[slot] = [
            one for one in self._kept[self._slot(slot)] if one.frontier < self.state(slot).frontier
        ]
        self._kept[slot].append(self.state(slot))

    def rewind(self, slot: int, frontier: int) -> None:
        """Goes back to a kept state: all owners together, the token history included.

        Raises:
            ContractError: model.rewind.
        """
        kept = self._kept[self._slot(slot)]
        for one in kept:
            if one.frontier == frontier:
                self._kept[slot] = [other for other in kept if other.frontier <= frontier]
                self._publish(slot, one)
                return
        lengths = ", ".join(str(one.frontier) for one in kept) or "none"
        raise refuse(REWIND, f"slots[{slot}]", expected=f"one of the kept lengths {lengths}", got=frontier)

    @property
    def geometry(self) -> Geometry:
        """Dimensions of the model."""
        return self.model.geometry

    def _publish(self, slot: int, one: State) -> None:
        self._public = (*self._public[:slot], one, *self._public[slot + 1 :])

    def _slot(self, slot: Any) -> int:
        if type(slot) is not int or not 0 <= slot < len(self._public):
            raise refuse(SLOT, "slot", expected=f"0 .. {len(self._public) - 1}", got=slot)
        return slot

    def _shares_memory(self, array: NDArray[np.float32]) -> bool:
        return any(np.shares_memory(array, held) for one in self._public for held in state.memory(one))
