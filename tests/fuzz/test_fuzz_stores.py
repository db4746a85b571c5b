"""A few seconds of coverage-guided fuzzing of each store parser; longer runs are made by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atheris")


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("target", ["gguf", "expert", "ple", "digests"])
def test_no_input_crashes_hangs_or_takes_memory_out_of_proportion(target: str, tmp_path: Path) -> None:
    script = Path(__file__).parent / "fuzz_stores.py"
    done = subprocess.run(
        [
            sys.executable,
            str(script),
            target,
            "-runs=20000",
            "-max_total_time=5",
            "-seed=1",
            "-max_len=65536",
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done" in done.stderr
