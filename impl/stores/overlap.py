"""Work on several things at once, answers in order: reading and hashing overlap, memory stays bounded.

`pread` and hashlib release the interpreter lock, so that two to four threads keep a disk and the cores busy.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def in_order(
    work: Callable[[Item], Answer],
    items: Iterable[Item],
    threads: int,
    announce: Callable[[Item], object] | None = None,
) -> Generator[Answer]:
    """Yields `work(item)` for each item, in order, with at most twice as many items in flight as threads.

    One thread works in the caller's own, so that a traceback and a profile stay simple. The first exception ends
    the run; what was started finishes, what was not is dropped.

    Args:
        work: what is done with an item.
        items: consumed as they come into flight.
        threads: threads that work.
        announce: called in the caller's thread with each item as it comes into flight, before any work on it; a hint to
            a disk belongs here, so that it reads while the threads are busy with what it read before.
    """
    coming = iter(items)
    if announce is not None:
        coming = map(partial(_announced, announce), coming)
    if threads <= 1:
        yield from map(work, coming if announce is None else _ahead(coming, 2))
        return
    pending: deque[Future[Answer]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="store") as pool:
        try:
            pending.extend(pool.submit(work, item) for item in islice(coming, 2 * threads))
            while pending:
                answer = pending.popleft().result()
                pending.extend(pool.submit(work, item) for item in islice(coming, 1))
                yield answer
        finally:
            for one in pending:
                one.cancel()


def _announced(announce: Callable[[Item], object], item: Item) -> Item:
    announce(item)
    return item


def _ahead(items: Iterator[Item], count: int) -> Iterator[Item]:
    """Yields items, having taken up to `count` more before each."""
    taken = deque(islice(items, count))
    while taken:
        taken.extend(islice(items, 1))
        yield taken.popleft()
