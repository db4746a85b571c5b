"""`assay gate`, `status`, `evidence` and `validate` on evidence, as a user meets them."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from assay.provenance.catalogue import json_schema
from assay.provenance.cli import main

GATE = "provenance.ledger-detects-damage"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def places(tmp_path: Path) -> list[str]:
    return ["--evidence", str(tmp_path / "evidence"), "--out", str(tmp_path / "runs")]


@pytest.fixture
def ran(places: list[str], capsys: Capture) -> dict[str, Any]:
    assert main(["gate", GATE, *places, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def evidence_of(tmp_path: Path) -> list[str]:
    return ["--evidence", str(tmp_path / "evidence")]


def records(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "evidence").glob("*.json"))


def test_gate_prints_one_object_of_its_schema(ran: dict[str, Any]) -> None:
    jsonschema.validate(ran, json_schema("assay.run/1"))
    assert (ran["outcome"], [gate["id"] for gate in ran["gates"]]) == ("pass", [GATE])
    assert ran["gates"][0]["measurements"] == {"records": 5, "damages": 36}


def test_gate_writes_log_json_junit_summary_and_html(ran: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "runs" / ran["run"]
    assert {"run.jsonl", "run.json", "junit.xml", "summary.md", "index.html"} <= {
        one.name for one in folder.iterdir()
    }
    assert Path(ran["report"]) == folder / "index.html"


def test_every_line_of_the_log_and_every_record_is_of_its_schema(ran: dict[str, Any], tmp_path: Path) -> None:
    for line in (tmp_path / "runs" / ran["run"] / "run.jsonl").read_text().splitlines():
        jsonschema.validate(json.loads(line), json_schema("assay.run-log/1"))
    for path in records(tmp_path):
        jsonschema.validate(json.loads(path.read_bytes()), json_schema("assay.evidence/1"))


@pytest.mark.parametrize("style", ["pretty", "markdown", "junit"])
def test_gate_prints_in_every_format(places: list[str], capsys: Capture, style: str) -> None:
    assert main(["gate", GATE, *places, "--format", style]) == 0
    out = capsys.readouterr().out
    assert GATE in out
    assert ("<testsuite" in out) == (style == "junit")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--require", "support.scalar-oracle-parity", "--only", GATE], 3),
        (["support"], 3),
        (["--only", "support"], 3),
        (["no-such-gate"], 2),
        (["--only", ""], 2),
        (["--jobs", "0"], 2),
    ],
)
def test_gate_ends_with_the_documented_code(places: list[str], arguments: list[str], code: int) -> None:
    assert main(["gate", *arguments, *places, "--format", "json"]) == code


def test_gate_lists_what_it_can_run(capsys: Capture) -> None:
    assert main(["gate", "--list", "--format", "json"]) == 0
    assert GATE in {row["id"] for row in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize(
    "command", [["gate", "--only", GATE], ["status"], ["evidence", "check"], ["evidence", "export"]]
)
def test_damaged_evidence_is_named_and_ends_with_4(
    ran: dict[str, Any], tmp_path: Path, capsys: Capture, command: list[str]
) -> None:
    (path,) = records(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    out = ["--out", str(tmp_path / "runs")] if command[0] == "gate" else []
    assert main([*command, *evidence_of(tmp_path), *out]) == 4
    said = capsys.readouterr()
    assert "evidence.record.altered" in said.out + said.err
    assert path.name in said.out + said.err
    assert "Traceback" not in said.err


def test_status_prints_one_object_of_its_schema(ran: dict[str, Any], tmp_path: Path, capsys: Capture) -> None:
    assert main(["status", *evidence_of(tmp_path), "--format", "json"]) == 0
    status = json.loads(capsys.readouterr().out)
    jsonschema.validate(status, json_schema("assay.status/1"))
    label = next(one for one in status["labels"] if one["component"] == "provenance")
    assert label["gates"][GATE] == "pass"
    assert status["ledger"] | {"head": None} == {
        "records": 1, "head": None, "findings": [], "boundary": "The chain detects damage, not forgery.",
    }  # fmt: skip


def test_the_support_state_of_the_profile_is_pinned(ran: dict[str, Any]) -> None:
    (support,) = [one for one in ran["support"] if one["profile"] == "qwen4exp"]
    assert support["state"] == "pinned-not-supported"
    assert set(support["gates"].values()) == {"not-run"}
    assert len(support["gates"]) == 6


def test_status_explains_itself_for_a_terminal(ran: dict[str, Any], tmp_path: Path, capsys: Capture) -> None:
    assert main(["status", *evidence_of(tmp_path), "--format", "pretty", "provenance"]) == 0
    out = capsys.readouterr().out
    assert "missing:" in out
    assert "qwen4exp: pinned-not-supported" in out
    assert "detects damage, not forgery" in out
    assert "contract " not in out.split("qwen4exp:")[0]


@pytest.mark.parametrize(("claim", "code"), [("hypothesis", 0), ("supported", 1)])
def test_status_checks_the_claims_of_a_document(
    ran: dict[str, Any], tmp_path: Path, capsys: Capture, claim: str, code: int
) -> None:
    readme = tmp_path / "README.md"
    row = f"| component | label |\n|---|---|\n| provenance | {claim} |"
    readme.write_text(f"<!-- status:begin -->\n{row}\n<!-- status:end -->\n")
    assert main(["status", *evidence_of(tmp_path), "--check", str(readme), "--format", "json"]) == code
    said = capsys.readouterr()
    assert ("claims.overclaimed: provenance" in said.err) == (code == 1)
    (record,) = json.loads(said.out)["claims"]
    assert record["verdict"] == ("modest" if code == 0 else "overclaimed")


def test_status_of_an_unknown_component_is_a_usage_error(capsys: Capture) -> None:
    assert main(["status", "nonsense"]) == 2
    assert "usage.argument: component" in capsys.readouterr().err


def validated(capsys: Capture, path: Path, code: int) -> dict[str, Any]:
    assert main(["validate", str(path), "--format", "json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json_schema("assay.validation/1"))
    assert found["kind"] == "evidence"
    return found


def test_validate_accepts_a_ledger_a_record_and_a_run(
    ran: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    for path in (tmp_path / "evidence", records(tmp_path)[0], tmp_path / "runs" / ran["run"]):
        found = validated(capsys, path, 0)
        assert found["verdict"] == "accepted"
        assert any(text.startswith("forgery:") for text in found["report"]["notChecked"])


def test_validate_names_a_damaged_record_and_ends_with_4(
    ran: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    (path,) = records(tmp_path)
    path.write_bytes(path.read_bytes() + b" ")
    for judged in (tmp_path / "evidence", path):
        finding = validated(capsys, judged, 4)["findings"][0]
        assert (finding["code"], finding["where"]) == ("evidence.record.altered", path.name)


def test_validate_says_that_a_run_was_truncated_and_ends_with_3(
    ran: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    log = tmp_path / "runs" / ran["run"] / "run.jsonl"
    log.write_bytes(log.read_bytes()[:-2])
    (finding,) = validated(capsys, log.parent, 3)["findings"]
    assert (finding["code"], finding["where"]) == ("evidence.run.truncated", "run.jsonl")


def test_export_prints_a_statement(ran: dict[str, Any], tmp_path: Path, capsys: Capture) -> None:
    assert main(["evidence", "export", *evidence_of(tmp_path)]) == 0
    statement = json.loads(capsys.readouterr().out)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert [one["record"]["gate"] for one in statement["predicate"]["records"]] == [GATE]


@pytest.mark.sign
def test_evidence_is_signed_and_verified_from_the_command_line(
    ran: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    pytest.importorskip("securesystemslib")
    key = tmp_path / "key.pem"
    assert main(["evidence", "make-key", str(key)]) == 0
    capsys.readouterr()
    assert main(["evidence", "sign", "--key", str(key), *evidence_of(tmp_path)]) == 0
    envelope = tmp_path / "signed.json"
    envelope.write_text(capsys.readouterr().out)
    command = ["evidence", "verify", str(envelope), "--public-key", f"{key}.pub", "--format", "pretty"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert re.search(r"^verified, key [0-9a-f]{64}: ", out, re.MULTILINE)
    assert "provenance: correctness-fixture" in out
    envelope.write_text(envelope.read_text().replace('"sig": "', '"sig": "AAAA', 1))
    assert main(command) == 4
    assert "evidence.signature: signed.json" in capsys.readouterr().err
