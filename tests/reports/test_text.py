"""Foreign text becomes one printable, bounded line in every format."""

from hypothesis import given
from hypothesis import strategies as st

from assay.reports.text import anchor, clean, html, markdown_code


@given(st.text())
def test_clean_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isprintable()


@given(st.text(alphabet="a\ud800\x00\n\u202eé"))
def test_what_is_escaped_can_be_told_apart(text: str) -> None:
    assert clean(text).count("é") == text.count("é")
    assert clean(text).count("\\u202e") == text.count("\u202e")


def test_a_cut_is_counted() -> None:
    assert clean("a" * 1700, 500) == "a" * 500 + "… (+1,200 characters)"


def test_text_of_the_limit_is_not_cut() -> None:
    assert clean("a" * 500, 500) == "a" * 500


@given(st.text(alphabet="`|a \\<", min_size=1))
def test_a_code_span_is_closed_by_a_fence_that_its_text_lacks(text: str) -> None:
    span = markdown_code(text)
    if text.strip():
        fence = span[: len(span) - len(span.lstrip("`"))]
        assert span.endswith(fence)
        assert fence not in span[len(fence) : -len(fence)].replace("`" * (len(fence) + 1), "")
        assert "|" not in span.replace("\\|", "")


def test_ticked_words_are_code_and_the_rest_is_escaped() -> None:
    assert html("run `assay <gate>` & see") == "run <code>assay &lt;gate&gt;</code> &amp; see"


@given(st.text(), st.text())
def test_an_anchor_is_safe_in_an_attribute_and_a_fragment(one: str, other: str) -> None:
    assert set(anchor(one, other)) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
