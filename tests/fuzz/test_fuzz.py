"""A few thousand guided inputs on every run; longer runs are by hand (see the harness)."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("fuzz_safetensors.py")
SEEDS = {
    "one": b'\x04{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}',
    "two": b'\x08{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[],"data_offsets":[4,8]}}',
    "metadata": b'\x00{"__metadata__":{"format":"pt"}}  ',
}


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="not-run: atheris is not installed")
def test_the_header_reader_survives_guided_fuzzing(tmp_path: Path) -> None:
    for name, data in SEEDS.items():
        (tmp_path / name).write_bytes(data)
    done = subprocess.run(
        [sys.executable, str(HARNESS), str(tmp_path), "-runs=1500", "-max_len=300", "-seed=1", "-max_total_time=8",
         f"-artifact_prefix={tmp_path}/"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    runs = re.search(r"Done (\d+) runs", done.stderr)
    assert runs is not None
    assert int(runs[1]) > 500
