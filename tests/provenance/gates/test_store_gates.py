"""The stores' gates pass on this code, and fail when what they look at is wrong."""

from pathlib import Path

import numpy as np
import pytest

from assay.impl.stores import publication
from assay.impl.stores.expert_major import affine4
from assay.mutations import store_samples
from assay.provenance.gates import stores
from assay.provenance.gates.base import GateContext, GateFunction
from assay.spec.verdicts import Outcome


def context(tmp_path: Path) -> GateContext:
    return GateContext(None, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "gate",
    [
        stores.golden,
        stores.true_size,
        stores.faults,
        stores.expert_battery,
        stores.ple_battery,
        stores.affine4_layout,
        stores.affine4_bound,
        stores.affine4_mlx,
    ],
)
def test_a_gate_passes_and_leaves_nothing_large(gate: GateFunction, tmp_path: Path) -> None:
    result = gate(context(tmp_path))
    assert (result.outcome, result.reason) == (Outcome.PASS, "")
    assert result.measurements
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_another_digest_fails_the_golden_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(store_samples.GOLDEN_NATIVE, "deepseek4", "0" * 64)
    result = stores.golden(context(tmp_path))
    assert result.outcome is Outcome.FAIL
    assert [(one.code, one.where) for one in result.findings] == [
        ("gate.stores-golden", "deepseek4: native sha256")
    ]


def test_a_writer_that_does_not_clean_up_fails_the_fault_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "_remove", lambda _: None)
    result = stores.faults(context(tmp_path))
    assert result.outcome is Outcome.FAIL
    assert {one.code for one in result.findings} == {"gate.stores-faults"}


@pytest.mark.parametrize("gate", [stores.affine4_layout, stores.affine4_bound, stores.affine4_mlx])
def test_another_nibble_order_fails_every_codec_gate(
    gate: GateFunction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = affine4.decode

    def exchanged(blocks: np.ndarray, source: affine4.Source = "f32") -> np.ndarray:
        rows = blocks.reshape(-1, 36).copy()
        rows[:, :32] = rows[:, :32] >> 4 | rows[:, :32] << 4
        return right(rows.reshape(blocks.shape), source)

    monkeypatch.setattr(affine4, "decode", exchanged)
    result = gate(context(tmp_path))
    assert (result.outcome, {one.code for one in result.findings}) == (Outcome.FAIL, {"gate.affine4"})


def test_other_rows_than_were_written_fail_the_true_size_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = iter(range(1000))
    monkeypatch.setattr(stores, "_numbered", lambda _first, count: bytes([next(rows) % 251]) * (320 * count))
    result = stores.true_size(context(tmp_path))
    assert (result.outcome, [(one.code, one.where) for one in result.findings]) == (
        Outcome.FAIL,
        [("gate.stores-true-size", "true size: rows")],
    )
