"""What a recording or a picture may take the place of: nothing, or an earlier one of its own kind.

A path that was mistyped or completed by a shell must not cost a model, and a pipe that nobody reads must not hang a run.
"""

import stat
from pathlib import Path
from typing import Final

from assay.impl.stores.files import open_regular
from assay.spec.errors import AssayError

TRACE_HEAD: Final = b'{"schema":"assay.trace/1",'
PAGE_HEAD: Final = b'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'


def obstacle(path: Path, head: bytes) -> str | None:
    """Returns what forbids writing to a path, in a few words, or None; nothing is created or changed.

    Args:
        path: where to write.
        head: the first bytes of every file of the kind that is written. An empty file may be replaced too, and a
            character device (a terminal, `/dev/null`) may be written to.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None if path.parent.is_dir() else f"no folder {path.parent}"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    if stat.S_ISDIR(found.st_mode):
        return "a folder"
    if stat.S_ISCHR(found.st_mode):
        return None
    if not stat.S_ISREG(found.st_mode):
        return "a pipe, socket or disk"
    if not found.st_size:
        return None
    try:
        with open_regular(path) as file:
            return None if file.read(len(head)) == head else "a file of another kind, which stays"
    except (AssayError, OSError):
        return "a file that can't be read"
