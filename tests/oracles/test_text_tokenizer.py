"""The text oracles against facts worked out by hand and against the interpreter's own functions."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.oracles.tokenizer import Oracle, Tables, pieces
from assay.oracles.unicode_tables import composing_pairs, nfc, trimmed


# Each expectation follows from the seven alternatives, read by hand.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello world", ["Hello", " world"]),
        ("I'LL don'\u017f", ["I", "'LL", " don", "'\u017f"]),
        ("it'so", ["it", "'s", "o"]),
        ("a1b22", ["a", "1", "b", "2", "2"]),
        ("  x", [" ", " x"]),
        ("x  ", ["x", "  "]),
        ("\n\n x", ["\n\n", " x"]),
        (" \r\n \t\ny", [" \r\n \t\n", "y"]),
        ("!!\n\nx", ["!!\n\n", "x"]),
        (" ?!", [" ?!"]),
        ("\tx", ["\tx"]),
        ("\u3000\u3000x", ["\u3000", "\u3000x"]),
        ("(x)", ["(x", ")"]),
        ("हिन्दी", ["हिन्दी"]),
        ("\u0301x", ["\u0301x"]),
        ("1\u0301", ["1", "\u0301"]),
        ("<|im_end|>", ["<|", "im", "_end", "|>"]),
        ("", []),
    ],
)
def test_the_scanner_cuts_as_the_pattern_reads(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("  x", "x"), ("x \t ", "x"), ("\x1c\u3000x y\x1f ", "x y"), (" \n\t", ""), ("\u200bx", "\u200bx")],
)
def test_trimming_takes_runs_off_both_ends(text: str, expected: str) -> None:
    assert trimmed(text) == expected


def test_composing_pairs_are_those_that_compose() -> None:
    pairs = composing_pairs()
    assert ("e", "\u0301") in pairs
    assert ("\u0915", "\u093c") not in pairs  # excluded
    assert ("\u1100", "\u1161") not in pairs  # Hangul is arithmetic
    assert all(nfc(first + second) == unicodedata.normalize("NFC", first + second) for first, second in pairs)


def test_the_older_rule_tears_marks_from_words() -> None:
    assert pieces("हिन्दी", marks_in_words=False) == ["ह", "िन", "्द", "ी"]


@given(st.text())
def test_every_character_lies_in_one_piece(text: str) -> None:
    assert "".join(pieces(text)) == text


# By hand: `ab` before `bc`, so "abc" is ab+c; `aa` is taken leftmost first.
TOY = Tables(
    {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "aa": 5, "aaaa": 6, "Ġ": 7},
    [("a", "b"), ("b", "c"), ("a", "a"), ("aa", "aa")],
    {"<x>": 8, "<xy>": 9},
)


@pytest.mark.parametrize(
    ("text", "ids"),
    [("abc", [3, 2]), ("bc", [4]), ("aaa", [5, 0]), ("aaaa", [6]), ("aaab", [5, 3]), ("a a", [0, 7, 0])],
)
def test_merges_go_by_rank_and_leftmost_first(text: str, ids: list[int]) -> None:
    assert Oracle(TOY).encode_data(text) == ids


def test_trusted_text_resolves_spellings_in_table_order() -> None:
    assert Oracle(TOY).encode_trusted("a<xy>b<x>") == [0, 9, 1, 8]


def test_data_takes_a_spelling_apart_or_fails_where_a_symbol_is_missing() -> None:
    with pytest.raises(KeyError):
        Oracle(TOY).encode_data("<x>")


@given(st.text())
@settings(max_examples=300)
def test_composition_is_the_interpreters(text: str) -> None:
    assert nfc(text) == unicodedata.normalize("NFC", text)


def test_every_character_composes_as_in_the_interpreter() -> None:
    wrong = [
        chr(code)
        for code in range(0x110000)
        if not 0xD800 <= code < 0xE000 and nfc(chr(code)) != unicodedata.normalize("NFC", chr(code))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e\u0301", "é"),
        ("a\u0327\u0301", "á\u0327"),
        ("\u1100\u1161\u11a8", "각"),
        ("\u212b", "Å"),
        ("\u0958", "\u0915\u093c"),
        ("\u0344", "\u0308\u0301"),
    ],
)
def test_composition_of_known_sequences(text: str, expected: str) -> None:
    assert nfc(text) == expected


def test_trimming_agrees_with_python_at_both_ends_for_every_code_point() -> None:
    wrong = [
        code
        for code in range(0x110000)
        if not 0xD800 <= code < 0xE000
        and trimmed(f"{chr(code)}x{chr(code)}") != f"{chr(code)}x{chr(code)}".strip()
    ]
    assert wrong == []


def test_the_byte_alphabet_leaves_visible_latin_as_it_is() -> None:
    """By the published rule: 33..126, 161..172 and 174..255 are themselves; the 68 others follow from U+0100 on."""
    from assay.oracles.tokenizer import _alphabet

    table = _alphabet()
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [value for value in range(256) if value not in own]
    assert [table[value] for value in own] == [chr(value) for value in own]
    assert [table[value] for value in others] == [chr(0x100 + place) for place in range(68)]
    assert (len(table), table[0x20], table[0x0A], table[0xAD]) == (256, "\u0120", "\u010a", "\u0143")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'S x", ["'S", " x"]),
        ("'VEx", ["'VE", "x"]),
        ("'\u017fx", ["'\u017f", "x"]),
        ("'\u017f\u017f", ["'\u017f", "\u017f"]),
        ("don'\u017fe", ["don", "'\u017f", "e"]),
        ("'v\u017f", ["'v\u017f"]),
        ("!?\n\n\nx", ["!?\n\n\n", "x"]),
        ("!?.;x", ["!?.;", "x"]),
        ("!?.x", ["!?.", "x"]),
        ("'r\u017fx", ["'r\u017fx"]),
        ("!!\u0301x", ["!!", "\u0301x"]),
        (" ?x", [" ?", "x"]),
        ("   x", ["  ", " x"]),
        ("\n", ["\n"]),
        ("a\nb", ["a", "\n", "b"]),
        ("\n  b", ["\n", " ", " b"]),
        (" a", [" a"]),
    ],
)
def test_contractions_runs_and_line_ends_by_hand(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_data_follows_the_mark_rule_of_its_tables() -> None:
    """With marks outside of words x + U+0301 is two pieces, so that the merge across them can't be made."""
    vocabulary = {"x": 0, "Ì": 1, "ģ": 2, "xÌ": 3, "Ìģ": 4}
    newer = Oracle(Tables(vocabulary, [("x", "Ì")], {}))
    older = Oracle(Tables(vocabulary, [("x", "Ì")], {}, marks_in_words=False))
    assert newer.encode_data("x\u0301") == [3, 2]
    assert older.encode_data("x\u0301") == [0, 1, 2]


def test_the_merge_of_lowest_rank_is_made_first_wherever_it_stands() -> None:
    vocabulary = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}
    assert Oracle(Tables(vocabulary, [("b", "c"), ("a", "b")], {})).encode_data("abc") == [0, 4]


@pytest.mark.parametrize(("text", "expected"), [("a 1", ["a", " ", "1"]), ("1 \t1", ["1", " ", "\t", "1"])])
def test_blanks_before_a_digit_stand_alone(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected
