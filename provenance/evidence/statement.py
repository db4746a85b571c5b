"""Evidence to hand over: an in-toto Statement of the labels and the records they stand on, and its signature.

The statement's subjects are the components, each with the digest of what its evidence is about, so that a reader with
the same source computes the same digests. Unsigned, a statement shows damage and not forgery. Signed, it is a DSSE
envelope with an ed25519 signature (extra `sign`), and shows who holds the key.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

from assay.provenance.evidence.checkpoint_input import pinned_files
from assay.provenance.evidence.durable import write_durably
from assay.provenance.evidence.ledger import Chain, Entry
from assay.provenance.evidence.status import Present, Registry, compute_status, decisive_records
from assay.spec.canonical import canonical_digest, canonical_json
from assay.spec.clauses import Authority, declare
from assay.spec.documents.evidence import Bench, CheckpointInput, Evidence, Subject
from assay.spec.errors import EvidenceError, Finding, UsageError, usage_error

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:assay:evidence:1"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_MAX_BYTES: Final = 64 << 20
_STAGE: Final = "signature"

SIGNATURE = declare(
    "evidence.signature",
    Authority.PROCESS,
    "A signed statement carries a valid ed25519 signature of the given key over its payload.",
    source="DSSE v1, in-toto Statement v1",
    cause="the envelope was altered, or it was signed with another key",
)
ENVELOPE = declare(
    "evidence.envelope",
    Authority.PROCESS,
    "A signed statement is a DSSE envelope whose payload is an in-toto Statement of assay evidence.",
    source="DSSE v1, in-toto Statement v1",
    cause="another kind of file was given, or it was cut short",
)


LABELS = declare(
    "evidence.statement.labels",
    Authority.PROCESS,
    "The labels of a statement are those that follow from the records and digests that it carries.",
    source="design: status is computed",
    cause="the labels were written by hand before it was signed, or another version of assay made the statement",
    fix="verify with the version of assay that made the statement; a label that does not follow is not verified",
)


def make_statement(chain: Chain, present: Present, registry: Registry) -> dict[str, Any]:
    """Returns the in-toto Statement of what the evidence allows now, with the records that it stands on.

    Raises:
        EvidenceError: the first finding of a damaged chain.
    """
    if chain.findings:
        raise EvidenceError(chain.findings[0])
    status = compute_status(chain, present, registry)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": f"assay:{name}", "digest": {"sha256": canonical_digest(subject.model_dump(mode="json"))}}
            for name, subject in present.subjects.items()
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "status": status.model_dump(mode="json", by_alias=True),
            "subjects": {name: one.model_dump(mode="json") for name, one in present.subjects.items()},
            "gateCode": dict(present.gate_code),
            "benches": {name: one.model_dump(mode="json") for name, one in present.benches.items()},
            "checkpoint": present.checkpoint.model_dump(mode="json") if present.checkpoint else None,
            "records": [
                {"sha256": entry.digest, "record": entry.record.model_dump(mode="json", by_alias=True)}
                for entry in decisive_records(chain, present, registry)
            ],
        },
    }


def make_key(path: Path) -> None:
    """Writes a new ed25519 key to `path` (PEM, readable by its owner only) and its public half to `path`.pub.

    Raises:
        UsageError: usage.argument, when the file exists or can't be made; usage.extra, without the extra `sign`.
    """
    _signers()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        got = f"{path}: {error.strerror}"
        raise usage_error("FILE", expected="a file that does not exist yet", got=got) from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(private)
    write_durably(path.with_name(f"{path.name}.pub"), public)


def sign(statement: dict[str, Any], key: Path) -> dict[str, Any]:
    """Returns the DSSE envelope of `statement`, signed with the private key in the PEM file `key`.

    Raises:
        UsageError: usage.argument, for a key that can't be used; usage.extra, without the extra `sign`.
    """
    signers = _signers()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.dsse import Envelope

    try:
        signer = signers.CryptoSigner(load_pem_private_key(_bytes(key, "--key"), password=None))
    except (ValueError, TypeError) as error:
        raise usage_error(
            "--key", expected="an ed25519 private key, PEM, not encrypted", got=str(error)
        ) from error
    if signer.public_key.keytype != "ed25519":
        raise usage_error("--key", expected="an ed25519 private key", got=signer.public_key.keytype)
    envelope = Envelope(canonical_json(statement), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    document: dict[str, Any] = envelope.to_dict()
    return document


def verify(envelope: Path, public_key: Path) -> dict[str, Any]:
    """Returns the statement in the file `envelope` after its signature was verified with the public key.

    Raises:
        EvidenceError: evidence.envelope or evidence.signature.
        UsageError: usage.argument, for a key that can't be used; usage.extra.
    """
    key = _public_key(public_key)
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import Error

    try:
        opened = Envelope.from_dict(json.loads(_bytes(envelope, "envelope")))
        if opened.payload_type != PAYLOAD_TYPE:
            raise _bad_envelope(envelope, opened.payload_type)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Error) as error:
        raise _bad_envelope(envelope, f"{type(error).__name__}: {error}") from error
    try:
        opened.verify([key], 1)
    except Error as error:
        raise EvidenceError(
            Finding.of(
                SIGNATURE, _STAGE, envelope.name, expected=f"a signature of key {key.keyid}", got=str(error)
            )
        ) from error
    return read_statement(opened.payload, envelope.name)


def key_id(public_key: Path) -> str:
    """Returns the id under which the signer knows a public key.

    Raises:
        UsageError: usage.argument or usage.extra.
    """
    name: str = _public_key(public_key).keyid
    return name


def demand_labels(statement: dict[str, Any], registry: Registry, name: str) -> None:
    """Computes the labels again from what the statement carries, by the tables of this version.

    A signature shows who says a thing; this shows that the labels follow from the records beside them.

    Raises:
        EvidenceError: evidence.statement.labels, when they don't or can't be computed.
    """
    said = statement["predicate"]
    try:
        present = Present(
            {id_: Subject.model_validate(one) for id_, one in said["subjects"].items()},
            {gate.id: said["gateCode"][gate.id] for gate in registry.every_gate()},
            {gate.id: Bench.model_validate(said["benches"][gate.id]) for gate in registry.every_gate()},
            CheckpointInput.model_validate(said["checkpoint"]) if said["checkpoint"] else None,
            pinned_files(),
        )
        chain = Chain(
            tuple(Entry(one["sha256"], Evidence.model_validate(one["record"])) for one in said["records"])
        )
        found = compute_status(chain, present, registry)
        digests = {
            one["name"].removeprefix("assay:"): one["digest"]["sha256"] for one in statement["subject"]
        }
        claimed: dict[str, Any] = {
            **{
                f"subject {one['name'].removeprefix('assay:')}": one["digest"]["sha256"]
                for one in statement["subject"]
            },
            **_sayings(said["status"]),
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        expected = "a statement whose labels this version of assay can compute"
        got = f"{type(error).__name__}: {error}"
        raise EvidenceError(Finding.of(LABELS, _STAGE, name, expected=expected, got=got)) from error
    digests = {id_: canonical_digest(one.model_dump(mode="json")) for id_, one in present.subjects.items()}
    computed = {
        **{f"subject {id_}": digest for id_, digest in digests.items()},
        **_sayings(found.model_dump(mode="json")),
    }
    for key in sorted(computed.keys() | claimed.keys()):
        expected, got = computed.get(key, "nothing of this name"), claimed.get(key, "nothing")
        if expected != got:
            raise EvidenceError(Finding.of(LABELS, _STAGE, f"{name}: {key}", expected=expected, got=got))


def _sayings(status: dict[str, Any]) -> dict[str, Any]:
    """Returns everything in a status that claims or denies, by what it is about."""
    return {
        **{f"label of {one['component']}": one["label"] for one in status["labels"]},
        **{f"claim of {one['component']}": one["claim"] for one in status["labels"]},
        **{f"not shown of {one['component']}": one["not_shown"] for one in status["labels"]},
        **{f"state of {one['profile']}": one["state"] for one in status["support"]},
        "not claimed": status["not_claimed"],
    }


def read_statement(data: bytes, name: str) -> dict[str, Any]:
    """Returns the statement in `data` after checking its types and the digest of every record it carries.

    Raises:
        EvidenceError: evidence.envelope.
    """
    try:
        statement = json.loads(data)
        kinds = (statement["_type"], statement["predicateType"])
        records = [
            (one["sha256"], canonical_digest(one["record"])) for one in statement["predicate"]["records"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _bad_envelope(Path(name), f"{type(error).__name__}: {error}") from error
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise _bad_envelope(Path(name), f"types {kinds}")
    for said, found in records:
        if said != found:
            raise _bad_envelope(Path(name), f"a record of digest {found} under the name {said}")
    checked: dict[str, Any] = statement
    return checked


def _bytes(path: Path, where: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise usage_error(
            where, expected="a file that can be read", got=f"{path}: {error.strerror}"
        ) from error
    if len(data) > _MAX_BYTES:
        raise usage_error(where, expected=f"at most {_MAX_BYTES} bytes", got="more")
    return data


def _public_key(path: Path) -> Any:
    signers = _signers()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.exceptions import Error

    try:
        key = signers.SSlibKey.from_crypto(load_pem_public_key(_bytes(path, "--public-key")))
    except (ValueError, Error) as error:
        raise usage_error("--public-key", expected="an ed25519 public key, PEM", got=str(error)) from error
    if key.keytype != "ed25519":
        raise usage_error("--public-key", expected="an ed25519 public key", got=key.keytype)
    return key


def _signers() -> Any:
    try:
        from securesystemslib import signer
    except ImportError as error:
        raise _no_extra() from error
    return signer


def _no_extra() -> UsageError:
    return usage_error(
        "signing", expected="the extra `sign`", got="securesystemslib is not installed",
        hint="pip install 'assay[sign]'", code="usage.extra",
    )  # fmt: skip


def _bad_envelope(path: Path, got: str) -> EvidenceError:
    expected = "a DSSE envelope with an in-toto Statement of assay evidence"
    return EvidenceError(Finding.of(ENVELOPE, _STAGE, path.name, expected=expected, got=got))
