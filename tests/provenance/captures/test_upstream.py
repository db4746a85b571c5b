"""The collection from upstream: bits, hooks, padding, and what a check says of a changed file."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from assay.impl.captures.fixtures import fixture_faults
from assay.provenance.captures.geometries import CASES, Case, case
from assay.provenance.captures.regenerate import _same_record, check
from assay.provenance.paths import fixture_path
from assay.spec.errors import Finding

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
pytest.importorskip("torch")
pytest.importorskip("transformers")

ONE = "contract-fixture/tokens"


BESIDE, ABSENT = "small/short-row-alone", "two-ple/one-shot"


def test_upstream_gives_the_shipped_bytes_again() -> None:
    findings, compared = check(fixture_path("captures"), write_rejected=False)
    assert findings == []
    assert compared == 1363


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, list[Finding]]:
    """One check over three faults: a changed array, a changed record, a fixture that is not shipped."""
    root = tmp_path_factory.mktemp("damaged")
    for name in (ONE, BESIDE):
        shutil.copytree(fixture_path("captures", name), root / name)
    path = root / ONE / "arrays.bin"
    data = bytearray(path.read_bytes())
    data[json.loads((root / ONE / "capture.json").read_bytes())["entries"][3]["offset"]] ^= 1
    path.write_bytes(data)
    record = root / BESIDE / "fixture.json"
    record.write_text(record.read_text().replace('"title":"', '"title":"also '))
    return root, bytes(data), check(root, [ONE, BESIDE, ABSENT])[0]


def test_another_version_of_assay_is_not_another_capture() -> None:
    shipped = fixture_path("captures", ONE, "fixture.json").read_bytes()
    document = json.loads(shipped)
    document["producers"]["assay"]["version"] = "99"
    document["producers"]["torch"]["wheel_sha256"] = None
    assert _same_record(json.dumps(document).encode(), shipped)
    document["producers"]["transformers"]["wheel_sha256"] = None
    assert not _same_record(json.dumps(document).encode(), shipped)


def test_every_fault_fails_at_its_own_clause(damaged: tuple[Path, bytes, list[Finding]]) -> None:
    found = {finding.code: finding.where for finding in damaged[2]}
    where = found.pop("capture.check.bytes")
    assert where.startswith(f"{ONE}/arrays.bin: 1 arrays, first layers.0.attn_gr_prepare.normed [0, 0]")
    assert found == {"capture.check.record": f"{BESIDE}/fixture.json", "capture.check.absent": ABSENT}


def test_a_difference_is_kept_beside_and_never_over_the_shipped_file(
    damaged: tuple[Path, bytes, list[Finding]],
) -> None:
    root, changed, _ = damaged
    path = root / ONE / "arrays.bin"
    assert (
        path.with_name("arrays.bin.rej").read_bytes()
        == fixture_path("captures", ONE, "arrays.bin").read_bytes()
    )
    assert path.read_bytes() == changed
    assert "fixture.file.extra" in {fault.code for fault in fixture_faults(root / ONE)}


def collected(case: Case) -> dict:
    from assay.provenance.captures.collect import collect

    return collect(case).arrays


PADDED = case("small/batch-short-row")
ALONE = case("small/short-row-alone")
LOGITS = ("output_head", None, "")
ROWS = ("ple_rows", 1, "")


def test_padding_in_one_call_is_invisible_whatever_its_id() -> None:
    alone = collected(ALONE)
    for pad in (None, 9):
        padded = collected(dataclasses.replace(PADDED, pad_id=pad))
        assert np.array_equal(padded[ROWS], alone[ROWS])
        assert np.abs(padded[LOGITS] - alone[LOGITS]).max() < 2e-5


def test_padding_fed_token_by_token_is_not_invisible_upstream() -> None:
    """The note in docs/captures.md: a call of one token has no recurrent mask, and hashes what it is given."""
    alone = collected(ALONE)
    single = dataclasses.replace(PADDED, partition=(1,) * 30)
    end_of_text = collected(single)
    other = collected(dataclasses.replace(single, pad_id=9))
    assert np.array_equal(end_of_text[ROWS], alone[ROWS])
    assert not np.array_equal(other[ROWS], alone[ROWS])
    assert np.abs(end_of_text[LOGITS] - alone[LOGITS]).max() > 0.01


def test_the_watched_scores_are_the_ones_that_select(tmp_path: Path) -> None:
    """Selecting by the recorded scores, highest first, gives the recorded mask: the taps belong together."""
    arrays = collected(case("small/one-shot"))
    scores, mask = arrays[("qsa", 3, "index_scores")], arrays[("qsa", 3, "selection_mask")]
    budget = 2
    for token in range(41):
        visible = token + 1
        groups = visible // 4
        best = np.argsort(-scores[token, :groups], kind="stable")[:budget]
        expected = {position for group in best for position in range(4 * group, 4 * group + 4)}
        expected |= set(range(4 * groups, visible))
        assert set(np.flatnonzero(mask[token])) == expected
        assert (scores[token, groups:] == -1).all()


def test_every_case_sums_to_its_longest_row() -> None:
    assert all(sum(one.partition) == max(map(len, one.rows)) for one in CASES)
