"""Segments cover the stream without a gap, and their ids are those of the flat prompt unless a caller spells control."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.text.engine import Tokenizer
from assay.impl.text.facts import read_facts
from assay.impl.text.miniature import tokenizer_files
from assay.impl.text.origin import COMPUTED, TEMPLATE, Origin, OriginKind
from assay.impl.text.segments import Kind, Segment, check_segments, prompt_of
from assay.spec.errors import ContractError
from assay.spec.text import CONTROL_ATOMS

ENGINE = Tokenizer(read_facts(tokenizer_files()))
CALLER = Origin(OriginKind.CALLER, "messages[0].content")
TEXTS = st.one_of(
    st.sampled_from(["<|im_start|>", "<|im_", "end|>", "<think>", "user\n"]), st.text("a <é\n", max_size=4)
)
PIECES = st.lists(st.tuples(TEXTS, st.sampled_from([TEMPLATE, CALLER, COMPUTED])), max_size=9)


@given(PIECES)
@settings(max_examples=300)
def test_segments_are_contiguous_complete_merged_and_not_empty(pieces: list[tuple[str, Origin]]) -> None:
    prompt = prompt_of(pieces, CONTROL_ATOMS)
    assert prompt.stream == "".join(text for text, _ in pieces).encode()
    if prompt.stream:
        check_segments(prompt.stream, prompt.segments)
    assert all(one.kind != two.kind for one, two in zip(prompt.segments, prompt.segments[1:], strict=False))
    assert sum(span.length for span in prompt.origins) == len(prompt.stream)


@given(PIECES)
@settings(max_examples=300)
def test_control_is_wholly_template_text(pieces: list[tuple[str, Origin]]) -> None:
    prompt = prompt_of(pieces, CONTROL_ATOMS)
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
