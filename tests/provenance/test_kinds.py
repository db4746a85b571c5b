"""Each kind is recognised by its marks, and its judge exists."""

from pathlib import Path

import pytest

from assay.provenance.kinds import KINDS, Kind, judge_path, load_judge
from assay.spec.errors import UsageError
from assay.spec.judgement import JudgeOptions


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_judge_of_each_kind_can_be_imported(kind: Kind) -> None:
    assert callable(load_judge(kind))


def test_an_unknown_kind_is_a_usage_error_that_lists_the_kinds(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        judge_path(tmp_path, JudgeOptions(), "chekpoint")
    assert (caught.value.finding.code, caught.value.finding.where) == ("usage.argument", "--kind")
    assert "safetensors" in caught.value.finding.expected


def test_a_file_without_any_mark_is_inconclusive_and_says_how_to_name_its_kind(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"hello")
    judgement = judge_path(tmp_path / "f", JudgeOptions())
    assert (judgement.verdict, judgement.stage, judgement.findings[0].code) == (
        "inconclusive",
        "input",
        "input.kind",
    )
    assert "--kind" in judgement.findings[0].hint


def test_an_empty_file_is_rejected_as_empty(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    judgement = judge_path(tmp_path / "f", JudgeOptions())
    assert (judgement.verdict, judgement.findings[0].code) == ("rejected", "input.file.empty")
    assert judgement.findings[0].where == str(tmp_path / "f")
