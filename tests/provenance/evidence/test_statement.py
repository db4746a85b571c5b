"""Evidence handed over: the statement stands on its records, and a signature holds only for its key and bytes."""

import base64
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.provenance.components import Component
from assay.provenance.evidence.ledger import Ledger
from assay.provenance.evidence.statement import (
    demand_labels,
    make_key,
    make_statement,
    read_statement,
    sign,
    verify,
)
from assay.provenance.evidence.status import Present, Registry
from assay.provenance.gates.base import Gate
from assay.spec.canonical import canonical_digest, canonical_json
from assay.spec.documents.evidence import Bench, Evidence, Subject
from assay.spec.errors import EvidenceError, UsageError
from assay.spec.verdicts import Label

SUBJECT = Subject(code="a" * 64, contract="b" * 64, fixtures="c" * 64)
BENCH = Bench(python="3.11", platform="linux-x86_64", device="cpu", packages={"numpy": "2.0"})
GATE = Gate("sample.gate", "A gate.", ("sample",), Label.IMPLEMENTED, "")
REGISTRY = Registry((Component("sample", "Sample", "A claim.", ()),), (GATE,), {})
PRESENT = Present({"sample": SUBJECT}, {"sample.gate": None}, {"sample.gate": BENCH})


@pytest.fixture
def statement(tmp_path: Path, make_record: Callable[..., Evidence]) -> dict[str, Any]:
    ledger = Ledger(tmp_path / "evidence")
    ledger.append(make_record(outcome="fail", reason="once"))
    ledger.append(make_record())
    return make_statement(ledger.read(), PRESENT, REGISTRY)


def test_a_statement_names_its_subjects_and_carries_the_records_it_stands_on(
    statement: dict[str, Any],
) -> None:
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [
        {"name": "assay:sample", "digest": {"sha256": canonical_digest(SUBJECT.model_dump(mode="json"))}}
    ]
    (record,) = statement["predicate"]["records"]
    assert record["record"]["outcome"] == "pass"
    assert record["sha256"] == canonical_digest(record["record"])
    assert statement["predicate"]["status"]["labels"][0]["label"] == "implemented"


def test_no_statement_is_made_of_damaged_evidence(
    tmp_path: Path, make_record: Callable[..., Evidence]
) -> None:
    ledger = Ledger(tmp_path)
    digest = ledger.append(make_record()).digest
    (tmp_path / f"{digest}.json").unlink()
    with pytest.raises(EvidenceError) as caught:
        make_statement(ledger.read(), PRESENT, REGISTRY)
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "evidence.record.missing",
        f"{digest}.json",
    )


def test_a_record_that_was_altered_in_a_statement_is_found(statement: dict[str, Any]) -> None:
    statement["predicate"]["records"][0]["record"]["seed"] = 99
    with pytest.raises(EvidenceError) as caught:
        read_statement(canonical_json(statement), "x.json")
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.envelope", "x.json")


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    pytest.importorskip("securesystemslib")
    make_key(tmp_path / "key.pem")
    return tmp_path / "key.pem", tmp_path / "key.pem.pub"


@pytest.fixture
def envelope(tmp_path: Path, keys: tuple[Path, Path], statement: dict[str, Any]) -> Path:
    path = tmp_path / "signed.json"
    path.write_text(json.dumps(sign(statement, keys[0])))
    return path


@pytest.mark.sign
def test_a_signed_statement_comes_back_under_its_key(
    envelope: Path, keys: tuple[Path, Path], statement: dict[str, Any]
) -> None:
    assert verify(envelope, keys[1]) == statement


@pytest.mark.sign
def test_the_private_key_is_readable_by_its_owner_only_and_never_overwritten(keys: tuple[Path, Path]) -> None:
    assert stat.S_IMODE(keys[0].stat().st_mode) == 0o600
    with pytest.raises(UsageError) as caught:
        make_key(keys[0])
    assert (caught.value.finding.code, caught.value.finding.where) == ("usage.argument", "FILE")


@pytest.mark.sign
def test_an_altered_payload_does_not_verify(envelope: Path, keys: tuple[Path, Path]) -> None:
    document = json.loads(envelope.read_text())
    payload = base64.b64decode(document["payload"]).replace(b'"implemented"', b'"qualified"', 1)
    document["payload"] = base64.b64encode(payload).decode()
    envelope.write_text(json.dumps(document))
    with pytest.raises(EvidenceError) as caught:
        verify(envelope, keys[1])
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.signature", "signed.json")


@pytest.mark.sign
def test_another_key_does_not_verify(envelope: Path, tmp_path: Path) -> None:
    make_key(tmp_path / "other.pem")
    with pytest.raises(EvidenceError) as caught:
        verify(envelope, tmp_path / "other.pem.pub")
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.signature", "signed.json")


@pytest.mark.sign
def test_an_envelope_without_signatures_does_not_verify(envelope: Path, keys: tuple[Path, Path]) -> None:
    envelope.write_text(json.dumps(json.loads(envelope.read_text()) | {"signatures": []}))
    with pytest.raises(EvidenceError) as caught:
        verify(envelope, keys[1])
    assert caught.value.finding.code == "evidence.signature"
    assert caught.value.finding.where == "signed.json"


@pytest.mark.sign
@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"payload": 1}', "null", '{"payload": "", "payloadType": "x", "signatures": []}'],
)
def test_something_else_is_no_envelope(envelope: Path, keys: tuple[Path, Path], text: str) -> None:
    envelope.write_text(text)
    with pytest.raises(EvidenceError) as caught:
        verify(envelope, keys[1])
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.envelope", "signed.json")


@pytest.mark.sign
def test_a_signature_of_another_kind_of_key_is_refused(tmp_path: Path, statement: dict[str, Any]) -> None:
    pytest.importorskip("securesystemslib")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "ec.pem").write_bytes(pem)
    with pytest.raises(UsageError) as caught:
        sign(statement, tmp_path / "ec.pem")
    assert (caught.value.finding.code, caught.value.finding.where) == ("usage.argument", "--key")


@pytest.mark.sign
def test_the_signature_verifies_without_our_code(envelope: Path, keys: tuple[Path, Path]) -> None:
    """DSSE by hand: the signature is over the pre-authentication encoding of type and payload."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    document = json.loads(envelope.read_text())
    payload = base64.b64decode(document["payload"])
    kind = document["payloadType"].encode()
    encoded = b" ".join([b"DSSEv1", b"%d" % len(kind), kind, b"%d" % len(payload), payload])
    key: Any = load_pem_public_key(keys[1].read_bytes())
    key.verify(base64.b64decode(document["signatures"][0]["sig"]), encoded)
    assert kind == b"application/vnd.in-toto+json"


def test_the_labels_of_a_statement_follow_from_its_records(statement: dict[str, Any]) -> None:
    demand_labels(statement, REGISTRY, "x.json")


def _labels(statement: dict[str, Any]) -> Any:
    return statement["predicate"]["status"]["labels"][0]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda one: _labels(one).update(label="supported"), "x.json: label of sample"),
        (lambda one: _labels(one).update(claim="Everything."), "x.json: claim of sample"),
        (lambda one: _labels(one).update(component="other"), "x.json: claim of other"),
        (lambda one: one["predicate"].update(records=[]), "x.json: claim of sample"),
        (lambda one: one["predicate"]["subjects"]["sample"].update(code="0" * 64), "x.json: claim of sample"),
        (lambda one: one["subject"][0]["digest"].update(sha256="0" * 64), "x.json: subject sample"),
        (lambda one: one["predicate"]["status"].update(not_claimed=[]), "x.json: not claimed"),
        (lambda one: one["predicate"].pop("benches"), "x.json"),
        (lambda one: one["predicate"]["gateCode"].clear(), "x.json"),
    ],
)
def test_a_label_that_does_not_follow_is_not_verified(
    statement: dict[str, Any], change: Callable[[dict[str, Any]], None], where: str
) -> None:
    change(statement)
    with pytest.raises(EvidenceError) as caught:
        demand_labels(statement, REGISTRY, "x.json")
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.statement.labels", where)
