"""A probe measures the runtime's own reads and chooses by them; what it found is data, and of one device."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.impl.runtime.faulty_device import FaultyDevice
from assay.impl.runtime.probe import choose, load_probe, probe, save_probe
from assay.impl.stores.extents import StoreFile
from assay.spec.documents.device_probe import ProbePoint
from assay.spec.errors import AdmissionError

RECORD, PAGE = 3 * 4096, 4096


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StoreFile]:
    path = tmp_path / "data"
    path.write_bytes(bytes(RECORD) * 80)
    with StoreFile.open(path) as opened:
        yield opened


def point(depth: int, mib_per_s: float, *, what: str = "record", direct: bool = False) -> ProbePoint:
    return ProbePoint(
        what=what, size_bytes=RECORD, pages=1, depth=depth, state="fresh", direct=direct, cached_share=0.0,
        mib_per_s=mib_per_s, p50_us=depth * 10.0, p99_us=1.0, reads=1,
    )  # type: ignore[arg-type]  # fmt: skip


def test_every_kind_and_depth_is_measured(file: StoreFile) -> None:
    found = probe(file, RECORD, PAGE, batch_pages=4, seconds=0.02)
    kinds = {(one.what, one.depth, one.state) for one in found.points}
    assert kinds >= {
        ("record", 1, "fresh"),
        ("record", 4, "fresh"),
        ("rows", 2, "fresh"),
        ("record", 1, "warm"),
    }


def test_no_place_is_read_twice_where_it_is_said_to_be_fresh(file: StoreFile) -> None:
    class Noting(FaultyDevice):
        def read_some(self, descriptor: int, target: memoryview, offset: int) -> int:
            places.append(offset)
            return super().read_some(descriptor, target, offset)

    places: list[int] = []
    probe(file, RECORD, PAGE, batch_pages=4, seconds=0.01, device=Noting())
    measured = [one for one in places if one]  # place 0 is the warm one
    records = measured[: len(measured) // 2]
    assert len(records) == len(set(records)) > 10


def test_the_fewest_readers_that_are_nearly_as_fast_are_chosen() -> None:
    points = [
        point(1, 100),
        point(2, 121),
        point(4, 125),
        point(1, 50, what="rows"),
        point(2, 52, what="rows"),
    ]
    choice = choose(points, 200.0)
    assert (choice.expert_readers, choice.ple_readers, choice.record_mib_per_s) == (2, 1, 121)


@pytest.mark.parametrize(("direct", "wants"), [(104.0, False), (106.0, True)])
def test_direct_reads_are_chosen_when_they_are_clearly_faster(direct: float, wants: bool) -> None:
    points = [point(1, 100), point(1, direct, direct=True), point(1, 1, what="rows")]
    assert choose(points, 1.0).wants_direct is wants


def test_a_slower_device_is_measured_as_slower(file: StoreFile) -> None:
    class Slow(FaultyDevice):
        def read_some(self, descriptor: int, target: memoryview, offset: int) -> int:
            time.sleep(0.005)
            return super().read_some(descriptor, target, offset)

    found = probe(file, RECORD, PAGE, batch_pages=4, seconds=0.02, device=Slow())
    assert min(one.p50_us for one in found.points) >= 5000


def test_what_was_found_is_read_again_for_the_same_device_and_sizes_only(
    file: StoreFile, tmp_path: Path
) -> None:
    found = probe(file, RECORD, PAGE, batch_pages=4, seconds=0.01)
    save_probe(tmp_path / "probes", found)
    assert load_probe(tmp_path / "probes", file, RECORD, PAGE) == found
    assert load_probe(tmp_path / "probes", file, RECORD + 1, PAGE) is None
    assert load_probe(tmp_path / "elsewhere", file, RECORD, PAGE) is None


def test_an_edited_probe_is_measured_anew(file: StoreFile, tmp_path: Path) -> None:
    path = save_probe(tmp_path, probe(file, RECORD, PAGE, batch_pages=4, seconds=0.01))
    path.write_text(path.read_text().replace('"expert_readers"', '"expert_reader"'))
    assert load_probe(tmp_path, file, RECORD, PAGE) is None


def test_a_failing_device_is_an_error_and_no_figure(file: StoreFile) -> None:
    with pytest.raises(AdmissionError) as caught:
        probe(file, RECORD, PAGE, batch_pages=4, device=FaultyDevice(script=["error"]))
    assert caught.value.finding.code == "runtime.read.io"


def test_a_file_too_small_to_measure_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(RECORD))
    with (
        StoreFile.open(path) as opened,
        pytest.raises(ValueError, match="too small to probe records of 12288"),
    ):
        probe(opened, RECORD, PAGE)
