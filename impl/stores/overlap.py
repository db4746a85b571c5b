"""Work on several things at once, answers in order: reading and hashing overlap, memory stays bounded.

`pread` and hashlib release the interpreter lock, so that two to four threads keep a disk and the cores busy.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def in_order(work: Callable[[Item], Answer], items: Iterable[Item], threads: int) -> Iterator[Answer]:
    """Yields `work(item)` for each item, in order, with at most twice as many items in flight as threads.

    One thread works in the caller's own, so that a traceback and a profile stay simple. The first exception ends
    the run; what was started finishes, what was not is dropped.
    """
    if threads <= 1:
        yield from map(work, items)
        return
    remaining = iter(items)
    pending: deque[Future[Answer]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="store") as pool:
        try:
            pending.extend(pool.submit(work, item) for item in islice(remaining, 2 * threads))
            while pending:
                answer = pending.popleft().result()
                pending.extend(pool.submit(work, item) for item in islice(remaining, 1))
                yield answer
        finally:
            for one in pending:
                one.cancel()
