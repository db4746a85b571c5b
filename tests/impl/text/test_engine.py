"""Two paths into ids: data can never become control, control is exact, and an error hands out nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.text.engine import ALPHABET, Tokenizer
from assay.impl.text.facts import TokenizerFacts, read_facts
from assay.impl.text.miniature import tokenizer_files
from assay.impl.text.segments import Segment
from assay.provenance.paths import fixture_path
from assay.spec.contract.vocabulary import AddedToken
from assay.spec.errors import AdmissionError, ContractError
from assay.spec.text import OLDER_PATTERN, text_contract

TEXT = json.loads(fixture_path("text", "tokenizer-cases.json").read_text(encoding="utf-8"))
ADDED_SPELLINGS = [token.content for token in text_contract("qwen4exp").added]
MALFORMED = ["80", "c080", "e282", "eda080", "f4908080", "3c7c696d5f656e647c3e80"]


@pytest.mark.checkpoint
@pytest.mark.parametrize("case", TEXT["cases"], ids=lambda case: case["name"])
def test_a_published_case_gives_its_ids_on_both_paths(case: dict[str, Any], published: Tokenizer) -> None:
    raw = published.encode_data(case["text"])
    assert published.encode_trusted(case["text"]) == case["trusted"]
    assert len(raw) == case.get("raw_count", len(raw))
    assert raw == case.get("raw", raw)
    decoded = case.get("decoded", case["text"])
    assert (published.decode(case["trusted"]), published.decode(raw)) == (decoded, decoded)


@pytest.mark.checkpoint
@pytest.mark.parametrize("case", TEXT["decode_controls"], ids=lambda case: case["name"])
def test_a_published_decode_control_gives_its_text(case: dict[str, Any], published: Tokenizer) -> None:
    assert published.decode(case["ids"]) == case["text"]
    assert published.decode(case["ids"], skip_special=True) == case["text_skipped"]


@pytest.mark.checkpoint
def test_ids_outside_every_row_decode_to_nothing(published: Tokenizer) -> None:
    assert [published.decode([one]) for one in TEXT["outside"]] == ["", "", ""]


@pytest.mark.checkpoint
def test_a_sentence_published_elsewhere_gives_its_ids(published: Tokenizer) -> None:
    # Recorded by another project for the pinned revision.
    assert published.encode_data("Hello, Kestrel-Q.") == [9419, 11, 710, 467, 3621, 27_325, 13]


@pytest.mark.checkpoint
def test_the_33_published_identities_hold(published: Tokenizer) -> None:
    assert [published.encode_trusted(one) for one in ADDED_SPELLINGS] == [[248_044 + n] for n in range(33)]


def test_the_published_counts_are_closed() -> None:
    assert (len(TEXT["cases"]), len(TEXT["decode_controls"])) == (59, 6)


@pytest.mark.checkpoint
def test_the_pattern_of_the_convenience_constructor_gives_other_ids(published: Tokenizer) -> None:
    # The published divergence control: the file's pattern against the one that is rebuilt without marks.
    facts = published.facts
    rebuilt = Tokenizer(
        TokenizerFacts(
            facts.source, "NFC", OLDER_PATTERN, facts.vocabulary, facts.merges, facts.added, facts.flags
        )
    )
    assert [published.encode_data(text) for text in ("क्", "क्ष")] == [[149_567], [151_858]]
    assert [rebuilt.encode_data(text) for text in ("क्", "क्ष")] == [[62_516, 28_640], [62_516, 157_451]]


@pytest.mark.checkpoint
def test_a_resaved_tokenizer_json_gives_the_same_ids(published: Tokenizer, published_dir: Path) -> None:
    beside = published_dir.parent / "qwen3.5-family-tokenizer-87a7830d"
    if not beside.is_dir():
        pytest.skip("the re-saved tokenizer.json is absent")
    other = Tokenizer.of_directory(beside)
    assert other.facts.source == "tokenizer.json"
    assert [other.encode_trusted(case["text"]) for case in TEXT["cases"]] == [
        case["trusted"] for case in TEXT["cases"]
    ]


def test_a_mark_belongs_to_its_word(miniature: Tokenizer) -> None:
    # surogate 105: piece boundaries, before any merge.
    assert miniature.pieces("हिन्दी") == ["हिन्दी"]
    assert miniature.pieces("e\u0301 กำ") == ["é", " กำ"]


def test_the_older_pattern_tears_marks_from_their_word(miniature: Tokenizer) -> None:
    facts = miniature.facts
    older = Tokenizer(
        TokenizerFacts(
            facts.source, "NFC", OLDER_PATTERN, facts.vocabulary, facts.merges, facts.added, facts.flags
        )
    )
    assert older.pieces("हिन्दी") == ["ह", "िन", "्द", "ी"]


def test_merges_apply_by_rank_not_by_length(miniature: Tokenizer) -> None:
    # By hand: `h e` ranks 4, ` t` 5, ` t`+`he` 7, `h`... so " the" is one symbol and "hello" climbs to `hello`.
    assert miniature.encode_data(" the") == [256 + 7]
    assert miniature.encode_data("hello") == [256 + 23]


@given(st.text())
@settings(max_examples=200)
def test_data_never_yields_an_added_token(text: str) -> None:
    assert all(one < 320 for one in _miniature().encode_data(text))


@given(st.lists(st.one_of(st.sampled_from(ADDED_SPELLINGS), st.text(max_size=5)), max_size=8).map("".join))
@settings(max_examples=300)
def test_data_that_spells_controls_decodes_to_itself_and_holds_none(text: str) -> None:
    import unicodedata

    ids = _miniature().encode_data(text)
    assert all(one < 320 for one in ids)
    assert _miniature().decode(ids) == unicodedata.normalize("NFC", text)


@given(st.lists(st.one_of(st.sampled_from(ADDED_SPELLINGS), st.text("ab <|>é\n", max_size=5)), max_size=8))
@settings(max_examples=200)
def test_the_trusted_path_is_the_librarys_flat_tokenization(parts: list[str]) -> None:
    text = "".join(parts)
    assert _miniature().encode_trusted(text) == _library().encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("data", MALFORMED)
def test_malformed_utf8_is_refused_and_leaves_the_callers_tokens(data: str, miniature: Tokenizer) -> None:
    tokens = [7]
    raw = bytes.fromhex(data)
    with pytest.raises(ContractError) as caught:
        miniature.extend(tokens, raw, [Segment(1, 0, len(raw))])
    assert (caught.value.finding.code, caught.value.finding.where) == ("text.utf8", f"bytes 0 to {len(raw)}")
    assert tokens == [7]


def test_a_later_bad_segment_leaves_the_callers_tokens(miniature: Tokenizer) -> None:
    tokens = [7]
    with pytest.raises(ContractError) as caught:
        miniature.extend(tokens, b"ab\x80", [Segment(0, 0, 2), Segment(1, 2, 1)])
    assert caught.value.finding.code == "text.utf8"
    assert tokens == [7]


def test_cuts_inside_data_change_no_id(miniature: Tokenizer) -> None:
    whole = miniature.encode_segments(b"hello", [Segment(0, 0, 5)])
    assert miniature.encode_segments(b"hello", [Segment(0, 0, 2), Segment(0, 2, 3)]) == whole


def test_a_trusted_segment_passes_the_rest_through_the_data_path(miniature: Tokenizer) -> None:
    stream = b"<|im_start|>hello<|im_end|>"
    assert miniature.encode_segments(stream, [Segment(1, 0, len(stream))]) == [321, 279, 322]


@pytest.mark.parametrize(
    "spelling", ["<|im_start>", "<| im_start|>", "<|IM_START|>", "\uff1c|im_start|>", "<|im_start|"]
)
def test_a_near_miss_is_no_control(spelling: str, miniature: Tokenizer) -> None:
    assert max(miniature.encode_trusted(spelling)) < 320


def test_an_engine_is_the_same_from_either_set_of_files() -> None:
    files = tokenizer_files()
    without = {name: data for name, data in files.items() if name != "tokenizer.json"}
    one, two = read_facts(files), read_facts(without)
    assert (one.source, two.source) == ("tokenizer.json", "vocab.json")
    assert (one.pattern, one.vocabulary, one.merges, one.added) == (
        two.pattern,
        two.vocabulary,
        two.merges,
        two.added,
    )


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        (lambda f: {**f, "normalizer": "NFKC"}, "tokenizer.form", "normalizer"),
        (lambda f: {**f, "pattern": ""}, "tokenizer.pattern", "pattern"),
        (lambda f: {**f, "vocabulary": {k: v for k, v in f["vocabulary"].items() if k != ALPHABET[10]}}, "tokenizer.bytes", "vocabulary"),
        (lambda f: {**f, "merges": (*f["merges"], ("q", "q"))}, "tokenizer.bytes", "merges[64]"),
        (lambda f: {**f, "flags": {322: ("lstrip",)}}, "tokenizer.form", "added token <|im_end|>"),
        (lambda f: {**f, "added": (*f["added"], AddedToken(id=353, content="<think>er", special=False))}, "tokenizer.form", "added tokens"),
        (lambda f: {**f, "added": (AddedToken(id=5, content="<x>", special=False),)}, "tokenizer.form", "added token <x>"),
    ],
)  # fmt: skip
def test_facts_under_which_encoding_could_fail_are_refused(change: Any, code: str, where: str) -> None:
    facts = read_facts(tokenizer_files())
    fields = {name: getattr(facts, name) for name in TokenizerFacts.__slots__}
    with pytest.raises(AdmissionError) as caught:
        Tokenizer(TokenizerFacts(**change(fields)))
    assert (caught.value.finding.code, caught.value.finding.where) == (code, where)


@pytest.mark.parametrize(
    ("name", "data", "where"),
    [
        ("tokenizer.json", b"{", "tokenizer.json"),
        ("tokenizer.json", b'{"a": 1, "a": 2}', "tokenizer.json"),
        ("tokenizer.json", b"[]", "tokenizer.json"),
        ("tokenizer.json", b"\xff", "tokenizer.json"),
        ("tokenizer.json", b"[" * 100_000, "tokenizer.json"),
    ],
)
def test_a_damaged_file_is_one_finding(name: str, data: bytes, where: str) -> None:
    with pytest.raises(AdmissionError) as caught:
        read_facts({**tokenizer_files(), name: data})
    assert (caught.value.finding.code, caught.value.finding.where) == ("tokenizer.form", where)


_ENGINES: dict[str, Any] = {}


def _miniature() -> Tokenizer:
    if "ours" not in _ENGINES:
        _ENGINES["ours"] = Tokenizer(read_facts(tokenizer_files()))
    engine: Tokenizer = _ENGINES["ours"]
    return engine


def _library() -> Any:
    """The library's own reading of the same file: added tokens and all."""
    from tokenizers import Tokenizer as Library

    if "library" not in _ENGINES:
        _ENGINES["library"] = Library.from_str(tokenizer_files()["tokenizer.json"].decode())
    return _ENGINES["library"]
