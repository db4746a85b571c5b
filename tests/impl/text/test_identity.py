"""A tokenizer directory is judged by bytes, and its tokenizer.json by meaning."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.impl.text.facts import MAX_FILE_BYTES, vocabulary_of
from assay.impl.text.identity import judge_files, judge_tokenizer
from assay.impl.text.miniature import tokenizer_files
from assay.provenance.kinds import judge_path
from assay.provenance.miniature import miniature_checkpoint
from assay.spec.errors import Finding
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.text import OLDER_PATTERN, text_contract
from assay.spec.verdicts import Verdict

PRIVATE = JudgeOptions(is_private=True)


def judged(**changed: bytes | None) -> Judgement:
    names = {name.replace(".", "_"): name for name in tokenizer_files()}
    files: dict[str, bytes | None] = {
        **tokenizer_files(),
        **{names[key]: data for key, data in changed.items()},
    }
    return judge_files(
        {name: data for name, data in files.items() if data is not None}, text_contract("miniature")
    )


def resaved(change: Callable[[Any], Any] = lambda _: None) -> bytes:
    document = json.loads(tokenizer_files()["tokenizer.json"])
    change(document)
    return json.dumps(document).encode()


def test_the_miniatures_own_directory_is_accepted(miniature_dir: Path) -> None:
    judgement = judge_tokenizer(miniature_dir, PRIVATE)
    assert (judgement.verdict, judgement.findings) == (Verdict.ACCEPTED, [])


def test_the_miniature_is_rejected_by_the_published_contract(miniature_dir: Path) -> None:
    judgement = judge_tokenizer(miniature_dir, JudgeOptions())
    codes = {finding.code for finding in judgement.faults}
    assert judgement.verdict is Verdict.REJECTED
    assert {
        "tokenizer.added.id",
        "tokenizer.vocabulary",
        "tokenizer.merges",
        "tokenizer.template.digest",
    } <= codes


def test_a_resaved_tokenizer_json_is_inconclusive_and_says_what_is_equal() -> None:
    judgement = judged(tokenizer_json=resaved())
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert [(one.code, one.where) for one in judgement.findings] == [
        ("tokenizer.file.resaved", "tokenizer.json")
    ]
    assert {"tokenizer.json: pattern", "tokenizer.json: merges", "tokenizer.json: vocabulary"} <= set(
        judgement.facts["equal"]
    )


def test_merges_written_as_text_mean_the_same_as_pairs() -> None:
    def as_text(document: Any) -> None:
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]

    assert judged(tokenizer_json=resaved(as_text)).verdict is Verdict.INCONCLUSIVE


def test_a_pattern_without_marks_is_rejected_by_its_own_name_before_any_text() -> None:
    def older(document: Any) -> None:
        document["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = OLDER_PATTERN

    judgement = judged(tokenizer_json=resaved(older))
    assert judgement.verdict is Verdict.REJECTED
    assert [(one.code, one.where) for one in judgement.findings] == [
        ("tokenizer.pattern", "tokenizer.json: pattern")
    ]
    assert "tokenizer.json: merges" in judgement.facts["equal"]


def test_a_reordered_merge_is_located_by_rank_and_told_from_other_pairs() -> None:
    def swap(document: Any) -> None:
        merges = document["model"]["merges"]
        merges[10], merges[11] = merges[11], merges[10]

    found = judged(tokenizer_json=resaved(swap)).findings
    assert [(one.code, one.where, one.hint) for one in found] == [
        ("tokenizer.merges", "tokenizer.json: merges[10]", "the same pairs in another order")
    ]


@pytest.mark.parametrize("name", ["chat_template.jinja", "vocab.json", "merges.txt", "tokenizer_config.json"])
def test_any_other_file_is_judged_by_bytes(name: str) -> None:
    changed = tokenizer_files()[name] + b"\n"
    judgement = judge_files({**tokenizer_files(), name: changed}, text_contract("miniature"))
    code = "tokenizer.template.digest" if name == "chat_template.jinja" else "tokenizer.file.digest"
    assert judgement.verdict is Verdict.REJECTED
    assert [(one.code, one.where) for one in judgement.faults] == [(code, name)]


@pytest.mark.parametrize("name", ["tokenizer_config_json", "chat_template_jinja", "tokenizer_json"])
def test_an_absent_file_that_decides_is_a_gap(name: str) -> None:
    judgement = judged(**{name: None})
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert [one.code for one in judgement.gaps] == ["tokenizer.file.missing"]


def test_files_that_repeat_tokenizer_json_may_be_absent() -> None:
    judgement = judged(vocab_json=None, merges_txt=None)
    assert judgement.verdict is Verdict.ACCEPTED
    assert len(judgement.not_checked) == 2


def test_all_findings_are_collected_across_files() -> None:
    judgement = judged(tokenizer_json=b"{}", chat_template_jinja=b"", merges_txt=b"one")
    assert {one.code for one in judgement.faults} >= {
        "tokenizer.form", "tokenizer.template.digest", "tokenizer.file.digest",
    }  # fmt: skip


def test_a_file_too_large_to_be_a_tokenizer_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    judgement = judge_tokenizer(tmp_path, PRIVATE)
    assert [(one.code, one.where) for one in judgement.faults] == [("tokenizer.form", "tokenizer.json")]


@pytest.mark.checkpoint
def test_the_published_files_are_right_and_the_authority_is_named_as_absent(published_dir: Path) -> None:
    judgement = judge_tokenizer(published_dir, JudgeOptions())
    assert judgement.faults == []
    assert [(one.code, one.where) for one in judgement.gaps] == [("tokenizer.file.missing", "tokenizer.json")]


@pytest.mark.checkpoint
def test_the_public_resaved_file_differs_in_bytes_only(published_dir: Path) -> None:
    beside = published_dir.parent / "qwen3.5-family-tokenizer-87a7830d"
    if not beside.is_dir():
        pytest.skip("the re-saved tokenizer.json is absent")
    judgement = judge_tokenizer(beside / "tokenizer.json", JudgeOptions())
    assert judgement.faults == []
    assert ("tokenizer.file.resaved", "tokenizer.json") in [(one.code, one.where) for one in judgement.gaps]


def _set(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        (_set("version", value="2.0"), "tokenizer.form", "tokenizer.json:version"),
        (_set("extra", value=1), "tokenizer.form", "tokenizer.json.extra"),
        (_set("model", "extra", value=1), "tokenizer.form", "tokenizer.json:model.extra"),
        (_set("pre_tokenizer", "pretokenizers", 0, "pattern", "String", value="x"), "tokenizer.pattern",
         "tokenizer.json:pre_tokenizer.split.pattern"),
        (_set("added_tokens", 0, "id", value=1 << 63), "tokenizer.form", "tokenizer.json:added_tokens[0]"),
        (_set("added_tokens", 0, "content", value="\ud800"), "tokenizer.form", "tokenizer.json"),
        (_set("model", "vocab", "\udfff", value=320), "tokenizer.form", "tokenizer.json"),
    ],
    ids=["version", "unknown key", "unknown model key", "two patterns", "huge id", "surrogate", "surrogate token"],
)  # fmt: skip
def test_a_setting_that_nobody_knows_is_rejected_by_its_name(
    change: Callable[[Any], Any], code: str, where: str
) -> None:
    judgement = judged(tokenizer_json=resaved(change))
    assert judgement.verdict is Verdict.REJECTED
    assert (code, where) in {(one.code, one.where) for one in judgement.findings}


def test_a_lone_surrogate_in_vocab_json_is_a_finding() -> None:
    vocabulary = json.loads(tokenizer_files()["vocab.json"])
    vocabulary["\ud800"] = len(vocabulary)
    judgement = judged(vocab_json=json.dumps(vocabulary).encode(), tokenizer_json=None)
    assert judgement.verdict is Verdict.REJECTED
    assert ("tokenizer.form", "vocab.json") in {(one.code, one.where) for one in judgement.findings}


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (("normalizer", "x"), "tokenizer.json:normalizer.x"),
        (("pre_tokenizer", "x"), "tokenizer.json:pre_tokenizer.x"),
        (("pre_tokenizer", "pretokenizers", 0, "x"), "tokenizer.json:pre_tokenizer[0].x"),
        (("pre_tokenizer", "pretokenizers", 1, "x"), "tokenizer.json:pre_tokenizer[1].x"),
        (("decoder", "x"), "tokenizer.json:decoder.x"),
        (("post_processor", "x"), "tokenizer.json:post_processor.x"),
        (("added_tokens", 3, "x"), "tokenizer.json:added_tokens[3].x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_unknown_setting_inside_a_stage_is_rejected_by_its_name(path: tuple[Any, ...], where: str) -> None:
    judgement = judged(tokenizer_json=resaved(_set(*path, value=1)))
    assert judgement.verdict is Verdict.REJECTED
    assert [(one.code, one.where) for one in judgement.faults] == [("tokenizer.form", where)]


def test_a_sequence_of_one_normaliser_means_that_one() -> None:
    sequence = {"type": "Sequence", "normalizers": [{"type": "NFC"}]}
    judgement = judged(tokenizer_json=resaved(_set("normalizer", value=sequence)))
    assert (judgement.verdict, judgement.faults) == (Verdict.INCONCLUSIVE, [])
    assert "tokenizer.json: normalizer" in judgement.facts["equal"]


@pytest.mark.parametrize(
    ("normalizer", "got"),
    [
        (None, "none"),
        ("NFC", "None"),
        ({"type": "NFKC"}, "NFKC"),
        ({"type": "Sequence", "normalizers": []}, "Sequence of nothing"),
        ({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}, "Sequence of NFC, Lowercase"),
    ],
)  # fmt: skip
def test_any_other_normaliser_is_named(normalizer: Any, got: str) -> None:
    judgement = judged(tokenizer_json=resaved(_set("normalizer", value=normalizer)))
    assert judgement.verdict is Verdict.REJECTED
    assert [(one.code, one.where, one.got) for one in judgement.faults] == [
        ("tokenizer.normalizer", "tokenizer.json: normalizer", got)
    ]


def _both(folder: Path, options: JudgeOptions) -> list[Judgement]:
    """Judges a checkpoint directory as `assay validate` does by itself, and as `--kind tokenizer`."""
    return [judge_path(folder, options), judge_path(folder, options, "tokenizer")]


@pytest.fixture(scope="module")
def checkpoint_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    for path in miniature_checkpoint().iterdir():
        if path.name != "tokenizer.json":
            (folder / path.name).symlink_to(path.resolve())
    return folder


@pytest.mark.parametrize("kind", ["checkpoint", "tokenizer"])
def test_a_resaved_tokenizer_json_leaves_a_checkpoint_open_on_both_routes(
    kind: str, checkpoint_dir: Path
) -> None:
    (checkpoint_dir / "tokenizer.json").write_bytes(resaved())
    judgement = judge_path(checkpoint_dir, PRIVATE, kind)
    assert judgement.faults == []
    assert ("tokenizer.file.resaved", "tokenizer.json") in {(one.code, one.where) for one in judgement.gaps}
    assert judgement.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("kind", ["checkpoint", "tokenizer"])
def test_a_pattern_without_marks_rejects_a_checkpoint_by_name_on_both_routes(
    kind: str, checkpoint_dir: Path
) -> None:
    change = _set("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex", value=OLDER_PATTERN)
    (checkpoint_dir / "tokenizer.json").write_bytes(resaved(change))
    judgement = judge_path(checkpoint_dir, PRIVATE, kind)
    assert [(one.code, one.where) for one in judgement.faults] == [
        ("tokenizer.pattern", "tokenizer.json: pattern")
    ]


@pytest.mark.slow
@pytest.mark.checkpoint
def test_both_routes_agree_on_the_real_description(published_dir: Path, tmp_path: Path) -> None:
    beside = published_dir.parent / "qwen3.5-family-tokenizer-87a7830d" / "tokenizer.json"
    if not beside.is_file():
        pytest.skip("the re-saved tokenizer.json is absent")
    for path in published_dir.iterdir():
        (tmp_path / path.name).symlink_to(path.resolve())
    (tmp_path / "tokenizer.json").unlink(missing_ok=True)
    data = beside.read_bytes()
    (tmp_path / "tokenizer.json").write_bytes(data)
    for judgement in _both(tmp_path, JudgeOptions()):
        assert judgement.faults == []
        assert ("tokenizer.file.resaved", "tokenizer.json") in {
            (one.code, one.where) for one in judgement.gaps
        }
    (tmp_path / "tokenizer.json").write_bytes(data.replace(rb"\\p{M}", b""))
    for judgement in _both(tmp_path, JudgeOptions()):
        assert [(one.code, one.where) for one in judgement.faults] == [
            ("tokenizer.pattern", "tokenizer.json: pattern")
        ]


@pytest.mark.parametrize(
    ("value", "where", "got"),
    [
        ({"a": 0, "b": True}, "vocab.json['b']", True), ({"a": 0, "b": 1.0}, "vocab.json['b']", 1.0),
        ({"a": 0, "b": 0}, "vocab.json['b']", "0 twice"), ({"a": -1, "b": 0}, "vocab.json['a']", -1),
        ({"a": 2, "b": 0}, "vocab.json['a']", 2), ([], "vocab.json", "list"),
    ],
)  # fmt: skip
def test_a_vocabulary_that_is_no_numbering_names_its_first_wrong_token(
    value: Any, where: str, got: object
) -> None:
    findings: list[Finding] = []
    assert vocabulary_of(value, "vocab.json", findings) is None
    assert [(one.code, one.where, one.got) for one in findings] == [("tokenizer.form", where, str(got))]
