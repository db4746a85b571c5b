"""Captures of any runtime: what is refused, at which clause and where."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.impl.captures.fixtures import judge_capture
from assay.impl.captures.npy import npy_header
from assay.impl.captures.reading import open_capture
from assay.provenance.captures.arrays import OpenCapture
from assay.provenance.cli import main
from assay.spec.errors import AdmissionError
from assay.spec.judgement import JudgeOptions

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A capture of two tokens: an embedding of three values and ids of two experts."""
    np.arange(6, dtype="<f4").tofile(tmp_path / "embedding.bin")
    np.arange(4, dtype="<i4").tofile(tmp_path / "ids.bin")
    document = {
        "schema": "assay.capture/1",
        "producer": {"name": "test"},
        "token_ids": [7, 8],
        "entries": [
            {"stage": "embedding", "tokens": 2, "dtype": "f32", "shape": [2, 3], "file": "embedding.bin"},
            {
                "stage": "router", "layer": 0, "part": "ids", "tokens": 2, "dtype": "i32", "shape": [2, 2],
                "file": "ids.bin",
            },
        ],
    }  # fmt: skip
    (tmp_path / "capture.json").write_text(json.dumps(document))
    return tmp_path


def edit(folder: Path, change: Edit) -> None:
    document = json.loads((folder / "capture.json").read_text())
    change(document)
    (folder / "capture.json").write_text(json.dumps(document))


def test_a_minimal_capture_is_accepted(folder: Path) -> None:
    judgement = judge_capture(folder, JudgeOptions())
    assert (judgement.verdict, judgement.facts["arrays"], judgement.facts["arraysWithoutDigest"]) == (
        "accepted",
        2,
        2,
    )


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        (lambda d: d["entries"][0].update(dtype="f64"), "capture.form", "entries.0.dtype"),
        (lambda d: d["entries"][0].update(stage="attention"), "capture.form", "entries.0.stage"),
        (lambda d: d["entries"][0].update(tokens=0), "capture.form", "entries.0.tokens"),
        (lambda d: d["entries"][0].update(tokens="2"), "capture.form", "entries.0.tokens"),
        (lambda d: d["entries"][0].update(shape=[2, -3]), "capture.form", "entries.0.shape.1"),
        (lambda d: d["entries"][0].update(note=""), "capture.form", "entries.0.note"),
        (lambda d: d.update(prompt_hex="6G"), "capture.form", "prompt_hex"),
        (lambda d: d["entries"][0].update(layer=3), "capture.entry.layer", "layers.3.embedding [0, 2)"),
        (lambda d: d["entries"][1].pop("layer"), "capture.entry.layer", "router.ids [0, 2)"),
        (lambda d: d["entries"][0].update(shape=[3, 2]), "capture.entry.shape", "embedding [0, 2)"),
        (lambda d: d["entries"][0].update(first_token=1), "capture.entry.range", "embedding [1, 3)"),
        (lambda d: d["entries"][0].update(shape=[2, 4]), "capture.file.extent", "embedding [0, 2)"),
        (lambda d: d["entries"][0].update(shape=[2, 2]), "capture.file.extent", "embedding.bin"),
        (lambda d: d["entries"][0].update(shape=[2, 2**50]), "capture.file.extent", "embedding [0, 2)"),
        (lambda d: d["entries"][0].update(file="../x.bin"), "capture.file.path", "embedding [0, 2)"),
        (lambda d: d["entries"][0].update(file="gone.bin"), "capture.file.missing", "gone.bin"),
        (lambda d: d["entries"].append(d["entries"][0]), "capture.entry.overlap", "embedding [0, 2)"),
        (lambda d: d["entries"][0].update(sha256="0" * 64), "capture.file.digest", "embedding [0, 2)"),
    ],
)
def test_each_fault_is_found_at_its_clause(folder: Path, change: Edit, code: str, where: str) -> None:
    edit(folder, change)
    found = [(finding.code, finding.where) for finding in judge_capture(folder, JudgeOptions()).faults]
    assert (code, where) in found


def test_all_faults_reach_the_user_at_once(folder: Path) -> None:
    edit(folder, lambda d: (d["entries"][0].update(file="gone.bin"), d["entries"][1].update(layer=None)))
    codes = {finding.code for finding in open_capture(folder).faults}
    assert codes == {"capture.file.missing", "capture.entry.layer"}


def test_a_link_that_leads_out_is_refused(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "embedding.bin"
    (folder / "embedding.bin").rename(outside)
    (folder / "embedding.bin").symlink_to(outside)
    faults = open_capture(folder).faults
    assert [(one.code, one.where) for one in faults] == [("capture.file.path", "embedding [0, 2)")]


def test_a_claimed_size_allocates_nothing(folder: Path) -> None:
    edit(folder, lambda d: d["entries"][0].update(shape=[2, 2**40]))
    tracemalloc.start()
    open_capture(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_npy_files_are_read(folder: Path) -> None:
    np.save(folder / "embedding.npy", np.arange(6, dtype="<f4").reshape(2, 3))
    edit(folder, lambda d: d["entries"][0].update(file="embedding.npy"))
    values = OpenCapture(folder).whole(("embedding", None, ""))
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="<f8").reshape(2, 3),
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype="<f4").reshape(2, 3)),
        np.arange(6, dtype="<f4").reshape(3, 2),
        np.array([{}, {}], dtype=object),
    ],
)
def test_npy_files_that_a_capture_cannot_hold_are_refused(folder: Path, array: np.ndarray) -> None:
    np.save(folder / "embedding.npy", array, allow_pickle=True)
    edit(folder, lambda d: d["entries"][0].update(file="embedding.npy"))
    try:
        found = open_capture(folder).faults
    except AdmissionError as error:
        found = [error.finding]
    assert found[0].code == "capture.file.npy"
    assert found[0].where in {"embedding.npy", "embedding [0, 2)"}


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, -1), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, True), }",
        b"{'descr': '<f4', 'shape': (2, 3), }",
        b"__import__('os').abort()",
        b"(" * 3000,
    ],
)
def test_hostile_npy_headers_are_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(AdmissionError) as caught:
        npy_header(path, "x.npy")
    assert (caught.value.finding.code, caught.value.finding.where) == ("capture.file.npy", "x.npy")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "input.file.empty"),
        ("{", "input.json.syntax"),
        ("[]", "input.json.object"),
        ('{"schema": "assay.capture/1", "schema": "assay.capture/1"}', "input.json.duplicate_key"),
    ],
)
def test_a_bad_description_is_one_line_and_exit_1(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, code: str
) -> None:
    (folder / "capture.json").write_text(text)
    assert main(["diff", str(folder), str(folder)]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[0].startswith(f"assay: error: {code}: A capture.json")


def test_validate_tells_captures_and_fixtures_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "capture"
