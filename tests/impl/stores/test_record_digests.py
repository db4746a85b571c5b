"""Record digests on disk: bound to their store, damage is noticed, absence is said."""

import json
from pathlib import Path

import pytest

from assay.impl.stores.expert_major.record_digests import digests_path, load_digests, save_digests
from assay.impl.stores.expert_major.store import ExpertStore, RecordDigests
from assay.impl.stores.publication import PublicationError
from assay.mutations.expert_store import sample
from assay.mutations.store_faults import Fault, FaultySystem
from assay.mutations.store_memory import memory_extent
from assay.mutations.store_samples import SMALL_FAMILY
from assay.spec.errors import AdmissionError, EvidenceError


@pytest.fixture
def digests() -> RecordDigests:
    found = ExpertStore.open(memory_extent(sample()), SMALL_FAMILY).verify_all().digests
    assert found is not None
    return found


def test_digests_come_back_as_they_were_saved(tmp_path: Path, digests: RecordDigests) -> None:
    save_digests(tmp_path, digests, "verify-all")
    assert load_digests(tmp_path, digests.payload_sha256) == digests


def test_a_machine_that_never_derived_them_has_none(tmp_path: Path, digests: RecordDigests) -> None:
    assert load_digests(tmp_path, digests.payload_sha256) is None


def test_an_evidence_folder_that_is_a_file_holds_none_and_takes_none(
    tmp_path: Path, digests: RecordDigests
) -> None:
    (tmp_path / "evidence").write_bytes(b"x")
    assert load_digests(tmp_path / "evidence", digests.payload_sha256) is None
    with pytest.raises(PublicationError) as caught:
        save_digests(tmp_path / "evidence", digests, "build")
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "publish.create",
        str(tmp_path / "evidence" / "record-digests"),
    )


def test_digests_that_can_not_be_opened_are_not_taken_for_absent(
    tmp_path: Path, digests: RecordDigests
) -> None:
    path = digests_path(tmp_path, digests.payload_sha256)
    path.parent.mkdir()
    path.symlink_to("nowhere")
    with pytest.raises(AdmissionError) as caught:
        load_digests(tmp_path, digests.payload_sha256)
    assert (caught.value.finding.code, caught.value.finding.where) == ("store.file.open", str(path))
    failing = FaultySystem(Fault("entry", 0, "error:EACCES"))
    with pytest.raises(AdmissionError) as caught:
        load_digests(tmp_path, digests.payload_sha256, failing)
    assert (caught.value.finding.code, caught.value.finding.got) == ("store.file.open", "Permission denied")


def test_loaded_digests_make_reads_verified(tmp_path: Path, digests: RecordDigests) -> None:
    save_digests(tmp_path, digests, "build")
    store = ExpertStore.open(memory_extent(sample()), SMALL_FAMILY)
    loaded = load_digests(tmp_path, store.manifest.header.payload_sha256)
    assert loaded is not None
    assert store.with_digests(loaded).read_record(2, 3).is_verified


def test_every_changed_byte_is_noticed(tmp_path: Path, digests: RecordDigests) -> None:
    path = save_digests(tmp_path, digests, "build")
    data = path.read_bytes()
    for offset in range(len(data)):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        with pytest.raises(EvidenceError) as caught:
            load_digests(tmp_path, digests.payload_sha256)
        assert (caught.value.finding.code, caught.value.finding.where) == (
            "expert-store.record-digests.altered",
            path.name,
        )


def test_digests_under_the_name_of_another_store_are_refused(tmp_path: Path, digests: RecordDigests) -> None:
    save_digests(tmp_path, digests, "build").rename(digests_path(tmp_path, bytes(32)))
    with pytest.raises(EvidenceError) as caught:
        load_digests(tmp_path, bytes(32))
    assert caught.value.finding.code == "expert-store.record-digests.altered"
    assert json.loads(digests_path(tmp_path, bytes(32)).read_bytes())["derivedBy"] == "build"
