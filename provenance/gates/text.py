"""The gates of the text pipeline: published cases, agreement with the plain-Python oracles, mutations, the boundary.

Each gate on the published files has a twin on the miniature, so that all of it also runs where those files are absent.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.paths import fixture_path
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AssayError, Finding
from assay.spec.text import TextContract, text_contract
from assay.spec.verdicts import Outcome

if TYPE_CHECKING:
    from assay.impl.text.chat import ChatRenderer
    from assay.impl.text.engine import Tokenizer
    from assay.oracles.tokenizer import Oracle

CASE = declare(
    "text.case",
    Authority.UPSTREAM,
    "Every published case gives its recorded ids, bytes or error.",
    source="published golden cases of the pinned revision; field note AFN-008",
    cause="another tokenizer or template, or another version of a library with other Unicode tables",
)
ORACLE = declare(
    "text.oracle",
    Authority.RULE,
    "Engine and plain-Python oracle agree on ids, bytes, segments and errors.",
    source="field note AFN-008",
    cause="a fault in one of the two, or tables of another Unicode version",
)
UNPUBLISHED = declare(
    "text.published-files",
    Authority.PIN,
    "The gates of the published text judge the published files: each that they read has its pinned digest.",
    source="field note AFN-008",
    cause="--checkpoint names another directory, a part of the files, or files that were written again",
    fix="take the named files from the pinned revision; `assay validate DIR --kind tokenizer` judges others",
)
STRINGS: Final = 100_000
CONVERSATIONS: Final = 1_000
MAX_FINDINGS: Final = 20
_ERRORS: Final = {
    "empty": "chat.conversation.empty", "media": "chat.media", "effort": "chat.effort",
    "query": "chat.query.missing", "role": "chat.role", "system": "chat.system.position",
}  # fmt: skip


_MINIATURE_CONTROLS: Final[dict[str, Any]] = {
    # By hand from the miniature's tables: 319 is its last merge, 320 and 352 its first and last added token, 384 its rows.
    "decode_controls": [
        {"name": "last of the base", "ids": [319], "text": "==", "text_skipped": "=="},
        {"name": "first added", "ids": [320], "text": "<|endoftext|>", "text_skipped": ""},
        {"name": "last added", "ids": [352], "text": "<|audio_pad|>", "text_skipped": ""},
        {"name": "first unassigned", "ids": [353], "text": "", "text_skipped": ""},
        {"name": "last unassigned", "ids": [383], "text": "", "text_skipped": ""},
        {
            "name": "mixed",
            "ids": [352, 353, 383, 320],
            "text": "<|audio_pad|><|endoftext|>",
            "text_skipped": "",
        },
    ],
    "outside": [-1, 384, 2**31 - 1],
}


@dataclass(frozen=True, slots=True)
class _Pipeline:
    contract: TextContract
    tokenizer: "Tokenizer"
    renderer: "ChatRenderer"
    oracle: "Oracle"
    template: str


def published_cases(context: GateContext) -> GateResult:
    """The 59 text cases, 6 decode controls, 33 identities and 39 chat cases, with the published files."""
    if context.checkpoint is None:
        return GateResult(Outcome.NOT_RUN, reason="the published tokenizer files are absent")
    if (refused := _unpublished(context.checkpoint)) is not None:
        return refused
    findings: list[Finding] = []
    with _published(context.checkpoint) as pipeline:
        counts = {
            "text_cases": _text_cases(pipeline, findings, published=True),
            "decode_controls": _decode_controls(pipeline, findings, _cases("tokenizer")),
            "identities": _identities(pipeline, findings),
            "chat_cases": _chat_cases(pipeline, findings, published=True),
        }
    return _result(findings, counts)


def miniature_cases(_: GateContext) -> GateResult:
    """The same inputs on the miniature, each held to the oracles, since nobody published ids for it."""
    findings: list[Finding] = []
    with _miniature() as pipeline:
        counts = {
            "text_cases": _text_cases(pipeline, findings, published=False),
            "decode_controls": _decode_controls(pipeline, findings, _MINIATURE_CONTROLS),
            "identities": _identities(pipeline, findings),
            "chat_cases": _chat_cases(pipeline, findings, published=False),
        }
    return _result(findings, counts)


def published_agreement(context: GateContext) -> GateResult:
    """Random strings and conversations, engine against oracle, with the published files."""
    if context.checkpoint is None:
        return GateResult(Outcome.NOT_RUN, reason="the published tokenizer files are absent")
    if (refused := _unpublished(context.checkpoint)) is not None:
        return refused
    with _published(context.checkpoint) as pipeline:
        return agreement(pipeline, context.seed, strings=STRINGS, conversations=CONVERSATIONS)


def miniature_agreement(context: GateContext) -> GateResult:
    """Random strings and conversations, engine against oracle, on the miniature."""
    with _miniature() as pipeline:
        return agreement(pipeline, context.seed, strings=STRINGS, conversations=CONVERSATIONS)


def agreement(pipeline: _Pipeline, seed: int, *, strings: int, conversations: int) -> GateResult:
    """Compares engine and oracle where their Unicode tables agree, and reports where those don't."""
    from assay.provenance.gates import text_inputs, text_tables

    report = text_tables.compare_tables()
    findings: list[Finding] = []
    done = 0
    for text in text_inputs.strings(seed, strings, report.excluded, pipeline.contract):
        done += 1
        _compare_ids(pipeline, text, f"string {done} {text!r}", findings)
        if len(findings) >= MAX_FINDINGS:
            break
    rendered = 0
    for number, (turns, options) in enumerate(
        text_inputs.conversations(seed, conversations, pipeline.contract)
    ):
        rendered += _compare_chat(pipeline, turns, options, f"conversation {number}", findings) is not None
        if len(findings) >= MAX_FINDINGS:
            break
    counts = {"strings": done, "conversations": conversations, "rendered": rendered, **report.measurements()}
    return _result(findings, counts)


def mutations_killed(context: GateContext) -> GateResult:
    """The battery `text`: every mutated fact is rejected for its own reason."""
    from assay.mutations.battery import BatteryContext
    from assay.mutations.runner import run_batteries

    run = run_batteries(["text"], BatteryContext(checkpoint=context.checkpoint, seed=context.seed))
    counts = run.batteries["text"]
    findings = [
        Finding.of(
            ORACLE, "text", one.id, expected=one.expected_code, got=", ".join(one.got_codes) or "accepted"
        )
        for one in (*run.survivors, *run.killed_elsewhere)
    ]
    return _result(findings, {"mutations": counts.total, "killed": counts.killed})


def _unpublished(directory: Path) -> GateResult | None:
    """Returns the result when these are not the published files: nothing they say is about the published text."""
    from assay.impl.text.facts import FILES

    contract = text_contract("qwen4exp")
    needed = {"chat_template.jinja", "tokenizer_config.json"}
    if not (directory / "tokenizer.json").is_file():
        needed |= {"vocab.json", "merges.txt"}
    findings = []
    for name in FILES:
        pin, path = contract.pin(name), directory / name
        if pin is None or not (path.is_file() or name in needed):
            continue
        got = _file_digest(path) if path.is_file() else "no such file"
        if got != pin.sha256:
            findings.append(Finding.of(UNPUBLISHED, "text", name, expected=pin.sha256, got=got))
    if not findings:
        return None
    reason = f"not the published files: {', '.join(one.where for one in findings)}"
    return GateResult(Outcome.INCONCLUSIVE, findings=tuple(findings), reason=reason)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _published(directory: Path) -> Iterator[_Pipeline]:
    yield _pipeline(directory, text_contract("qwen4exp"))


@contextmanager
def _miniature() -> Iterator[_Pipeline]:
    from assay.impl.text.miniature import write_tokenizer

    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        yield _pipeline(Path(folder), text_contract("miniature"))


def _pipeline(directory: Path, contract: TextContract) -> _Pipeline:
    from assay.impl.text.chat import ChatRenderer
    from assay.impl.text.engine import Tokenizer
    from assay.oracles.tokenizer import Oracle, Tables

    tokenizer = Tokenizer.of_directory(directory)
    template = (directory / "chat_template.jinja").read_text(encoding="utf-8")
    tables = Tables(
        tokenizer.facts.vocabulary,
        tokenizer.facts.merges,
        {token.content: token.id for token in contract.added},
    )
    return _Pipeline(contract, tokenizer, ChatRenderer(template, contract), Oracle(tables), template)


def _cases(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        fixture_path("text", f"{name}-cases.json").read_text(encoding="utf-8")
    )
    return document


def _text_cases(pipeline: _Pipeline, findings: list[Finding], *, published: bool) -> int:
    cases = _cases("tokenizer")["cases"]
    for case in cases:
        text, name = case["text"], case["name"]
        _compare_ids(pipeline, text, name, findings)
        if not published:
            continue
        raw = pipeline.tokenizer.encode_data(text)
        decoded = case.get("decoded", text)
        _expect(findings, f"{name}: trusted ids", case["trusted"], pipeline.tokenizer.encode_trusted(text))
        _expect(findings, f"{name}: raw ids", case.get("raw", raw), raw)
        _expect(findings, f"{name}: raw count", case.get("raw_count", len(raw)), len(raw))
        _expect(findings, f"{name}: decoded", decoded, pipeline.tokenizer.decode(case["trusted"]))
    return len(cases)


def _decode_controls(pipeline: _Pipeline, findings: list[Finding], document: dict[str, Any]) -> int:
    for case in document["decode_controls"]:
        decoded = pipeline.tokenizer.decode(case["ids"])
        skipped = pipeline.tokenizer.decode(case["ids"], skip_special=True)
        _expect(findings, f"{case['name']}: decoded", case["text"], decoded)
        _expect(findings, f"{case['name']}: skipped", case["text_skipped"], skipped)
    for one in document["outside"]:
        _expect(findings, f"id {one}: decoded", "", pipeline.tokenizer.decode([one]))
    return len(document["decode_controls"])


def _identities(pipeline: _Pipeline, findings: list[Finding]) -> int:
    for token in pipeline.contract.added:
        _expect(findings, token.content, [token.id], pipeline.tokenizer.encode_trusted(token.content))
        low = all(
            one < pipeline.contract.base_vocabulary for one in pipeline.tokenizer.encode_data(token.content)
        )
        _expect(findings, f"{token.content} as data", True, low)
    return len(pipeline.contract.added)


def _chat_cases(pipeline: _Pipeline, findings: list[Finding], *, published: bool) -> int:
    document = _cases("chat")
    for case in document["cases"]:
        options = dict(case["options"])
        if "tools" in options:
            options["tools"] = document["tools"]
        got = _compare_chat(pipeline, case["messages"], options, case["name"], findings)
        if "error" in case:
            _expect(
                findings, f"{case['name']}: error", case["error"], _error(pipeline, case["messages"], options)
            )
        elif got is None:
            _expect(findings, f"{case['name']}: error", "none", _error(pipeline, case["messages"], options))
        elif published:
            wanted = (case["size_bytes"], case["sha256"])
            _expect(findings, f"{case['name']}: bytes", wanted, (len(got), hashlib.sha256(got).hexdigest()))
    return len(document["cases"])


def _compare_ids(pipeline: _Pipeline, text: str, where: str, findings: list[Finding]) -> None:
    paths: tuple[tuple[str, Callable[[str], list[int]], Callable[[str], list[int]]], ...] = (
        ("data", pipeline.oracle.encode_data, pipeline.tokenizer.encode_data),
        ("trusted", pipeline.oracle.encode_trusted, pipeline.tokenizer.encode_trusted),
    )
    for path, oracle, engine in paths:
        if path == "trusted" and "<" not in text:
            continue  # no added token begins with anything else: the two paths are one
        expected, got = oracle(text), engine(text)
        if expected != got:
            findings.append(Finding.of(ORACLE, "text", f"{where}: {path}", expected=expected, got=got))


def _compare_chat(
    pipeline: _Pipeline,
    turns: list[dict[str, Any]],
    options: dict[str, Any],
    where: str,
    findings: list[Finding],
) -> bytes | None:
    from assay.oracles import chat

    expected: Any
    got: Any
    try:
        pieces = chat.render(
            turns, options, chat.literals_of(pipeline.template, pipeline.contract), pipeline.contract
        )
        expected = [(text.encode(), int(is_control)) for text, is_control in pieces]
    except chat.ChatRefusal as refusal:
        expected = _ERRORS[refusal.kind]
    stream: bytes | None = None
    try:
        prompt = pipeline.renderer.render(turns, options)
        stream = prompt.stream
        got = [(stream[one.offset : one.offset + one.length], int(one.kind)) for one in prompt.segments]
    except AssayError as error:
        got = error.finding.code
    if expected != got:
        findings.append(Finding.of(ORACLE, "text", where, expected=expected, got=got))
    return stream


def _error(pipeline: _Pipeline, turns: list[dict[str, Any]], options: dict[str, Any]) -> str:
    try:
        pipeline.renderer.render(turns, options)
    except AssayError as error:
        return error.finding.code
    return "none"


def _expect(findings: list[Finding], where: str, expected: Any, got: Any) -> None:
    if expected != got:
        findings.append(Finding.of(CASE, "text", where, expected=expected, got=got))


def _result(findings: list[Finding], measurements: dict[str, Any]) -> GateResult:
    if findings:
        first = findings[0].line
        return GateResult(
            Outcome.FAIL, measurements, tuple(findings[:MAX_FINDINGS]), f"{len(findings)} differ: {first}"
        )
    return GateResult(Outcome.PASS, measurements)
