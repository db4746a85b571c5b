"""Which record leaves an expert cache that is full: replacement policies behind one interface.

A policy orders the residents and nothing else. It holds no bytes, takes no lease and can't evict what is pinned: the
cache asks it for a victim and says what may not be one. So a policy can be wrong about the future and never about
the answer. The best possible one, with the whole future known, is in `replay_cache`.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

Key = tuple[int, int]
"""Layer and expert."""
IsPinned = Callable[[Key], bool]

GHOSTS: Final = 1.0
"""Keys that S3-FIFO remembers after eviction, as a share of the capacity."""
SMALL_SHARE: Final = 0.1
"""Share of the capacity that S3-FIFO gives to records that were used once."""
MOST_USES: Final = 3
"""Uses that S3-FIFO counts; more change nothing."""


class Policy(Protocol):
    """Orders the residents of one cache; told of every change, asked for victims."""

    def admit(self, key: Key) -> None:
        """Takes a record that has become resident."""

    def use(self, key: Key) -> None:
        """Takes one use of a resident."""

    def remove(self, key: Key) -> None:
        """Forgets a resident that left."""

    def victim(self, is_pinned: IsPinned) -> Key | None:
        """Returns the resident that should leave first and is not pinned, or None; it stays until `remove`."""


class Value(Protocol):
    """What one record is worth, as a runtime measured it."""

    def __call__(self, key: Key) -> float:
        """Returns the exposed wait that one use of this record avoids, in nanoseconds, by its resident bytes."""


class Lru:
    """The record whose last use is the oldest leaves."""

    def __init__(self) -> None:
        self._order: OrderedDict[Key, None] = OrderedDict()

    def admit(self, key: Key) -> None:
        """Takes a record that has become resident."""
        self._order[key] = None

    def use(self, key: Key) -> None:
        """Takes one use of a resident."""
        self._order.move_to_end(key)

    def remove(self, key: Key) -> None:
        """Forgets a resident that left."""
        del self._order[key]

    def victim(self, is_pinned: IsPinned) -> Key | None:
        """Returns the first resident in the order of last uses that is not pinned."""
        return next((key for key in self._order if not is_pinned(key)), None)


class Lfu:
    """The record with the fewest uses since it came leaves, among equals the one whose last use is the oldest."""

    def __init__(self) -> None:
        self._uses: dict[Key, int] = {}
        self._groups: dict[int, OrderedDict[Key, None]] = {}

    def admit(self, key: Key) -> None:
        """Takes a record that has become resident."""
        self._place(key, 0)

    def use(self, key: Key) -> None:
        """Takes one use of a resident."""
        uses = self._uses[key]
        self._lift(key, uses)
        self._place(key, uses + 1)

    def remove(self, key: Key) -> None:
        """Forgets a resident that left, with its count."""
        self._lift(key, self._uses.pop(key))

    def victim(self, is_pinned: IsPinned) -> Key | None:
        """Returns the least used resident that is not pinned."""
        for uses in sorted(self._groups):
            for key in self._groups[uses]:
                if not is_pinned(key):
                    return key
        return None

    def _place(self, key: Key, uses: int) -> None:
        self._uses[key] = uses
        self._groups.setdefault(uses, OrderedDict())[key] = None

    def _lift(self, key: Key, uses: int) -> None:
        group = self._groups[uses]
        del group[key]
        if not group:
            del self._groups[uses]


class S3Fifo:
    """Three queues: a small one for newcomers, a main one for what was used again, and names of what left the first.

    Source: S3-FIFO (Yang and others, 2023), with the victim chosen before anything moves out.
    """

    def __init__(self, capacity: int) -> None:
        self._small: OrderedDict[Key, int] = OrderedDict()
        self._main: OrderedDict[Key, int] = OrderedDict()
        self._ghosts: OrderedDict[Key, None] = OrderedDict()
        self._small_target = max(1, int(capacity * SMALL_SHARE))
        self._most_ghosts = max(1, int(capacity * GHOSTS))

    def admit(self, key: Key) -> None:
        """Takes a record that has become resident: a name that is remembered goes to the main queue."""
        if key in self._ghosts:
            del self._ghosts[key]
            self._main[key] = 0
        else:
            self._small[key] = 0

    def use(self, key: Key) -> None:
        """Takes one use of a resident; it stays where it is."""
        queue = self._small if key in self._small else self._main
        queue[key] = min(MOST_USES, queue[key] + 1)

    def remove(self, key: Key) -> None:
        """Forgets a resident that left; the name of one that left the small queue is remembered for a while."""
        if self._main.pop(key, None) is not None:
            return
        del self._small[key]
        self._ghosts[key] = None
        if len(self._ghosts) > self._most_ghosts:
            self._ghosts.popitem(last=False)

    def victim(self, is_pinned: IsPinned) -> Key | None:
        """Returns a newcomer that was not used again while there are enough of them, else one of the main queue."""
        if len(self._small) >= self._small_target or not self._main:
            found = self._of_small(is_pinned)
            return found if found is not None else self._of_main(is_pinned)
        found = self._of_main(is_pinned)
        return found if found is not None else self._of_small(is_pinned)

    def _of_small(self, is_pinned: IsPinned) -> Key | None:
        for key in list(self._small):
            if is_pinned(key):
                continue
            if self._small[key] == 0:
                return key
            del self._small[key]
            self._main[key] = 0
        return None

    def _of_main(self, is_pinned: IsPinned) -> Key | None:
        for _ in range(MOST_USES + 1):
            for key in list(self._main):
                if is_pinned(key):
                    continue
                if self._main[key] == 0:
                    return key
                self._main[key] -= 1
                self._main.move_to_end(key)
        return None


class GreedyDual:
    """The record with the least stall removed by byte leaves; what stays unused ages against what comes.

    A record is worth the clock at its last use plus `value`, and the clock rises to the worth of every victim.
    Source: GreedyDual-Size (Cao and Irani, 1997); field note AFN-019 for the value.
    """

    def __init__(self, value: Value) -> None:
        self._value = value
        self._clock = 0.0
        self._count = 0
        self._worth: dict[Key, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, Key]] = []

    def admit(self, key: Key) -> None:
        """Takes a record that has become resident."""
        self.use(key)

    def use(self, key: Key) -> None:
        """Takes one use of a resident."""
        self._count += 1
        worth = (self._clock + self._value(key), self._count)
        self._worth[key] = worth
        heapq.heappush(self._heap, (*worth, key))
        if len(self._heap) > 64 + 4 * len(self._worth):
            self._heap = [(*worth, key) for key, worth in self._worth.items()]
            heapq.heapify(self._heap)

    def remove(self, key: Key) -> None:
        """Forgets a resident that left; the clock rises to its worth."""
        self._clock = max(self._clock, self._worth.pop(key)[0])

    def victim(self, is_pinned: IsPinned) -> Key | None:
        """Returns the resident of least worth that is not pinned."""
        passed, found = [], None
        while self._heap:
            entry = heapq.heappop(self._heap)
            worth, count, key = entry
            if self._worth.get(key) != (worth, count):
                continue
            passed.append(entry)
            if not is_pinned(key):
                found = key
                break
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return found


class LayerLru:
    """LRU in which layers share alike: the layer with the most records gives up the oldest of them."""

    def __init__(self) -> None:
        self._layers: dict[int, Lru] = {}
        self._sizes: dict[int, int] = {}

    def admit(self, key: Key) -> None:
        """Takes a record that has become resident."""
        self._layers.setdefault(key[0], Lru()).admit(key)
        self._sizes[key[0]] = self._sizes.get(key[0], 0) + 1

    def use(self, key: Key) -> None:
        """Takes one use of a resident."""
        self._layers[key[0]].use(key)

    def remove(self, key: Key) -> None:
        """Forgets a resident that left."""
        self._layers[key[0]].remove(key)
        self._sizes[key[0]] -= 1

    def victim(self, is_pinned: IsPinned) -> Key | None:
        """Returns the oldest unpinned record of the largest layer that has one."""
        for layer in sorted(self._sizes, key=lambda layer: (-self._sizes[layer], layer)):
            found = self._layers[layer].victim(is_pinned)
            if found is not None:
                return found
        return None


POLICIES: Final = ("lru", "lfu", "s3-fifo", "greedy-dual", "layer-lru")


def make_policy(name: str, capacity: int, value: Value = lambda _key: 1.0) -> Policy:
    """Returns a policy by its name.

    Args:
        name: one of POLICIES.
        capacity: records that the cache holds.
        value: for `greedy-dual`, the exposed wait that one use of a record avoids by byte; equal ones when left out.

    Raises:
        KeyError: for another name.
    """
    match name:
        case "lru":
            return Lru()
        case "lfu":
            return Lfu()
        case "s3-fifo":
            return S3Fifo(capacity)
        case "greedy-dual":
            return GreedyDual(value)
        case "layer-lru":
            return LayerLru()
    raise KeyError(name)
