"""Reads a model's turn as it streams: reasoning, content and tool calls, the same for every way of cutting it.

Two feeds. By ids, only the control tokens themselves are markers; text that merely spells one is content. By text,
for servers that hand out text, the spelling counts. Either way nothing is decided before enough has been seen.
"""

import json
import math
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from assay.impl.text.engine import Tokenizer
from assay.impl.text.ids import integer
from assay.impl.text.segments import utf8
from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

FORM = declare(
    "turn.call.form",
    Authority.UPSTREAM,
    "A tool call is a function block with parameter blocks inside the call's markers, and is closed.",
    source="the instructions of the published chat template",
    cause="the model broke off, or wrote another family's call format",
)
VALUE = declare(
    "turn.call.value",
    Authority.FORM,
    "An argument reads as the type that the tool declares for it.",
    source="the published chat template: text as it is, everything else as JSON",
    cause="the model wrote prose where a number or list is declared",
)
CLOSED = declare(
    "turn.closed",
    Authority.RULE,
    "A turn that was ended takes no more text.",
    source="assay: a parser of one turn",
    cause="a caller that feeds what came after the end, or uses one parser for two turns",
    fix="make a parser for each turn",
)
MAX_GAP: Final = 64
"""Whitespace between two tags of a call; more is not a gap, so that looking ahead stays bounded."""
MAX_NAME: Final = 1024
"""Characters of a function's or parameter's name; for the same reason."""
MAX_STEP: Final = 4096
"""Characters read at once, so that a long text costs as much for each character as a short one."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A stretch of `reasoning` or `content`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call; arguments are the texts as the model wrote them, in its order."""

    name: str
    arguments: Mapping[str, str]


@dataclass(slots=True)
class Turn:
    """What one turn held. A malformed call is a problem with its raw text, never a call."""

    reasoning: str = ""
    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    problems: list[Finding] = field(default_factory=list)


Event = Delta | ToolCall | Finding


@dataclass(frozen=True, slots=True)
class _Markers:
    think: str
    end_think: str
    call: str
    end_call: str


_SPELLED: Final = _Markers("<think>", "</think>", "<tool_call>", "</tool_call>")
# Lone surrogates: no decoded text can hold them, so a marker by id can't be forged by text.
_BY_ID: Final = _Markers("\ud800", "\ud801", "\ud802", "\ud803")
_SPELLING: Final = {
    ord(getattr(_BY_ID, name)): getattr(_SPELLED, name) for name in ("think", "end_think", "call", "end_call")
}


class TurnParser:
    """A parser for one turn.

    Args:
        in_reasoning: whether the prompt already opened the reasoning block.
        by_id: whether markers come as ids (`IdFeed`) and their spellings are content.
    """

    def __init__(self, *, in_reasoning: bool, by_id: bool = False) -> None:
        self._markers = _BY_ID if by_id else _SPELLED
        self._buffer = ""
        self._closed = False
        self._events: list[Event] = []
        self._held: dict[str, list[str]] = {"reasoning": [], "content": []}
        self._parts: dict[str, list[str]] = {"reasoning": [], "content": []}
        self._turn = Turn()
        self._run = self._read(in_reasoning)
        next(self._run)

    @property
    def turn(self) -> Turn:
        """What is certain of the turn so far."""
        for kind, parts in self._parts.items():
            self._parts[kind] = ["".join(parts)]
            setattr(self._turn, kind, self._parts[kind][0])
        return self._turn

    def feed(self, text: str) -> list[Event]:
        """Takes more text and returns what is now certain.

        Raises:
            ContractError: text.utf8, for a lone surrogate, which no tokenizer decodes to; turn.closed, after `finish`.
        """
        if self._closed:
            raise ContractError(
                Finding.of(CLOSED, "turn", "feed", expected="a turn that is open", got="one that was ended")
            )
        if self._markers is _SPELLED:
            utf8(text, "turn")
        events: list[Event] = []
        for at in range(0, len(text), MAX_STEP):
            events += self._step(text[at : at + MAX_STEP])
        return events

    def finish(self) -> list[Event]:
        """Ends the turn and returns the rest; an open call becomes a problem. Ending it again returns nothing."""
        self._closed = True
        return self._step("")

    def marker(self, spelling: str) -> str:
        """Returns what stands for a control token in the fed text."""
        names = dict(zip(("<think>", "</think>", "<tool_call>", "</tool_call>"), self._all(), strict=True))
        return names.get(spelling, spelling)

    def _all(self) -> tuple[str, str, str, str]:
        m = self._markers
        return m.think, m.end_think, m.call, m.end_call

    def _step(self, text: str) -> list[Event]:
        self._buffer += text
        next(self._run, None)
        events, self._events = self._events, []
        return events

    def _read(self, in_reasoning: bool) -> Generator[None, None, None]:
        m = self._markers
        if not in_reasoning:
            # Whitespace that a turn begins with is no part of it, so it needn't be held.
            self._buffer = self._buffer.lstrip()
            while not self._closed and m.think.startswith(self._buffer) and self._buffer != m.think:
                yield
                self._buffer = self._buffer.lstrip()
            in_reasoning = self._buffer.startswith(m.think)
            if in_reasoning:
                self._buffer = self._buffer[len(m.think) :]
        if in_reasoning:
            yield from self._text("reasoning", m.end_think)
        while (yield from self._text("content", m.call)):
            yield from self._call()

    def _text(self, kind: str, marker: str) -> Generator[None, None, bool]:
        """Passes text on until a marker is read; False when the turn ended first."""
        while True:
            at = self._buffer.find(marker)
            if at >= 0:
                self._emit(kind, self._buffer[:at])
                self._buffer = self._buffer[at + len(marker) :]
                return True
            keep = 0 if self._closed else _overlap(self._buffer, marker)
            self._emit(kind, self._buffer[: len(self._buffer) - keep])
            self._buffer = self._buffer[len(self._buffer) - keep :]
            if self._closed:
                return False
            yield

    def _emit(self, kind: str, text: str) -> None:
        """Emits text without the whitespace at its edges: the end of it is held until something follows."""
        held, parts = self._held[kind], self._parts[kind]
        begun = any(parts)
        kept = text.rstrip()
        if not kept:
            if begun:
                held.append(text)
            return
        rest = text[len(kept) :]
        kept = ("".join(held) + kept if begun else kept.lstrip()).translate(_SPELLING)
        held[:] = [rest]
        parts.append(kept)
        self._events.append(Delta(kind, kept))

    def _call(self) -> Generator[None, None, None]:
        m = self._markers
        raw: list[str] = [m.call]
        name = yield from self._tag("<function=", raw)
        arguments: dict[str, str] = {}
        while name is not None:
            word = yield from self._either(("<parameter=", "</function>"), raw)
            if word == "</function>":
                if (yield from self._either((m.end_call,), raw)) is None:
                    break
                call = ToolCall(
                    name.translate(_SPELLING),
                    {key: value.translate(_SPELLING) for key, value in arguments.items()},
                )
                self._turn.calls.append(call)
                self._events.append(call)
                return
            key = None if word is None else (yield from self._to_bracket(raw))
            value = None if key is None else (yield from self._value(raw))
            if key is None or value is None or key.translate(_SPELLING) in arguments:
                break
            arguments[key.translate(_SPELLING)] = value
        yield from self._broken(raw)

    def _tag(self, opening: str, raw: list[str]) -> Generator[None, None, str | None]:
        if (yield from self._either((opening,), raw)) is None:
            return None
        return (yield from self._to_bracket(raw))

    def _either(self, words: Sequence[str], raw: list[str]) -> Generator[None, None, str | None]:
        """Skips whitespace and reads one of the words; None when something else stands there."""
        while True:
            stripped = self._buffer.lstrip()
            gap = len(self._buffer) - len(stripped)
            found = next((word for word in words if stripped.startswith(word)), None)
            if found is not None and gap <= MAX_GAP:
                self._take(gap + len(found), raw)
                return found
            undecided = gap <= MAX_GAP and any(word.startswith(stripped) for word in words)
            if self._closed or not undecided:
                return None
            yield

    def _to_bracket(self, raw: list[str]) -> Generator[None, None, str | None]:
        while (at := self._buffer.find(">")) < 0 or "\n" in self._buffer[:at]:
            if self._closed or "\n" in self._buffer or len(self._buffer) > MAX_NAME:
                return None
            yield
        if at > MAX_NAME:
            return None
        name = self._buffer[:at]
        self._take(at + 1, raw)
        return name or None

    def _value(self, raw: list[str]) -> Generator[None, None, str | None]:
        """Reads a value up to the end tag that another parameter or the end of the call follows."""
        parts: list[str] = []
        end = "</parameter>"
        while True:
            at = self._buffer.find(end)
            if at < 0:
                keep = _overlap(self._buffer, end)
                parts.append(self._take(len(self._buffer) - keep, raw))
                if self._closed:
                    return None
                yield
                continue
            parts.append(self._take(at, raw))
            follows = self._follows(self._buffer[len(end) :])
            if follows:
                self._take(len(end), raw)
                value = "".join(parts).removeprefix("\n")
                return value.removesuffix("\n")
            if follows is False or self._closed:
                parts.append(self._take(len(end), raw))
                continue
            yield

    def _follows(self, rest: str) -> bool | None:
        """Whether the tags that end a value stand at the beginning of `rest`; None while it can't be told."""
        stripped = rest.lstrip()
        if len(rest) - len(stripped) > MAX_GAP:
            return False
        if stripped.startswith("<parameter="):
            return True
        if stripped.startswith("</function>"):
            after = stripped[len("</function>") :]
            tail = after.lstrip()
            if len(after) - len(tail) > MAX_GAP:
                return False
            if tail.startswith(self._markers.end_call):
                return True
            return None if self._markers.end_call.startswith(tail) else False
        undecided = any(word.startswith(stripped) for word in ("<parameter=", "</function>"))
        return None if undecided else False

    def _take(self, count: int, raw: list[str]) -> str:
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        raw.append(taken)
        return taken

    def _broken(self, raw: list[str]) -> Generator[None, None, None]:
        """Notes a malformed call and skips to the end of it; what it held is shown and never run."""
        end = self._markers.end_call
        while not self._closed and end not in self._buffer:
            keep = _overlap(self._buffer, end)
            self._take(len(self._buffer) - keep, raw)
            yield
        at = self._buffer.find(end)
        self._take(len(self._buffer) if at < 0 else at + len(end), raw)
        finding = Finding.of(
            FORM, "turn", f"call {len(self._turn.calls) + len(self._turn.problems)}",
            expected="a function block with parameters, closed", got="".join(raw).translate(_SPELLING),
        )  # fmt: skip
        self._turn.problems.append(finding)
        self._events.append(finding)


STOPS: Final = ("<|im_end|>", "<|endoftext|>")
"""Spellings of the tokens that end a turn, where the contract's ids are not at hand."""


class IdFeed:
    """Feeds a parser with ids: control tokens by their id, everything else as decoded text.

    A marker where none is expected reads as its spelling. A stop id ends the turn and is no part of its text; ids
    after it are not looked at.

    Args:
        tokenizer: the tokenizer of the ids.
        in_reasoning: whether the prompt already opened the reasoning block.
        stop_ids: the ids that end the turn; the added tokens spelled as in `STOPS` unless given.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, in_reasoning: bool, stop_ids: Collection[int] | None = None
    ) -> None:
        self.parser = TurnParser(in_reasoning=in_reasoning, by_id=True)
        self._decoder = tokenizer.decoder()
        added = tokenizer.facts.added
        marked = ("<think>", "</think>", "<tool_call>", "</tool_call>")
        self._markers = {
            token.id: self.parser.marker(token.content) for token in added if token.content in marked
        }
        self._stops = frozenset(
            [token.id for token in added if token.content in STOPS] if stop_ids is None else stop_ids
        )
        self._ended = False

    def push(self, id_: int) -> list[Event]:
        """Takes one id and returns what is now certain.

        Raises:
            ContractError: vocabulary.id, for what is no integer.
        """
        if self._ended:
            return []
        integer(id_, "id")
        if id_ in self._stops:
            return self.finish()
        if id_ in self._markers:
            return self.parser.feed(self._decoder.finish() + self._markers[id_])
        return self.parser.feed(self._decoder.push(id_))

    def finish(self) -> list[Event]:
        """Ends the turn."""
        if self._ended:
            return []
        self._ended = True
        return [*self.parser.feed(self._decoder.finish()), *self.parser.finish()]


def parse_turn(text: str, *, in_reasoning: bool) -> Turn:
    """Returns what a whole turn holds."""
    parser = TurnParser(in_reasoning=in_reasoning)
    parser.feed(text)
    parser.finish()
    return parser.turn


def typed_arguments(call: ToolCall, tools: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a call's arguments with the types that its tool declares: text as it is, everything else as JSON.

    An argument that no tool declares stays text: nothing says that it is anything else.

    Raises:
        ContractError: turn.call.value, when a text is not JSON of the declared type.
    """
    declared: Mapping[str, Any] = {}
    offered: Iterable[object] = tools
    for tool in offered:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or function.get("name") != call.name:
            continue  # what is no declaration declares nothing
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        declared = properties if isinstance(properties, Mapping) else {}
    return {
        key: _typed(value, declared.get(key), f"{call.name}.{key}") for key, value in call.arguments.items()
    }


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,),
    "null": (type(None),),
}  # fmt: skip


def _typed(text: str, schema: Any, where: str) -> Any:
    asked = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = asked if isinstance(asked, list) else [asked]
    kinds = [kind for kind in kinds if isinstance(kind, str)]
    if not any(kind in _TYPES for kind in kinds):
        return text
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        value = text
    for kind in kinds:
        if isinstance(value, bool) and kind != "boolean":
            continue
        if isinstance(value, _TYPES.get(str(kind), ())):
            return value
    if "string" in kinds:
        return text
    raise ContractError(Finding.of(VALUE, "turn", where, expected=f"JSON of type {asked}", got=text))


def _no_number(word: str) -> float:
    raise ValueError(f"JSON has no {word}")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number beyond every float")
    return value


def _overlap(text: str, marker: str) -> int:
    """Returns how many characters at the end of `text` could begin `marker`."""
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0
