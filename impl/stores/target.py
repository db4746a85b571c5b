"""The target of a build: nothing is there yet or a file that may be replaced, it is no file of the source, and it fits.

These are asked before a byte is read, since the answer that publication gives comes after hours of work. They hold at
the moment they are asked; that nothing is replaced unasked at the commit is the publication's business.
"""

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from assay.impl.stores.extents import system_words
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

STAGE: Final = "build"
_SOURCE = "assay: building artifacts; field note AFN-003 for publication"

TARGET: Final = declare(
    "build.target",
    Authority.PROCESS,
    "The target doesn't exist, or is a file whose replacement was asked for, and is no file of the source.",
    source=_SOURCE,
    cause="a second run, or a folder, pipe or device named by mistake",
    fix="name another file, or say --force to replace a file",
)
SPACE: Final = declare(
    "build.space",
    Authority.PROCESS,
    "The disk of the target has room for the artifact.",
    source=_SOURCE,
    cause="a full disk",
)


def check_target(
    target: Path, sources: Iterable[Path], *, replace: bool, code: str = TARGET, stage: str = STAGE
) -> None:
    """Refuses a target that can't be written as asked.

    Args:
        target: where the file shall be. A link is what is replaced, never what it points to.
        sources: files that are read, under whatever names.
        replace: whether a file that is there may be replaced.
        code: the clause of the command that asks.
        stage: its stage.

    Raises:
        AdmissionError: build.target, or `code`.
    """
    got, hint = "", ""
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        got = system_words(error)
    except ValueError as error:
        got = str(error)
    else:
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            got = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"
        elif any(_is_same(path, target) for path in sources):
            got = "a file of the source"
        elif not replace:
            got, hint = "an existing file", "--force replaces it"
    if got:
        expected = "a path that isn't there yet"
        raise AdmissionError(Finding.of(code, stage, str(target), expected=expected, got=got, hint=hint))


def check_space(target: Path, size: int) -> None:
    """Asks whether the disk has room; what killed builds of the same target left is to be swept before.

    Raises:
        AdmissionError: build.space.
    """
    folder = target.parent
    if not folder.is_dir():
        return  # publication says so
    free = shutil.disk_usage(folder).free
    if free < size:
        raise AdmissionError(
            Finding.of(
                SPACE, STAGE, os.fspath(folder), expected=f"{size} bytes free", got=f"{free} bytes free"
            )
        )


def _is_same(path: Path, target: Path) -> bool:
    try:
        return path.samefile(target)
    except OSError:
        return False
