"""Opens what a user names, and says in one line why that did not work.

Only regular files are opened: a pipe or a device in the place of a file must neither hang nor be read.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

MISSING: Final = declare(
    "input.file.missing", Authority.INPUT, "A named file or directory exists.",
    source="assay: bad input", cause="a mistyped path, or a checkpoint that was only partly downloaded",
    fix="check the path, and that the folders on the way to it are folders",
)  # fmt: skip
DIRECTORY: Final = declare(
    "input.file.directory", Authority.INPUT, "A folder stands where a folder is asked for, a file where a file is.",
    source="assay: bad input", cause="a path one level too short or too long",
)  # fmt: skip
PERMISSION: Final = declare(
    "input.file.permission", Authority.INPUT, "The file can be read by the user who runs assay.",
    source="assay: bad input", cause="files written by another user, or by a container running as root",
)  # fmt: skip
SYMLINK: Final = declare(
    "input.file.symlink_loop", Authority.INPUT, "Symbolic links lead to a file.",
    source="assay: bad input", cause="a link that points to itself, directly or through others",
)  # fmt: skip
IRREGULAR: Final = declare(
    "input.file.irregular", Authority.INPUT, "A file is a regular file, not a pipe, socket or device.",
    source="assay: bad input", cause="a process substitution or a device given as a path",
    fix="write the data to a file first: readers need sizes and offsets",
)  # fmt: skip
EMPTY: Final = declare(
    "input.file.empty", Authority.INPUT, "A file that must hold something is not empty.",
    source="assay: bad input", cause="an interrupted download or a full disk",
)  # fmt: skip
TOO_LARGE: Final = declare(
    "input.file.too_large", Authority.INPUT, "A description file stays below the size that its reader allows.",
    source="assay: bounded memory", cause="a payload file given in the place of a description",
)  # fmt: skip
UNREADABLE: Final = declare(
    "input.file.unreadable", Authority.INPUT, "Reading a file that could be opened works to its end.",
    source="assay: bad input", cause="a damaged disk, or a file that became shorter while it was read",
)  # fmt: skip

_BY_ERRNO: Final[dict[int, tuple[str, str]]] = {
    errno.ENOENT: (MISSING, "nothing there"),
    errno.ENOTDIR: (MISSING, "a file where a folder should be on the way"),
    errno.ENAMETOOLONG: (MISSING, "a name longer than the file system allows"),
    errno.EISDIR: (DIRECTORY, "a folder"),
    errno.EACCES: (PERMISSION, "permission denied"),
    errno.EPERM: (PERMISSION, "operation not permitted"),
    errno.ELOOP: (SYMLINK, "a loop of symbolic links"),
    errno.ENXIO: (IRREGULAR, "a pipe, socket or device"),
}
CHUNK_BYTES: Final = 1 << 20


def open_regular(path: Path, *, stage: str = "files", where: str | None = None) -> BinaryIO:
    """Opens a regular file for unbuffered reading.

    Raises:
        AdmissionError: `input.file.*`; never blocks on a pipe.
    """
    name = str(path) if where is None else where
    try:
        # Looked at before it is opened: opening some devices has effects of its own.
        _demand_regular(path.stat(), name, stage)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise AdmissionError(_finding(error, name, stage, "a readable file")) from error
    try:
        _demand_regular(os.fstat(descriptor), name, stage)
        return os.fdopen(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def read_bounded(path: Path, limit_bytes: int, *, stage: str = "files", where: str | None = None) -> bytes:
    """Returns the whole of a file of at most `limit_bytes` bytes that is not empty.

    Raises:
        AdmissionError: `input.file.*`.
    """
    name = str(path) if where is None else where
    with open_regular(path, stage=stage, where=name) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit_bytes:
            raise AdmissionError(
                Finding.of(
                    TOO_LARGE, stage, name, expected=f"at most {limit_bytes} bytes", got=f"{size} bytes"
                )
            )
        parts: list[bytes] = []
        left = limit_bytes
        try:
            while left > 0 and (part := file.read(min(left, CHUNK_BYTES))):
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise AdmissionError(
                _finding(error, name, stage, "a file that can be read to its end")
            ) from error
    data = b"".join(parts)
    if not data:
        raise AdmissionError(Finding.of(EMPTY, stage, name, expected="at least one byte", got="0 bytes"))
    return data


def read_exactly(file: BinaryIO, length: int, *, stage: str, where: str) -> bytes:
    """Returns the next `length` bytes, read in bounded pieces; short reads are continued.

    Raises:
        AdmissionError: `input.file.unreadable` when the file ends first.
    """
    parts: list[bytes] = []
    left = length
    try:
        while left > 0 and (part := file.read(min(left, CHUNK_BYTES))):
            parts.append(part)
            left -= len(part)
    except OSError as error:
        raise AdmissionError(_finding(error, where, stage, f"{length} bytes")) from error
    if left:
        raise AdmissionError(
            Finding.of(UNREADABLE, stage, where, expected=f"{length} bytes", got=f"{length - left} bytes")
        )
    return b"".join(parts)


def folder_names(path: Path, *, stage: str = "files", limit: int = 100_000) -> list[str]:
    """Returns the sorted names in a folder, at most `limit` of them.

    Raises:
        AdmissionError: `input.file.*`.
    """
    names: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= limit:
                    break
    except NotADirectoryError as error:
        finding = Finding.of(DIRECTORY, stage, str(path), expected="a folder", got="a file")
        raise AdmissionError(finding) from error
    except (OSError, ValueError) as error:
        raise AdmissionError(_finding(error, str(path), stage, "a readable folder")) from error
    return sorted(names)


def file_digest(
    path: Path,
    *,
    stage: str = "files",
    where: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[str, int]:
    """Returns the SHA-256 and the number of bytes of a file, in one MiB pieces.

    Raises:
        AdmissionError: `input.file.*`.
    """
    name = str(path) if where is None else where
    digest, total = hashlib.sha256(), 0
    with open_regular(path, stage=stage, where=name) as file:
        try:
            while piece := file.read(CHUNK_BYTES):
                digest.update(piece)
                total += len(piece)
                if progress is not None:
                    progress(len(piece))
        except OSError as error:
            raise AdmissionError(
                _finding(error, name, stage, "a file that can be read to its end")
            ) from error
    return digest.hexdigest(), total


def unreadable(error: OSError, name: str, stage: str) -> AdmissionError:
    """Returns the error for a file whose reading failed half-way."""
    return AdmissionError(_finding(error, name, stage, "a file that can be read"))


def _demand_regular(status: os.stat_result, name: str, stage: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise AdmissionError(Finding.of(DIRECTORY, stage, name, expected="a file", got="a folder"))
    if not stat.S_ISREG(status.st_mode):
        got = "a pipe" if stat.S_ISFIFO(status.st_mode) else "a socket or device"
        raise AdmissionError(Finding.of(IRREGULAR, stage, name, expected="a regular file", got=got))


def _finding(error: OSError | ValueError, name: str, stage: str, expected: str) -> Finding:
    if isinstance(error, ValueError):  # a NUL inside the path
        return Finding.of(MISSING, stage, name, expected=expected, got=str(error))
    code, got = _BY_ERRNO.get(error.errno or 0, (UNREADABLE, error.strerror or type(error).__name__))
    return Finding.of(code, stage, name, expected=expected, got=got)
