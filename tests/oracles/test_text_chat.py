"""The plain-Python renderer against prompts written by hand, and against the template on made-up conversations."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.impl.text.chat import ChatRenderer
from assay.impl.text.miniature import TEMPLATE
from assay.oracles import chat
from assay.spec.errors import ContractError
from assay.spec.text import text_contract

CONTRACT = text_contract("miniature")
LITERALS = chat.literals_of(TEMPLATE, CONTRACT)
RENDERER = ChatRenderer(TEMPLATE, CONTRACT)
CODES = {
    "empty": "chat.conversation.empty", "media": "chat.media", "effort": "chat.effort",
    "query": "chat.query.missing", "role": "chat.role", "system": "chat.system.position",
}  # fmt: skip
USER = {"role": "user", "content": "hi"}


def text(messages: list[dict[str, Any]], **options: Any) -> str:
    return "".join(part for part, _ in chat.render(messages, options, LITERALS, CONTRACT))


# Each prompt is written out from the rules of the contract.
@pytest.mark.parametrize(
    ("messages", "options", "expected"),
    [
        ([USER], {"enable_thinking": False}, "<|im_start|>user\nhi<|im_end|>\n"),
        (
            [USER],
            {"reasoning_effort": "low", "add_generation_prompt": True},
            "<|im_start|>system\nThink briefly and answer.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n",
        ),
        (
            [{"role": "system", "content": " S "}, USER],
            {"enable_thinking": False, "add_generation_prompt": True},
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
        (
            [USER, {"role": "assistant", "content": "a", "reasoning_content": "r"}, USER],
            {"reasoning_effort": "medium", "preserve_thinking": False},
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n",
        ),
        (
            [
                USER,
                {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"a": "x", "b": [1]}}, {"name": "g"}]},
                {"role": "tool", "content": "1"},
                {"role": "tool", "content": "2"},
            ],
            {"reasoning_effort": "medium"},
            ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
            "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n<parameter=b>\n[1]\n</parameter>\n</function>\n</tool_call>\n"
            "<tool_call>\n<function=g>\n</function>\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"),
        ),
    ],
)  # fmt: skip
def test_a_prompt_is_the_one_written_by_hand(
    messages: list[dict[str, Any]], options: dict[str, Any], expected: str
) -> None:
    assert text(messages, **options) == expected


DEEP = "Think for as long as the task deserves: list what you assume, test it, then answer."
HEADING = "# Functions\n\nThese can be called:\n\n<tools>"
INSTRUCTIONS = (
    "\n\nTo call one, write nothing after this form:\n\n<tool_call>\n<function=name>\n<parameter=name>\nvalue\n"
    "</parameter>\n</function>\n</tool_call>"
)
ASKED = "<|im_start|>user\nhi<|im_end|>\n"
SYSTEM = {"role": "system", "content": "S"}
TOOLS = [{"a": 1, "b": "x"}, {"c": [True]}]


@pytest.mark.parametrize(
    ("messages", "options", "expected"),
    [
        ([SYSTEM, USER], {}, f"<|im_start|>system\n{DEEP}\n\nS<|im_end|>\n{ASKED}"),
        ([USER], {}, f"<|im_start|>system\n{DEEP}<|im_end|>\n{ASKED}"),
        (
            [SYSTEM, USER],
            {"tools": TOOLS},
            (f'<|im_start|>system\n{DEEP}\n\n{HEADING}\n{{"a": 1, "b": "x"}}\n{{"c": [true]}}\n</tools>{INSTRUCTIONS}'
            f"\n\nS<|im_end|>\n{ASKED}"),
        ),
        (
            [USER],
            {"tools": [{}], "enable_thinking": False},
            f"<|im_start|>system\n{HEADING}\n{{}}\n</tools>{INSTRUCTIONS}<|im_end|>\n{ASKED}",
        ),
        (
            [USER, {"role": "assistant", "content": "a", "reasoning_content": " r ", "tool_calls": [{"function": {"name": "f"}}]}, USER],
            {"reasoning_effort": "medium"},
            (f"{ASKED}<|im_start|>assistant\n<think>\nr\n</think>\n\na\n\n<tool_call>\n<function=f>\n</function>\n"
            f"</tool_call><|im_end|>\n{ASKED}"),
        ),
        (
            [USER, {"role": "assistant", "content": "a", "reasoning_content": "r"}],
            {"reasoning_effort": "medium", "preserve_thinking": False},
            f"{ASKED}<|im_start|>assistant\n<think>\nr\n</think>\n\na<|im_end|>\n",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "h"}, {"text": "i"}]}],
            {"enable_thinking": False},
            ASKED,
        ),
        (
            [USER, {"role": "user", "content": None}],
            {"enable_thinking": False},
            f"{ASKED}<|im_start|>user\n<|im_end|>\n",
        ),
        (
            [USER, {"role": "assistant", "content": "a"}, {"role": "tool", "content": "1"}, USER],
            {"reasoning_effort": "medium", "preserve_thinking": False},
            (f"{ASKED}<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n"
            f"{ASKED}"),
        ),
    ],
)  # fmt: skip
def test_a_prompt_with_every_part_is_the_one_written_by_hand(
    messages: list[dict[str, Any]], options: dict[str, Any], expected: str
) -> None:
    assert text(messages, **options) == expected


def test_the_long_texts_are_those_of_the_template() -> None:
    assert LITERALS["tools.heading"] == HEADING
    assert LITERALS["tools.instructions"] == INSTRUCTIONS
    assert LITERALS["effort.xhigh"] == DEEP


def test_a_quote_across_lines_is_no_text_of_the_template() -> None:
    assert chat.literals_of("{# it's\nisn't #}" + TEMPLATE, CONTRACT) == LITERALS


def test_an_effort_is_judged_where_the_prompt_is_made() -> None:
    with pytest.raises(chat.ChatRefusal) as caught:
        text([USER], reasoning_effort="high")
    assert caught.value.kind == "effort"


@pytest.mark.parametrize(
    ("content", "is_query"),
    [
        ("<tool_response>x</tool_response>", False),
        (" <tool_response></tool_response>\n", False),
        ("<tool_response>x", True),
        ("x</tool_response>", True),
        ("<tool_response>x</tool_response>.", True),
    ],
)
def test_a_user_turn_that_is_a_tool_response_alone_asks_nothing(content: str, is_query: bool) -> None:
    message = {"role": "user", "content": content}
    if is_query:
        assert chat._judged([message], False, "medium") == 0
    else:
        with pytest.raises(chat.ChatRefusal, match="query"):
            chat._judged([message], False, "medium")


@pytest.mark.parametrize("part", [*({name: "x"} for name in ("image", "image_url", "video")),
                                  *({"type": name} for name in ("image", "image_url", "video"))])  # fmt: skip
def test_a_part_that_is_no_text_is_refused_by_its_key_and_by_its_type(part: dict[str, str]) -> None:
    with pytest.raises(chat.ChatRefusal, match="media"):
        chat._judged([{"role": "user", "content": [{"text": "t"}, part]}], False, "medium")


def test_only_the_templates_own_spellings_are_control() -> None:
    pieces = chat.render(
        [{"role": "user", "content": "<|im_end|>"}], {"enable_thinking": False}, LITERALS, CONTRACT
    )
    assert pieces == [
        ("<|im_start|>", True),
        ("user\n<|im_end|>", False),
        ("<|im_end|>", True),
        ("\n", False),
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {"é": [None, True, -1, 2.5, '"\\\n\x07\x7f']},
            '{"é": [null, true, -1, 2.5, "\\"\\\\\\n\\u0007\x7f"]}',
        ),
        ({}, "{}"),
        ({"a": 1, "b": {"c": 2}}, '{"a": 1, "b": {"c": 2}}'),
        ([], "[]"),
    ],
)
def test_json_is_in_the_callers_order_with_the_required_escapes_only(value: Any, expected: str) -> None:
    assert chat.to_json(value) == expected


def test_a_changed_text_of_the_template_is_a_missing_text() -> None:
    with pytest.raises(LookupError, match=r"tools\.heading"):
        chat.literals_of(TEMPLATE.replace("# Functions", "# Tools"), CONTRACT)


WORDS = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "<|im_end|>",
            "<think>",
            "</tool_call>",
            "\x1c\u3000",
            "a\nb",
            "<tool_response>x</tool_response>",
        ]
    ),
    st.text(max_size=6),
)
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), WORDS
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(WORDS, inner, max_size=2)),
    max_leaves=5,
)
CONTENT = st.one_of(
    WORDS,
    st.none(),
    st.lists(WORDS.map(lambda one: {"type": "text", "text": one}), max_size=2),
    st.just([{"type": "image"}]),
)
CALLS = st.lists(
    st.fixed_dictionaries({"name": WORDS, "arguments": st.dictionaries(WORDS, JSON, max_size=2)}).map(
        lambda call: call if len(call["name"]) % 2 else {"function": call}
    ),
    max_size=2,
)
MESSAGE = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "user", "tool", "system", "developer"]), "content": CONTENT}
    ),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": CONTENT, "tool_calls": CALLS, "reasoning_content": WORDS}
    ),
)
OPTIONS = st.fixed_dictionaries({}, optional={
    "enable_thinking": st.booleans(), "preserve_thinking": st.booleans(), "add_generation_prompt": st.booleans(),
    "reasoning_effort": st.sampled_from(["xhigh", "medium", "low", "max"]), "tools": st.lists(st.dictionaries(WORDS, JSON, max_size=2), max_size=2),
})  # fmt: skip


@given(st.lists(MESSAGE, max_size=5), OPTIONS)
@settings(max_examples=300, deadline=None)
def test_made_up_conversations_render_alike_or_fail_alike(
    messages: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    try:
        expected: Any = [
            (part.encode(), int(control))
            for part, control in chat.render(messages, options, LITERALS, CONTRACT)
        ]
    except chat.ChatRefusal as refusal:
        expected = CODES[refusal.kind]
    try:
        prompt = RENDERER.render(messages, options)
        got: Any = [
            (prompt.stream[one.offset : one.offset + one.length], int(one.kind)) for one in prompt.segments
        ]
    except ContractError as error:
        got = error.finding.code
    assert got == expected


def test_every_control_character_is_escaped_as_json_has_it() -> None:
    from assay.oracles.chat import to_json

    assert to_json("\r\t\b\f\n") == '"\\r\\t\\b\\f\\n"'
    assert to_json("\x00\x1f \x7f") == '"\\u0000\\u001f \x7f"'
    assert to_json('"\\') == '"\\"\\\\"'


USER = {"role": "user", "content": "q"}


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        ("empty", []),
        ("media", [{"role": "user", "content": [{"type": "image"}]}]),
        ("media", [{"role": "user", "content": [{"video": "v"}]}]),
        ("query", [{"role": "system", "content": "s"}]),
        ("role", [USER, {"role": "critic", "content": "c"}]),
        ("system", [USER, {"role": "system", "content": "late"}]),
    ],
)
def test_an_illegal_conversation_is_refused_in_the_oracles_own_word(
    kind: str, messages: list[dict[str, Any]]
) -> None:
    with pytest.raises(chat.ChatRefusal) as caught:
        chat._judged(messages, False, "medium")
    assert (caught.value.kind, str(caught.value)) == (kind, kind)


def test_an_effort_is_judged_only_when_the_model_thinks() -> None:
    with pytest.raises(chat.ChatRefusal) as caught:
        chat._judged([USER], True, "high")
    assert caught.value.kind == "effort"
    assert chat._judged([USER], False, "high") == 0


def test_constants_are_spelt_as_json_spells_them() -> None:
    from assay.oracles.chat import to_json

    assert [to_json(one) for one in (None, True, False)] == ["null", "true", "false"]
