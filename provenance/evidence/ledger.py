"""The ledger: evidence records as content-addressed files, each naming its predecessor, and `HEAD` naming the newest.

One ledger is one chain, whoever appended to it: a record is appended under a lock, after the record that is the head
at that moment, so runs at the same time interleave and none is lost. Reading checks the whole chain, and reports
every missing, altered or unreachable record by name. This detects damage, not forgery.

`HEAD` holds the digest of the newest record and the number of records. It is written before the first record too
(`none 0`), so that a folder with records and no `HEAD` is always damaged. A kill between writing a record and moving
`HEAD` leaves one complete record that nothing names, whose predecessor is the head. It is adopted, not reported: it
is evidence that was finished.

Reading takes no lock (a ledger may lie on a read-only disk): names are listed before `HEAD` is read, nothing is ever
removed, so at most the record being appended at that moment is not yet in the chain.
"""

import errno
import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from assay.provenance.evidence.durable import Disk, flush_folder, locked, remove_abandoned, write_durably
from assay.spec.canonical import canonical_json
from assay.spec.clauses import Authority, declare
from assay.spec.documents.evidence import MAX_RECORD_BYTES, Evidence
from assay.spec.errors import EvidenceError, Finding, usage_error

STAGE: Final = "ledger"
_HEAD: Final = "HEAD"
_LOCK: Final = "lock"
_RECORD_NAME: Final = re.compile(r"^([0-9a-f]{64})\.json$")
_HEAD_FORM: Final = re.compile(rb"(none|[0-9a-f]{64}) ([0-9]{1,9})\n")
_SOURCE: Final = "design: status is computed; AFN-013, AFN-014"
_RESTORE: Final = (
    "restore the folder from a copy, or move it away and run the gates again; its labels can't be trusted"
)

MISSING = declare(
    "evidence.record.missing",
    Authority.PROCESS,
    "Every record that HEAD or another record names is there.",
    source=_SOURCE,
    cause="a file of the evidence folder was deleted or not copied",
    fix=_RESTORE,
)
ALTERED = declare(
    "evidence.record.altered",
    Authority.PROCESS,
    "The SHA-256 of a record's bytes is its file name.",
    source=_SOURCE,
    cause="the file was edited, cut short or damaged on the disk",
    fix=_RESTORE,
)
FORM = declare(
    "evidence.record.form",
    Authority.PROCESS,
    "A record is canonical JSON of the schema assay.evidence/1 and at most 4 MiB long.",
    source=_SOURCE,
    cause="a record was written by hand or by another version of the schema",
    fix=_RESTORE,
)
UNREACHABLE = declare(
    "evidence.record.unreachable",
    Authority.PROCESS,
    "Every record in the folder is part of the one chain that ends at HEAD.",
    source=_SOURCE,
    cause="HEAD was set back, or two evidence folders were copied into one",
    fix=_RESTORE,
)
HEAD = declare(
    "evidence.head",
    Authority.PROCESS,
    "A folder with records has a file HEAD that holds the SHA-256 of the newest one.",
    source=_SOURCE,
    cause="HEAD was deleted, edited or not copied",
    fix=_RESTORE,
)
FOLDER = declare(
    "evidence.folder",
    Authority.INPUT,
    "The evidence folder is a folder that can be listed, or is not there yet.",
    source=_SOURCE,
    cause="--evidence names a file, or a folder without permission",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A verified record and its digest."""

    digest: str
    record: Evidence


@dataclass(frozen=True, slots=True)
class Chain:
    """What a ledger holds: its entries, oldest first, and everything that is damaged.

    With damage, `entries` holds only what could be verified from the head backwards; no label may stand on it. It is
    begun once it has a HEAD, also when that names no record.
    """

    entries: tuple[Entry, ...] = ()
    findings: tuple[Finding, ...] = ()
    record_files: int = 0
    is_begun: bool = False

    @property
    def head(self) -> str | None:
        """The digest of the newest verified record."""
        return self.entries[-1].digest if self.entries else None

    @property
    def root(self) -> str | None:
        """The digest of the first record: which ledger this is."""
        return self.entries[0].digest if self.entries else None


@dataclass(frozen=True, slots=True)
class Ledger:
    """One evidence folder. It is created by the first append; a folder that isn't there is an empty ledger."""

    directory: Path
    disk: Disk = field(default_factory=Disk)

    def read(self) -> Chain:
        """Returns the chain with all its damage; damage does not raise.

        Raises:
            UsageError: evidence.folder, when `directory` is something else than a folder that can be listed.
        """
        names = self._record_digests()
        if names is None:
            return Chain()
        head, finding = self._head()
        if finding is not None or head is None:
            lost = finding or Finding.of(
                HEAD, STAGE, _HEAD, expected="a file that names the newest record", got="no such file"
            )
            return Chain(findings=(lost,) if names or finding else (), record_files=len(names))
        entries, findings = self._walk(head.digest)
        orphans = names - {entry.digest for entry in entries}
        if not findings and len(entries) != head.count:
            findings.append(
                Finding.of(
                    HEAD, STAGE, _HEAD, expected=f"{len(entries)} records, as in the chain", got=head.count
                )
            )
        if len(orphans) == 1 and not findings:
            digest = next(iter(orphans))
            entry, _ = self._load(digest, named_by="its file name")
            if entry is not None and entry.record.predecessor == head.digest:
                entries.append(entry)
                orphans = set()
        findings += self._judge_orphans(orphans, {finding.where for finding in findings})
        return Chain(tuple(entries), tuple(findings), len(names), is_begun=True)

    def append(self, record: Evidence) -> Entry:
        """Appends `record` after the present head (its own `predecessor` is replaced) and returns the entry.

        Raises:
            EvidenceError: the damage found at the head; nothing is appended to a chain that can't be continued.
            UsageError: evidence.folder.
        """
        if not self.directory.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            flush_folder(self.directory.parent, self.disk)
        with locked(self.directory / _LOCK):
            remove_abandoned(self.directory, even_of_the_living=True)
            head = self._settled_head()
            linked = record.model_copy(update={"predecessor": head.digest})
            data = canonical_json(linked.model_dump(mode="json", by_alias=True))
            if len(data) > MAX_RECORD_BYTES:
                limit = f"at most {MAX_RECORD_BYTES} bytes"
                raise EvidenceError(Finding.of(FORM, STAGE, record.gate, expected=limit, got=len(data)))
            digest = hashlib.sha256(data).hexdigest()
            write_durably(self.directory / f"{digest}.json", data, self.disk)
            self._write_head(_Head(digest, head.count + 1))
            return Entry(digest, linked)

    def _settled_head(self) -> "_Head":
        """Returns the head to append to, after adopting a finished record of a killed process. Needs the lock."""
        names = self._record_digests() or set()
        head, finding = self._head()
        if finding is not None:
            raise EvidenceError(finding)
        if head is None:
            if names:
                raise EvidenceError(self.read().findings[0])
            head = _Head(None, 0)
            self._write_head(head)
        if head.digest is not None:
            _, finding = self._load(head.digest, named_by=_HEAD)
            if finding is not None:
                raise EvidenceError(finding)
        if len(names) != head.count:
            chain = self.read()
            if chain.findings:
                raise EvidenceError(chain.findings[0])
            head = _Head(chain.head, len(chain.entries))
            self._write_head(head)
        return head

    def _walk(self, digest: str | None) -> tuple[list[Entry], list[Finding]]:
        """Follows the predecessors from `digest` as far as they can be verified; returns them oldest first."""
        entries: list[Entry] = []
        named_by = _HEAD
        while digest is not None:
            entry, finding = self._load(digest, named_by=named_by)
            if finding is not None or entry is None:
                return entries[::-1], [finding] if finding else []
            entries.append(entry)
            named_by, digest = f"{digest}.json", entry.record.predecessor
        return entries[::-1], []

    def _judge_orphans(self, orphans: set[str], known: set[str]) -> list[Finding]:
        """Names every record that is altered, missing or outside the chain, beyond those already known."""
        findings = []
        reported = set(known)
        for digest in sorted(orphans):
            entry, finding = self._load(digest, named_by="its file name")
            if finding is not None and finding.where not in reported:
                findings.append(finding)
                reported.add(finding.where)
            if entry is None:
                continue
            earlier = entry.record.predecessor
            path = f"{earlier}.json"
            if earlier is not None and path not in reported and not (self.directory / path).exists():
                findings.append(_missing(path, f"{digest}.json"))
                reported.add(path)
        if not findings and not known and orphans:
            findings = [
                Finding.of(
                    UNREACHABLE,
                    STAGE,
                    f"{digest}.json",
                    expected="a place in the chain that ends at HEAD",
                    got="none",
                )
                for digest in sorted(orphans)
            ]
        return findings

    def _load(self, digest: str, *, named_by: str) -> tuple[Entry | None, Finding | None]:
        """Reads and verifies one record; exactly one of the two results is None."""
        name = f"{digest}.json"
        try:
            data = read_bounded(self.directory / name, MAX_RECORD_BYTES + 1)
        except FileNotFoundError:
            return None, _missing(name, named_by)
        except OSError as error:
            got = f"can't be read: {errno.errorcode.get(error.errno or 0, 'error')}"
            return None, Finding.of(ALTERED, STAGE, name, expected="a regular file that can be read", got=got)
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            return None, Finding.of(ALTERED, STAGE, name, expected=digest, got=found, hint=_RESTORE)
        return parse_record(digest, data)

    def _head(self) -> "tuple[_Head | None, Finding | None]":
        try:
            data = read_bounded(self.directory / _HEAD, 200)
        except FileNotFoundError:
            return None, None
        except OSError as error:
            return None, _bad_head(f"can't be read: {errno.errorcode.get(error.errno or 0, 'error')}")
        match = _HEAD_FORM.fullmatch(data)
        if match is None:
            return None, _bad_head(repr(data[:100]))
        digest = None if match[1] == b"none" else match[1].decode("ascii")
        head = _Head(digest, int(match[2]))
        return (head, None) if (head.count == 0) == (digest is None) else (None, _bad_head(repr(data)))

    def _write_head(self, head: "_Head") -> None:
        text = f"{head.digest or 'none'} {head.count}\n"
        write_durably(self.directory / _HEAD, text.encode("ascii"), self.disk)

    def _record_digests(self) -> set[str] | None:
        try:
            names = os.listdir(self.directory)  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = errno.errorcode.get(error.errno or 0, "error")
            raise usage_error(
                str(self.directory), expected="a folder that can be listed", got=reason, code=FOLDER
            ) from error
        return {match[1] for name in names if (match := _RECORD_NAME.match(name))}


@dataclass(frozen=True, slots=True)
class _Head:
    digest: str | None
    count: int


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """Reads at most `limit_bytes` of a regular file; a pipe or device is refused without waiting for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(limit_bytes)


def parse_record(digest: str, data: bytes) -> tuple[Entry | None, Finding | None]:
    """Returns the record in `data`, or the finding that it is not one; exactly one of the two is None."""
    name = f"{digest}.json"
    if len(data) > MAX_RECORD_BYTES:
        limit = f"at most {MAX_RECORD_BYTES} bytes"
        return None, Finding.of(FORM, STAGE, name, expected=limit, got="more")
    try:
        value = json.loads(data)
        if canonical_json(value) != data:
            return None, Finding.of(FORM, STAGE, name, expected="canonical JSON", got="another spelling")
        return Entry(digest, Evidence.model_validate_json(data)), None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return None, Finding.of(
            FORM, STAGE, name, expected="schema assay.evidence/1", got=f"{place}: {first['msg']}"
        )
    except (ValueError, RecursionError) as error:
        return None, Finding.of(FORM, STAGE, name, expected="canonical JSON", got=str(error))


def _missing(name: str, named_by: str) -> Finding:
    return Finding.of(
        MISSING, STAGE, name, expected=f"a record, named by {named_by}", got="no such file", hint=_RESTORE
    )


def _bad_head(got: str) -> Finding:
    return Finding.of(
        HEAD, STAGE, _HEAD, expected="`<sha256> <count>` and a line end", got=got, hint=_RESTORE
    )
