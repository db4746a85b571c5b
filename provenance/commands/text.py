"""`assay text ACTION`: the text pipeline from the shell; JSON in, JSON out, on any tokenizer directory of the family."""

import argparse
import hashlib
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.provenance.output import emit, emit_json, output_format, say
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, ContractError, Finding, usage_error
from assay.spec.text import TextContract, contract_of_tokens, text_contract
from assay.spec.verdicts import ExitCode

if TYPE_CHECKING:
    from assay.impl.text.facts import TokenizerFacts
    from assay.impl.text.segments import Prompt

INPUT: Final = declare(
    "text.input",
    Authority.FORM,
    "The input of `assay text` is one JSON value with the fields of its action, each of its own type.",
    source="assay: docs/text.md",
    cause="a field spelled wrong, or text where a list is asked for",
    fix="`assay text ACTION --example` prints an input that runs",
)
ACTIONS: Final = ("render", "encode", "decode", "parse")
LARGEST_BYTES: Final = 64 << 20
_EXAMPLES: Final[dict[str, Any]] = {
    "render": {
        "messages": [{"role": "user", "content": "Hello <|im_end|>"}],
        "options": {"add_generation_prompt": True, "reasoning_effort": "medium"},
    },
    "encode": {"text": "<think>Hello", "trusted": False},
    "decode": {"ids": [71, 68, 75, 75, 78], "skip_special": False},
    "parse": {
        "text": "2 degrees?</think>\n\nLet me see.\n\n<tool_call>\n<function=weather>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
        "in_reasoning": True,
        "tools": [{"name": "weather", "parameters": {"properties": {"days": {"type": "integer"}}}}],
    },
}  # fmt: skip
_FIELDS: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    "render": {"messages": (list,), "options": (dict,)},
    "encode": {"text": (str,), "trusted": (bool,), "segments": (list,)},
    "decode": {"ids": (list,), "skip_special": (bool,)},
    "parse": {"text": (str,), "ids": (list,), "in_reasoning": (bool,), "tools": (list,)},
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.epilog = (
        "Without --tokenizer the embedded miniature is used (seam: private). "
        "Try: assay text render --example | assay text render --ids --format pretty"
    )
    parser.add_argument("action", choices=ACTIONS, help="what to do with the JSON on stdin")
    parser.add_argument("--tokenizer", type=Path, metavar="DIR", help="checkpoint or tokenizer directory")
    parser.add_argument("--template", type=Path, metavar="FILE", help="render: another template than DIR's")
    parser.add_argument(
        "--clock", metavar="TIME", help="render: what `strftime_now` shows, as 2026-11-30T12:00"
    )
    parser.add_argument("--ids", action="store_true", help="render: the ids of the prompt as well")
    parser.add_argument("--input", type=Path, metavar="FILE", help="JSON from a file instead of stdin")
    parser.add_argument("--example", action="store_true", help="print an input that runs")


def run(arguments: argparse.Namespace) -> int:
    """Does one action and prints its document."""
    if arguments.format not in (None, "pretty", "json"):
        raise usage_error("--format", expected="pretty or json", got=arguments.format)
    if arguments.action != "render":
        for option in ("template", "clock", "ids"):
            if getattr(arguments, option):
                raise usage_error(f"--{option}", expected="render", got=arguments.action)
    if arguments.example:
        emit_json(_EXAMPLES[arguments.action])
        return ExitCode.OK
    asked = _asked(arguments)
    facts, contract, folder = _facts(arguments.tokenizer)
    source = {"profile": contract.profile, "seam": None if folder is not None else "private"}
    document = {
        "render": _render, "encode": _encode, "decode": _decode, "parse": _parse,
    }[arguments.action](asked, facts, contract, arguments)  # fmt: skip
    document = {"schema": document.pop("schema"), **source, **document}
    if output_format(arguments) == "pretty":
        emit(_pretty(arguments.action, document))
    else:
        emit_json(document)
    return ExitCode.OK


def _render(
    asked: dict[str, Any], facts: "TokenizerFacts", contract: TextContract, arguments: argparse.Namespace
) -> dict[str, Any]:
    from assay.impl.text.chat import ChatRenderer
    from assay.impl.text.engine import Tokenizer

    template = _template(arguments)
    renderer = ChatRenderer(template, contract, clock=_clock(arguments.clock))
    prompt = renderer.render(asked.get("messages", []), asked.get("options", {}))
    return {
        "schema": "assay.text-prompt/1",
        "text": prompt.stream.decode(),
        "size_bytes": len(prompt.stream),
        "sha256": hashlib.sha256(prompt.stream).hexdigest(),
        "segments": [
            {"kind": int(one.kind), "offset": one.offset, "length": one.length} for one in prompt.segments
        ],
        "origins": _origins(prompt),
        "ids": Tokenizer(facts).encode_prompt(prompt) if arguments.ids else None,
    }


def _origins(prompt: "Prompt") -> list[dict[str, Any]]:
    return [
        {"kind": one.origin.kind.value, "path": one.origin.path, "offset": one.offset, "length": one.length}
        for one in prompt.origins
    ]


def _encode(
    asked: dict[str, Any], facts: "TokenizerFacts", _: TextContract, __: argparse.Namespace
) -> dict[str, Any]:
    from assay.impl.text.engine import Tokenizer
    from assay.impl.text.segments import Segment, utf8

    tokenizer, text = Tokenizer(facts), _needed(asked, "text")
    pieces: list[str] | None = None
    if "segments" in asked:
        if "trusted" in asked:
            raise _broken("trusted", "no segments beside it", "segments")
        segments = []
        for index, one in enumerate(asked["segments"]):
            if not (
                isinstance(one, dict)
                and set(one) == {"kind", "offset", "length"}
                and all(type(value) is int for value in one.values())
            ):
                raise _broken(f"segments[{index}]", "kind, offset and length, whole numbers", one)
            segments.append(Segment(one["kind"], one["offset"], one["length"]))
        ids = tokenizer.encode_segments(utf8(text, "text"), segments)
    elif asked.get("trusted", False):
        ids = tokenizer.encode_trusted(text)
    else:
        ids = tokenizer.encode_data(text)
        pieces = tokenizer.pieces(text)
    return {"schema": "assay.text-ids/1", "ids": ids, "pieces": pieces}


def _decode(
    asked: dict[str, Any], facts: "TokenizerFacts", _: TextContract, __: argparse.Namespace
) -> dict[str, Any]:
    from assay.impl.text.engine import Tokenizer
    from assay.impl.text.ids import integer

    tokenizer = Tokenizer(facts)
    decoder = tokenizer.decoder(skip_special=asked.get("skip_special", False))
    tokens = []
    for index, id_ in enumerate(_needed(asked, "ids")):
        integer(id_, f"ids[{index}]")
        text, held = decoder.push(id_), tokenizer.token_bytes(id_)
        tokens.append({"id": id_, "hex": None if held is None else held.hex(), "text": text})
    rest = decoder.finish()
    whole = "".join(one["text"] for one in tokens) + rest
    return {"schema": "assay.text-decoded/1", "text": whole, "tokens": tokens, "rest": rest}


def _parse(
    asked: dict[str, Any], facts: "TokenizerFacts", contract: TextContract, _: argparse.Namespace
) -> dict[str, Any]:
    from assay.impl.text.engine import Tokenizer
    from assay.impl.text.ids import integer
    from assay.impl.text.parser import IdFeed, parse_turn, typed_arguments

    for index, tool in enumerate(asked.get("tools", [])):
        _check_tool(tool, f"tools[{index}]")
    if ("text" in asked) == ("ids" in asked):
        raise _broken("input", "text or ids", "both" if "ids" in asked else "neither")
    in_reasoning = asked.get("in_reasoning", False)
    if "ids" in asked:
        feed = IdFeed(Tokenizer(facts), in_reasoning=in_reasoning, stop_ids=contract.stop_ids)
        for index, id_ in enumerate(asked["ids"]):
            integer(id_, f"ids[{index}]")
            feed.push(id_)
        feed.finish()
        turn = feed.parser.turn
    else:
        turn = parse_turn(asked["text"], in_reasoning=in_reasoning)
    problems, calls = list(turn.problems), []
    for call in turn.calls:
        typed = None
        if "tools" in asked:
            try:
                typed = typed_arguments(call, asked["tools"])
            except ContractError as error:
                problems.append(error.finding)
        calls.append({"name": call.name, "arguments": dict(call.arguments), "typed": typed})
    return {
        "schema": "assay.text-turn/1",
        "reasoning": turn.reasoning,
        "content": turn.content,
        "calls": calls,
        "problems": [one.as_json() for one in problems],
    }


def _asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the fields of the input; a list alone is the messages or the ids."""
    from assay.impl.stores.strict_json import parse_json

    where = "stdin" if arguments.input is None else arguments.input.name
    if arguments.input is None:
        if sys.stdin.isatty():
            say(
                f"assay: reading JSON from the terminal; `assay text {arguments.action} --example` prints one"
            )
        data = sys.stdin.buffer.read(LARGEST_BYTES + 1)
    else:
        try:
            with arguments.input.open("rb") as file:
                data = file.read(LARGEST_BYTES + 1)
        except OSError as error:
            raise usage_error("--input", expected="a readable file", got=error.strerror) from None
    if len(data) > LARGEST_BYTES:
        raise _broken(where, f"at most {LARGEST_BYTES} bytes", "more")
    value = parse_json(data, stage="input", where=where)
    if isinstance(value, list) and arguments.action in {"render", "decode"}:
        value = {"messages" if arguments.action == "render" else "ids": value}
    if not isinstance(value, dict):
        raise _broken(where, "an object", type(value).__name__)
    fields = _FIELDS[arguments.action]
    for key, item in value.items():
        if key not in fields:
            raise _broken(key, f"one of {', '.join(fields)}", key)
        if type(item) not in fields[key]:
            raise _broken(key, " or ".join(one.__name__ for one in fields[key]), type(item).__name__)
    return value


def _facts(directory: Path | None) -> "tuple[TokenizerFacts, TextContract, Path | None]":
    """Returns the tokenizer's facts and the contract of the profile that has its added tokens."""
    from assay.impl.text.facts import load_files, read_facts

    if directory is None:
        from assay.impl.text.miniature import tokenizer_files

        return read_facts(tokenizer_files()), text_contract("miniature"), None
    if not directory.is_dir():
        raise usage_error("--tokenizer", expected="a directory", got=str(directory))
    facts = read_facts(load_files(directory))
    contract = contract_of_tokens(facts.added)
    if contract is None:
        raise usage_error("--tokenizer", expected="the added tokens of a packaged profile", got="others")
    return facts, contract, None if contract.profile == text_contract("miniature").profile else directory


def _template(arguments: argparse.Namespace) -> str:
    """Returns the template: a file of its own, the directory's, or the miniature's."""
    from assay.impl.text.chat import read_template
    from assay.impl.text.miniature import TEMPLATE

    if arguments.template is not None:
        if not arguments.template.exists():
            raise usage_error("--template", expected="a readable file", got=str(arguments.template))
        return read_template(arguments.template)
    return (
        TEMPLATE
        if arguments.tokenizer is None
        else read_template(arguments.tokenizer / "chat_template.jinja")
    )


def _clock(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise usage_error("--clock", expected="a moment such as 2026-11-30T12:00", got=text) from None


def _pretty(action: str, document: dict[str, Any]) -> str:
    seam = " [seam: private]" if document["seam"] else ""
    lines = [f"{document['profile']}{seam}"]
    if action == "render":
        data = document["text"].encode()
        for one in document["segments"]:
            shown = data[one["offset"] :][: one["length"]].decode()
            lines.append(f"{'CONTROL' if one['kind'] else 'data   '} {one['offset']:>7}  {shown!r}")
        for one in document["origins"]:
            shown = data[one["offset"] :][: one["length"]].decode()
            lines.append(f"{one['kind']:<10} {one['offset']:>7}  {one['path'] or '-'}: {shown[:60]!r}")
        lines.append(f"{document['size_bytes']} bytes, sha256 {document['sha256']}")
    if action in {"render", "encode"} and document["ids"] is not None:
        lines.append(" ".join(map(str, document["ids"])))
    if action == "decode":
        lines += [f"{one['id']:>8}  {one['hex'] or '-'}  {one['text']!r}" for one in document["tokens"]]
        lines.append(repr(document["text"]))
    if action == "parse":
        lines += [f"{name}: {document[name]!r}" for name in ("reasoning", "content")]
        lines += [f"call {one['name']}: {one['typed'] or one['arguments']}" for one in document["calls"]]
        lines += [f"problem: {one['code']}: {one['where']}: {one['got']}" for one in document["problems"]]
    return "\n".join(lines)


def _check_tool(tool: Any, where: str) -> None:
    """Refuses a declaration that would silently declare nothing, so that its arguments would stay text."""
    at = where
    for step in ("function", "parameters", "properties"):
        if not isinstance(tool, dict):
            raise _broken(at, "an object", type(tool).__name__)
        if step == "parameters" and not isinstance(tool.get("name"), str):
            raise _broken(f"{at}.name", "text", type(tool["name"]).__name__ if "name" in tool else "nothing")
        if step == "function" and step not in tool:
            continue  # a bare function is a declaration as well
        if tool.get(step) is None:
            return  # without parameters
        tool, at = tool[step], f"{at}.{step}"
    if not isinstance(tool, dict):
        raise _broken(at, "an object", type(tool).__name__)


def _needed(asked: dict[str, Any], key: str) -> Any:
    if key not in asked:
        raise _broken(key, "to be there", "nothing")
    return asked[key]


def _broken(where: str, expected: Any, got: Any) -> AdmissionError:
    return AdmissionError(Finding.of(INPUT, "input", where, expected=expected, got=got))
