"""What an unfinished run over the payload leaves behind, so that the next one goes on where it was.

The state helps that resumption and nothing else: it counts for a shard only while size, times, inode and device are
the same, a run that came to its end drops it, and every report says how many digests were taken from it.
"""

import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.strict_json import read_json_object
from assay.spec.errors import AdmissionError

STATE_SCHEMA: Final = "assay.payload-state/2"
UNSAVED: Final = "unsaved"


@dataclass(slots=True)
class PayloadState:
    """Digests that an unfinished run computed over the same files.

    Attributes:
        path: the state file; None when nobody asked for one, or when it can't be written.
        rows: by file name, its identity and its digest.
        resumed: how many digests were taken over.
        is_unsaved: whether a state was asked for and can't be written.
    """

    path: Path | None
    rows: dict[str, list[Any]] = field(default_factory=dict)
    resumed: int = 0
    is_unsaved: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def load(cls, folder: Path, state_folder: Path | None, *, is_fresh: bool = False) -> "PayloadState":
        """Reads the state of this folder; a state that can't be read is no state, and a fresh run wants none."""
        if state_folder is None:
            return cls(None)
        key = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
        path = state_folder / f"payload-{key}.json"
        if is_fresh:
            return cls(path)
        try:
            document = read_json_object(path, stage="payload")
        except AdmissionError:
            return cls(path)
        rows = document.get("shards") if document.get("schema") == STATE_SCHEMA else None
        return cls(path, dict(rows) if isinstance(rows, dict) else {})

    def known(self, name: str, identity: list[int]) -> str | None:
        """Returns the digest of a file if it has not changed since."""
        row = self.rows.get(name)
        return (
            row[-1] if isinstance(row, list) and row[:-1] == identity and isinstance(row[-1], str) else None
        )

    def keep(self, name: str, identity: list[int], digest: str) -> None:
        """Adds a digest and replaces the state file; a folder that can't be written only costs the resumption."""
        with self._lock:
            self.rows[name] = [*identity, digest]
            if self.path is None:
                return
            draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                draft.write_text(json.dumps({"schema": STATE_SCHEMA, "shards": self.rows}), encoding="utf-8")
                draft.replace(self.path)
            except OSError:
                self.path, self.is_unsaved = None, True

    def drop(self) -> None:
        """Removes the state of a run that came to its end: the next one reads every byte again."""
        if self.path is None:
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            self.is_unsaved = True


def identity_of(path: Path) -> list[int]:
    """Returns what changes when a file does; the time of the last status change can't be set back as the other can.

    Raises:
        OSError: when the file can't be looked at.
    """
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]
