"""A ledger that was rolled back checks by itself; the run folders that it lost name it."""

import json
import shutil
from pathlib import Path

import pytest

from assay.provenance.cli import main
from assay.provenance.evidence.heads import head_of, read_against_runs
from assay.provenance.evidence.ledger import Ledger

GATE = "provenance.ledger-detects-damage"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    """Two runs over one ledger, with a copy of the ledger from between them."""
    monkeypatch.chdir(tmp_path)
    assert main(["gate", GATE, "--format", "json"]) == 0
    shutil.copytree(".assay", "old")
    assert main(["gate", GATE, "--format", "json"]) == 0
    runs = [json.loads(line)["run"] for line in capsys.readouterr().out.splitlines()]
    return Path("assay-out") / runs[-1]


def roll_back(how: str) -> None:
    entries = Ledger(Path(".assay")).read().entries
    if how == "old copy":
        shutil.rmtree(".assay")
        shutil.copytree("old", ".assay")
        return
    kept = entries[:-1] if how == "newest removed" else ()
    for entry in entries[len(kept) :]:
        (Path(".assay") / f"{entry.digest}.json").unlink()
    head = kept[-1].digest if kept else "none"
    (Path(".assay") / "HEAD").write_text(f"{head} {len(kept)}\n")


@pytest.mark.parametrize("how", ["newest removed", "old copy", "all removed"])
def test_a_ledger_that_was_rolled_back_is_named_by_the_run_that_it_lost(
    twice: Path, how: str, capsys: Capture
) -> None:
    roll_back(how)
    assert Ledger(Path(".assay")).read().findings == ()
    for command in (
        ["evidence", "check"],
        ["status"],
        ["report", str(twice)],
        ["gate", GATE],
        ["evidence", "export"],
    ):
        assert main([*command, *([] if command[0] == "evidence" else ["--format", "json"])]) == 4, command
        said = capsys.readouterr()
        assert "evidence.run.head" in said.out + said.err, command
        assert f"{twice.name}: run.jsonl" in said.out + said.err or command[-1] in {GATE, "export"}, command


def test_no_label_stands_on_a_ledger_that_was_rolled_back(twice: Path, capsys: Capture) -> None:
    roll_back("newest removed")
    main(["status", "--format", "json"])
    assert {one["label"] for one in json.loads(capsys.readouterr().out)["labels"]} == {"hypothesis"}


def test_a_run_is_compared_wherever_it_lies(twice: Path, capsys: Capture) -> None:
    shutil.move(str(twice), "elsewhere")
    roll_back("newest removed")
    assert main(["evidence", "check"]) == 0
    assert main(["report", "elsewhere"]) == 4
    assert "evidence.run.head: " in capsys.readouterr().err


def test_a_run_that_was_cut_off_names_its_newest_record(twice: Path) -> None:
    log = twice / "run.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    chain = Ledger(Path(".assay")).read()
    found = head_of(twice)
    assert found is not None
    assert (found.head, found.root) == (chain.head, chain.root)
    roll_back("newest removed")
    (finding,) = read_against_runs(Ledger(Path(".assay")), Path("assay-out")).findings
    assert (finding.code, finding.where) == ("evidence.run.head", f"{twice.name}: run.jsonl")


def test_a_run_over_another_ledger_is_not_compared_and_the_report_says_so(
    twice: Path, capsys: Capture
) -> None:
    assert main(["gate", GATE, "--evidence", "other", "--format", "json"]) == 0
    assert main(["status", "--evidence", "other"]) == 0
    assert main(["evidence", "check"]) == 0
    capsys.readouterr()
    assert main(["report", str(twice), "--evidence", "other"]) == 0
    assert "its evidence folder is not at hand" in capsys.readouterr().err


def test_nothing_is_rolled_back_in_an_intact_ledger(twice: Path) -> None:
    assert main(["report", str(twice)]) == 0
    assert main(["status"]) == 0
