"""Says what of a file this machine's page cache holds, from a sample, so that a run can be labelled by what was warm.

One byte at each of some random places is asked for with `RWF_NOWAIT`; the call itself may start to bring a missing page
in, which is why it is a sample and not a walk. A host's cache below this machine can't be seen.
"""

import random
from typing import Final

from assay.impl.runtime.device import Device, DeviceFile
from assay.impl.stores.extents import StoreFile
from assay.spec.documents.trace import StartLabel

_COLD: Final = 0.1
_WARM: Final = 0.9


def cached_share(
    file: StoreFile, start: int, size: int, *, samples: int = 64, seed: int = 0, device: Device | None = None
) -> float | None:
    """Returns the share of sampled places of a range that the page cache holds; None where the system can't say.

    Args:
        file: the file.
        start: first byte of the range.
        size: bytes of the range.
        samples: places to ask for.
        seed: of the places.
        device: the system calls.
    """
    calls = device or Device()
    chance = random.Random(seed)  # noqa: S311 - no secret
    opened = DeviceFile(file)
    held = 0
    try:
        byte = memoryview(bytearray(1))
        for _ in range(samples):
            found = calls.read_cached(opened.buffered, byte, start + chance.randrange(size))
            if found is None:
                return None
            held += found
    finally:
        opened.close()
    return held / samples


def start_label(share: float | None, *, is_new_process: bool, has_hot_cache: bool = False) -> StartLabel:
    """Returns the label of a run; what is neither cold nor warm is unknown.

    Args:
        share: of the store that the page cache holds.
        is_new_process: whether nothing of this process has read the store.
        has_hot_cache: whether the application's own cache is filled.
    """
    if has_hot_cache:
        return "hot-cache"
    if share is None or _COLD < share < _WARM:
        return "unknown"
    if share >= _WARM:
        return "warm-store"
    return "cold-process" if is_new_process else "cold-store"
