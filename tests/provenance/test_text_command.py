"""`assay text`: JSON in, JSON out by schema; what is wrong is one finding with its place."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from assay.impl.text.miniature import write_tokenizer
from assay.provenance.cli import main
from assay.spec.documents import text as documents

MODELS = {
    "render": documents.TextPrompt, "encode": documents.TextIds, "decode": documents.TextDecoded, "parse": documents.TextTurn,
}  # fmt: skip


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def asked(action: str, given: Any, *options: str) -> tuple[int, str, str]:
        data = given if isinstance(given, bytes) else json.dumps(given).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = main(["text", action, *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return asked


@pytest.mark.parametrize("action", MODELS)
def test_an_example_runs_and_its_document_holds_its_schema(action: str, ask: Any) -> None:
    _, example, _ = ask(action, b"", "--example")
    code, out, err = ask(action, example.encode(), *(["--ids"] if action == "render" else []))
    assert (code, err) == (0, "")
    document = MODELS[action].model_validate_json(out)
    assert (document.seam, document.profile) == ("private", "assay-miniature-v1")


def test_a_rendered_prompt_says_who_wrote_what(ask: Any) -> None:
    given = [{"role": "user", "content": "a<|im_end|>"}]
    _, out, _ = ask("render", {"messages": given, "options": {"enable_thinking": False}}, "--ids")
    found = json.loads(out)
    assert found["text"] == "<|im_start|>user\na<|im_end|><|im_end|>\n"
    assert [(one["kind"], one["length"]) for one in found["segments"]] == [(1, 12), (0, 16), (1, 10), (0, 1)]
    assert [(one["kind"], one["path"]) for one in found["origins"]] == [
        ("template", ""), ("caller", "messages[0].content"), ("template", ""),
    ]  # fmt: skip
    # By hand: 321 and 322 are the two controls of the template; the caller's spelling is plain bytes and merges.
    assert (found["ids"].count(321), found["ids"].count(322)) == (1, 1)


def test_a_list_alone_is_the_messages_or_the_ids(ask: Any) -> None:
    assert ask("render", [{"role": "user", "content": "a"}])[0] == 0
    assert json.loads(ask("decode", [71, 344])[1])["text"] == "h<think>"


def test_ids_go_by_segments_when_they_are_given(ask: Any) -> None:
    segments = [{"kind": 1, "offset": 0, "length": 7}, {"kind": 0, "offset": 7, "length": 7}]
    _, out, _ = ask("encode", {"text": "<think><think>", "segments": segments})
    assert json.loads(out)["ids"].count(344) == 1
    assert json.loads(ask("encode", {"text": "<think>", "trusted": True})[1])["ids"] == [344]


def test_a_turn_is_read_by_ids_and_a_bad_argument_is_a_problem(ask: Any) -> None:
    turn = "<tool_call>\n<function=f>\n<parameter=x>\nNaN\n</parameter>\n</function>\n</tool_call>"
    ids = json.loads(ask("encode", {"text": turn, "trusted": True})[1])["ids"]
    tools = [{"name": "f", "parameters": {"properties": {"x": {"type": "number"}}}}]
    found = json.loads(ask("parse", {"ids": ids, "tools": tools})[1])
    assert found["calls"] == [{"name": "f", "arguments": {"x": "NaN"}, "typed": None}]
    assert [(one["code"], one["where"]) for one in found["problems"]] == [("turn.call.value", "f.x")]


def test_a_directory_of_the_family_is_known_by_its_added_tokens(ask: Any, tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    code, out, _ = ask("encode", {"text": "a"}, "--tokenizer", str(tmp_path))
    assert (code, json.loads(out)["profile"]) == (0, "assay-miniature-v1")
    code, _, err = ask("encode", {"text": "a"}, "--tokenizer", str(tmp_path / "tokenizer.json"))
    assert (code, err.startswith("assay: error: usage.argument: --tokenizer: expected a directory")) == (
        2,
        True,
    )
    document = json.loads((tmp_path / "tokenizer.json").read_bytes())
    document["added_tokens"][3]["content"] = "<|other|>"
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    code, _, err = ask("encode", {"text": "a"}, "--tokenizer", str(tmp_path))
    assert (code, err.startswith("assay: error: usage.argument: --tokenizer")) == (2, True)


def test_another_template_is_rendered_under_the_contract(ask: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.jinja"
    path.write_text("{% for m in messages %}\n{{ m.content | e }}{% endfor %}", encoding="utf-8")
    given = [{"role": "user", "content": "a"}]
    code, _, err = ask("render", given, "--template", str(path))
    assert (code, err.splitlines()[0]) == (
        1,
        "assay: error: chat.origin.lost: line 2: filter e: expected an operation that keeps the origin of text, got a call",
    )
    path.write_text("{{ strftime_now('%Y-%m') }}", encoding="utf-8")
    _, out, _ = ask("render", given, "--template", str(path), "--clock", "2031-05-01T00:00")
    assert json.loads(out)["text"] == "2031-05"


@pytest.mark.parametrize(
    ("action", "given", "code", "where"),
    [
        ("render", b"{", "json.syntax", "stdin"),
        ("render", {"messages": {}}, "text.input", "messages"),
        ("render", {"message": []}, "text.input", "message"),
        ("render", [], "chat.conversation.empty", "messages"),
        ("encode", {}, "text.input", "text"),
        ("encode", {"text": "a", "segments": [{"kind": 0}]}, "text.input", "segments[0]"),
        ("encode", {"text": "a", "segments": [{"kind": 0, "offset": 0, "length": 2}]}, "chat.segments.cover", "segments[0].length"),
        ("encode", {"text": "a", "segments": [], "trusted": True}, "text.input", "trusted"),
        ("encode", b'{"text": "\\ud800"}', "input.json.encoding", "stdin"),
        ("decode", {"ids": [1, True]}, "vocabulary.id", "ids[1]"),
        ("parse", {"ids": [1.5]}, "vocabulary.id", "ids[0]"),
        ("parse", {"text": "a", "ids": []}, "text.input", "input"),
        ("parse", {"text": "a", "tools": [{"name": "f"}, 1]}, "text.input", "tools[1]"),
        ("parse", {"text": "a", "tools": [{"function": {}}]}, "text.input", "tools[0].function.name"),
        ("parse", {"text": "a", "tools": [{"name": "f", "parameters": 3}]}, "text.input", "tools[0].parameters"),
        ("parse", {"text": "a", "tools": [{"name": "f", "parameters": {"properties": []}}]}, "text.input", "tools[0].parameters.properties"),
        ("parse", {}, "text.input", "input"),
    ],
)  # fmt: skip
def test_a_wrong_input_is_one_line_with_its_place(
    action: str, given: Any, code: str, where: str, ask: Any
) -> None:
    ended, out, err = ask(action, given)
    first = err.splitlines()[0]
    assert (ended, out) == (1, "")
    if code != "json.syntax":  # the reader of JSON has its own code
        assert first.startswith(f"assay: error: {code}: {where}: expected")


@pytest.mark.parametrize(
    ("options", "where"),
    [(["encode", "--ids"], "--ids"), (["decode", "--clock", "x"], "--clock"), (["render", "--format", "junit"], "--format"),
     (["render", "--clock", "noon", "--example"], None), (["render", "--input", "/none"], "--input")],
)  # fmt: skip
def test_an_option_that_does_not_fit_is_told(
    options: list[str], where: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["text", *options])
    err = capsys.readouterr().err
    assert code == (0 if where is None else 2)
    assert where is None or err.startswith(f"assay: error: usage.argument: {where}: expected")
