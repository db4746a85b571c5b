"""The artifact's gates pass on this code, and fail when what they look at is wrong."""

import os
from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.artifact import judge as judge_module
from assay.mutations.artifact_cases import Case
from assay.mutations.store_faults import FaultySystem
from assay.provenance.gates import artifact
from assay.provenance.gates.base import GateContext, GateFunction
from assay.spec.verdicts import Outcome


def context(tmp_path: Path, checkpoint: Path | None = None) -> GateContext:
    return GateContext(checkpoint, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "gate",
    [
        artifact.sizes,
        artifact.cases,
        artifact.private_seam,
        artifact.public_route,
        artifact.isolation,
        artifact.miniature_build,
        artifact.killed_build,
    ],
)
def test_a_gate_passes_and_leaves_nothing(gate: GateFunction, tmp_path: Path) -> None:
    result = gate(context(tmp_path))
    assert (result.outcome, result.reason, result.findings) == (Outcome.PASS, "", ())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.checkpoint
def test_the_real_plan_passes(checkpoint: Path, tmp_path: Path) -> None:
    result = artifact.real_plan(context(tmp_path, checkpoint))
    assert (result.outcome, result.measurements["tensors"]) == (Outcome.PASS, 1658)


def test_what_stands_on_the_private_seam_says_so(tmp_path: Path) -> None:
    assert artifact.private_seam(context(tmp_path)).is_private
    assert not artifact.public_route(context(tmp_path)).is_private


def test_another_published_size_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(artifact.SIZES, "paddingBytes", 1_441)
    result = artifact.sizes(context(tmp_path))
    assert result.outcome is Outcome.FAIL
    assert [(one.code, one.where) for one in result.findings] == [("gate.artifact-sizes", "paddingBytes")]


def test_a_case_that_stops_elsewhere_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = Case("harmless", "identity", "general.architecture")
    monkeypatch.setattr(artifact, "all_cases", lambda: (harmless,))
    result = artifact.cases(context(tmp_path))
    assert (result.outcome, result.findings[0].where, result.findings[0].got) == (
        Outcome.FAIL,
        "harmless",
        "accepted",
    )


def test_a_public_route_that_knows_the_fixture_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = judge_module.descriptor_of

    def open_wide(gguf: Any, *, is_private: bool) -> Any:
        del is_private
        return real(gguf, is_private=True)

    monkeypatch.setattr(judge_module, "descriptor_of", open_wide)
    result = artifact.public_route(context(tmp_path))
    assert result.outcome is Outcome.FAIL
    assert ("gate.artifact-seam", "structural.gguf") in [(one.code, one.where) for one in result.findings]


def test_numpy_in_the_closure_of_admission_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = artifact._outside

    def tainted(root: Path, module: str) -> set[str]:
        return real(root, module) | ({"numpy"} if module.endswith("artifact.inventory") else set())

    monkeypatch.setattr(artifact, "_outside", tainted)
    result = artifact.isolation(context(tmp_path))
    assert [(one.code, one.where, one.got) for one in result.findings] == [
        ("gate.artifact-isolation", "assay.impl.stores.artifact.inventory", "numpy")
    ]


def test_a_build_that_writes_its_target_in_place_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_place(_source: Path, target: Path, *, system: FaultySystem, replace: bool) -> None:
        descriptor = system.open(target, os.O_RDWR | os.O_CREAT)
        for offset in range(0, 64, 8):
            system.pwrite(descriptor, b"newbytes", offset)
        system.close(descriptor)
        if replace:
            system.rename(target, target)

    monkeypatch.setattr(artifact, "build_artifact", in_place)
    monkeypatch.setattr(artifact, "_source", lambda folder: folder)
    monkeypatch.setattr(artifact, "SPREAD", 4)
    result = artifact.killed_build(context(tmp_path))
    assert result.outcome is Outcome.FAIL
    found = [(one.code, one.where, one.got) for one in result.findings]
    assert ("gate.artifact-kill", "before call 8, pwrite", "another file, 0 left") in found


def test_a_leftover_that_nobody_removes_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(_source: Path, target: Path, *, system: FaultySystem, replace: bool) -> None:
        draft = target.with_suffix(".new")
        system.close(system.open(draft, os.O_RDWR | os.O_CREAT))
        system.rename(draft, target)
        del replace

    monkeypatch.setattr(artifact, "build_artifact", elsewhere)
    monkeypatch.setattr(artifact, "_source", lambda folder: folder)
    monkeypatch.setattr(artifact, "SPREAD", 4)
    found = [(one.where, one.got) for one in artifact.killed_build(context(tmp_path)).findings]
    assert ("before call 2, rename", "the right file, 1 left") in found
