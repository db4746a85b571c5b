"""The commands of docs/vectors.md print what the page says they print."""

import io
import json
import re
from pathlib import Path

import pytest

from assay.provenance.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "vectors.md"
BLOCK = re.compile(r"echo '(\{.*?\})' \| assay oracle (\S+)\n# (\{[^\n]*\})", re.DOTALL)
CASES = BLOCK.findall(PAGE.read_text(encoding="utf-8")) if PAGE.is_file() else []


@pytest.mark.skipif(not PAGE.is_file(), reason="not-run: an installed package has no docs")
def test_the_page_shows_a_row_and_a_selection() -> None:
    assert [operation for _, operation, _ in CASES] == ["ple.rows", "qsa.select"]


@pytest.mark.parametrize(("question", "operation", "answer"), CASES)
def test_a_documented_command_prints_the_documented_answer(
    question: str,
    operation: str,
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(question.encode())))
    assert main(["oracle", operation]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(answer)
