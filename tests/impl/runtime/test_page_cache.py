"""What was warm is measured where the system says so, and unknown elsewhere."""

import os
from pathlib import Path

import pytest

from assay.impl.runtime.faulty_device import FaultyDevice
from assay.impl.runtime.page_cache import cached_share, start_label
from assay.impl.stores.extents import StoreFile

SIZE = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.write_bytes(os.urandom(SIZE))
    return path


def test_a_file_that_was_just_read_is_cached(path: Path) -> None:
    path.read_bytes()
    with StoreFile.open(path) as file:
        share = cached_share(file, 0, SIZE)
    if share is None:
        pytest.skip("not-run: this file system doesn't say what its cache holds")
    assert share == 1.0


def test_a_file_that_was_dropped_is_cached_less(path: Path) -> None:
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("not-run: needs posix_fadvise")
    with StoreFile.open(path) as file:
        os.fsync(file.descriptor)
        os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        share = cached_share(file, 0, SIZE, samples=8)
    if share is None or path.stat().st_dev == Path("/dev/shm").stat().st_dev:  # noqa: S108 - only asked for its device
        pytest.skip("not-run: this file system has nothing below its cache")
    assert share < 1.0


def test_a_system_that_does_not_say_is_unknown(path: Path) -> None:
    with StoreFile.open(path) as file:
        assert cached_share(file, 0, SIZE, device=FaultyDevice()) is None


@pytest.mark.parametrize(
    ("share", "is_new", "is_hot", "label"),
    [
        (0.0, True, False, "cold-process"),
        (0.0, False, False, "cold-store"),
        (1.0, True, False, "warm-store"),
        (1.0, False, True, "hot-cache"),
        (0.5, True, False, "unknown"),
        (None, True, False, "unknown"),
    ],
)
def test_a_run_is_labelled_by_what_was_warm(
    share: float | None, is_new: bool, is_hot: bool, label: str
) -> None:
    assert start_label(share, is_new_process=is_new, has_hot_cache=is_hot) == label
