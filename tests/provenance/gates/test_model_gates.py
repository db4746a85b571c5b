"""The gates of the MLX model: they pass on the shipped code and name the place when it is wrong."""

from pathlib import Path
from typing import Any

import pytest

from assay.provenance.captures.geometries import CASES
from assay.provenance.gates.base import GateContext
from assay.provenance.gates.inputs import INPUTS, missing_inputs
from assay.provenance.gates.registry import GATES
from assay.spec.verdicts import Label, Outcome

CASE = [case for case in CASES if case.id == "small/short-row-alone"]


@pytest.fixture
def context(tmp_path: Path) -> GateContext:
    return GateContext(None, tmp_path)


def test_parity_with_the_oracle_passes_and_counts(
    context: GateContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.provenance.gates import model

    monkeypatch.setattr(model, "CASES", CASE)
    done = model.mlx_oracle(context)
    assert (done.outcome, done.is_private) == (Outcome.PASS, True)
    assert done.measurements["arraysAgainstOracle"] > 100
    assert done.measurements["outcomes"] == {"agrees": done.measurements["arraysAgainstUpstream"]}
    affine = done.measurements["affine4"]
    assert (affine["layersInCodes"], affine["expertBytes"]) == (8, 8 * 16 * 3 * 64 * 64 * 10 // 16)
    assert (affine["rungsCompared"], 0 < affine["largestAgainstOracle"] < 5e-5) == (231, True)


def test_a_wrong_gate_is_named_by_its_first_rung(
    context: GateContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.impl.model import norms
    from assay.provenance.gates import model

    shipped = norms.gated

    def silu(x: Any, gain: Any, gate: Any, eps: float, _activation: str, numerics: Any) -> Any:
        return shipped(x, gain, gate, eps, "silu", numerics)

    monkeypatch.setattr(model, "CASES", CASE)
    monkeypatch.setattr(norms, "gated", silu)
    done = model.mlx_oracle(context)
    assert done.outcome is Outcome.FAIL
    first = done.findings[0]
    assert first.code == "parity.mlx-oracle.value"
    assert first.where.startswith("small/short-row-alone: layers.0.gdn.gated_norm token 0 ")


def test_a_wrong_affine_code_is_named_by_its_first_rung(
    context: GateContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.impl.stores.expert_major import affine4
    from assay.provenance.gates import model

    shipped = affine4.separate

    def exchanged(blocks: Any) -> Any:
        words, scales, biases = shipped(blocks)
        return words, biases, scales

    monkeypatch.setattr(model, "CASES", [])
    monkeypatch.setattr(affine4, "separate", exchanged)
    done = model.mlx_oracle(context)
    assert done.outcome is Outcome.FAIL
    first = done.findings[0]
    assert first.code == "parity.mlx-oracle.value"
    assert first.where.startswith("miniature in affine 4-bit: layers.0.routed_shared_moe.routed token 0 ")


def test_state_that_is_lost_at_a_chunk_fails_the_partition_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.impl.model import conv
    from assay.impl.model.numerics import Numerics
    from assay.provenance.captures.geometries import GEOMETRIES
    from assay.provenance.captures.mlx_partition import differing_partitions

    shipped = conv.causal
    tokens = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
    numerics = Numerics(is_deterministic=True)
    assert differing_partitions(GEOMETRIES["small"], tokens, numerics, 0)[0] == []

    def forgetful(x: Any, taps: Any, past: Any, *rest: Any) -> Any:
        return shipped(x, taps, past * 0, *rest)

    monkeypatch.setattr(conv, "causal", forgetful)
    wrong, _ = differing_partitions(GEOMETRIES["small"], tokens, numerics, 0)
    assert ("calls of [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", "gdn_recurrent.0") in wrong


def test_a_check_that_is_left_out_fails_the_transaction_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.impl.model.numerics import Numerics
    from assay.impl.model.transaction import Transaction
    from assay.provenance.captures.geometries import GEOMETRIES
    from assay.provenance.captures.mlx_faults import surviving_faults

    monkeypatch.setattr(Transaction, "_judge_finite", lambda *_: None)
    wrong, _ = surviving_faults(GEOMETRIES["small"], Numerics(is_deterministic=True))
    assert ("non-finite after call 29", "a failure", "a publication") in wrong


@pytest.mark.upstream
@pytest.mark.slow
def test_the_model_continues_as_upstream_does_on_saved_weights(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from assay.provenance.captures.compare import Options
    from assay.provenance.captures.mlx_upstream import Fixture, compare_fixture

    done = compare_fixture(Fixture("variants", 1, 33, 24, "20KB"), tmp_path, Options(rtol=2e-4, atol=2e-4))
    assert (done.is_asked, done.same_tokens, done.diff.first) == (True, 24, None)
    assert [one.rung for one in done.diff.rungs if one.state == "unknown"] == ["prompt_bytes"]
    assert done.largest_logit < 1e-4


def test_metal_is_not_run_without_an_apple_gpu_and_caps_the_label() -> None:
    gate = next(one for one in GATES if one.id == "model.metal")
    assert (gate.needs, gate.rung) == (("mlx", "metal"), Label.QUALIFIED)
    if not INPUTS["metal"][1](None):
        assert missing_inputs(gate.needs, None) == ("an Apple GPU",)
