"""Segments cover the stream without a gap, and their ids are those of the flat prompt unless a caller spells control."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.text.engine import Tokenizer
from assay.impl.text.facts import read_facts
from assay.impl.text.miniature import tokenizer_files
from assay.impl.text.origin import COMPUTED, TEMPLATE, Origin, OriginKind, Spot, Unit
from assay.impl.text.segments import Kind, Prompt, Segment, check_segments, prompt_of
from assay.spec.errors import ContractError
from assay.spec.text import CONTROL_ATOMS

ENGINE = Tokenizer(read_facts(tokenizer_files()))
CALLER = Origin(OriginKind.CALLER, "messages[0].content")
TEXTS = st.one_of(
    st.sampled_from(["<|im_start|>", "<|im_", "end|>", "<think>", "user\n"]), st.text("a <é\n", max_size=4)
)
PIECES = st.lists(st.tuples(TEXTS, st.sampled_from([TEMPLATE, CALLER, COMPUTED])), max_size=9)


def prompt_or_none(pieces: list[tuple[str, Origin]]) -> Prompt | None:
    """Returns the prompt; None where template text spells an atom in pieces, which is refused."""
    try:
        return prompt_of(pieces, CONTROL_ATOMS)
    except ContractError as error:
        assert error.finding.code == "chat.control.split"  # noqa: PT017 - the only refusal of well-formed text
        return None


@given(PIECES)
@settings(max_examples=300)
def test_segments_are_contiguous_complete_merged_and_not_empty(pieces: list[tuple[str, Origin]]) -> None:
    prompt = prompt_or_none(pieces)
    if prompt is None:
        return
    assert prompt.stream == "".join(text for text, _ in pieces).encode()
    if prompt.stream:
        check_segments(prompt.stream, prompt.segments)
    assert all(one.kind != two.kind for one, two in zip(prompt.segments, prompt.segments[1:], strict=False))
    assert sum(span.length for span in prompt.origins) == len(prompt.stream)


@given(PIECES)
@settings(max_examples=300)
def test_control_is_wholly_template_text(pieces: list[tuple[str, Origin]]) -> None:
    prompt = prompt_or_none(pieces)
    if prompt is None:
        return
    owner = [origin for text, origin in pieces for _ in text.encode()]
    for segment in prompt.segments:
        if segment.kind == Kind.TRUSTED_CONTROL:
            assert set(owner[segment.offset : segment.offset + segment.length]) == {TEMPLATE}


@given(
    st.lists(
        st.tuples(st.sampled_from(["<|im_start|>", "<think>", "user\n"]), st.text("ab é\n", max_size=6)),
        min_size=1,
    )
)
@settings(max_examples=200)
def test_ids_equal_flat_tokenization_where_no_caller_spells_a_token(turns: list[tuple[str, str]]) -> None:
    pieces = [piece for control, said in turns for piece in ((control, TEMPLATE), (said, CALLER))]
    prompt = prompt_of(pieces, CONTROL_ATOMS)
    assert ENGINE.encode_prompt(prompt) == ENGINE.encode_trusted(prompt.stream)


def test_ids_differ_from_flat_tokenization_where_flattening_promotes() -> None:
    prompt = prompt_of([("<think>", TEMPLATE), ("<think>", CALLER)], CONTROL_ATOMS)
    assert ENGINE.encode_trusted(prompt.stream) == [344, 344]
    assert ENGINE.encode_prompt(prompt).count(344) == 1


ROW = Unit(7)
"""One concatenation of a template's source, on its line 7."""


def at(start: int, stop: int, unit: Unit = ROW) -> Origin:
    return Origin(OriginKind.TEMPLATE, spot=Spot(unit, start, stop))


def test_neighbours_in_the_source_spell_an_atom_together() -> None:
    prompt = prompt_of([("<|im_", at(0, 5)), ("end|>", at(5, 10))], CONTROL_ATOMS)
    assert prompt.of_kind(Kind.TRUSTED_CONTROL) == [b"<|im_end|>"]
    assert [(span.origin.kind, span.length) for span in prompt.origins] == [(OriginKind.TEMPLATE, 10)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (at(0, 5), at(6, 11)),
        (at(5, 10), at(0, 5)),
        (at(0, 5), at(5, 10, Unit(7))),
        (TEMPLATE, TEMPLATE),
        (at(0, 5), TEMPLATE),
    ],
    ids=["gap", "other order", "another concatenation", "no spot", "one without a spot"],
)
def test_an_atom_in_pieces_that_the_source_does_not_have_together_is_refused(
    first: Origin, second: Origin
) -> None:
    with pytest.raises(ContractError) as caught:
        prompt_of([("<|im_", first), ("end|>", second)], CONTROL_ATOMS)
    where = "chat template" if first is TEMPLATE else "line 7"
    found = caught.value.finding
    assert (found.code, found.where, found.got) == ("chat.control.split", where, "<|im_end|>")


def test_an_added_token_that_is_no_atom_is_refused_in_template_text_and_data_in_a_callers() -> None:
    spelled = ["<think>", "<|endoftext|>"]
    with pytest.raises(ContractError) as caught:
        prompt_of([("a<|endoftext|>", at(0, 14))], CONTROL_ATOMS, spelled)
    assert (caught.value.finding.code, caught.value.finding.where) == ("chat.control.unlisted", "line 7")
    prompt = prompt_of([("<|endoftext|>", CALLER)], CONTROL_ATOMS, spelled)
    assert prompt.of_kind(Kind.DATA) == [b"<|endoftext|>"]


@pytest.mark.parametrize(
    ("segments", "code", "where"),
    [
        ([], "chat.segments.cover", "segments"),
        ([Segment(0, 1, 3)], "chat.segments.cover", "segments[0].offset"),
        ([Segment(0, 0, 0)], "chat.segments.cover", "segments[0].length"),
        ([Segment(0, 0, 5)], "chat.segments.cover", "segments[0].length"),
        ([Segment(0, 0, -1)], "chat.segments.cover", "segments[0].length"),
        ([Segment(0, 0, 2)], "chat.segments.cover", "segments"),
        ([Segment(0, 0, 2), Segment(0, 3, 1)], "chat.segments.cover", "segments[1].offset"),
        ([Segment(7, 0, 4)], "chat.segments.kind", "segments[0].kind"),
    ],
)
def test_a_corrupted_segment_is_refused_and_leaves_the_callers_tokens(
    segments: list[Segment], code: str, where: str
) -> None:
    tokens = [1, 2]
    with pytest.raises(ContractError) as caught:
        ENGINE.extend(tokens, b"abcd", segments)
    assert (caught.value.finding.code, caught.value.finding.where) == (code, where)
    assert tokens == [1, 2]
