"""The examples of docs/captures.md do what the page says."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.provenance.cli import main
from assay.provenance.paths import checkout_root

ROOT = checkout_root()
pytestmark = pytest.mark.skipif(ROOT is None, reason="the documentation lies in the checkout")
COMPILER = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


def example(name: str, folder: Path) -> Path:
    assert ROOT is not None
    page = (ROOT / "docs" / "captures.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)```", page, re.DOTALL)
    assert found is not None
    path = folder / name
    path.write_text(found.group(1), encoding="utf-8")
    return path


@pytest.fixture
def from_c(tmp_path: Path) -> tuple[Path, Path]:
    """Captures of the C example: without and with its mistake."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    program = tmp_path / "write_capture"
    source = example("write_capture.c", tmp_path)
    subprocess.run([COMPILER, "-Wall", "-Werror", "-o", str(program), str(source)], check=True)
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
        subprocess.run([str(program), str(folder), folder.name], check=True)
    return folders


def test_captures_written_in_c_are_accepted(
    from_c: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", *map(str, from_c), "--format", "json"]) == 0
    values = [json.loads(line) for line in capsys.readouterr().out.strip().splitlines()]
    assert [(value["kind"], value["verdict"]) for value in values] == [("capture", "accepted")] * 2


def test_the_mistake_of_the_c_example_is_found_where_the_page_says(
    from_c: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *map(str, from_c), "--format", "json"]) == 1
    first = json.loads(capsys.readouterr().out)["first"]
    assert (first["rung"], first["token"], first["index"], first["absolute"]) == (
        "layers.0.gdn",
        1,
        [2],
        0.25,
    )


def test_the_python_example_agrees_with_the_c_example(from_c: tuple[Path, Path], tmp_path: Path) -> None:
    script = example("write_capture.py", tmp_path)
    folder = tmp_path / "python"
    folder.mkdir()
    subprocess.run([sys.executable, str(script), str(folder)], check=True)
    assert main(["validate", str(folder), "--format", "json"]) == 0
    assert (
        main(["diff", str(folder), str(from_c[0]), "--complete", "--format", "json"]) == 3
    )  # no prompt bytes
    assert main(["diff", str(folder), str(from_c[0]), "--format", "json"]) == 0


def test_a_c_program_can_read_the_index(tmp_path: Path) -> None:
    """Walks index.tsv with fscanf and sums the bytes of all arrays; they are those on disk."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    assert ROOT is not None
    source = tmp_path / "index.c"
    source.write_text(
        r"""
        #include <stdio.h>
        #include <string.h>
        int main(int argc, char **argv) {
            FILE *f = fopen(argv[1], "r");
            char kind[16], a[128], b[128], c[128], d[128], e[128], g[128], shape[64], file[256], sha[80];
            long first, tokens, offset, bytes, total = 0, arrays = 0;
            if (argc != 2 || !f || fscanf(f, "assay-fixtures 1 ") != 0) return 1;
            while (fscanf(f, "%15s", kind) == 1) {
                if (!strcmp(kind, "case")) { if (fscanf(f, "%127s %127s %127s", a, b, c) != 3) return 2; continue; }
                if (fscanf(f, "%127s %127s %127s %127s %127s %ld %ld %127s %63s %255s %ld %ld %79s", a, b, c, d, e,
                           &first, &tokens, g, shape, file, &offset, &bytes, sha) != 13) return 3;
                total += bytes; arrays++;
            }
            printf("%ld %ld\n", arrays, total);
            return 0;
        }
        """
    )
    program = tmp_path / "index"
    subprocess.run([COMPILER, "-o", str(program), str(source)], check=True)
    root = ROOT / "fixtures" / "captures"
    done = subprocess.run([str(program), str(root / "index.tsv")], capture_output=True, text=True, check=True)
    arrays, total = map(int, done.stdout.split())
    assert total == sum(path.stat().st_size for path in root.rglob("arrays.bin"))
    assert arrays == 1363
