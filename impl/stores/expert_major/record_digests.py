"""Record digests on disk: written by who built or verified a store, read before records are trusted."""

import json
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from assay.impl.stores.expert_major.store import ExpertStore, RecordDigests
from assay.impl.stores.extents import (
    FILE_OPEN,
    SYSTEM,
    Extent,
    Filesystem,
    StoreFile,
    fail,
    system_words,
)
from assay.impl.stores.publication import CREATE, PublicationError, publish
from assay.spec.canonical import canonical_digest, canonical_json
from assay.spec.clauses import Authority, declare
from assay.spec.documents.record_digests import RecordDigestsDocument
from assay.spec.errors import AssayError, EvidenceError, Finding

ALTERED: Final = declare(
    "expert-store.record-digests.altered",
    Authority.FORM,
    "A file of record digests is well formed, names its store, and has its own digest.",
    source="assay: local evidence bound to the payload digest",
    cause="a damaged or edited evidence file",
    fix="delete it and verify the store again",
)

_FOLDER: Final = "record-digests"
_SHOWN: Final = 32
"""Damaged records that are named; a disk that loses more has lost the store."""
_MAX_BYTES: Final = 1 << 22


def digests_path(evidence: Path, payload_sha256: bytes) -> Path:
    """Returns where the digests of a store lie below an evidence folder."""
    return evidence / _FOLDER / f"{payload_sha256.hex()}.json"


def save_digests(
    evidence: Path,
    digests: RecordDigests,
    derived_by: Literal["build", "verify-all"],
    system: Filesystem = SYSTEM,
) -> Path:
    """Writes the digests of a store, atomically, and returns the path.

    Raises:
        PublicationError: publish.<step>, publish.create also for an evidence folder that can't be made.
    """
    body: dict[str, Any] = {
        "schema": "assay.record-digests/1",
        "derivedBy": derived_by,
        "manifestSha256": digests.manifest_sha256.hex(),
        "payloadSha256": digests.payload_sha256.hex(),
        "layers": [one.hex() for one in digests.layers],
    }
    data = canonical_json({**body, "sha256": canonical_digest(body)})
    target = digests_path(evidence, digests.payload_sha256)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PublicationError(
            Finding.of(CREATE, "publish", str(target.parent), expected="a folder", got=system_words(error))
        ) from error

    def verify(extent: Extent) -> None:
        _parsed(extent.read(0, extent.size), target.name)

    publish(target, len(data), lambda draft: draft.write(0, data), verify, system)
    return target


def load_digests(evidence: Path, payload_sha256: bytes, system: Filesystem = SYSTEM) -> RecordDigests | None:
    """Returns the digests of a store, or None when this machine never derived them.

    Raises:
        EvidenceError: expert-store.record-digests.altered.
        AdmissionError: store.file.*.
    """
    path = digests_path(evidence, payload_sha256)
    try:
        system.entry(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        fail(FILE_OPEN, str(path), expected="a readable file", got=system_words(error))
    with StoreFile.open(path, system) as file:
        if file.size > _MAX_BYTES:
            raise _altered(path.name, f"at most {_MAX_BYTES} bytes", file.size)
        digests = _parsed(file.extent().read(0, file.size), path.name)
    if digests.payload_sha256 != payload_sha256:
        raise _altered(path.name, f"digests of {payload_sha256.hex()}", digests.payload_sha256.hex())
    return digests


def damaged_records(store: ExpertStore, evidence: Path | None) -> list[Finding]:
    """Names the records that differ from their kept digests, once the payload digest has said that something does.

    Args:
        store: read again, record by record.
        evidence: where digests are kept; without a folder, or digests of this store, nothing is named.
    """
    if evidence is None:
        return []
    try:
        kept = load_digests(evidence, store.manifest.header.payload_sha256)
        if kept is None:
            return []
        verified = store.with_digests(kept)
    except AssayError as error:
        return [error.finding]
    found: list[Finding] = []
    for layer in store.manifest.layers:
        for expert in range(layer.expert_count):
            try:
                verified.read_record(layer.layer_id, expert)
            except AssayError as error:
                found.append(error.finding)
                if len(found) == _SHOWN:
                    return found
    return found


def _parsed(data: bytes, where: str) -> RecordDigests:
    try:
        document = RecordDigestsDocument.model_validate_json(data)
        body = json.loads(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise _altered(where, "an assay.record-digests/1 document", first["msg"]) from None
    stated = body.pop("sha256")
    if canonical_digest(body) != stated:
        raise _altered(where, canonical_digest(body), stated)
    return RecordDigests(
        bytes.fromhex(document.manifestSha256),
        bytes.fromhex(document.payloadSha256),
        tuple(bytes.fromhex(one) for one in document.layers),
    )


def _altered(where: str, expected: object, got: object) -> EvidenceError:
    return EvidenceError(Finding.of(ALTERED, "evidence", where, expected=expected, got=got))
