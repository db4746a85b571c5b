"""An interrupt that a library swallowed is raised when the run asks for it."""

import signal
import threading

import pytest

from assay.provenance.interrupts import Interrupts


def swallowed() -> None:
    """Takes an interrupt as MLX's constructors do: for a conversion that did not fit."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_swallowed_interrupt_is_raised_at_the_next_question() -> None:
    with Interrupts() as interrupts:
        assert not interrupts.check()
        swallowed()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_the_handler_before_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_thread_without_the_right_to_a_handler_goes_on() -> None:
    told = []

    def work() -> None:
        with Interrupts() as interrupts:
            told.append(interrupts.check())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert told == [False]
