"""One transfer: whole or an error, the cache asked first, and what it says of itself is what it did."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.impl.runtime.device import Device, DeviceFile, Transfer, transfer
from assay.impl.runtime.faulty_device import Faults, FaultyDevice
from assay.impl.runtime.limits import LaneLimits
from assay.impl.runtime.slots import SlotMemory
from assay.impl.runtime.tickets import Piece
from assay.impl.stores.extents import StoreFile
from assay.spec.errors import AdmissionError

DATA = bytes(range(251)) * 200


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StoreFile]:
    (tmp_path / "data").write_bytes(DATA)
    with StoreFile.open(tmp_path / "data") as opened:
        yield opened


def moved(
    device: Device, file: StoreFile, *pieces: tuple[int, int], wants_direct: bool = False
) -> tuple[Transfer, bytes, DeviceFile]:
    """The transfer of some pieces into an aligned slot, what arrived, and the closed file."""
    size = sum(length for _, length in pieces)
    memory = SlotMemory(LaneLimits(1, 1, size))
    opened = DeviceFile(file, wants_direct=wants_direct)
    try:
        into = memory.view(0, 0, size)
        done = transfer(device, opened, [Piece(*one) for one in pieces], into)
        return done, bytes(into), opened
    finally:
        opened.close()


def refused(device: Device, file: StoreFile, *pieces: tuple[int, int]) -> tuple[str, str, str]:
    with pytest.raises(AdmissionError) as caught:
        moved(device, file, *pieces)
    finding = caught.value.finding
    return finding.code, finding.where.removeprefix(file.name), finding.got


def test_pieces_arrive_one_after_another(file: StoreFile) -> None:
    done, data, _ = moved(Device(), file, (300, 10), (7, 20))
    assert (data, done.logical_bytes, done.direct_bytes) == (DATA[300:310] + DATA[7:27], 30, 0)


def test_aligned_pieces_are_read_directly_and_say_so(file: StoreFile) -> None:
    done, data, opened = moved(Device(), file, (4096, 8192), wants_direct=True)
    if opened.refusal:
        pytest.skip(f"not-run: no direct reads here ({opened.refusal})")
    assert (data, done.direct_bytes, done.cached_bytes) == (DATA[4096 : 4096 + 8192], 8192, 0)


@pytest.mark.parametrize("place", [(4095, 4096), (4096, 4097)])
def test_what_is_not_aligned_is_read_through_the_cache_and_says_so(
    file: StoreFile, place: tuple[int, int]
) -> None:
    done, data, _ = moved(Device(), file, place, wants_direct=True)
    assert (data, done.direct_bytes) == (DATA[place[0] : sum(place)], 0)


def test_a_refused_direct_read_is_read_through_the_cache_and_says_so(file: StoreFile) -> None:
    class Refuses(Device):
        def read_some(self, descriptor: int, target: memoryview, offset: int) -> int:
            if descriptor in direct:
                raise OSError(errno.EINVAL, "invalid argument")
            return super().read_some(descriptor, target, offset)

    opened = DeviceFile(file, wants_direct=True)
    direct = {opened.direct}
    memory = SlotMemory(LaneLimits(1, 1, 4096))
    done = transfer(Refuses(), opened, [Piece(4096, 4096)], memory.view(0, 0, 4096))
    opened.close()
    assert (bytes(memory.view(0, 0, 4096)), done.direct_bytes) == (DATA[4096:8192], 0)


def test_the_pages_of_a_batch_are_hinted_before_the_first_is_read(file: StoreFile) -> None:
    class Noting(FaultyDevice):
        def read_some(self, descriptor: int, target: memoryview, offset: int) -> int:
            calls.append(("read", offset))
            return super().read_some(descriptor, target, offset)

        def will_need(self, descriptor: int, offset: int, size: int) -> None:
            calls.append(("hint", offset))
            super().will_need(descriptor, offset, size)

    calls: list[tuple[str, int]] = []
    moved(Noting(), file, (0, 5), (100, 5), (200, 5))
    assert calls == [("hint", 0), ("hint", 100), ("hint", 200), ("read", 0), ("read", 100), ("read", 200)]


def test_a_hint_that_fails_is_no_error(file: StoreFile) -> None:
    class NoHints(FaultyDevice):
        def will_need(self, descriptor: int, offset: int, size: int) -> None:
            raise OSError(errno.ESPIPE, f"{descriptor} {offset} {size}")

    assert moved(NoHints(), file, (0, 5), (100, 5))[1] == DATA[:5] + DATA[100:105]


def test_what_the_cache_has_is_not_read_again(file: StoreFile) -> None:
    class Half(FaultyDevice):
        def read_cached(self, descriptor: int, target: memoryview, offset: int) -> int | None:
            return os.preadv(descriptor, [target[:4]], offset)

        def read_some(self, descriptor: int, target: memoryview, offset: int) -> int:
            places.append((offset, len(target)))
            return super().read_some(descriptor, target, offset)

    places: list[tuple[int, int]] = []
    done, data, _ = moved(Half(), file, (10, 10))
    assert (data, places, done.cached_bytes) == (DATA[10:20], [(14, 6)], 4)


def test_what_the_system_does_not_say_of_its_cache_is_unknown(file: StoreFile) -> None:
    assert moved(FaultyDevice(), file, (0, 10))[0].cached_bytes is None


def test_a_device_that_is_only_ever_interrupted_is_given_up(file: StoreFile) -> None:
    found = refused(FaultyDevice(Faults(interrupt=1.0)), file, (0, 10))
    assert found == ("runtime.read.io", " from 0", "0 bytes, then nothing but interrupts")


def test_the_end_of_the_file_inside_a_piece_is_an_error(file: StoreFile) -> None:
    size = len(DATA)
    assert refused(Device(), file, (size - 5, 10)) == ("runtime.read.short", f" from {size - 5}", "5 bytes")


def test_bug_report_a25_the_rest_of_a_short_read_is_read(tmp_path: Path) -> None:
    """10,000 bytes: 4,096, interrupted, 4,096, 1,808; then 4,096 and the end: an error."""
    record = bytes(range(250)) * 40
    (tmp_path / "data").write_bytes(record)
    with StoreFile.open(tmp_path / "data") as file:
        assert moved(FaultyDevice(script=[4096, "interrupt", 4096, 1808]), file, (0, 10_000))[1] == record
        found = refused(FaultyDevice(script=[4096, "end"]), file, (0, 10_000))
    assert found == ("runtime.read.short", " from 0", "4096 bytes")


def test_another_file_under_the_same_name_is_not_read(tmp_path: Path, file: StoreFile) -> None:
    """A file that was replaced after it was opened: the reader goes on with the one that was judged."""
    (tmp_path / "other").write_bytes(b"x" * len(DATA))
    (tmp_path / "other").replace(tmp_path / "data")
    if not Path("/proc/self/fd").exists():
        with pytest.raises(OSError, match="another file has this name now"):
            moved(Device(), file, (0, 10))
        return
    assert moved(Device(), file, (0, 10))[1] == DATA[:10]


def test_closing_twice_does_nothing(file: StoreFile) -> None:
    opened = DeviceFile(file)
    opened.close()
    opened.close()
    assert (opened.buffered, opened.direct) == (-1, -1)
