"""A device that fails on purpose, reproducibly: under the same calls, so that everything above it is the real thing."""

import errno
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from assay.impl.runtime.device import Device

KINDS: Final = ("short", "interrupt", "error", "delay", "corrupt", "end")


@dataclass(frozen=True, slots=True)
class Faults:
    """How often a call does what; the rest of the calls do as they should.

    Attributes:
        short: reads fewer bytes than asked.
        interrupt: raises EINTR before it reads anything.
        error: raises EIO.
        delay: waits before it reads, up to `delay_s`; with several readers this reorders completions.
        corrupt: reads everything, and changes one bit.
        end: says that the file ends here.
        delay_s: longest delay, in seconds.
    """

    short: float = 0.0
    interrupt: float = 0.0
    error: float = 0.0
    delay: float = 0.0
    corrupt: float = 0.0
    end: float = 0.0
    delay_s: float = 0.002


@dataclass
class FaultyDevice(Device):
    """Injects faults into calls that read, by chance of a seed or by a script.

    Attributes:
        faults: chances.
        seed: of the chances.
        script: what the next calls do, before chances decide: a name of `KINDS`, a number of bytes, or `ok`.
        injected: what was done how often.
    """

    faults: Faults = Faults()
    seed: int = 0
    script: list[str | int] = field(default_factory=list)
    injected: dict[str, int] = field(default_factory=dict)
    _random: random.Random = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Seeds the chances."""
        self._random = random.Random(self.seed)  # noqa: S311 - no secret

    def read_some(self, descriptor: int, target: memoryview, offset: int) -> int:
        """Reads, or does what chance or the script says instead."""
        with self._lock:
            kind: str | int = self.script.pop(0) if self.script else self._chance()
            share = self._random.random()
            name = kind if isinstance(kind, str) else "short"
            self.injected[name] = self.injected.get(name, 0) + 1
        if kind == "interrupt":
            raise InterruptedError(errno.EINTR, "interrupted")
        if kind == "error":
            raise OSError(errno.EIO, "input/output error")
        if kind == "end":
            return 0
        if kind == "delay":
            time.sleep(share * self.faults.delay_s)
        wanted = len(target)
        if isinstance(kind, int):
            wanted = min(kind, wanted)
        elif kind == "short":
            wanted = max(1, int(share * wanted))
        got = Device.read_some(self, descriptor, target[:wanted], offset)
        if kind == "corrupt" and got:
            target[int(share * got)] ^= 1 << int(share * 8)
        return got

    def read_cached(self, descriptor: int, target: memoryview, offset: int) -> int | None:
        """Never says what the cache has, so that every byte comes through `read_some`."""
        del descriptor, target, offset
        return None

    def _chance(self) -> str:
        left = self._random.random()
        for kind in KINDS:
            left -= getattr(self.faults, kind)
            if left < 0:
                return kind
        return "ok"
