"""Routes replayed against a cache without any bytes: what each policy would have missed, and what the best one would.

A step is what must be resident at the same time, such as one token's experts of a layer. The best possible policy
(Belady) knows every later step and gives up the record whose next use is the farthest; no policy that loads on demand
misses fewer. It bounds what is left to gain, and can't be run.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.impl.runtime.cache import WORKING_SET, ExpertCache
from assay.impl.runtime.clauses import refuse
from assay.impl.runtime.policies import POLICIES, Key, Value, make_policy

Step = Sequence[Key]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one policy came to.

    Attributes:
        policy: its name, or `belady`.
        uses: records that steps asked for.
        misses: those of them that had to be read.
        stall_removed: the sum of `value` over the uses that were hits: wait avoided by byte.
    """

    policy: str
    uses: int
    misses: int
    stall_removed: float


def replay(steps: Sequence[Step], capacity: int, policy: str, value: Value = lambda _key: 1.0) -> Replayed:
    """Runs steps through the cache that a runtime uses, each record ready as soon as it is asked for.

    Raises:
        ContractError: runtime.cache.working-set, for a step larger than the cache.
    """
    cache = ExpertCache(capacity, ("record",), make_policy(policy, capacity, value))
    removed = 0.0
    for step in steps:
        found = cache.acquire(step)
        if found is None:
            raise AssertionError("nothing else holds a lease")
        lease, _ = found
        for key in lease.missing:
            cache.publish(lease.places[key], "record", key)
        removed += sum(value(key) for key in lease.resident)
        cache.release(lease)
    counts = cache.counts
    return Replayed(policy, counts.hits + counts.misses, counts.misses, removed)


def replay_best(steps: Sequence[Step], capacity: int, value: Value = lambda _key: 1.0) -> Replayed:
    """Returns what the best possible policy comes to: the fewest misses of all that load on demand.

    Raises:
        ContractError: runtime.cache.working-set, for a step larger than the cache.
    """
    later: dict[Key, list[int]] = defaultdict(list)
    for number in range(len(steps) - 1, -1, -1):
        for key in set(steps[number]):
            later[key].append(number)
    resident: set[Key] = set()
    uses = misses = 0
    removed = 0.0
    for step in steps:
        wanted = set(step)
        if len(wanted) > capacity:
            raise refuse(WORKING_SET, "step", expected=f"at most {capacity} records", got=f"{len(wanted)}")
        for key in wanted:
            later[key].pop()
        uses += len(wanted)
        removed += sum(value(key) for key in wanted & resident)
        missing = wanted - resident
        misses += len(missing)
        excess = len(resident) + len(missing) - capacity
        if excess > 0:
            resident -= set(_farthest(sorted(resident - wanted), later, len(steps))[:excess])
        resident |= missing
    return Replayed("belady", uses, misses, removed)


def rank(steps: Sequence[Step], capacity: int, value: Value = lambda _key: 1.0) -> list[Replayed]:
    """Returns every policy by the wait that it removed, best first, then the bound that none can pass."""
    found = [replay(steps, capacity, name, value) for name in POLICIES]
    return [
        *sorted(found, key=lambda one: (-one.stall_removed, one.policy)),
        replay_best(steps, capacity, value),
    ]


def _farthest(keys: list[Key], later: dict[Key, list[int]], never: int) -> list[Key]:
    next_use: Callable[[Key], int] = lambda key: later[key][-1] if later[key] else never  # noqa: E731 - typed
    return sorted(keys, key=next_use, reverse=True)
