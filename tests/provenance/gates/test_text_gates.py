"""The gates of the text pipeline pass, and fail when one side is changed."""

import dataclasses
from pathlib import Path

import pytest

from assay.impl.text.chat import ChatRenderer
from assay.impl.text.engine import Tokenizer
from assay.impl.text.facts import TokenizerFacts
from assay.impl.text.miniature import TEMPLATE
from assay.provenance.gates import text
from assay.provenance.gates.base import GateContext
from assay.provenance.gates.text_tables import compare_tables
from assay.provenance.paths import checkpoint_directory
from assay.spec.text import OLDER_PATTERN
from assay.spec.verdicts import Outcome

NONE = GateContext(checkpoint=None, out=Path())


def test_the_miniature_twins_pass_without_the_published_files() -> None:
    result = text.miniature_cases(NONE)
    assert (result.outcome, result.measurements["decode_controls"]) == (Outcome.PASS, 6)
    assert text.mutations_killed(NONE).measurements == {"mutations": 53, "killed": 53}


def test_without_the_published_files_their_gates_are_not_run() -> None:
    for gate in (text.published_cases, text.published_agreement):
        assert gate(NONE).outcome is Outcome.NOT_RUN


@pytest.mark.checkpoint
def test_the_published_cases_pass() -> None:
    directory = checkpoint_directory()
    if directory is None:
        pytest.skip("the description of the published checkpoint is absent")
    result = text.published_cases(GateContext(checkpoint=directory, out=Path()))
    assert (result.outcome, result.measurements) == (
        Outcome.PASS,
        {"text_cases": 59, "decode_controls": 6, "identities": 33, "chat_cases": 39},
    )


@pytest.mark.slow
def test_engine_and_oracle_agree_on_random_strings_and_conversations() -> None:
    with text._miniature() as pipeline:
        result = text.agreement(pipeline, seed=1, strings=4_000, conversations=150)
    assert result.outcome is Outcome.PASS, result.reason
    assert result.measurements["unicode_oracle"]


def test_an_engine_without_marks_is_found_by_the_oracle() -> None:
    with text._miniature() as pipeline:
        facts = {name: getattr(pipeline.tokenizer.facts, name) for name in TokenizerFacts.__slots__}
        wrong = Tokenizer(TokenizerFacts(**{**facts, "pattern": OLDER_PATTERN}))
        findings: list = []
        text._text_cases(dataclasses.replace(pipeline, tokenizer=wrong), findings, published=False)
    assert "text.oracle" in {one.code for one in findings}
    assert any(one.where.startswith("devanagari_combining") for one in findings)


def test_a_decoder_that_skips_nothing_is_found_by_the_controls() -> None:
    with text._miniature() as pipeline:
        decode = pipeline.tokenizer.decode

        def forgetful(ids: list[int], *, skip_special: bool = False) -> str:
            return decode(ids, skip_special=skip_special and not ids)

        pipeline.tokenizer.decode = forgetful
        findings: list = []
        text._decode_controls(pipeline, findings, text._MINIATURE_CONTROLS)
    assert [(one.code, one.where) for one in findings] == [
        ("text.case", f"{name}: skipped") for name in ("first added", "last added", "mixed")
    ]


def test_a_template_with_another_trim_is_found_by_the_oracle() -> None:
    with text._miniature() as pipeline:
        wrong = ChatRenderer(TEMPLATE.replace(").strip() -%}", ").strip(' ') -%}"), pipeline.contract)
        findings: list = []
        text._chat_cases(dataclasses.replace(pipeline, renderer=wrong), findings, published=False)
    assert {(one.code, one.where) for one in findings} >= {
        ("text.oracle", "unicode_and_information_separator_trim")
    }


def test_a_template_without_a_pinned_text_is_found_by_the_oracle() -> None:
    with text._miniature() as pipeline, pytest.raises(LookupError, match=r"effort\.low"):
        text._chat_cases(
            dataclasses.replace(pipeline, template=TEMPLATE.replace("Think briefly", "Think shortly")),
            [],
            published=False,
        )


@pytest.mark.slow
def test_tables_of_different_age_are_reported_and_left_out() -> None:
    report = compare_tables()
    assert set(report.differing) == {r"\p{L}", r"\p{M}", r"\p{N}", r"\s", "nfc", "order of marks"}
    assert "a" not in report.excluded
    assert report.measurements()["table_differences"][r"\s"] == 0


def test_an_empty_directory_is_no_failure_of_the_text_pipeline(tmp_path: Path) -> None:
    for gate in (text.published_cases, text.published_agreement):
        result = gate(GateContext(checkpoint=tmp_path, out=tmp_path))
        assert result.outcome is Outcome.INCONCLUSIVE
        assert [(one.code, one.where, one.got) for one in result.findings] == [
            ("text.published-files", name, "no such file")
            for name in ("vocab.json", "merges.txt", "tokenizer_config.json", "chat_template.jinja")
        ]


@pytest.mark.checkpoint
@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer_config.json", "chat_template.jinja"])
def test_a_file_with_other_bytes_is_named_before_anything_is_compared(tmp_path: Path, name: str) -> None:
    directory = checkpoint_directory()
    if directory is None:
        pytest.skip("the description of the published checkpoint is absent")
    for path in directory.iterdir():
        if path.name == name:
            (tmp_path / name).write_bytes(path.read_bytes() + b"\n")
        else:
            (tmp_path / path.name).symlink_to(path.resolve())
    result = text.published_cases(GateContext(checkpoint=tmp_path, out=tmp_path))
    assert result.outcome is Outcome.INCONCLUSIVE
    assert [(one.code, one.where) for one in result.findings] == [("text.published-files", name)]
