"""Every complaint about a command line or an output is one line with a code that `assay explain` knows."""

import ast
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

import assay
from assay.provenance.catalogue import load_all_clauses
from assay.provenance.cli import COMMANDS, main
from assay.provenance.commands import validate
from assay.spec.clauses import clause
from assay.spec.errors import Finding, shown
from assay.spec.judgement import Judgement

ROOMS = ("spec", "impl", "oracles", "mutations", "provenance", "reports")
ASSAY = [sys.executable, "-m", "assay.provenance.cli"]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if not line.startswith("hint: ")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "oracle"])
def test_an_unknown_option_is_one_line_for_every_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, command, "--no-such-option").startswith(
        f"assay: error: usage.arguments: assay {command}"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["frob"], "usage.command: command line: expected one of validate"),
        (["validate"], "usage.arguments: assay validate: expected"),
        (["validate", ""], "usage.arguments: assay validate: expected"),
        (["gate", "--evidence", ""], "usage.arguments: assay gate: expected"),
        (["validate", "--jobs", "0", "x"], "usage.argument: --jobs: expected 1 to 256, got 0"),
        (["validate", "--jobs", "-5", "x"], "usage.argument: --jobs: expected 1 to 256, got -5"),
        (["validate", "--fresh", "x"], "usage.argument: --fresh: expected --payload beside it"),
        (["explain"], "usage.argument: explain: expected a clause or error code, or --list, got none"),
        (["explain", "--format", "junit", "ple"], "usage.argument: --format: expected pretty or json"),
    ],
)
def test_what_a_command_line_lacks_is_said(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, *arguments).startswith(f"assay: error: {line}")


@pytest.mark.parametrize("prefix", ["--p", "--priv", "--privat"])
@pytest.mark.parametrize(
    "arguments", [["validate", "x"], ["build", "x", "-o", "y"], ["generate", "x", "--ids", "1"]]
)
def test_no_shorter_word_opens_the_private_seam(
    arguments: list[str], prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, *arguments, prefix).endswith(f"got unrecognized arguments: {prefix}")


def literal_codes() -> Iterator[tuple[str, str]]:
    """Yields each code that stands as a literal, or as a module's constant, where a finding is made."""
    root = Path(assay.__file__).parent
    for path in sorted(path for room in ROOMS for path in (root / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            named = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
            first = call.args[:1] if ast.unparse(call.func) in {"Finding", "Finding.of"} else []
            for node in (*named, *first):
                value = (
                    node.value if isinstance(node, ast.Constant) else constants.get(getattr(node, "id", ""))
                )
                if isinstance(value, str):
                    yield f"{path.name}:{call.lineno}", value
        yield from (
            (f"{path.name}:{node.lineno}", node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and re.fullmatch(r"usage\.[a-z_]+", str(node.value))
        )


def test_every_code_that_a_finding_is_made_with_can_be_explained() -> None:
    load_all_clauses()
    found = list(literal_codes())
    assert {"usage.argument", "usage.extra", "publish.verify"} <= {code for _, code in found}
    assert [(where, code) for where, code in found if clause(code) is None] == []


def test_an_exception_is_told_by_its_words() -> None:
    assert Finding.of("a", "b", "c", expected="text", got=ValueError("not finite")).got == "not finite"
    assert shown(KeyError()) == "KeyError"


def test_a_full_disk_is_one_line_and_no_bug() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*ASSAY, "--help"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("assay: error: output.write: standard output: expected")
    assert "bug" not in done.stderr.decode()


def test_a_closed_output_is_one_line_and_no_bug() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m assay.provenance.cli --help >&-"],
        stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.decode().startswith("assay: error: output.write: standard output: expected")


def test_a_terminal_without_our_letters_gets_them_escaped(tmp_path: Path) -> None:
    path = tmp_path / "é.json"
    path.write_text("{}")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for shape in ("pretty", "json"):
        done = subprocess.run(
            [*ASSAY, "validate", "--format", shape, str(path)],
            env=environment,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (3, b"")
        assert done.stdout.isascii()
    assert json.loads(done.stdout)["path"] == str(path)


def test_json_that_is_no_json_is_told_without_a_kind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cases = {"two": ('{"a":1,"a":2}', "input.json.duplicate_key"), "nan": ("[NaN]", "input.json.number"),
             "huge": ('{"a":' + "9" * 60 + "}", "input.json.number"), "cut": ('{"a"', "input.json.syntax")}  # fmt: skip
    for name, (text, code) in cases.items():
        (tmp_path / f"{name}.json").write_text(text)
        assert main(["validate", "--format", "json", str(tmp_path / f"{name}.json")]) == 1
        (finding,) = json.loads(capsys.readouterr().out)["findings"]
        assert (finding["code"], finding["where"].split(".json")[0]) == (code, str(tmp_path / name))


def test_findings_beyond_a_thousand_of_a_code_are_counted_and_the_verdict_stays() -> None:
    judgement = Judgement("checkpoint")
    holes = [Finding.of("safetensors.span.hole", "headers", f"t{n}", expected=0, got=1) for n in range(1500)]
    judgement.judged("headers", holes)
    judgement.judged("inventory", holes[:1])
    assert len(judgement.findings) == 1000
    assert judgement.facts["findings_omitted"] == {"safetensors.span.hole": 500}
    assert judgement.verdict == "rejected"
    text = validate.pretty(judgement.document("x"))
    assert "and 950 more findings in --format json" in text
    assert "and 500 more of safetensors.span.hole, counted and not kept" in text


def test_junit_tells_each_finding_in_the_case_of_its_area() -> None:
    judgement = Judgement("checkpoint")
    judgement.judged(
        "files", gaps=[Finding.of("files.missing", "files", "LICENSE", expected="3235 bytes", got="none")]
    )
    judgement.judged("config", [Finding.of("config.value", "config", "config.json: x", expected=1, got=2)])
    judgement.gaps.append(Finding.of("foreign.conversion", "identity", "d", expected="it", got="another"))
    suite = ET.fromstring(validate.junit([judgement.document("d")])).find("testsuite")  # noqa: S314 - ours
    assert suite is not None
    bodies = {case.get("name"): "".join(case.itertext()) for case in suite}
    assert {name: text.split(":")[0] for name, text in bodies.items()} == {
        "files": "files.missing", "config": "config.value", "identity": "foreign.conversion",
    }  # fmt: skip


def test_an_empty_value_is_shown_as_one() -> None:
    assert (shown(""), shown("  "), shown("a")) == ("''", "'  '", "a")
