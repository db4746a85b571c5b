"""The literal vectors, asked as a person would ask them: through the operations of `assay oracle`."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.mutations import vectors
from assay.oracles.catalogue import OPERATIONS

READ = vectors.read_vectors()
ALL = [(operation, vector) for operation, listed in READ.items() for vector in listed]


def ask(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return OPERATIONS[operation].call(arguments)


@pytest.mark.parametrize(("operation", "vector"), ALL, ids=lambda one: getattr(one, "id", ""))
def test_the_operation_gives_what_its_vector_says(operation: str, vector: Any) -> None:
    assert [one.line for one in vectors.findings(vector, operation, ask)] == []


def test_ids_are_unique_and_begin_with_their_operation() -> None:
    ids = [vector.id for _, vector in ALL]
    assert len(set(ids)) == len(ids)
    assert all(vector.id.startswith(f"{operation}/") for operation, vector in ALL)


@pytest.mark.parametrize(
    "report",
    ["A2", "A6", "A7", "A10", "A11", "A12", "A13", "A14", "A15", "A16", "A17", "A18", "A19", "A26"],
)
def test_every_public_report_about_the_mathematics_has_a_vector(report: str) -> None:
    """Hash and history (A6, A7, A26), sparse attention (A10 to A12), recurrence (A13 to A16), norms, router."""
    assert [vector.id for _, vector in ALL if report in vector.reports]


def test_a_vector_says_what_it_catches_and_who_computed_it() -> None:
    assert all(vector.catches and vector.source for _, vector in ALL)


def changed(name: str, **changes: Any) -> list[tuple[str, str]]:
    operation, vector = next(pair for pair in ALL if pair[1].id == name)
    other = vector.model_copy(update=changes)
    return [(one.code, one.where) for one in vectors.findings(other, operation, ask)]


@pytest.mark.parametrize(
    ("name", "changes", "place"),
    [
        ("ple.rows/lag-order", {"expected": {"rows": [[0, 100], [15, 74], [24, 66]]}}, ": rows[2][1]"),
        ("ple.rows/lag-order", {"expected": {"rows": [[0, 100], [15, 74]]}}, ": rows"),
        ("norm.rms/zero-gain", {"expected": {"y": [0.848528, 1.131372]}, "atol": 1e-7}, ": y[1]"),
        ("norm.rms/zero-gain", {"expected": {"y": [0.848528, float("nan")]}}, ": y[1]"),
        ("norm.rms/zero-gain", {"expected": None, "refused": {"code": "c", "where": "w"}}, ""),
        ("qsa.groups/hole", {"refused": None, "expected": {"tail": []}}, ""),
    ],
)
def test_a_changed_vector_is_found_at_its_place(name: str, changes: dict[str, Any], place: str) -> None:
    if changes.get("refused"):
        from assay.spec.documents.vectors import Refusal

        changes = {**changes, "refused": Refusal(**changes["refused"])}
    assert changed(name, **changes) == [("vector.literal", f"{name}{place}")]


def test_another_refusal_is_not_the_refusal() -> None:
    from assay.spec.documents.vectors import Refusal

    other = Refusal(code="oracle.qsa.hole", where="positions[3]")
    assert changed("qsa.groups/hole", refused=other) == [("vector.literal", "qsa.groups/hole")]


def test_the_index_is_what_the_files_give() -> None:
    assert vectors.index_findings() == []


def test_a_changed_vector_and_its_row_are_told_apart(tmp_path: Path) -> None:
    source = vectors.shipped()
    document = json.loads((source / "router.topk.json").read_bytes())
    document["vectors"][0]["expected"]["ids"][0] = 11
    (tmp_path / "router.topk.json").write_text(json.dumps(document), encoding="utf-8")
    rows = [row for row in (source / "index.tsv").read_text().splitlines() if "router.topk" in row]
    (tmp_path / "index.tsv").write_text("\n".join([vectors.INDEX_HEAD, *rows]) + "\n", encoding="ascii")
    found = {(one.code, one.where) for one in vectors.index_findings(tmp_path)}
    assert found == {
        ("vector.index", "index.tsv: file router.topk.json"),
        ("vector.index", "index.tsv: vector router.topk/before-any-cast"),
    }


def test_lists_by_rule_are_written_out() -> None:
    assert vectors.expand({"a": {"fill": 0, "length": 3, "set": {"1": 5}}}) == {"a": [0, 5, 0]}
    assert vectors.expand([{"repeat": [1, 2], "times": 2, "then": [3]}, {"range": [2, 4]}]) == [
        [1, 2, 1, 2, 3],
        [2, 3],
    ]
    assert vectors.expand(["12", "-3", "top-k"]) == [12, -3, "top-k"]


def test_vectors_and_captures_fit_into_the_wheel() -> None:
    """Ten megabytes at most."""
    files = [path for path in vectors.shipped().parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 10_000_000
