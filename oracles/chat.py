"""The chat contract's renderer in plain Python: no template engine, no shared helper, texts taken from the file.

The long texts of a template are not stored in this project. They are found among the file's string constants by
length and digest, so that a changed text is a missing text and never a silently different prompt.

Source: field note AFN-006; the published chat template.
"""

import ast
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.oracles.unicode_tables import trimmed
from assay.spec.text import TextContract

Piece = tuple[str, bool]
"""Text, and whether it is a control atom that the template wrote."""


class ChatRefusal(Exception):  # noqa: N818 - the oracle's own word
    """The conversation is not legal; `kind` says why in the oracle's own words."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def literals_of(template: str, contract: TextContract) -> dict[str, str]:
    """Returns the contract's long texts, found among the string constants of the template.

    Raises:
        LookupError: when a text with the pinned digest isn't there.
    """
    quoted = re.findall(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", template)
    by_digest: dict[str, str] = {}
    for one in quoted:
        if "\n" not in one:
            text = str(ast.literal_eval(one))
            by_digest[hashlib.sha256(text.encode()).hexdigest()] = text
    found: dict[str, str] = {}
    for pin in contract.literals:
        text = by_digest.get(pin.sha256, "")
        if len(text.encode()) != pin.size_bytes:
            raise LookupError(
                f"the template has no text {pin.name} of {pin.size_bytes} bytes with the pinned digest"
            )
        found[pin.name] = text
    return found


def render(
    messages: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    literals: Mapping[str, str],
    contract: TextContract,
) -> list[Piece]:
    """Returns the prompt in pieces, neighbours of one kind merged.

    Raises:
        ChatRefusal: empty, media, effort, query, role or system, in the published order.
    """
    asked = options.get("enable_thinking", True)  # null is neither absent, nor true, nor false
    thinking, opened = asked is True, asked is not False
    effort = options.get("reasoning_effort", "xhigh")
    last_query = _judged(messages, thinking, effort)
    lead = literals[f"effort.{effort}"] if thinking and effort != "medium" else ""
    out: list[Piece] = []
    control = contract.control_atoms

    def data(text: str) -> None:
        _add(out, text, is_control=False)

    def template(text: str) -> None:
        for part in re.split("(" + "|".join(map(re.escape, control)) + ")", text):
            _add(out, part, is_control=part in control)

    _system_block(messages, options, literals, lead, data, template)
    for index, message in enumerate(messages):
        text = trimmed(_content(message))
        role = message["role"]
        if role == "user":
            template("<|im_start|>user\n")
            data(text)
            template("<|im_end|>\n")
        elif role == "assistant":
            template("<|im_start|>assistant\n")
            if options.get("preserve_thinking", True) or index > last_query:
                template("<think>\n")
                data(trimmed(message.get("reasoning_content") or ""))
                template("\n</think>\n\n")
            data(text)
            _calls(message.get("tool_calls") or (), bool(text), data, template)
            template("<|im_end|>\n")
        elif role == "tool":
            if index and messages[index - 1]["role"] != "tool":
                template("<|im_start|>user")
            template("\n<tool_response>\n")
            data(text)
            template("\n</tool_response>")
            if index + 1 == len(messages) or messages[index + 1]["role"] != "tool":
                template("<|im_end|>\n")
    if options.get("add_generation_prompt"):
        template("<|im_start|>assistant\n<think>\n" + ("" if opened else "\n</think>\n\n"))
    return out


def to_json(value: Any) -> str:
    """Returns JSON in insertion order with `, ` and `: `, text in UTF-8 with only the required escapes."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value)) + '"'
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{to_json(key)}: {to_json(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(to_json, value)) + "]"


def _judged(messages: Sequence[Mapping[str, Any]], thinking: bool, effort: str) -> int:
    if not messages:
        raise ChatRefusal("empty")
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if {"image", "image_url", "video"} & set(part) or part.get("type") in {
                "image",
                "video",
                "image_url",
            }:
                raise ChatRefusal("media")
    if thinking and effort not in {"xhigh", "medium", "low"}:
        raise ChatRefusal("effort")
    queries = [
        index for index, message in enumerate(messages) if message["role"] == "user" and not _wrapped(message)
    ]
    if not queries:
        raise ChatRefusal("query")
    for index, message in enumerate(messages):
        if message["role"] not in {"system", "user", "assistant", "tool"}:
            raise ChatRefusal("role")
        if message["role"] == "system" and index:
            raise ChatRefusal("system")
    return queries[-1]


def _system_block(
    messages: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    literals: Mapping[str, str],
    lead: str,
    data: Any,
    template: Any,
) -> None:
    system = trimmed(_content(messages[0])) if messages[0]["role"] == "system" else ""
    if options.get("tools"):
        template("<|im_start|>system\n" + (lead + "\n\n" if lead else "") + literals["tools.heading"])
        for tool in options["tools"]:
            template("\n")
            data(to_json(tool))
        template("\n</tools>" + literals["tools.instructions"])
        if system:
            template("\n\n")
            data(system)
        template("<|im_end|>\n")
    elif lead or system:
        template("<|im_start|>system\n" + lead + ("\n\n" if lead and system else ""))
        data(system)
        template("<|im_end|>\n")


def _calls(calls: Sequence[Mapping[str, Any]], has_text: bool, data: Any, template: Any) -> None:
    for index, call in enumerate(calls):
        function = call.get("function", call)
        template(("\n" if index else "\n\n" if has_text else "") + "<tool_call>\n<function=")
        data(function["name"])
        template(">\n")
        for name, value in (function.get("arguments") or {}).items():
            template("<parameter=")
            data(name)
            template(">\n")
            data(value if isinstance(value, str) else to_json(value))
            template("\n</parameter>\n")
        template("</function>\n</tool_call>")


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    return content or ""


def _wrapped(message: Mapping[str, Any]) -> bool:
    text = trimmed(_content(message))
    return text.startswith("<tool_response>") and text.endswith("</tool_response>")


def _escaped(character: str) -> str:
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
    if character in short:
        return short[character]
    return f"\\u{ord(character):04x}" if character < " " else character


def _add(out: list[Piece], text: str, *, is_control: bool) -> None:
    if text and out and out[-1][1] == is_control:
        out[-1] = (out[-1][0] + text, is_control)
    elif text:
        out.append((text, is_control))
