"""The memory of an expert cache holds what a store has, transposed."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="not-run: needs mlx")

import mlx.core as mx

from assay.impl.runtime.pool import DOWN, GATE, RecordPool

WIDTH, HIDDEN = 250, 300
"""Large enough to be turned by blocks, and no multiple of a block in either direction."""


def test_a_large_matrix_in_bf16_is_multiplied_as_it_is_stored() -> None:
    geometry: Any = SimpleNamespace(expert_width=WIDTH, hidden=HIDDEN)
    pool = RecordPool(2, cast("Any", "bf16"), geometry)
    words = (np.arange(WIDTH * HIDDEN, dtype=np.uint32) * 7919 % 0x4000).astype("<u2")
    pool.put(1, DOWN, words.tobytes())
    values = (words.astype("<u4") << 16).view("<f4").reshape(HIDDEN, WIDTH)
    unit = mx.eye(WIDTH).reshape(1, WIDTH, WIDTH)
    assert (np.asarray(pool.down(unit, [1]))[0] == values.T).all()


def test_a_large_matrix_in_float32_leaves_the_other_slots_as_they_were() -> None:
    geometry: Any = SimpleNamespace(expert_width=WIDTH, hidden=HIDDEN)
    pool = RecordPool(2, cast("Any", "f32"), geometry)
    pool.put(0, GATE, np.ones(WIDTH * HIDDEN, "<f4").tobytes())
    unit = mx.eye(HIDDEN).reshape(1, HIDDEN, HIDDEN)
    pool.put(0, GATE + 1, np.ones(WIDTH * HIDDEN, "<f4").tobytes())
    gates = [np.asarray(pool.inner(unit, [slot], lambda gate, _: gate)) for slot in (0, 1)]
    assert [(one.min(), one.max()) for one in gates] == [(1, 1), (0, 0)]
