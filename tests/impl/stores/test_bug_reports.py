"""Every public bug report about rows, expert stores, reads and codecs is a test here, found by its number."""

import ast
import functools
import re
from pathlib import Path
from typing import Final

import pytest

REPORTS: Final = {
    "A8": "rows: one base offset for shards that don't lie one after another",
    "A9": "rows: a scale that nobody filled shadows the real one",
    "A23": "experts: a buffer is handed on while someone still looks at it",
    "A24": "experts: scales indexed otherwise than weights",
    "A25": "reads: a short read leaves what was in the buffer",
    "A31": "codecs: a width that blocks don't cover",
}
"""The reports of the areas row store, expert store, streamed reads and codecs."""


@functools.cache
def cited() -> dict[str, set[str]]:
    """Returns for each report the tests of this folder whose docstring, or whose module's, names it."""
    found: dict[str, set[str]] = {}
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        if path.name == Path(__file__).name:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        whole = _reports(ast.get_docstring(tree))
        for one in ast.walk(tree):
            if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"):
                for report in whole | _reports(ast.get_docstring(one)):
                    found.setdefault(report, set()).add(f"{path.name}::{one.name}")
    return found


def _reports(docstring: str | None) -> set[str]:
    return set(re.findall(r"\bA\d+\b", docstring or "")) if "ug report" in (docstring or "") else set()


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_has_a_test(report: str) -> None:
    assert cited().get(report), f"{report}, {REPORTS[report]}: no test names it"


@pytest.mark.parametrize(
    ("report", "test"),
    [
        ("A8", "test_row_sources.py::test_a_row_comes_from_its_own_shard"),
        ("A9", "test_row_sources.py::test_a_scale_comes_from_the_artifact_or_not_at_all"),
        ("A23", "test_recycled.py::test_a_buffer_that_is_looked_at_in_any_way_is_not"),
        ("A24", "test_expert_store.py::test_a_record_carries_weights_scales_and_biases_of_its_own_expert"),
        ("A25", "test_extents.py::test_the_end_of_the_file_inside_a_record_leaves_the_buffer_untouched"),
        ("A31", "test_blocks.py::test_a_width_is_covered_exactly_or_refused_with_what_is_left"),
    ],
)
def test_the_index_finds_the_tests_that_exist(report: str, test: str) -> None:
    assert test in cited()[report]
