"""What can't be opened is said in one line; nothing hangs."""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.files import file_digest, folder_names, open_regular, read_bounded, read_exactly
from assay.spec.errors import AdmissionError


def refusal(path: Path) -> tuple[str, str]:
    with pytest.raises(AdmissionError) as caught:
        open_regular(path)
    return caught.value.finding.code, caught.value.finding.where


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no") == ("input.file.missing", str(tmp_path / "no"))


def test_a_file_in_the_place_of_a_folder_on_the_way_is_missing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    assert refusal(tmp_path / "f" / "g") == ("input.file.missing", str(tmp_path / "f" / "g"))


def test_a_name_with_a_nul_is_missing(tmp_path: Path) -> None:
    code, where = refusal(tmp_path / "a\0b")
    assert code == "input.file.missing"
    assert where.endswith("a\\x00b")


def test_a_folder_is_not_a_file_and_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    assert refusal(tmp_path) == ("input.file.directory", str(tmp_path))
    with pytest.raises(AdmissionError) as caught:
        folder_names(tmp_path / "f")
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "input.file.directory",
        str(tmp_path / "f"),
    )


def test_a_loop_of_links_is_a_loop(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert refusal(tmp_path / "a") == ("input.file.symlink_loop", str(tmp_path / "a"))


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == ("input.file.irregular", str(tmp_path / "pipe"))


def test_a_device_is_refused_unopened() -> None:
    assert refusal(Path("/dev/null")) == ("input.file.irregular", "/dev/null")


def test_an_unreadable_file_says_permission() -> None:
    """Root reads everything, so the reader gives root up first."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "f")
        file.write_text("x")
        file.chmod(0)
        code = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from assay.impl.stores.files import open_regular\n"
            "if os.geteuid() == 0: os.seteuid(65534)\n"
            "try: open_regular(Path(sys.argv[1]))\n"
            "except Exception as error: print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True
        )
        assert (
            done.stdout == f"input.file.permission: {file}: expected a readable file, got permission denied\n"
        )


def test_an_empty_file_and_one_over_the_limit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "six").write_bytes(b"abcdef")
    codes = []
    for name in ("empty", "six"):
        with pytest.raises(AdmissionError) as caught:
            read_bounded(tmp_path / name, 5)
        codes.append((caught.value.finding.code, Path(caught.value.finding.where).name))
    assert codes == [("input.file.empty", "empty"), ("input.file.too_large", "six")]
    assert read_bounded(tmp_path / "six", 6) == b"abcdef"


def test_a_digest_is_that_of_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1
    assert file_digest(tmp_path / "abc") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        3,
    )


class Scripted:
    """A file whose reads give what a script says: bytes, or an error."""

    def __init__(self, *reads: bytes | OSError) -> None:
        self.reads = list(reads)

    def read(self, size: int) -> bytes:
        """Returns the next scripted piece."""
        piece = self.reads.pop(0) if self.reads else b""
        if isinstance(piece, OSError):
            raise piece
        assert len(piece) <= size
        return piece


def test_short_reads_are_continued_to_the_full_length() -> None:
    """llama.cpp#18504: a direct read returned fewer bytes than asked, and the rest kept old content."""
    file: Any = Scripted(b"a" * 4096, b"b" * 4096, b"c" * 1808)
    assert read_exactly(file, 10_000, stage="s", where="f") == b"a" * 4096 + b"b" * 4096 + b"c" * 1808


@pytest.mark.parametrize(
    ("reads", "got"),
    [
        ((b"a" * 4096, b""), "4096 bytes"),
        ((b"a", OSError(errno.EIO, "Input/output error")), "Input/output error"),
    ],
)
def test_an_end_or_an_error_inside_a_record_is_refused(reads: tuple[Any, ...], got: str) -> None:
    file: Any = Scripted(*reads)
    with pytest.raises(AdmissionError) as caught:
        read_exactly(file, 10_000, stage="s", where="f")
    finding = caught.value.finding
    assert (finding.code, finding.where, finding.got) == ("input.file.unreadable", "f", got)
