"""A log is whole only with its footer; what stands before a cut is still read."""

from pathlib import Path

import pytest

from assay.provenance.evidence.run_log import RunLogWriter, read_run_log
from assay.spec.documents.run import Environment, GateRecord
from assay.spec.documents.run_log import Footer, Header
from assay.spec.errors import EvidenceError

ENVIRONMENT = Environment(
    assay="0", python="3.11", platform="Linux", machine="x86_64", device="cpu", packages={}
)
HEADER = Header(
    run="r", started="2026-01-01T00:00:00Z", seed=0, seam=None, gates=["a", "b"], required=[], head=None,
    environment=ENVIRONMENT,
)  # fmt: skip
FOOTER = Footer(
    run="r", outcome="pass", gates=2, duration_s=1.0, head="0" * 64, root="0" * 64, document="1" * 64
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with RunLogWriter(tmp_path, HEADER) as writer:
        writer.gate(GateRecord(id="a", outcome="pass", components=["x"]))
        writer.gate(GateRecord(id="b", outcome="pass", components=["x"]))
        writer.footer(FOOTER)
    return tmp_path / "run.jsonl"


def test_a_whole_log_comes_back_without_findings(log: Path) -> None:
    found = read_run_log(log.parent)
    assert (found.header, [gate.id for gate in found.gates], found.footer) == (HEADER, ["a", "b"], FOOTER)
    assert found.findings == ()


def test_a_log_cut_at_any_byte_reads_as_truncated_and_keeps_its_whole_lines(log: Path) -> None:
    data = log.read_bytes()
    header = data.index(b"\n") + 1
    for length in range(header, len(data)):
        log.write_bytes(data[:length])
        found = read_run_log(log)
        assert [(one.code, one.where) for one in found.findings] == [("evidence.run.truncated", "run.jsonl")]
        assert len(found.gates) == data[:length].count(b"\n") - 1


@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_log_without_a_whole_header_is_truncated(log: Path, length: int) -> None:
    log.write_bytes(log.read_bytes()[:length])
    with pytest.raises(EvidenceError) as caught:
        read_run_log(log)
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.run.truncated", "run.jsonl")


def lines_of(log: Path) -> list[bytes]:
    return log.read_bytes().splitlines(keepends=True)


def test_a_line_after_the_footer_is_named(log: Path) -> None:
    log.write_bytes(log.read_bytes() + lines_of(log)[1])
    assert [(one.code, one.where) for one in read_run_log(log).findings] == [
        ("evidence.run.form", "run.jsonl:5")
    ]


def test_a_second_header_is_named(log: Path) -> None:
    header, first, *rest = lines_of(log)
    log.write_bytes(b"".join([header, first, header, *rest]))
    assert [(one.code, one.where) for one in read_run_log(log).findings] == [
        ("evidence.run.form", "run.jsonl:3")
    ]


def test_a_missing_gate_line_is_named_by_the_footers_count(log: Path) -> None:
    header, _, *rest = lines_of(log)
    log.write_bytes(b"".join([header, *rest]))
    (finding,) = read_run_log(log).findings
    assert (finding.code, finding.where) == ("evidence.run.form", "run.jsonl: footer")


@pytest.mark.parametrize("line", [b"{}\n", b"not json\n", b'{"line":"gate","gate":{"id":"a"}}\n', b"\xff\n"])
def test_a_line_of_another_form_is_named(log: Path, line: bytes) -> None:
    header, _, *rest = lines_of(log)
    log.write_bytes(b"".join([header, line, *rest]))
    first = read_run_log(log).findings[0]
    assert (first.code, first.where) == ("evidence.run.form", "run.jsonl:2")


def test_a_run_folder_is_never_written_twice(log: Path) -> None:
    with pytest.raises(FileExistsError):
        RunLogWriter(log.parent, HEADER)
