"""How much a reader may hold and do at once: slots, queues and reads in flight of each lane."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from assay.impl.runtime.clauses import LIMITS, refuse
from assay.impl.runtime.tickets import Lane


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """Bounds of one lane.

    Attributes:
        readers: reads in flight.
        slots: requests whose bytes may lie in memory.
        slot_bytes: bytes of one slot; no request is larger.
        queue: requests that may wait for their first read.
        tickets: live tickets, those that share a read included.
        reserved_slots: slots that predictions leave free.
    """

    readers: int
    slots: int
    slot_bytes: int
    queue: int = 256
    tickets: int = 1024
    reserved_slots: int = 1

    @property
    def memory_bytes(self) -> int:
        """Bytes of all slots."""
        return self.slots * self.slot_bytes


Limits = Mapping[Lane, LaneLimits]

_LEAST: Final = {"readers": 1, "slots": 1, "slot_bytes": 1, "queue": 1, "tickets": 1, "reserved_slots": 0}


def check_limits(limits: Limits) -> None:
    """Refuses limits with which nothing could ever be read.

    Raises:
        ContractError: runtime.limits.
    """
    for lane in Lane:
        if lane not in limits:
            raise refuse(LIMITS, lane.value, expected="limits for each lane", got="none")
        for name, least in _LEAST.items():
            value = getattr(limits[lane], name)
            if type(value) is not int or value < least:
                raise refuse(LIMITS, f"{lane.value}.{name}", expected=f"an integer from {least}", got=value)
