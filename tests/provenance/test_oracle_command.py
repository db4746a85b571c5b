"""`assay oracle`: one operation from the shell, its refusals in one line, its list against a schema."""

import inspect
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from assay.oracles.catalogue import OPERATIONS
from assay.provenance import oracle_input
from assay.provenance.catalogue import json_schema
from assay.provenance.cli import main

Ask = Callable[..., tuple[int, str, str]]

ISSUE_OPERATIONS = {
    "norm.rms", "residual.read", "residual.apply", "gdn.step", "gdn.sequence", "conv.causal", "rope.apply",
    "qsa.groups", "qsa.select", "qsa.attend", "router.topk", "moe.forward", "ple.multipliers", "ple.primes",
    "ple.rows", "ple.inject", "logits.select",
}  # fmt: skip
RESULTS = {
    "ple.rows": {"rows"},
    "qsa.select": {"groups", "tokens"},
    "router.topk": {"ids", "weights"},
    "logits.select": {"id"},
    "norm.rms": {"y"},
    "gdn.sequence": {"y", "state"},
}
SELECT = '{"scores": [1, 2], "budget_groups": 1, "visible": 9, "ratio": 4, "first_position": 0}'


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs the command with this text on stdin; gives exit code, stdout and stderr."""

    def run(*arguments: str, stdin: str | bytes = b"") -> tuple[int, str, str]:
        data = stdin.encode("utf-8") if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = main(["oracle", *arguments])
        done = capsys.readouterr()
        return code, done.out, done.err

    return run


def test_the_operations_of_the_issue_exist_with_their_results() -> None:
    assert set(OPERATIONS) >= ISSUE_OPERATIONS
    for name, results in RESULTS.items():
        assert {one.name for one in OPERATIONS[name].results} == results


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_listed_arguments_are_the_functions_own(name: str) -> None:
    operation = OPERATIONS[name]
    parameters = set(inspect.signature(operation.function).parameters)
    assert {one.name for one in operation.arguments} == parameters - {"dtype"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_example_runs_when_it_is_piped_back(ask: Ask, name: str) -> None:
    code, example, _ = ask(name, "--example")
    assert code == 0
    code, result, _ = ask(name, stdin=example)
    assert code == 0
    assert set(json.loads(result)) == {one.name for one in OPERATIONS[name].results}


@pytest.mark.parametrize("name", [name for name, one in OPERATIONS.items() if one.has_dtype])
def test_an_example_runs_in_float64_too(ask: Ask, name: str) -> None:
    code, result, _ = ask(name, stdin=json.dumps({**OPERATIONS[name].example, "dtype": "float64"}))
    assert code == 0
    assert json.loads(result)


def test_one_row_of_the_toy_hash_from_the_shell(ask: Ask) -> None:
    """A6, with the history given: tokens 5 and 8 before 3."""
    toy = {"multipliers": [7, 11, 13], "primes": [53, 59], "offsets": [0, 53], "heads_per_ngram": 1, "eos": 2}
    code, result, _ = ask("ple.rows", stdin=json.dumps({**toy, "tokens": [3], "history": [5, 8]}))
    assert (code, json.loads(result)) == (0, {"rows": [[24, 65]]})


def test_one_selection_from_the_shell(ask: Ask) -> None:
    assert json.loads(ask("qsa.select", stdin=SELECT)[1]) == {"groups": [1], "tokens": [4, 5, 6, 7, 8]}


def test_a_role_by_number_gives_the_rules_values(ask: Ask) -> None:
    """Printed by a C program."""
    result = json.loads(ask("weights.values", stdin='{"role": "100", "count": 3, "bf16": false}')[1])
    assert [f"{value:.9g}" for value in result["values"]] == ["0.0673278794", "0.101623535", "-0.0138647463"]
    stored = json.loads(ask("weights.values", stdin='{"role": 100, "count": 1}')[1])
    assert stored["values"] != result["values"][:1]


def test_an_integral_float_is_an_integer(ask: Ask) -> None:
    assert json.loads(ask("qsa.select", stdin=SELECT.replace('"visible": 9', '"visible": 9.0'))[1])[
        "groups"
    ] == [1]


def test_an_npz_file_with_text_for_numbers_is_refused(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "case.npz"
    np.savez(path, scores=np.array(["a", "b"]), budget_groups=1, visible=9)
    code, _, err = ask("qsa.select", "--input", str(path))
    assert (code, err.startswith("assay: error: oracle.argument.type: scores: ")) == (1, True)


def test_a_terminal_is_told_what_is_waited_for(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(io, "TextIOWrapper", Terminal)
    code, _, err = ask("qsa.select", stdin=SELECT)
    assert code == 0
    assert "assay oracle qsa.select --example" in err


def test_null_leaves_out_what_may_be_absent(ask: Ask) -> None:
    example = dict(OPERATIONS["gdn.step"].example)
    del example["state"]
    assert ask("gdn.step", stdin=json.dumps({**example, "state": None})) == ask(
        "gdn.step", stdin=json.dumps(example)
    )
    code, _, err = ask("gdn.step", stdin=json.dumps({**example, "beta": None}))
    assert (code, err.startswith("assay: error: oracle.argument.type: beta: ")) == (1, True)


def test_integers_are_read_as_decimal_strings_and_printed_as_numbers(ask: Ask) -> None:
    text = '{"seed": "1234", "vocab_size": "248320"}'
    assert json.loads(ask("ple.multipliers", stdin=text)[1]) == {
        "multipliers": [23703573157769, 20109073645365, 8052911324071]
    }


def test_integers_beyond_a_double_stay_exact(ask: Ask) -> None:
    text = '{"window": ["9007199254740993"], "multipliers": [1], "prime": 9007199254740997}'
    assert json.loads(ask("ple.wrapped", stdin=text)[1])["exact"] == 9007199254740993


@pytest.mark.parametrize(
    ("code", "where", "operation", "stdin"),
    [
        (
            "oracle.argument.shape",
            "scores",
            "qsa.select",
            '{"scores": [1], "budget_groups": 1, "visible": 9}',
        ),
        (
            "oracle.argument.shape",
            "scores",
            "qsa.select",
            '{"scores": [[1, 2]], "budget_groups": 1, "visible": 9}',
        ),
        ("oracle.argument.missing", "visible", "qsa.select", '{"scores": [1, 2], "budget_groups": 1}'),
        ("oracle.argument.unknown", "budget", "qsa.select", SELECT[:-1] + ', "budget": 2}'),
        ("oracle.argument.type", "scores[1]", "qsa.select", SELECT.replace("[1, 2]", '[1, "2"]')),
        ("oracle.argument.type", "scores[0]", "qsa.select", SELECT.replace("[1, 2]", "[true, 2]")),
        ("oracle.argument.type", "visible", "qsa.select", SELECT.replace('"visible": 9', '"visible": 9.5')),
        ("oracle.argument.type", "visible", "qsa.select", SELECT.replace('"visible": 9', '"visible": true')),
        (
            "oracle.argument.type",
            "visible",
            "qsa.select",
            SELECT.replace('"visible": 9', '"visible": "nine"'),
        ),
        ("oracle.argument.type", "visible", "qsa.select", SELECT.replace('"visible": 9', '"visible": null')),
        ("oracle.argument.shape", "visible", "qsa.select", SELECT.replace('"visible": 9', '"visible": [9]')),
        ("oracle.argument.domain", "visible", "qsa.select", SELECT.replace("9", "1" + "0" * 18)),
        ("oracle.qsa.nan-score", "scores[1]", "qsa.select", SELECT.replace("[1, 2]", "[1, NaN]")),
        ("oracle.argument.shape", "x", "norm.rms", '{"x": [[1], [2, 3]], "weight": [0]}'),
        ("oracle.argument.finite", "x", "norm.rms", '{"x": [1e999], "weight": [0]}'),
        ("oracle.argument.finite", "x", "norm.rms", '{"x": [1%s], "weight": [0]}' % ("0" * 400)),
        ("oracle.argument.type", "convention", "norm.rms", '{"x": [1], "weight": [0], "convention": 1}'),
        ("oracle.argument.type", "contiguous", "qsa.groups", '{"positions": [0], "contiguous": 1}'),
        ("oracle.argument.type", "positions[0][0]", "qsa.groups", '{"positions": [["x"]]}'),
        ("oracle.argument.domain", "dtype", "norm.rms", '{"x": [1], "weight": [0], "dtype": "bf16"}'),
        ("oracle.argument.type", "config", "model.run", '{"config": [], "tokens": []}'),
        ("oracle.argument.domain", "name", "weights.values", '{"name": "a", "role": 1}'),
        (
            "oracle.result.finite",
            "wide",
            "residual.apply",
            '{"wide": [3e38], "block": [3e38], "injection": [1]}',
        ),
        ("oracle.input.malformed", "stdin", "norm.rms", ""),
        ("oracle.input.malformed", "stdin", "norm.rms", "[1]"),
        ("oracle.input.malformed", "stdin", "norm.rms", '{"x": [1]} {}'),
        ("oracle.input.malformed", "stdin", "norm.rms", '{"x": [1], "x": [2], "weight": [0]}'),
        ("oracle.input.malformed", "stdin", "norm.rms", "[" * 100_000),
        ("oracle.input.malformed", "stdin", "norm.rms", '{"x": [' + "1" * 5000 + "]}"),
    ],
)
def test_bad_input_is_one_typed_line_and_exit_1(
    ask: Ask, code: str, where: str, operation: str, stdin: str
) -> None:
    exit_code, out, err = ask(operation, stdin=stdin)
    assert (exit_code, out) == (1, "")
    assert err.startswith(f"assay: error: {code}: {where}: expected ")
    assert "Traceback" not in err


def test_input_that_is_not_utf8_is_refused(ask: Ask) -> None:
    code, _, err = ask("norm.rms", stdin=b'{"x": "\xff"}')
    assert code == 1
    assert err.startswith("assay: error: oracle.input.malformed: stdin: expected UTF-8, got byte 0xff at 7")


def test_input_beyond_the_limit_is_refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_input, "LARGEST_BYTES", 10)
    for lines in ([], ["--lines"]):
        code, _, err = ask("norm.rms", *lines, stdin='{"x": [1, 2, 3]}')
        assert code == 1
        assert "oracle.input.size: " in err


def test_an_unknown_operation_is_a_usage_error_with_a_hint(ask: Ask) -> None:
    code, out, err = ask("qsa.selct")
    assert (code, out) == (2, "")
    assert "hint: did you mean qsa.select" in err
    assert ask()[0] == 2


def test_many_cases_run_in_one_process_and_a_bad_one_keeps_its_place(ask: Ask) -> None:
    lines = [
        '{"x": [3, 4], "weight": [0, 0]}',
        "",
        '{"x": [3], "weight": [0, 0]}',
        "{",
        '{"x": [1], "weight": [1]}',
    ]
    code, out, err = ask("norm.rms", "--lines", stdin="\n".join(lines))
    results = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [next(iter(one)) for one in results] == ["y", "error", "error", "error", "y"]
    assert [one["error"]["line"] for one in results[1:4]] == [2, 3, 4]
    assert [one["error"]["where"] for one in results[1:4]] == ["line 2", "weight", "line 4"]
    assert results[1]["error"]["code"] == results[3]["error"]["code"] == "oracle.input.malformed"
    assert "line 3" in err


def test_good_lines_end_with_exit_0(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(f"{SELECT}\n{SELECT}\n")
    code, out, err = ask("qsa.select", "--lines", "--input", str(path))
    assert (code, len(out.splitlines()), err) == (0, 2, "")


def test_a_json_file_is_read(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(SELECT)
    assert json.loads(ask("qsa.select", "--input", str(path))[1])["groups"] == [1]


@pytest.mark.parametrize("lines", [[], ["--lines"]])
def test_a_missing_file_is_a_usage_error(ask: Ask, tmp_path: Path, lines: list[str]) -> None:
    code, _, err = ask("qsa.select", *lines, "--input", str(tmp_path / "none.json"))
    assert code == 2
    assert err.startswith("assay: error: usage.argument: --input: ")


def test_an_npz_file_is_read(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "case.npz"
    np.savez(path, scores=np.array([1.0, 2.0], np.float32), budget_groups=1, visible=np.int64(9), ratio=4)
    assert json.loads(ask("qsa.select", "--input", str(path))[1]) == {
        "groups": [1],
        "tokens": [4, 5, 6, 7, 8],
    }


def test_an_npz_file_keeps_text_flags_and_column_order(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "case.npz"
    np.savez_compressed(
        path, x=np.asfortranarray([[3.0, 4.0], [4.0, 3.0]]), weight=[0.0, 1.0], convention="zero-centred"
    )
    y = json.loads(ask("norm.rms", "--input", str(path))[1])["y"]
    assert y[0] == pytest.approx([0.848528, 2.262742], abs=1e-6)
    assert y[1] == pytest.approx([1.131371, 1.697056], abs=1e-6)


def npy(shape: str, data: bytes, descr: str = "'<f4'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "content",
    [
        npy("(1099511627776,)", b"\0" * 8),
        npy("(2,)", b"\0" * 12),
        npy("(1,)", b"\x80\x04N.", "'|O'"),
        b"\x93NUMPY\x09\x00",
        b"short",
    ],
)
def test_a_header_that_the_bytes_do_not_bear_out_is_refused(ask: Ask, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "case.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("scores.npy", content)
    code, _, err = ask("qsa.select", "--input", str(path))
    assert code == 1
    assert err.startswith("assay: error: oracle.input.malformed: case.npz")


def test_a_file_that_is_no_archive_is_refused(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "case.npz"
    path.write_bytes(b"PK not really")
    code, _, err = ask("qsa.select", "--input", str(path))
    assert code == 1
    assert err.startswith("assay: error: oracle.input.malformed: case.npz")


def test_an_archive_that_unpacks_beyond_the_limit_is_refused(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle_input, "LARGEST_BYTES", 1000)
    path = tmp_path / "case.npz"
    np.savez_compressed(path, scores=np.zeros(1000))
    code, _, err = ask("qsa.select", "--input", str(path))
    assert code == 1
    assert err.startswith("assay: error: oracle.input.size: case.npz")


def test_the_list_follows_its_schema(ask: Ask) -> None:
    code, out, _ = ask("--list", "--format", "json")
    listing: dict[str, Any] = json.loads(out)
    assert code == 0
    jsonschema.validate(listing, json_schema("assay.oracle-list/1"))
    assert [one["name"] for one in listing["operations"]] == list(OPERATIONS)
    assert {"qsa.dense", "ple.rows"} <= {one["operation"] for one in listing["bounds"]}


def test_the_list_gives_defaults_and_the_working_type(ask: Ask) -> None:
    listing = json.loads(ask("qsa.pool", "--list", "--format", "json")[1])
    arguments = {one["name"]: one for one in listing["operations"][0]["arguments"]}
    assert (arguments["eps"]["required"], arguments["eps"]["default"]) == (False, 1e-6)
    assert arguments["sections"]["default"] == [11, 11, 10]
    assert (arguments["dtype"]["dtype"], arguments["dtype"]["default"]) == ("text", "float32")
    assert arguments["keys"]["required"]
    assert "default" not in arguments["keys"]


def test_every_listed_default_is_what_leaving_the_argument_out_gives(ask: Ask) -> None:
    listing = json.loads(ask("qsa.groups", "--list", "--format", "json")[1])
    defaults = {
        one["name"]: one["default"] for one in listing["operations"][0]["arguments"] if not one["required"]
    }
    assert defaults == {"ratio": 4, "contiguous": True}
    short = {"positions": [3, 4, 5, 6, 7]}
    assert ask("qsa.groups", stdin=json.dumps(short)) == ask(
        "qsa.groups", stdin=json.dumps({**short, **defaults})
    )


def test_the_list_of_one_operation_shows_shapes_types_and_defaults(ask: Ask) -> None:
    code, out, _ = ask("qsa.dense", "--list", "--format", "pretty")
    assert code == 0
    assert "q [token, head, dim]: float32 or float64" in out
    assert "(default 2051)" in out
    assert "bound of qsa.dense: at most 2051 visible keys" in out
    assert ask("nothing", "--list")[0] == 2


def test_stages_of_a_small_model_come_out_by_token(ask: Ask) -> None:
    example = {**OPERATIONS["model.run"].example, "taps": [1]}
    result = json.loads(ask("model.run", stdin=json.dumps(example))[1])
    assert len(result["logits"]) == 3
    assert {one["token"] for one in result["stages"]} == {1}
    assert result["stages"][0]["stage"] == "embedding"
