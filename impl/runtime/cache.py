"""The expert cache: slots, generations and leases, without bytes of its own kind, threads or a clock.

One slot holds one record, all of its parts under one index, so that weights and scales can't part. What a step needs
is leased as a whole or not at all: a leased slot is no victim, so that neither the next miss of the same step nor the
next layer's can take it from under work that still reads it. A slot that changes hands changes its generation, and a
read that was begun for an earlier generation is refused where it would publish.

Nothing here locks; a runtime calls it under one lock of its own.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from assay.impl.runtime.clauses import refuse
from assay.impl.runtime.policies import Key, Policy
from assay.spec.clauses import Authority, declare

WORKING_SET: Final = declare(
    "runtime.cache.working-set", Authority.RULE,
    "The cache holds every record that one step needs at the same time.",
    source="bug report A24; field note AFN-019",
    cause="a cache smaller than one token's experts of a layer",
    fix="a larger --expert-cache, or a larger memory budget",
)  # fmt: skip
LEASE: Final = declare(
    "runtime.cache.lease", Authority.PROCESS,
    "A lease is released exactly once, and what it holds is read only while it is held.",
    source="bug report A23; field note AFN-019",
    cause="a slot handed on while submitted work still reads it",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies or is to lie: a slot in one of its generations."""

    key: Key
    slot: int
    generation: int


@dataclass(slots=True, eq=False)
class Lease:
    """What one step holds.

    Attributes:
        places: key -> place of every record of the step.
        missing: records whose read the holder must begin.
        joined: records whose read was begun earlier, on a prediction or for another lane.
        resident: records that can be read at once.
    """

    places: Mapping[Key, Place]
    missing: tuple[Key, ...]
    joined: tuple[Key, ...]
    resident: tuple[Key, ...]
    is_held: bool = True


@dataclass(slots=True)
class CacheCounts:
    """What happened so far.

    Attributes:
        hits: uses of a record that was resident.
        joined: uses of a record that was on its way.
        misses: uses of a record that nobody had asked for.
        evicted: residents that left for another record.
        predicted: records that came on a prediction.
        predicted_used: those of them that a step used later.
        reclaimed: predicted reads that lost their slot to an exact one.
        stale: parts that arrived for a generation that was over, and were dropped.
    """

    hits: int = 0
    joined: int = 0
    misses: int = 0
    evicted: int = 0
    predicted: int = 0
    predicted_used: int = 0
    reclaimed: int = 0
    stale: int = 0


@dataclass(slots=True)
class _Slot:
    key: Key | None = None
    generation: int = 0
    leases: int = 0
    parts: dict[str, Any] = field(default_factory=dict)
    is_ready: bool = False
    is_known: bool = False  # to the policy
    is_predicted: bool = False  # and not used yet


class ExpertCache:
    """A fixed number of slots for records, shared by all layers."""

    def __init__(self, capacity: int, parts: Collection[str], policy: Policy) -> None:
        """Makes empty slots.

        Args:
            capacity: records.
            parts: names of what makes up a record; it is ready when all of them are in.
            policy: who leaves.
        """
        self.capacity = capacity
        self.counts = CacheCounts()
        self._parts = frozenset(parts)
        self._policy = policy
        self._slots = [_Slot() for _ in range(capacity)]
        self._free = list(range(capacity - 1, -1, -1))
        self._where: dict[Key, int] = {}
        self._leased = 0

    def __contains__(self, key: object) -> bool:
        """Says whether a record is resident or on its way."""
        return key in self._where

    @property
    def residents(self) -> frozenset[Key]:
        """The records that can be read."""
        return frozenset(key for key, slot in self._where.items() if self._slots[slot].is_ready)

    @property
    def leased(self) -> int:
        """Slots that are leased."""
        return self._leased

    def acquire(self, keys: Iterable[Key]) -> tuple[Lease, tuple[Place, ...]] | None:
        """Leases all records of a step, or none of them.

        Returns:
            The lease, and the places of predicted reads that lost their slots; or None, while others hold so much that
            the step must wait for a release.

        Raises:
            ContractError: runtime.cache.working-set, when no release could help.
        """
        wanted = list(dict.fromkeys(keys))
        if len(wanted) > self.capacity:
            raise refuse(
                WORKING_SET, "step", expected=f"at most {self.capacity} records", got=f"{len(wanted)}"
            )
        held = {self._where[key] for key in wanted if key in self._where}
        missing = tuple(key for key in wanted if key not in self._where)
        kept = sum(1 for number in held if not self._slots[number].leases)
        if len(missing) > self.capacity - self._leased - kept:
            return None
        resident: list[Key] = []
        joined: list[Key] = []
        for key in wanted:  # pinned before any victim is chosen
            number = self._where.get(key)
            if number is None:
                continue
            self._lease(number)
            self._used(self._slots[number], key)
            (resident if self._slots[number].is_ready else joined).append(key)
        dropped: list[Place] = []
        for key in missing:
            number = self._emptied(dropped)
            self._settle(number, key)
            self._lease(number)
            self._slots[number].is_known = True
            self._policy.admit(key)
        self.counts.hits += len(resident)
        self.counts.joined += len(joined)
        self.counts.misses += len(missing)
        places = {key: self.place(key) for key in wanted}
        return Lease(places, missing, tuple(joined), tuple(resident)), tuple(dropped)

    def release(self, lease: Lease) -> None:
        """Ends a lease.

        Raises:
            ContractError: runtime.cache.lease, for one that has ended.
        """
        if not lease.is_held:
            raise refuse(LEASE, "release", expected="a lease that is held", got="one that has ended")
        lease.is_held = False
        for place in lease.places.values():
            slot = self._slots[place.slot]
            slot.leases -= 1
            if slot.leases:
                continue
            self._leased -= 1
            if slot.key is None:
                self._free.append(place.slot)

    def predict(self, key: Key) -> Place | None:
        """Takes a slot for a record that may be needed; None where it is there already or every slot is in use.

        A predicted record takes the place of an unleased resident, never of another record that is on its way, nor of
        one that came on a prediction and was not used yet: guesses don't push each other out.
        """
        if key in self._where:
            return None
        if not self._free:
            victim = self._policy.victim(lambda one: not self._is_idle(one) or self._is_guess(one))
            if victim is None:
                return None
            self._evict(victim)
        number = self._free.pop()
        self._settle(number, key)
        self._slots[number].is_predicted = True
        self.counts.predicted += 1
        return self.place(key)

    def publish(self, place: Place, part: str, payload: Any) -> bool:
        """Puts a part of a record into its slot; False, and nothing, when the slot has another owner by now."""
        slot = self._slots[place.slot]
        if not self.is_current(place):
            self.counts.stale += 1
            return False
        slot.parts[part] = payload
        if self._parts <= slot.parts.keys() and not slot.is_ready:
            slot.is_ready = True
            if not slot.is_known:
                slot.is_known = True
                self._policy.admit(place.key)
        return True

    def is_ready(self, key: Key) -> bool:
        """Says whether a record can be read."""
        number = self._where.get(key)
        return number is not None and self._slots[number].is_ready

    def is_current(self, place: Place) -> bool:
        """Says whether a place is still its record's."""
        slot = self._slots[place.slot]
        return slot.generation == place.generation and slot.key == place.key

    def is_leased(self, place: Place) -> bool:
        """Says whether anybody holds the slot of a place."""
        return self._slots[place.slot].leases > 0

    def abandon(self, place: Place) -> None:
        """Gives up a record whose read failed or was cancelled; a place that is over already stays as it is."""
        if self.is_current(place):
            self._vacate(place.slot)

    def part(self, lease: Lease, key: Key, part: str) -> Any:
        """Returns a part of a leased record, or None while it is on its way.

        Raises:
            ContractError: runtime.cache.lease, when the lease has ended or its record was given up.
        """
        place = lease.places[key]
        slot = self._slots[place.slot]
        if not lease.is_held or slot.generation != place.generation:
            raise refuse(
                LEASE,
                f"layer {key[0]} expert {key[1]}",
                expected="a lease that is held",
                got="one that is over",
            )
        return slot.parts.get(part)

    def place(self, key: Key) -> Place:
        """Returns where a record lies or is to lie."""
        number = self._where[key]
        return Place(key, number, self._slots[number].generation)

    def _used(self, slot: _Slot, key: Key) -> None:
        if slot.is_predicted:
            slot.is_predicted = False
            self.counts.predicted_used += 1
        if slot.is_known:
            self._policy.use(key)
        else:  # a prediction that came true while its read was on the way
            slot.is_known = True
            self._policy.admit(key)

    def _emptied(self, dropped: list[Place]) -> int:
        """Returns a slot for an exact record: a free one, a victim's, or that of a predicted read on its way."""
        if not self._free:
            victim = self._policy.victim(lambda one: not self._is_idle(one))
            if victim is not None:
                self._evict(victim)
            else:
                key = next(key for key, number in self._where.items() if not self._slots[number].leases)
                place = self.place(key)
                dropped.append(place)
                self.counts.reclaimed += 1
                self._vacate(place.slot)
        return self._free.pop()

    def _is_idle(self, key: Key) -> bool:
        slot = self._slots[self._where[key]]
        return slot.is_ready and not slot.leases

    def _is_guess(self, key: Key) -> bool:
        return self._slots[self._where[key]].is_predicted

    def _lease(self, number: int) -> None:
        slot = self._slots[number]
        self._leased += not slot.leases
        slot.leases += 1

    def _evict(self, key: Key) -> None:
        self.counts.evicted += 1
        self._vacate(self._where[key])

    def _settle(self, number: int, key: Key) -> None:
        self._slots[number].key = key
        self._where[key] = number

    def _vacate(self, number: int) -> None:
        """Takes a slot from its record; it is free once nobody leases it."""
        slot = self._slots[number]
        if slot.key is not None:
            del self._where[slot.key]
            if slot.is_known:
                self._policy.remove(slot.key)
        slot.key = None
        slot.generation += 1
        slot.parts = {}
        slot.is_ready = slot.is_known = slot.is_predicted = False
        if not slot.leases:
            self._free.append(number)
