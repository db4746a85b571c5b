"""One transient progress bar on stderr, shown only to a person."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called with what is being worked on, how much is done and how much there is."""


@contextmanager
def progress_bar(*, quiet: bool = False, bytes_: bool = False) -> Iterator[Progress]:
    """Gives a function that shows progress; silent with `quiet` or when stderr is no terminal.

    Args:
        quiet: show nothing.
        bytes_: the amounts are bytes, shown with rate and time left.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich import progress as rich_progress
    from rich.console import Console

    amounts = (
        (rich_progress.DownloadColumn(), rich_progress.TransferSpeedColumn())
        if bytes_
        else (rich_progress.MofNCompleteColumn(),)
    )
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        *amounts,
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield show
