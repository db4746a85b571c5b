"""The whole model against two small upstream captures, in their own chunks; the parity gate asks all of them."""

import pytest

from assay.mutations import capture_vectors
from assay.oracles import geometry, model

MODULES = {"geometry": geometry, "model": model}


@pytest.mark.parametrize("case", ["small/short-row-alone", "two-ple/chunks"])
def test_every_rung_that_upstream_held_agrees(case: str) -> None:
    assert [one.line for one in capture_vectors.findings(case, MODULES.__getitem__)] == []


def test_a_changed_configuration_is_found_at_its_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another base of the rotation shows first where a rotated index key is scored."""
    case = capture_vectors.read_case("small/short-row-alone")
    rope = {**case.configuration["rope_parameters"], "rope_theta": 100.0}
    holder = {**case.configuration, "rope_parameters": rope}
    changed = capture_vectors.Case(case.id, case.tokens, case.partition, holder, case.weights, case.arrays)
    monkeypatch.setattr(capture_vectors, "read_case", lambda _id: changed)
    (found,) = capture_vectors.findings(case.id, MODULES.__getitem__)
    assert found.code == "vector.captured"
    assert found.where.startswith("small/short-row-alone: layers.3.qsa.index_scores token ")


def test_a_rung_that_is_not_answered_is_no_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = {name: place for name, place in capture_vectors.TAPS.items() if name != "gdn"}
    monkeypatch.setattr(capture_vectors, "TAPS", fewer)
    (found,) = capture_vectors.findings("small/short-row-alone", MODULES.__getitem__)
    assert (found.code, found.where) == ("vector.captured", "small/short-row-alone: layers.0.gdn")
    assert (found.expected, found.got) == ("13 rows", "0 rows")
