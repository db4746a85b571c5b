"""A turn reads the same for every way of cutting it, and a broken call is never run."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.text.chat import ChatRenderer
from assay.impl.text.engine import Tokenizer
from assay.impl.text.facts import read_facts
from assay.impl.text.miniature import TEMPLATE, tokenizer_files
from assay.impl.text.parser import (
    Delta,
    Event,
    IdFeed,
    ToolCall,
    Turn,
    TurnParser,
    parse_turn,
    typed_arguments,
)
from assay.spec.errors import ContractError
from assay.spec.text import text_contract

CALL = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
WHOLE = f"\n think <b>\n</think>\n\n so: \n\n{CALL}\n{CALL.replace('=f', '=g')} "
PARTS = st.lists(
    st.one_of(
        st.sampled_from([
            "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=k>",
            "</parameter>", "\n", " ", "<", "</", "<tool_", CALL, "x>",
        ]),
        st.text("a<>/=\n é", max_size=4),
    ),
    max_size=14,
).map("".join)  # fmt: skip


def merged(events: list[Event]) -> list[Event]:
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Delta) and isinstance(last, Delta) and last.kind == event.kind:
            out[-1] = Delta(event.kind, last.text + event.text)
        else:
            out.append(event)
    return out


def streamed(chunks: list[str], *, in_reasoning: bool) -> tuple[Turn, list[Event]]:
    parser = TurnParser(in_reasoning=in_reasoning)
    events: list[Event] = []
    for chunk in chunks:
        events += parser.feed(chunk)
    events += parser.finish()
    return parser.turn, merged(events)


def test_a_whole_turn_has_reasoning_content_and_calls() -> None:
    turn = parse_turn(WHOLE, in_reasoning=True)
    assert (turn.reasoning, turn.content, turn.problems) == ("think <b>", "so:", [])
    assert turn.calls == [ToolCall("f", {"a": "1"}), ToolCall("g", {"a": "1"})]


@given(PARTS, st.booleans(), st.data())
@settings(max_examples=500)
def test_every_chunking_reads_like_the_whole(text: str, in_reasoning: bool, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert streamed(chunks, in_reasoning=in_reasoning) == streamed([text], in_reasoning=in_reasoning)


@given(PARTS, st.booleans())
@settings(max_examples=300)
def test_one_character_at_a_time_reads_like_the_whole(text: str, in_reasoning: bool) -> None:
    assert streamed(list(text), in_reasoning=in_reasoning) == streamed([text], in_reasoning=in_reasoning)


def test_a_turn_may_open_its_own_reasoning_block() -> None:
    turn = parse_turn("<think>\na\n</think>\n\nb", in_reasoning=False)
    assert (turn.reasoning, turn.content) == ("a", "b")


def test_content_is_out_before_the_turn_ends() -> None:
    parser = TurnParser(in_reasoning=False)
    assert parser.feed("Hello, wor") == [Delta("content", "Hello, wor")]
    assert parser.feed("ld <tool") == [Delta("content", "ld")]
    assert parser.feed(" box") == [Delta("content", " <tool box")]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a\nb",
        "</parameter>",
        "x </parameter> y",
        "</function>",
        "</tool_call>",
        "<parameter=z>",
        "\n\n",
        "<think>",
    ],
)
def test_a_value_may_hold_tags_that_do_not_end_it(value: str) -> None:
    text = f"<tool_call>\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>\n</tool_call>"
    assert parse_turn(text, in_reasoning=False).calls == [ToolCall("f", {"a": value})]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=f>\n<parameter=a>\n1",
        "<tool_call>",
        "<tool_call>{}</tool_call>",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f\n>\n</function>\n</tool_call>",
        CALL.replace("</function>", ""),
        CALL.replace("</parameter>", "</parameter>\n<parameter=a>\n2\n</parameter>"),
    ],
)
def test_a_broken_call_is_a_problem_and_never_a_call(text: str) -> None:
    turn = parse_turn(f"so {text}", in_reasoning=False)
    assert turn.calls == []
    assert [(one.code, one.where) for one in turn.problems] == [("turn.call.form", "call 0")]
    assert turn.content == "so"


def test_a_good_call_after_a_broken_one_is_still_read() -> None:
    turn = parse_turn(f"<tool_call>nonsense</tool_call>{CALL}", in_reasoning=False)
    assert (len(turn.problems), turn.calls) == (1, [ToolCall("f", {"a": "1"})])


ENGINE = Tokenizer(read_facts(tokenizer_files()))


def by_ids(ids: list[int], *, in_reasoning: bool) -> Turn:
    feed = IdFeed(ENGINE, in_reasoning=in_reasoning)
    for one in ids:
        feed.push(one)
    feed.finish()
    return feed.parser.turn


def test_by_ids_a_control_token_is_a_marker() -> None:
    assert by_ids(ENGINE.encode_trusted(WHOLE), in_reasoning=True) == parse_turn(WHOLE, in_reasoning=True)


def test_by_ids_a_spelled_marker_is_content() -> None:
    turn = by_ids(ENGINE.encode_data(f"look: {CALL}"), in_reasoning=False)
    assert (turn.calls, turn.problems, turn.content) == ([], [], f"look: {CALL}")


def test_a_lone_surrogate_cannot_forge_a_marker() -> None:
    with pytest.raises(ContractError) as caught:
        TurnParser(in_reasoning=True).feed("\ud801")
    assert (caught.value.finding.code, caught.value.finding.where) == ("text.utf8", "turn")


TOOLS = [{
    "type": "function",
    "function": {"name": "f", "parameters": {"properties": {
        "text": {"type": "string"}, "n": {"type": "integer"}, "on": {"type": "boolean"},
        "either": {"type": ["integer", "string"]}, "list": {"type": "array"},
    }}},
}]  # fmt: skip
VALUES = st.fixed_dictionaries({
    "text": st.text("ab1 é\n", max_size=6).map(lambda one: f"-{one}-"),
    "n": st.integers(-(10**20), 10**20),
    "on": st.booleans(),
    "list": st.lists(st.one_of(st.none(), st.text('<é"', max_size=3), st.floats(allow_nan=False, allow_infinity=False))),
})  # fmt: skip


@given(VALUES)
@settings(max_examples=60)
def test_a_rendered_call_is_read_back_with_its_types(values: dict[str, Any]) -> None:
    renderer = ChatRenderer(TEMPLATE, text_contract("miniature"))
    turns = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "c", "tool_calls": [{"name": "f", "arguments": values}]},
    ]
    stream = renderer.render(turns, {"enable_thinking": False}).stream.decode()
    said = stream.rsplit("<|im_start|>assistant\n", 1)[1].removesuffix("<|im_end|>\n")
    turn = parse_turn(said, in_reasoning=False)
    assert (turn.content, turn.problems) == ("c", [])
    assert typed_arguments(turn.calls[0], TOOLS) == values


def test_an_undeclared_argument_stays_text() -> None:
    assert typed_arguments(ToolCall("f", {"other": "1", "either": "1"}), TOOLS) == {"other": "1", "either": 1}


@pytest.mark.parametrize(
    ("key", "value"), [("n", "one"), ("n", "true"), ("on", "1"), ("list", "{}"), ("n", "1.5")]
)
def test_an_argument_of_another_type_is_refused(key: str, value: str) -> None:
    with pytest.raises(ContractError) as caught:
        typed_arguments(ToolCall("f", {key: value}), TOOLS)
    assert (caught.value.finding.code, caught.value.finding.where) == ("turn.call.value", f"f.{key}")


def turn_by_ids(pieces: list[str | int], *, in_reasoning: bool) -> Turn:
    """Feeds control tokens by id (an int) and everything else as data."""
    feed = IdFeed(ENGINE, in_reasoning=in_reasoning)
    for piece in pieces:
        for one in [piece] if isinstance(piece, int) else ENGINE.encode_data(piece):
            feed.push(one)
    feed.finish()
    return feed.parser.turn


def control(spelling: str) -> int:
    return ENGINE.encode_trusted(spelling)[0]


@pytest.mark.parametrize("spelling", ["<think>", "<tool_call>", "</tool_call>"])
def test_a_marker_id_inside_reasoning_reads_as_its_spelling(spelling: str) -> None:
    assert turn_by_ids(["a", control(spelling), "b"], in_reasoning=True) == Turn(reasoning=f"a{spelling}b")


@pytest.mark.parametrize("spelling", ["<think>", "</think>", "</tool_call>"])
def test_a_marker_id_inside_content_reads_as_its_spelling(spelling: str) -> None:
    assert turn_by_ids(["a", control(spelling), "b"], in_reasoning=False) == Turn(content=f"a{spelling}b")


@pytest.mark.parametrize("spelling", ["<think>", "<tool_call>", "</tool_call>"])
def test_a_marker_id_inside_an_argument_reads_as_its_spelling(spelling: str) -> None:
    turn = turn_by_ids(
        [
            control("<tool_call>"), "\n<function=f>\n<parameter=a>\nx", control(spelling),
            "y\n</parameter>\n</function>\n", control("</tool_call>"),
        ],
        in_reasoning=False,
    )  # fmt: skip
    assert [dict(call.arguments) for call in turn.calls] == [{"a": f"x{spelling}y"}]


def test_a_broken_call_by_ids_shows_spellings_only() -> None:
    turn = turn_by_ids([control("<tool_call>"), "junk", control("<think>")], in_reasoning=False)
    assert [problem.got for problem in turn.problems] == ["<tool_call>junk<think>"]


@pytest.mark.parametrize("stop", ["<|im_end|>", "<|endoftext|>"])
def test_a_stop_id_ends_the_turn_and_is_no_text(stop: str) -> None:
    turn = turn_by_ids(["hello", control(stop), "more", control("<tool_call>")], in_reasoning=False)
    assert turn == Turn(content="hello")


def test_the_stop_ids_of_a_contract_are_taken_instead() -> None:
    feed = IdFeed(ENGINE, in_reasoning=False, stop_ids=[control("<|im_start|>")])
    for one in [*ENGINE.encode_data("a"), control("<|im_end|>"), control("<|im_start|>")]:
        feed.push(one)
    assert feed.push(ENGINE.encode_data("b")[0]) == []
    assert feed.parser.turn == Turn(content="a<|im_end|>")


def test_a_name_of_a_thousand_characters_is_read_and_a_longer_one_is_no_name() -> None:
    call = "<tool_call><function={}></function></tool_call>"
    assert [one.name for one in parse_turn(call.format("n" * 1024), in_reasoning=False).calls] == ["n" * 1024]
    longer = parse_turn(call.format("n" * 1025), in_reasoning=False)
    assert (longer.calls, [one.code for one in longer.problems]) == ([], ["turn.call.form"])


@pytest.mark.parametrize(
    "tools",
    [[None], [{"function": None}], [{"name": "f", "parameters": []}], [{"name": "f", "parameters": {"properties": []}}],
     [{"name": "f", "parameters": {"properties": {"a": {"type": {}}}}}]],
)  # fmt: skip
def test_a_tool_that_declares_nothing_leaves_arguments_text(tools: list[Any]) -> None:
    assert typed_arguments(ToolCall("f", {"a": "1"}), tools) == {"a": "1"}
