"""Progress of long work in steps: what is being done, how many bytes of the step are done and how many it has."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Told the step, its bytes done and its bytes in all."""


class Steps:
    """Adds up the advances of one step after another for a display, which is told about 500 times a step.

    Only one thread may advance: workers hand their answers over first.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._name = ""
        self._done = 0
        self._total = 0
        self._next = 0

    def begin(self, name: str, total: int) -> None:
        """Begins the next step, of `total` bytes."""
        self._name, self._done, self._total, self._next = name, 0, total, 0
        self.advance(0)

    def advance(self, more: int) -> None:
        """Adds bytes to the step."""
        self._done += more
        if self._progress is not None and (self._done >= self._next or self._done == self._total):
            self._next = self._done + self._total // 512
            self._progress(self._name, self._done, self._total)

    def part(self) -> Callable[[int, int], None]:
        """Returns what takes the progress of a part of the step: its bytes done so far, and in all."""
        return increments(self.advance)


def increments(advance: Callable[[int], object]) -> Callable[[int, int], None]:
    """Turns bytes done so far into bytes done since the last call."""
    last = 0

    def progress(done: int, _total: int) -> None:
        nonlocal last
        advance(done - last)
        last = done

    return progress
