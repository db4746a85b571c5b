"""Pools of worker processes: spawned, never forked, and gone as soon as the process that asked for them is.

A killed parent can't shut its pool down, and its workers would wait for work for ever, with the parent's output still
open. Each worker therefore watches the pipe that `multiprocessing` keeps open between it and its parent: the system
closes the parent's end whatever the parent died of. A death signal of Linux would also come when only the thread that
started the worker ends, so that it is no help here.
"""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection
from typing import Final

from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding, IncompleteError

WORKER: Final = declare(
    "process.worker",
    Authority.PROCESS,
    "A worker process lives until its work is done.",
    source="assay: worker pools",
    cause="memory that ran out, or a kill from outside",
    fix="run again with fewer --jobs",
)


class WorkerError(IncompleteError):
    """A worker process died; nothing can be said about what it worked on."""


def spawn_pool(jobs: int) -> ProcessPoolExecutor:
    """Returns a pool of `jobs` spawned processes that end with this one, however it ends."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent)


@contextmanager
def worker_deaths(where: str) -> Iterator[None]:
    """Turns the death of a worker inside into a WorkerError.

    Raises:
        WorkerError: process.worker.
    """
    try:
        yield
    except BrokenProcessPool as error:
        finding = Finding.of(WORKER, "process", where, expected="workers that finish", got="one that died")
        raise WorkerError(finding) from error


def end_with_parent() -> None:
    """Starts the watch; runs in each worker before its first work."""
    threading.Thread(target=_watch, name="parent watch", daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    connection.wait([parent.sentinel])
    os._exit(1)
