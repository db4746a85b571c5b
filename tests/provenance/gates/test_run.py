"""A run leaves evidence for every gate, a log, and labels that follow from them."""

import errno
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from assay.provenance.components import Component
from assay.provenance.evidence.durable import Disk
from assay.provenance.evidence.ledger import Ledger
from assay.provenance.evidence.run_log import read_run_log
from assay.provenance.evidence.status import Registry
from assay.provenance.evidence.subjects import SourceTree
from assay.provenance.gates.base import Gate
from assay.provenance.gates.run import RunOptions, run_gates
from assay.provenance.gates.selection import select
from assay.provenance.runs import load_run
from assay.spec.canonical import canonical_digest
from assay.spec.documents.run import Run
from assay.spec.errors import EvidenceError, IncompleteError

MakeGate = Callable[..., Gate]
MakeRegistry = Callable[..., Registry]


@pytest.fixture
def run(tmp_path: Path, make_registry: MakeRegistry) -> Callable[..., tuple[Run, Path]]:
    def call(
        *gates: Gate,
        names: tuple[str, ...] = (),
        only: tuple[str, ...] = (),
        require: tuple[str, ...] = (),
        **more: object,
    ) -> tuple[Run, Path]:
        registry = make_registry(*gates)
        values: dict[str, object] = {
            "ledger": Ledger(tmp_path / "evidence"), "runs": tmp_path / "runs", "registry": registry,
        }  # fmt: skip
        return run_gates(select(gates, names, only, require), RunOptions(**(values | more)))  # type: ignore[arg-type]

    return call


RunIt = Callable[..., tuple[Run, Path]]


def test_a_passing_run_leaves_evidence_a_log_and_a_label(
    make_gate: MakeGate, run: RunIt, tmp_path: Path
) -> None:
    done, folder = run(make_gate("passes"), seed=5)
    (entry,) = Ledger(tmp_path / "evidence").read().entries
    log = read_run_log(folder)
    assert done.outcome == "pass"
    assert done.head == done.gates[0].evidence == entry.digest == (log.footer and log.footer.head)
    assert (entry.record.gate, entry.record.outcome, entry.record.seed) == ("sample.passes", "pass", 5)
    assert entry.record.subjects["sample"] == SourceTree().subject(
        Component("sample", "", "", ("assay.spec.verdicts",), contract=())
    )
    assert done.labels[0].label == "implemented"
    assert Run.model_validate_json((folder / "run.json").read_bytes()) == done


@pytest.mark.parametrize(
    ("names", "outcome"),
    [
        (["passes"], "pass"),
        (["passes", "fails", "raises"], "fail"),
        (["passes", "raises"], "inconclusive"),
        (["passes", "skips"], "inconclusive"),
        (["passes", "undecided"], "inconclusive"),
    ],
)
def test_the_worst_gate_decides_the_run(
    make_gate: MakeGate, run: RunIt, names: list[str], outcome: str
) -> None:
    done, _ = run(*(make_gate(name) for name in names))
    assert done.outcome == outcome


def test_a_gate_without_its_input_changes_nothing_unless_required(make_gate: MakeGate, run: RunIt) -> None:
    gates = (make_gate("passes"), make_gate("fails", needs=("checkpoint",)))
    done, _ = run(*gates)
    assert (done.outcome, done.gates[1].outcome, done.gates[1].required) == ("pass", "not-run", False)
    assert run(*gates, require=("sample.fails",))[0].outcome == "inconclusive"
    assert run(*gates, names=("sample",))[0].outcome == "inconclusive"


def test_a_required_gate_that_was_left_out_makes_the_run_inconclusive(
    make_gate: MakeGate, run: RunIt
) -> None:
    done, _ = run(
        make_gate("passes"), make_gate("undecided"), only=("sample.passes",), require=("sample.undecided",)
    )
    left_out = next(one for one in done.gates if one.id == "sample.undecided")
    assert done.outcome == "inconclusive"
    assert (left_out.outcome, left_out.findings[0].code, left_out.findings[0].where) == (
        "not-run", "gate.left-out", "sample.undecided",
    )  # fmt: skip


def test_a_run_in_which_nothing_decided_is_no_pass(make_gate: MakeGate, run: RunIt) -> None:
    assert run(make_gate("passes", blocked="no product"))[0].outcome == "not-run"


def test_the_private_seam_is_stamped_into_run_log_and_evidence(
    make_gate: MakeGate, run: RunIt, tmp_path: Path
) -> None:
    done, folder = run(make_gate("passes"), private=True)
    (entry,) = Ledger(tmp_path / "evidence").read().entries
    assert (done.seam, done.gates[0].seam, entry.record.seam, read_run_log(folder).header.seam) == (
        "private",
    ) * 4


def test_a_gate_that_stood_on_a_private_descriptor_is_stamped_in_a_public_run(
    make_gate: MakeGate, run: RunIt, tmp_path: Path
) -> None:
    done, _ = run(make_gate("passes_privately"))
    assert (done.seam, done.gates[0].seam) == (None, "private")
    assert Ledger(tmp_path / "evidence").read().entries[0].record.seam == "private"


def test_gates_may_run_at_the_same_time_and_on_another_executor(
    make_gate: MakeGate, tmp_path: Path, make_registry: MakeRegistry
) -> None:
    gates = (make_gate("passes"), make_gate("fails"), make_gate("undecided"))
    options = RunOptions(Ledger(tmp_path / "e"), tmp_path / "r", jobs=3, registry=make_registry(*gates))
    with ThreadPoolExecutor(3) as executor:
        done, folder = run_gates(select(gates, (), (), ()), options, executor=executor)
    assert [one.outcome for one in done.gates] == ["pass", "fail", "inconclusive"]
    assert {one.id for one in read_run_log(folder).gates} == {gate.id for gate in gates}
    assert len(Ledger(tmp_path / "e").read().entries) == 3


def test_a_damaged_ledger_ends_the_run_before_a_gate_starts(
    make_gate: MakeGate, run: RunIt, tmp_path: Path
) -> None:
    run(make_gate("passes"))
    (record,) = (tmp_path / "evidence").glob("*.json")
    record.unlink()
    with pytest.raises(EvidenceError) as caught:
        run(make_gate("passes"))
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.record.missing", record.name)
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_code_that_is_edited_during_the_run_makes_it_inconclusive(
    make_gate: MakeGate, run: RunIt, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    original = SourceTree.subject

    def subject(tree: SourceTree, component: Component) -> object:
        seen.append(component)
        found = original(tree, component)
        return found if len(seen) == 1 else found.model_copy(update={"code": "0" * 64})

    monkeypatch.setattr(SourceTree, "subject", subject)
    done, _ = run(make_gate("passes"))
    (finding,) = done.gates[0].findings
    assert done.gates[0].outcome == "inconclusive"
    assert (finding.code, finding.where) == ("gate.subject-moved", "sample.passes")


def test_code_that_the_evidence_would_not_be_about_makes_the_gate_inconclusive(
    make_gate: MakeGate, run: RunIt
) -> None:
    done, _ = run(make_gate("passes_through_a_late_import"))
    (finding,) = done.gates[0].findings
    assert done.gates[0].outcome == "inconclusive"
    assert (finding.code, finding.where) == ("gate.subject-incomplete", "sample.passes-through-a-late-import")
    assert "assay.oracles.norms" in finding.got


def test_a_runs_folder_that_cannot_be_made_is_one_typed_error(
    make_gate: MakeGate, run: RunIt, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IncompleteError) as caught:
        run(make_gate("passes"), runs=tmp_path / "file")
    assert caught.value.finding.code == "evidence.unwritable"
    assert caught.value.finding.where == str(tmp_path / "file")


class Full(Disk):
    """A disk without room for another record."""

    def write(self, descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, f"No room for {len(data)} bytes in {descriptor}")


def test_a_full_disk_is_unfinished_work_that_names_the_ledger_and_no_damage(
    make_gate: MakeGate, run: RunIt, tmp_path: Path
) -> None:
    with pytest.raises(IncompleteError) as caught:
        run(make_gate("passes"), ledger=Ledger(tmp_path / "evidence", Full()))
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "evidence.unwritable", str(tmp_path / "evidence"),
    )  # fmt: skip
    assert caught.value.exit_code == 3
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_run_log(folder).is_truncated


def test_the_footer_binds_the_run_and_comes_after_it(make_gate: MakeGate, run: RunIt, tmp_path: Path) -> None:
    done, folder = run(make_gate("passes"))
    footer = read_run_log(folder).footer
    assert footer is not None
    assert footer.document == canonical_digest(json.loads((folder / "run.json").read_text()))
    assert footer.root == Ledger(tmp_path / "evidence").read().entries[0].digest
    assert done.labels[0].claim == "A claim."


def test_a_kill_before_the_footer_reads_as_truncated_although_run_json_is_there(
    make_gate: MakeGate, run: RunIt, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.provenance.evidence.run_log.RunLogWriter.footer", die)
    with pytest.raises(KeyboardInterrupt):
        run(make_gate("passes"))
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "run.json").exists()
    assert load_run(str(folder), tmp_path).truncated is not None


def test_a_gate_is_given_a_checkpoint_only_if_it_judges_one_and_its_evidence_names_it(
    make_gate: MakeGate, run: RunIt, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    gates = (
        make_gate("tells_its_checkpoint", id="sample.with", needs=("checkpoint",)),
        make_gate("tells_its_checkpoint", id="sample.may", may_use=("checkpoint",)),
        make_gate("tells_its_checkpoint", id="sample.without"),
    )
    done, _ = run(*gates, checkpoint=folder)
    records = {one.record.gate: one.record for one in Ledger(tmp_path / "evidence").read().entries}
    assert {one.id: one.measurements["given"] for one in done.gates} == {
        "sample.with": True, "sample.may": True, "sample.without": False,
    }  # fmt: skip
    digest = hashlib.sha256(b"{}").hexdigest()
    for name in ("sample.with", "sample.may"):
        found = records[name].checkpoint
        assert found is not None
        assert found.files == {"config.json": digest}
    assert records["sample.without"].checkpoint is None
    assert done.labels[0].gates["sample.with"] == "not-run"
    assert any("another checkpoint than the published one" in why for why in done.labels[0].missing)


KILLED = """
import sys
from pathlib import Path
from assay.provenance.components import Component
from assay.provenance.evidence.ledger import Ledger
from assay.provenance.evidence.status import Registry
from assay.provenance.gates.base import Gate
from assay.provenance.gates.run import RunOptions, run_gates
from assay.provenance.gates.selection import select
from assay.spec.verdicts import Label
names = ("passes", "notes_its_processes_and_sleeps")
gates = tuple(Gate(f"sample.{n}", "", ("sample",), Label.IMPLEMENTED, f"sample_gates:{n}") for n in names)
sample = Component("sample", "", "", ("assay.spec.verdicts",), contract=())
base = Path(sys.argv[1])
run_gates(select(gates, (), (), ()), RunOptions(
    Ledger(base / "evidence"), base / "runs", registry=Registry((sample,), gates, {})))
"""


def test_a_killed_run_keeps_its_evidence_leaves_no_process_and_reads_as_truncated(
    make_gate: MakeGate, tmp_path: Path
) -> None:
    make_gate("passes")  # puts the sample gates on the path of the child
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    processes = wait_for(
        lambda: [int(n) for path in tmp_path.rglob("child.pid") for n in path.read_text().split()]
    )
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: all(ended(one) for one in processes))
    chain = Ledger(tmp_path / "evidence").read()
    (folder,) = (tmp_path / "runs").iterdir()
    log = read_run_log(folder)
    assert chain.findings == ()
    assert [entry.record.gate for entry in chain.entries] == ["sample.passes"]
    assert log.is_truncated
    assert [(one.code, one.where) for one in log.findings] == [("evidence.run.truncated", "run.jsonl")]
    assert not (folder / "run.json").exists()


def test_two_runs_at_once_keep_one_chain_and_a_folder_each(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "assay.provenance.cli", "gate", "--only", "provenance", "--format", "json",
        "--evidence", str(tmp_path / "evidence"), "--out", str(tmp_path / "runs"),
    ]  # fmt: skip
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    runs = [json.loads(process.communicate()[0]) for process in started]
    chain = Ledger(tmp_path / "evidence").read()
    assert chain.findings == ()
    assert {entry.record.run for entry in chain.entries} == {one["run"] for one in runs}
    assert len(list((tmp_path / "runs").iterdir())) == 2
    heads = {entry.digest for entry in chain.entries}
    assert all(one["head"] in heads and one["outcome"] == "pass" for one in runs)


def test_what_the_log_says_is_what_the_run_says(make_gate: MakeGate, run: RunIt) -> None:
    done, folder = run(make_gate("fails"))
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    assert [line["line"] for line in lines] == ["header", "gate", "footer"]
    assert lines[1]["gate"] == json.loads(done.model_dump_json())["gates"][0]
    assert (lines[2]["outcome"], lines[2]["gates"]) == ("fail", 1)


def wait_for(look: Callable[[], Any]) -> Any:
    for _ in range(400):
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def ended(process: int) -> bool:
    """Whether a process is gone, or is a zombie that nobody has waited for."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()[:1] in {"", "Z"}
