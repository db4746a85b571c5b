"""Runs every `sh` block of the README as it is written, line by line, in a copy of the checkout.

A line that uses `../shared/upstream` is run only where that folder exists: the real checkpoint's description is
not part of the project. A block with another fence, such as `text`, is for readers only.
"""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UPSTREAM = ROOT.parent / "shared" / "upstream"


def commands(text: str) -> list[str]:
    """The command lines of all `sh` blocks, in order; a trailing backslash continues a line."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def main() -> int:
    """Runs them; the first that fails ends it."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True)
    copy = target / "checkout"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        source, place = ROOT / name, copy / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place, follow_symlinks=False)
    if UPSTREAM.is_dir():
        (target / "shared").symlink_to(UPSTREAM.parent)
    found = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    if not found:
        print("the README shows no command")
        return 1
    for line in found:
        if "../shared/" in line and not UPSTREAM.is_dir():
            print(f"not-run (no upstream data here): {line}", flush=True)
            continue
        began = time.monotonic()
        print(f"$ {line}", flush=True)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=copy, check=False)
        print(f"  -> {done.returncode}, {time.monotonic() - began:.0f} s", flush=True)
        if done.returncode != 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
