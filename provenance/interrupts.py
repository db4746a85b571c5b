"""Ctrl-C that is not lost: libraries may swallow the exception that arrives inside one of their calls.

MLX's constructors try one conversion after another and take any exception for "not this one"; a KeyboardInterrupt that
arrives there is gone, and a long run goes on. The handler therefore leaves a note, and the run asks for it.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
    """While entered, remembers an interrupt; `check` raises what a library swallowed."""

    def __init__(self) -> None:
        self._has_come = False
        self._previous: object = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers there only
            self._previous = signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if callable(self._previous) or isinstance(self._previous, int):
            signal.signal(signal.SIGINT, self._previous)

    def check(self) -> bool:
        """Returns False, so that it can be asked wherever something may be cancelled.

        Raises:
            KeyboardInterrupt: when one has come and the work still goes on.
        """
        if self._has_come:
            raise KeyboardInterrupt
        return False

    def _remember(self, _number: int, _frame: FrameType | None) -> None:
        self._has_come = True
        raise KeyboardInterrupt
