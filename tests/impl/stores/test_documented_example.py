"""The example of docs/stores.md does what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from assay.provenance.cli import main
from assay.provenance.paths import checkout_root

ROOT = checkout_root()
pytestmark = pytest.mark.skipif(ROOT is None, reason="the documentation lies in the checkout")


def test_the_two_stores_of_the_page_are_written_read_and_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ROOT is not None
    page = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- example: two_stores.py -->\n```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    (tmp_path / "two_stores.py").write_text(found.group(1), encoding="utf-8")
    subprocess.run([sys.executable, "two_stores.py"], check=True, cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    assert "assay validate --private --payload rows.ple experts.store" in page
    assert main(["validate", "--private", "--payload", "rows.ple", "experts.store", "-q"]) == 0
