"""The ledger keeps records, and names every one that is lost or altered."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.provenance.evidence.ledger import Ledger
from assay.spec.documents.evidence import Evidence
from assay.spec.errors import EvidenceError, UsageError

MakeRecord = Callable[..., Evidence]


@pytest.fixture
def ledger(tmp_path: Path, make_record: MakeRecord) -> Ledger:
    ledger = Ledger(tmp_path / "evidence")
    for number in range(4):
        ledger.append(make_record(seed=number))
    return ledger


def found(ledger: Ledger) -> list[tuple[str, str]]:
    return [(finding.code, finding.where) for finding in ledger.read().findings]


def digests(ledger: Ledger) -> list[str]:
    return [entry.digest for entry in ledger.read().entries]


def test_a_folder_that_is_not_there_is_an_empty_ledger(tmp_path: Path) -> None:
    chain = Ledger(tmp_path / "none").read()
    assert (chain.entries, chain.findings, chain.head) == ((), (), None)
    assert not (tmp_path / "none").exists()


def test_records_come_back_in_order_each_naming_its_predecessor(ledger: Ledger) -> None:
    chain = ledger.read()
    assert [entry.record.seed for entry in chain.entries] == [0, 1, 2, 3]
    assert [entry.record.predecessor for entry in chain.entries] == [None, *digests(ledger)[:3]]
    assert chain.findings == ()


def test_the_name_of_a_record_is_the_sha256_of_its_bytes(ledger: Ledger) -> None:
    for digest in digests(ledger):
        data = (ledger.directory / f"{digest}.json").read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest


def test_the_head_names_the_newest_record_and_how_many_there_are(ledger: Ledger) -> None:
    assert (ledger.directory / "HEAD").read_text() == f"{digests(ledger)[-1]} 4\n"


@pytest.mark.parametrize("number", range(4))
def test_a_removed_record_is_named(ledger: Ledger, number: int) -> None:
    name = f"{digests(ledger)[number]}.json"
    (ledger.directory / name).unlink()
    assert found(ledger) == [("evidence.record.missing", name)]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"\n", lambda data: data[:0]])
def test_an_altered_record_is_named(ledger: Ledger, number: int, damage: Callable[[bytes], bytes]) -> None:
    path = ledger.directory / f"{digests(ledger)[number]}.json"
    path.write_bytes(damage(path.read_bytes()))
    assert found(ledger) == [("evidence.record.altered", path.name)]


def test_a_record_that_claims_another_outcome_is_named(ledger: Ledger) -> None:
    path = ledger.directory / f"{digests(ledger)[1]}.json"
    path.write_bytes(path.read_bytes().replace(b'"outcome":"pass"', b'"outcome":"fail"'))
    assert found(ledger) == [("evidence.record.altered", path.name)]


def test_every_one_of_several_damaged_records_is_named(ledger: Ledger) -> None:
    first, _, third, _ = digests(ledger)
    (ledger.directory / f"{third}.json").unlink()
    (ledger.directory / f"{first}.json").write_bytes(b"{}")
    assert found(ledger) == [
        ("evidence.record.missing", f"{third}.json"),
        ("evidence.record.altered", f"{first}.json"),
    ]


def test_a_lost_head_is_damage(ledger: Ledger) -> None:
    (ledger.directory / "HEAD").unlink()
    assert found(ledger) == [("evidence.head", "HEAD")]


def test_a_lost_head_is_damage_even_when_one_record_is_left(tmp_path: Path, make_record: MakeRecord) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(make_record())
    (tmp_path / "HEAD").unlink()
    assert found(ledger) == [("evidence.head", "HEAD")]


@pytest.mark.parametrize("text", ["", "none 3\n", "0" * 64, "0" * 63 + " 4\n", "A" * 64 + " 4\n"])
def test_a_head_of_another_form_is_damage(ledger: Ledger, text: str) -> None:
    (ledger.directory / "HEAD").write_text(text)
    assert found(ledger) == [("evidence.head", "HEAD")]


def test_a_head_that_counts_wrongly_is_damage(ledger: Ledger) -> None:
    (ledger.directory / "HEAD").write_text(f"{digests(ledger)[-1]} 5\n")
    assert found(ledger) == [("evidence.head", "HEAD")]


def test_a_head_that_was_set_back_leaves_records_outside_the_chain(ledger: Ledger) -> None:
    all_digests = digests(ledger)
    (ledger.directory / "HEAD").write_text(f"{all_digests[0]} 1\n")
    expected = sorted(f"{digest}.json" for digest in all_digests[1:])
    assert found(ledger) == [("evidence.record.unreachable", name) for name in expected]


def test_two_ledgers_copied_into_one_are_damage(
    ledger: Ledger, tmp_path: Path, make_record: MakeRecord
) -> None:
    other = Ledger(tmp_path / "other")
    digest = other.append(make_record(run="elsewhere")).digest
    (ledger.directory / f"{digest}.json").write_bytes((other.directory / f"{digest}.json").read_bytes())
    assert found(ledger) == [("evidence.record.unreachable", f"{digest}.json")]


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"schema": "assay.evidence/2"}, "schema"),
        ({"outcome": "great"}, "outcome"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_record_of_another_form_is_named_though_its_digest_is_right(
    ledger: Ledger, change: dict[str, object], got: str
) -> None:
    record = json.loads((ledger.directory / f"{digests(ledger)[-1]}.json").read_bytes())
    record |= change | {"predecessor": digests(ledger)[-1]}
    data = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(data).hexdigest()
    (ledger.directory / f"{digest}.json").write_bytes(data)
    (ledger.directory / "HEAD").write_text(f"{digest} 5\n")
    assert found(ledger)[0] == ("evidence.record.form", f"{digest}.json")
    assert got in ledger.read().findings[0].got


def test_a_record_in_another_spelling_is_named(ledger: Ledger) -> None:
    record = json.loads((ledger.directory / f"{digests(ledger)[-1]}.json").read_bytes())
    data = json.dumps(record, indent=1).encode()
    digest = hashlib.sha256(data).hexdigest()
    (ledger.directory / f"{digest}.json").write_bytes(data)
    (ledger.directory / "HEAD").write_text(f"{digest} 5\n")
    assert ("evidence.record.form", f"{digest}.json") in found(ledger)


def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(ledger: Ledger) -> None:
    path = ledger.directory / f"{digests(ledger)[2]}.json"
    path.unlink()
    os.mkfifo(path)
    assert found(ledger) == [("evidence.record.altered", path.name)]


def test_nothing_is_appended_after_a_damaged_head(ledger: Ledger, make_record: MakeRecord) -> None:
    name = f"{digests(ledger)[-1]}.json"
    (ledger.directory / name).unlink()
    with pytest.raises(EvidenceError) as caught:
        ledger.append(make_record())
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.record.missing", name)
    assert caught.value.exit_code == 4


def test_nothing_is_appended_to_records_without_a_head(ledger: Ledger, make_record: MakeRecord) -> None:
    (ledger.directory / "HEAD").unlink()
    with pytest.raises(EvidenceError) as caught:
        ledger.append(make_record())
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.head", "HEAD")


def test_a_finished_record_that_no_head_names_yet_is_adopted(ledger: Ledger, make_record: MakeRecord) -> None:
    before = (ledger.directory / "HEAD").read_bytes()
    last = ledger.append(make_record(seed=4)).digest
    (ledger.directory / "HEAD").write_bytes(before)  # as a kill between the two writes leaves it
    assert ledger.read().head == last
    assert found(ledger) == []
    ledger.append(make_record(seed=5))
    assert [entry.record.seed for entry in ledger.read().entries] == [0, 1, 2, 3, 4, 5]


def test_a_file_for_a_folder_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(UsageError) as caught:
        Ledger(path).read()
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.folder", str(path))


def test_a_record_beyond_the_limit_is_refused(ledger: Ledger, make_record: MakeRecord) -> None:
    with pytest.raises(EvidenceError) as caught:
        ledger.append(make_record(reason="x" * (5 << 20)))
    assert (caught.value.finding.code, caught.value.finding.where) == ("evidence.record.form", "sample.gate")
    assert len(ledger.read().entries) == 4


def test_threads_that_append_at_the_same_time_form_one_chain(tmp_path: Path, make_record: MakeRecord) -> None:
    ledger = Ledger(tmp_path)
    threads = [
        threading.Thread(
            target=lambda first=first: [ledger.append(make_record(seed=first + n)) for n in range(5)]
        )
        for first in (0, 100, 200)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chain = ledger.read()
    assert chain.findings == ()
    assert sorted(entry.record.seed for entry in chain.entries) == [
        *range(5),
        *range(100, 105),
        *range(200, 205),
    ]


APPENDER = """
import sys
from pathlib import Path
from assay.provenance.evidence.ledger import Ledger
from assay.spec.documents.evidence import Evidence
record = Evidence.model_validate_json(sys.argv[2])
for number in range(8):
    Ledger(Path(sys.argv[1])).append(record.model_copy(update={"seed": int(sys.argv[3]) + number}))
"""


def test_processes_that_append_at_the_same_time_form_one_chain(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    record = make_record().model_dump_json(by_alias=True)
    started = [
        subprocess.Popen([sys.executable, "-c", APPENDER, str(tmp_path), record, str(first)])
        for first in (0, 100)
    ]
    assert [process.wait() for process in started] == [0, 0]
    chain = Ledger(tmp_path).read()
    assert chain.findings == ()
    assert sorted(entry.record.seed for entry in chain.entries) == [*range(8), *range(100, 108)]
