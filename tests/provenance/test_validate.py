"""`assay validate`: one result a path, one line a finding, and the exit code that the worst verdict has."""

import json
import os
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from assay.provenance.catalogue import json_schema
from assay.provenance.cli import main
from assay.provenance.commands import validate
from assay.provenance.kinds import KINDS
from assay.provenance.miniature import write_miniature


@pytest.fixture
def miniature(tmp_path: Path) -> Path:
    write_miniature(tmp_path / "m")
    return tmp_path / "m"


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, list[dict[str, Any]]]:
    """Runs the command; every object that it prints must be valid under its published schema."""
    code = main(["validate", "--format", "json", *map(str, arguments)])
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for document in documents:
        jsonschema.validate(document, json_schema("assay.validation/1"))
    return code, documents


def test_one_object_a_line_for_each_path_and_the_worst_exit_code(
    miniature: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, documents = run(capsys, "--private", miniature, miniature / "config.json", miniature / "nothing")
    assert [(document["kind"], document["verdict"]) for document in documents] == [
        ("checkpoint", "accepted"), ("config", "accepted"), ("unknown", "rejected"),
    ]  # fmt: skip
    assert code == 1


def test_accepted_is_0_rejected_is_1_and_inconclusive_is_3(
    miniature: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "--private", miniature)[0] == 0
    assert run(capsys, miniature)[0] == 1
    (miniature / "model-00001-of-00003.safetensors").unlink()
    assert run(capsys, "--private", miniature)[0] == 3


def test_the_private_seam_stamps_every_output(miniature: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, (document,) = run(capsys, "--private", miniature)
    assert document["seam"] == "private"
    for shape in ("pretty", "markdown"):
        main(["validate", "--private", "--format", shape, str(miniature)])
        assert "seam: private" in capsys.readouterr().out


def test_no_environment_variable_opens_the_private_seam(
    miniature: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_PRIVATE", "1")
    _, (document,) = run(capsys, miniature)
    assert [finding["code"] for finding in document["findings"]] == ["profile.private"]


KINDS_BY_NAME = [
    ("config.json", "config"),
    ("model.safetensors.index.json", "index"),
    ("model-00001-of-00003.safetensors", "safetensors"),
]


@pytest.mark.parametrize(("name", "kind"), KINDS_BY_NAME)
def test_a_single_file_is_recognised_by_name(
    miniature: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    code, (document,) = run(capsys, "--private", miniature / name)
    assert (code, document["kind"], document["verdict"]) == (0, kind, "accepted")


@pytest.mark.parametrize(("name", "kind"), KINDS_BY_NAME)
def test_a_single_file_under_another_name_is_recognised_by_its_bytes(
    miniature: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    (miniature / name).rename(miniature / "download.part")
    _, (document,) = run(capsys, "--private", miniature / "download.part")
    assert (document["kind"], document["verdict"]) == (kind, "accepted")


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def bad_inputs(folder: Path) -> dict[str, tuple[Path, str, str]]:
    """Input -> path, code and the end of `where`."""
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "config.json").mkdir()
    (folder / "d").mkdir()
    config = folder / "d" / "config.json"
    return {
        "missing": (folder / "nothing", "input.file.missing", "nothing"),
        "a loop of links": (folder / "loop", "input.file.symlink_loop", "loop"),
        "a pipe": (folder / "pipe", "input.file.irregular", "pipe"),
        "empty": (write(folder / "e.json", b""), "input.file.empty", "e.json"),
        "an empty shard": (write(folder / "e.safetensors", b""), "input.file.empty", "e.safetensors"),
        "truncated": (write(folder / "model.safetensors.index.json", b'{"weight_map": {"a'), "input.json.syntax",
                      "model.safetensors.index.json:1:17"),
        "a 2 GB header": (write(folder / "h.safetensors", struct.pack("<Q", 2 << 30) + b"{}"),
                          "safetensors.header.length", "h.safetensors"),
        "NaN": (write(folder / "n.index.json", b'{"metadata": {"total_size": NaN}}'), "input.json.number", "n.index.json"),
        "a huge integer": (write(folder / "i.index.json", b'{"metadata": {"total_size": 1' + b"0" * 5000 + b"}}"),
                           "input.json.number", "i.index.json"),
        "a duplicate key": (write(config, b'{"model_type": "a", "model_type": "b"}'), "input.json.duplicate_key",
                            "config.json"),
        "utf-16": (write(folder / "u.index.json", '{"weight_map": {}}'.encode("utf-16")), "input.json.encoding",
                   "u.index.json"),
    }  # fmt: skip


NAMES = ["missing", "a loop of links", "a pipe", "empty", "an empty shard", "truncated", "a 2 GB header", "NaN",
         "a huge integer", "a duplicate key", "utf-16"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_one_clear_line_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path, code, where = bad_inputs(tmp_path)[name]
    exit_code, (document,) = run(capsys, path)
    assert exit_code == 1
    (finding,) = [one for one in document["findings"] if one["code"] == code]
    assert finding["where"].endswith(where)
    assert main(["validate", "--format", "pretty", str(path)]) == 1
    shown = capsys.readouterr()
    assert [
        line
        for line in shown.out.splitlines()
        if f"{code}: " in line and ": expected " in line and ", got " in line
    ]
    assert shown.err == ""


def test_a_folder_in_the_place_of_a_file_is_said_when_the_kind_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").mkdir()
    code, (document,) = run(capsys, "--kind", "config", tmp_path / "config.json")
    assert (code, document["findings"][0]["code"]) == (1, "input.file.directory")


def test_a_file_in_the_place_of_a_checkpoint_is_said_when_the_kind_is_given(
    miniature: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, (document,) = run(capsys, "--kind", "checkpoint", miniature / "config.json")
    assert (code, document["findings"][0]["code"]) == (1, "input.file.directory")
    assert document["findings"][0]["expected"] == "a folder"


def test_a_name_that_is_not_utf_8_is_printed_as_valid_json(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\xfe.json"
    done = subprocess.run(
        [sys.executable, "-m", "assay.provenance.cli", "validate", path], capture_output=True, check=False
    )
    document = json.loads(done.stdout.decode("utf-8"))
    assert done.returncode == 1
    assert document["findings"][0]["where"].endswith("/\\udcff\\udcfe.json")
    assert document["path"].endswith(
        "/\\udcff\\udcfe.json"
    )  # escaped as in `where`: strict readers refuse lone halves
    assert done.stderr == b""


def test_a_wrong_option_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--kind", "chekpoint", str(tmp_path)]) == 2
    assert "usage.argument: --kind: expected one of " in capsys.readouterr().err
    assert main(["validate"]) == 2
    assert "PATH" in capsys.readouterr().err


def test_junit_has_a_suite_a_path_and_a_case_an_area(
    miniature: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((miniature / "config.json").read_text())
    config["text_config"]["hidden_act"] = '<gelu> & "more"'
    (miniature / "config.json").write_text(json.dumps(config))
    main(["validate", "--private", "--format", "junit", str(miniature)])
    (suite,) = ET.fromstring(capsys.readouterr().out)  # noqa: S314 - our own output
    assert (suite.get("failures"), suite.get("tests")) == ("1", "5")
    failed = [case for case in suite if case.find("failure") is not None]
    assert [case.get("name") for case in failed] == ["config"]
    assert 'expected silu, got <gelu> & "more"' in (failed[0].find("failure").text or "")  # type: ignore[union-attr]


def test_markdown_escapes_what_a_hostile_file_says(
    miniature: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((miniature / "config.json").read_text())
    config["text_config"]["hidden_act"] = "a|b<script>\nc"
    (miniature / "config.json").write_text(json.dumps(config))
    main(["validate", "--private", "--format", "markdown", str(miniature)])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "hidden_act" in line]
    assert row == r"| config.value | config.json: text_config.hidden_act | silu | a\|b&lt;script>\\nc |"


HEAVY = ("mlx", "numpy", "rich", "torch", "tokenizers", "jinja2", "jsonschema")


@pytest.mark.parametrize("arguments", [["--help"], ["validate", "--help"], ["validate", "--private", "DIR"],
                                       ["validate", "--private", "DIR/config.json"]])  # fmt: skip
def test_nothing_heavy_is_imported(miniature: Path, arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from assay.provenance.cli import main\n"
        "code = main(sys.argv[1:])\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit(f'imported {loaded}' if loaded else code)\n"
    )
    named = [argument.replace("DIR", str(miniature)) for argument in arguments]
    done = subprocess.run([sys.executable, "-c", code, *named], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("options", [[], ["--payload", "-q"]])
def test_it_works_where_numpy_and_mlx_cannot_be_imported(miniature: Path, options: list[str]) -> None:
    (miniature / "model.gguf").write_bytes(b"GGUF\x03\0\0\0" + bytes(16))
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'mlx', 'torch', 'numpy', 'transformers', 'safetensors', 'rich'}:\n"
        "            raise ImportError(f'{name} is refused')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from assay.provenance.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "validate",
        "--private",
        *options,
        "--out",
        str(miniature / "o"),
        str(miniature),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert done.stderr == ""
    assert document["report"]["areas"]["inventory"] == "accepted"
    assert ("payload" in document["report"]["areas"]) == bool(options)


def test_the_kinds_are_words_of_the_command_line() -> None:
    assert {"checkpoint", "config", "index", "safetensors"} <= {kind.name for kind in KINDS}


@pytest.mark.checkpoint
@pytest.mark.parametrize(
    ("name", "kind"),
    [("config.json", "config"), ("model.safetensors.index.json", "index"),
     ("safetensors-headers.partial.jsonl", "safetensors")],
)  # fmt: skip
def test_each_file_of_the_real_description_is_accepted_alone(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    code, (document,) = run(capsys, checkpoint / name)
    assert (code, document["kind"], document["findings"]) == (0, kind, [])


@pytest.mark.checkpoint
def test_the_real_description_is_open_for_what_is_absent_only(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, (document,) = run(capsys, checkpoint)
    assert (code, document["verdict"]) == (3, "inconclusive")
    assert {finding["code"] for finding in document["findings"]} == {"files.missing"}
    digest = "a639efc7a5147b04200e870d7e320335527f4361a8327b137feca2683b1dc434"
    assert document["report"]["facts"]["inventory_sha256"] == digest


def test_progress_counts_bytes_over_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, int, int]] = []

    @contextmanager
    def bar(**_: bool) -> Iterator[Any]:
        yield lambda what, done, total: shown.append((what, done, total))

    monkeypatch.setattr(validate, "progress_bar", bar)
    with validate._byte_progress("payload", 300) as advance, ThreadPoolExecutor(4) as pool:
        list(pool.map(advance, [1] * 300))
    assert shown[-1] == ("payload", 300, 300)
    assert [done for _, done, _ in shown] == list(range(1, 301))
