"""Reductions that keep rows apart, and the forms that only the fast mode uses."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 33])
@pytest.mark.parametrize("tile", [0, 8])
def test_a_row_of_a_product_is_the_row_alone(rows: int, tile: int) -> None:
    import mlx.core as mx

    from assay.impl.model.numerics import Numerics

    values = np.random.default_rng(rows)
    x, weight = (mx.array(values.standard_normal(shape).astype("f")) for shape in ((rows, 96), (96, 40)))
    numerics = Numerics(is_deterministic=True, tile_rows=tile)
    whole = np.array(numerics.linear(x, weight))
    for row in range(rows):
        assert whole[row].tobytes() == np.array(numerics.linear(x[row : row + 1], weight))[0].tobytes()
    assert np.allclose(whole, np.array(x) @ np.array(weight), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("keys", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("tile", [0, 8])
def test_a_score_does_not_change_as_groups_are_added(keys: int, tile: int) -> None:
    import mlx.core as mx

    from assay.impl.model.numerics import Numerics

    values = np.random.default_rng(keys)
    asked, table = (mx.array(values.standard_normal(shape).astype("f")) for shape in ((3, 4, 32), (200, 32)))
    numerics = Numerics(is_deterministic=True, tile_rows=tile)
    whole = np.array(numerics.scores(asked, table))[:, :, :keys]
    assert whole.tobytes() == np.ascontiguousarray(np.array(numerics.scores(asked, table[:keys]))).tobytes()


def test_the_polynomial_is_the_exponential_within_its_stated_error() -> None:
    import mlx.core as mx

    from assay.impl.model.numerics import polynomial_exp

    x = np.linspace(-87, 88, 1_000_001).astype("f")
    exact = np.exp(x.astype(np.float64))
    far = np.abs(np.array(polynomial_exp(mx.array(x))) - exact) / np.spacing(exact.astype("f"))
    assert far[np.abs(x) <= 4].max() <= 5.0
    assert far.max() <= 65.0
    assert np.array(polynomial_exp(mx.zeros((3,)))).tolist() == [1.0, 1.0, 1.0]
    ends = np.array(polynomial_exp(mx.array([float("nan"), 200.0, -200.0])))
    assert np.isnan(ends[0])
    assert ends[1] > 1e38
    assert 0 <= ends[2] < 2e-38


@pytest.mark.parametrize("length", [16, 17, 31, 32, 33, 63, 64, 65])
def test_the_chunked_recurrence_is_the_recurrence(length: int) -> None:
    """Bug report A13 around every multiple of the block: outputs, and above all the state."""
    import mlx.core as mx

    from assay.impl.model.gdn import chunked
    from assay.impl.model.numerics import PLAIN
    from assay.oracles import gdn

    values = np.random.default_rng(length)
    q, k = (values.standard_normal((length, 2, 8)).astype("f") for _ in range(2))
    q, k = (one / np.linalg.norm(one, axis=-1, keepdims=True) for one in (q, k))
    v = values.standard_normal((length, 6, 4)).astype("f")
    logs, rates = -values.random((length, 6)).astype("f") * 3, values.random((length, 6)).astype("f")
    state = values.standard_normal((6, 8, 4)).astype("f")
    wanted = gdn.sequence(q, k, v, logs, rates, state, prepared=True)
    given = [mx.array(one) for one in (q, k, v, logs, rates, state.transpose(0, 2, 1))]
    y, after = chunked(*given, PLAIN)
    assert np.allclose(np.array(y), wanted.y, rtol=2e-5, atol=2e-5)
    assert np.allclose(np.array(after).transpose(0, 2, 1), wanted.state, rtol=2e-5, atol=2e-5)


def test_the_fast_mode_stays_near_the_deterministic_one() -> None:
    from model_toys import ids, made

    from assay.impl.model.graph import Chunk, Model
    from assay.impl.model.numerics import PLAIN
    from assay.impl.model.state import fresh

    exact = made("miniature")
    fast = Model(exact.geometry, exact.weights, PLAIN)
    tokens = ids("miniature", 300)  # enough rows for two streams and blocks
    logits: list[Any] = []
    for model in (exact, fast):
        done = model.run([Chunk(fresh(model.geometry), tokens)], every_logit=True)
        logits.append(np.array(done.logits[0]))
    assert np.abs(logits[0] - logits[1]).max() < 1e-3
    assert logits[0].tobytes() != logits[1].tobytes()


def test_a_fast_blas_goes_before_mlx_or_not_at_all() -> None:
    """Loaded in a fresh interpreter it makes rows dependent, which is seen and answered with tiles; too late is None."""
    code = (
        "from assay.impl.model.backend import *\n"
        "found = load_fast_blas()\n"
        "numerics = choose_numerics(fast=False)\n"
        "print(found is None, are_rows_independent(), numerics.tile_rows, load_fast_blas())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = (
        {"True True 0 None", "False False 8 None"} if sys.platform == "linux" else {"True False 8 None"}
    )
    assert done.stdout.strip() in expected
