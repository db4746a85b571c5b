"""The chat contract: which conversations are legal, and their prompt with the origin of every byte.

A request is judged in the published order before the template sees it. Nothing is handed out unless everything
held, so an invalid request changes nothing that the caller has.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from assay.impl.text.collector import collector_paused
from assay.impl.text.facts import FORM, finding, load_file
from assay.impl.text.segments import Prompt, prompt_of
from assay.impl.text.template import MAX_DEPTH, ChatTemplate
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, ContractError, Finding
from assay.spec.text import TextContract

_NOTE: Final = "field note AFN-006; the published chat template"
ARGUMENT = declare(
    "chat.argument",
    Authority.FORM,
    "A request is a list of message objects and the contract's options, each of its own type.",
    source=_NOTE,
    cause="an option spelled wrong, or text where a switch is asked for",
)
EMPTY_CONVERSATION = declare(
    "chat.conversation.empty", Authority.UPSTREAM, "A conversation has at least one message.", source=_NOTE,
    cause="an empty list",
)  # fmt: skip
TOOLS = declare(
    "chat.tools",
    Authority.FORM,
    "Tools are a list of objects.",
    source=_NOTE,
    cause="one object without a list",
)
CONTENT = declare(
    "chat.content",
    Authority.FORM,
    "Content is text, null or a list of text parts; reasoning is text or null.",
    source=_NOTE,
    cause="a number or object where text is asked for, or an unknown kind of part",
)
TOOL_CALL = declare(
    "chat.tool-call",
    Authority.FORM,
    "A tool call names its function as text; calls are a list.",
    source=_NOTE,
    cause="a call without a name, or one call without a list",
)
ARGUMENTS = declare(
    "chat.tool-call.arguments",
    Authority.FORM,
    "The arguments of a tool call are an object, absent or the empty text.",
    source=_NOTE,
    cause="arguments passed on as the JSON text that an API returned",
    fix="parse the JSON text into an object before rendering",
)
MEDIA = declare(
    "chat.media",
    Authority.RULE,
    "The profile is text only: a structured image or video part is refused before rendering.",
    source="field note AFN-006",
    cause="a multimodal request; a text part that spells a media token is legal",
)
EFFORT = declare(
    "chat.effort", Authority.UPSTREAM, "With thinking on, the reasoning effort is one of the closed set.",
    source=_NOTE, cause="an effort of another family",
)  # fmt: skip
QUERY = declare(
    "chat.query.missing",
    Authority.UPSTREAM,
    "A conversation has a user message that is not itself a wrapped tool response.",
    source=_NOTE,
    cause="a conversation of assistant or tool messages only",
)
ROLE = declare(
    "chat.role", Authority.UPSTREAM, "A role is one of the closed set.", source=_NOTE, cause="`developer`"
)
SYSTEM = declare(
    "chat.system.position", Authority.UPSTREAM, "There is at most one system message, and it comes first.",
    source=_NOTE, cause="a second or late system message",
)  # fmt: skip
_SWITCHES: Final = ("enable_thinking", "preserve_thinking", "add_generation_prompt", "add_vision_id")
REASONING_NAMES: Final = ("reasoning_content", "thinking", "reasoning")
"""Names under which callers pass reasoning; the first that is given counts, as in the public library."""
MEDIA_KINDS: Final = ("image", "image_url", "video")
_OPTIONS: Final = frozenset({*_SWITCHES, "reasoning_effort", "tools"})


class ChatRenderer:
    """Renders conversations of one profile through the checkpoint's own template.

    Args:
        template: the text of the template.
        contract: the profile's text contract.
        clock: the moment that a template may print.
    """

    def __init__(self, template: str, contract: TextContract, *, clock: datetime | None = None) -> None:
        self._template = ChatTemplate(template, clock=clock)
        self._contract = contract
        self._spellings = tuple(token.content for token in contract.added)
        self._vocabulary = {
            "role": frozenset(contract.roles),
            "reasoning_effort": frozenset(contract.efforts),
        }

    @classmethod
    def of_directory(cls, directory: Path, contract: TextContract) -> "ChatRenderer":
        """Reads `chat_template.jinja` of a checkpoint.

        Raises:
            AdmissionError: tokenizer.form, when it is absent, too large or not UTF-8.
            ContractError: chat.template.syntax.
        """
        return cls(read_template(directory / "chat_template.jinja"), contract)

    def render(
        self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None
    ) -> Prompt:
        """Returns the prompt of a conversation: bytes, segments, origins.

        Raises:
            ContractError: the first finding of `judge_request`, or what the template itself refuses.
            ContractError: chat.control.split or chat.control.unlisted, for what the template may not spell.
            OriginError: chat.origin.lost, when the template needs an operation that loses origins;
                chat.template.budget, when it does not end.
        """
        chosen = {} if options is None else options
        findings = judge_request(messages, chosen, self._contract)
        if findings:
            raise ContractError(findings[0])
        # As upstream does: a key whose value is null is an absent key in messages; an option keeps its null.
        kept = [_standard(message) for message in messages]
        with collector_paused():
            pieces = self._template.render({**chosen, "messages": kept}, vocabulary=self._vocabulary)
            return prompt_of(pieces, self._contract.control_atoms, self._spellings)


def read_template(path: Path) -> str:
    """Returns the text of a template file.

    Raises:
        AdmissionError: tokenizer.form, when it is absent, too large or not UTF-8.
    """
    try:
        text = load_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise AdmissionError(finding(FORM, path.name, "UTF-8", str(error))) from None
    # Line ends as a file that is read as text has them, which is how upstream reads it.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def judge_request(messages: Any, options: Mapping[str, Any], contract: TextContract) -> list[Finding]:
    """Returns every finding on a request, in the published order of judgement.

    Order: arguments, empty conversation, tools, content and calls of each message, media, effort, user query, roles
    and system position. A stage that the one before makes meaningless is not judged.
    """
    findings = _arguments(messages, options)
    if findings:
        return findings
    if not messages:
        return [_finding(EMPTY_CONVERSATION, "messages", "at least one message", "none")]
    findings += _tools(options.get("tools"))
    for index, message in enumerate(messages):
        findings += _message(message, f"messages[{index}]")
    for index, message in enumerate(messages):
        findings += _media(message.get("content"), f"messages[{index}].content")
    # A null switch is neither absent nor true: the published template then looks at no effort. A null effort isn't
    # absent either, and no effort of the set.
    effort = options.get("reasoning_effort")
    if (
        options.get("enable_thinking", True) is True
        and "reasoning_effort" in options
        and effort not in contract.efforts
    ):
        findings.append(_finding(EFFORT, "reasoning_effort", f"one of {', '.join(contract.efforts)}", effort))
    if not any(_is_query(message) for message in messages):
        findings.append(_finding(QUERY, "messages", "a user message", "none"))
    for index, message in enumerate(messages):
        role = message["role"]
        if role not in contract.roles:
            findings.append(
                _finding(ROLE, f"messages[{index}].role", f"one of {', '.join(contract.roles)}", role)
            )
        elif role == "system" and index:
            findings.append(
                _finding(SYSTEM, f"messages[{index}].role", "a system message at 0 only", f"at {index}")
            )
    return findings


def _standard(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a message without nulls, its reasoning under the one name that templates of this family read."""
    kept = {key: value for key, value in message.items() if value is not None}
    given = [kept.pop(name) for name in REASONING_NAMES if name in kept]
    return {**kept, REASONING_NAMES[0]: given[0]} if given else kept


def _arguments(messages: Any, options: Any) -> list[Finding]:
    if not isinstance(options, dict):
        return [_finding(ARGUMENT, "options", "an object", type(options).__name__)]
    findings = [
        _finding(ARGUMENT, str(name), f"one of {', '.join(sorted(_OPTIONS))}", name)
        for name in sorted(set(options) - _OPTIONS, key=str)
    ]
    findings += [
        _finding(ARGUMENT, name, "true or false", options[name])
        for name in _SWITCHES
        if not isinstance(options.get(name), (bool, type(None)))
    ]
    if not isinstance(options.get("reasoning_effort"), (str, type(None))):
        findings.append(_finding(ARGUMENT, "reasoning_effort", "text", options["reasoning_effort"]))
    if not isinstance(messages, (list, tuple)):
        return [*findings, _finding(ARGUMENT, "messages", "a list", type(messages).__name__)]
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            findings.append(_finding(ARGUMENT, f"messages[{index}]", "an object", type(message).__name__))
        elif not isinstance(message.get("role"), str):
            findings.append(_finding(ARGUMENT, f"messages[{index}].role", "text", message.get("role")))
        elif _too_deep(message, MAX_DEPTH - 2):
            findings.append(_finding(ARGUMENT, f"messages[{index}]", f"nesting below {MAX_DEPTH}", "more"))
    if isinstance(options.get("tools"), list) and _too_deep(options["tools"], MAX_DEPTH - 2):
        findings.append(_finding(ARGUMENT, "tools", f"nesting below {MAX_DEPTH}", "more"))
    return findings


def _tools(tools: Any) -> list[Finding]:
    if tools is None:
        return []
    if not isinstance(tools, (list, tuple)):
        return [_finding(TOOLS, "tools", "a list of objects", type(tools).__name__)]
    return [
        _finding(TOOLS, f"tools[{index}]", "an object", type(tool).__name__)
        for index, tool in enumerate(tools)
        if not isinstance(tool, dict)
    ]


def _message(message: Mapping[str, Any], where: str) -> list[Finding]:
    findings: list[Finding] = []
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        for index, part in enumerate(content):
            here = f"{where}.content[{index}]"
            if not isinstance(part, dict):
                findings.append(_finding(CONTENT, here, "an object", type(part).__name__))
            elif not _is_media(part) and not isinstance(part.get("text"), str):
                got = type(part["text"]).__name__ if "text" in part else "nothing"
                kind = f" in a part of type {part['type']}" if isinstance(part.get("type"), str) else ""
                findings.append(_finding(CONTENT, f"{here}.text", "text", f"{got}{kind}"))
    elif not isinstance(content, (str, type(None))):
        findings.append(_finding(CONTENT, f"{where}.content", "text, null or parts", type(content).__name__))
    findings += [
        _finding(CONTENT, f"{where}.{name}", "text or null", type(message[name]).__name__)
        for name in REASONING_NAMES
        if not isinstance(message.get(name), (str, type(None)))
    ]
    calls = message.get("tool_calls")
    if calls is None:
        return findings
    if not isinstance(calls, (list, tuple)):
        return [*findings, _finding(TOOL_CALL, f"{where}.tool_calls", "a list", type(calls).__name__)]
    for index, call in enumerate(calls):
        findings += _call(call, f"{where}.tool_calls[{index}]")
    return findings


def _call(call: Any, where: str) -> list[Finding]:
    if not isinstance(call, dict):
        return [_finding(TOOL_CALL, where, "an object", type(call).__name__)]
    function = call.get("function", call)
    if not isinstance(function, dict):
        return [_finding(TOOL_CALL, f"{where}.function", "an object", type(function).__name__)]
    findings = []
    if not isinstance(function.get("name"), str):
        findings.append(_finding(TOOL_CALL, f"{where}.name", "text", function.get("name")))
    arguments = function.get("arguments", "")
    if not isinstance(arguments, dict) and arguments != "":
        findings.append(_finding(ARGUMENTS, f"{where}.arguments", "an object", type(arguments).__name__))
    return findings


def _media(content: Any, where: str) -> list[Finding]:
    if not isinstance(content, (list, tuple)):
        return []
    return [
        _finding(
            MEDIA, f"{where}[{index}]", "text (the profile is text only)", part.get("type", "a media part")
        )
        for index, part in enumerate(content)
        if isinstance(part, dict) and _is_media(part)
    ]


def _is_media(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    return any(name in part or (isinstance(kind, str) and kind == name) for name in MEDIA_KINDS)


def _is_query(message: Mapping[str, Any]) -> bool:
    if message["role"] != "user":
        return False
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    text = content.strip() if isinstance(content, str) else ""
    return not (text.startswith("<tool_response>") and text.endswith("</tool_response>"))


def _too_deep(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            item
            for one in level
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, (dict, list, tuple))
        ]
        if not level:
            return False
    return True


def _finding(code: str, where: str, expected: Any, got: Any) -> Finding:
    return Finding.of(code, "request", where, expected=expected, got=got)
