"""Sparse attention by its physical work: bounded extents, published ties, the dense form and its end, long histories."""

from typing import Any

import numpy as np
import pytest
from model_toys import assert_refused, ids, made


def geometry(**changed: Any) -> Any:
    """The published attention dimensions: 24 and 2 heads of 256, index 4 x 128, 512 groups of 4."""
    from dataclasses import replace

    published = {
        "heads": 24, "kv_heads": 2, "head_dim": 256, "rotary_dim": 64, "theta": 1e7, "sections": (11, 11, 10),
        "index_heads": 4, "index_dim": 128, "ratio": 4, "budget_groups": 512, "context": 262144, "hidden": 64,
    }  # fmt: skip
    return replace(made("small").geometry, **{**published, **changed})


def test_a_tie_at_the_cut_goes_to_the_lower_group_and_emission_is_by_time() -> None:
    """Bug report A10: 600 groups, all scores 0 or -0 but two; twenty runs give the same bytes."""
    import mlx.core as mx

    from assay.impl.model import qsa

    scores = np.zeros((3, 600), np.float32)
    scores[:, 1::2] = -0.0
    scores[:, 300], scores[:, 599] = 4, 5
    complete = np.array([600, 599, 100], np.int32)
    found = set()
    for _ in range(20):
        groups = np.array(qsa.select(mx.array(scores), complete, 512, 512))
        selection = qsa.expand(mx.array(groups), np.array([2402, 2399, 403], np.int32), 4)
        found.add(np.array(selection.rows).tobytes() + np.array(selection.is_valid).tobytes())
    assert len(found) == 1
    assert groups[0].tolist() == [*range(511), 599]
    assert groups[1].tolist() == list(range(512))
    assert groups[2].tolist() == [*range(100), *[-1] * 412]
    rows = np.array(selection.rows)[0][np.array(selection.is_valid)[0]]
    assert rows.size == 2050
    assert rows[-2:].tolist() == [2400, 2401]


@pytest.mark.parametrize("seed", range(5))
def test_membership_is_that_of_a_full_sort(seed: int) -> None:
    import mlx.core as mx

    from assay.impl.model import qsa

    values = np.random.default_rng(seed)
    scores = np.maximum(values.integers(-4, 5, (40, 90)), 0).astype(np.float32)
    complete = values.integers(0, 91, 40).astype(np.int32)
    chosen = np.array(qsa.select(mx.array(scores), complete, 16, 16))
    for row, count, line in zip(scores, complete, chosen, strict=True):
        ranked = sorted(range(count), key=lambda group, row=row: (-row[group], group))[:16]
        assert [one for one in line.tolist() if one >= 0] == sorted(ranked)


@pytest.mark.parametrize("visible", [1, 2, 3, 4, 5, 2047, 2048, 2050, 2051])
def test_until_the_ceiling_the_sparse_rows_are_the_dense_ones(visible: int) -> None:
    """Groups that all fit are all visible rows, in time order; values then agree with the dense form."""
    import mlx.core as mx

    from assay.impl.model import qsa

    own = geometry(heads=2, kv_heads=1, head_dim=8)
    places = min(512, max(16, -(-(visible // 4) // 16) * 16))
    complete = np.array([visible // 4], np.int32)
    groups = qsa.select(mx.zeros((1, max(1, visible // 4))), complete, 512, places)
    selection = qsa.expand(groups, np.array([visible], np.int32), 4)
    rows, valid = np.array(selection.rows)[0], np.array(selection.is_valid)[0]
    assert rows[valid].tolist() == list(range(visible))
    values = np.random.default_rng(visible)
    q = mx.array(values.standard_normal((1, 2, 8)).astype("f"))
    k, v = (mx.array(values.standard_normal((visible, 1, 8)).astype("f")) for _ in range(2))
    sparse = qsa.attend(
        q, *(mx.take(one, selection.rows, axis=0).swapaxes(1, 2) for one in (k, v)), selection.is_valid
    )
    assert np.allclose(np.array(sparse), np.array(qsa.dense(q, k, v, own)), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("visible", [2052, 262143, 262144, 262145])
def test_beyond_the_ceiling_the_dense_form_refuses_before_it_allocates(visible: int) -> None:
    import mlx.core as mx

    from assay.impl.model import qsa

    own = geometry()
    mx.eval(mx.zeros((1,)))
    before = mx.get_active_memory()
    lazy = mx.broadcast_to(mx.zeros((1, 1, 1)), (visible, 2, 256))
    assert_refused("model.qsa.dense-ceiling", "k", lambda: qsa.dense(mx.zeros((1, 24, 256)), lazy, lazy, own))
    assert mx.get_active_memory() - before < 1 << 16


def test_no_array_of_the_graph_spans_queries_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes of every product, selection and gather of 150 queries on 150 published rows: none is queries x keys."""
    import mlx.core as mx

    from assay.impl.model.bank import Bank

    bank, seen = Bank(made("small")), []
    bank.advance({0: ids("small", 90)})
    names = (
        "where",
        "take",
        "concatenate",
        "maximum",
        "sum",
        "partition",
        "cumsum",
        "put_along_axis",
        "clip",
        "softmax",
    )
    for name in names:
        shipped = getattr(mx, name)

        def watching(*arguments: Any, _shipped: Any = shipped, **named: Any) -> Any:
            made_ = _shipped(*arguments, **named)
            seen.append(tuple(made_.shape))
            return made_

        monkeypatch.setattr(mx, name, watching)
    done = bank.advance({0: ids("small", 150, 9)})
    assert done.counters.dense_mask_bytes == 0
    assert not [shape for shape in seen if 150 in shape and (240 in shape or 60 in shape)]
    assert seen


def test_work_counts_are_those_of_the_history() -> None:
    """39 visible tokens with a budget of two groups: 9 groups scored, 2 selected, 11 rows."""
    from assay.impl.model.bank import Bank

    bank = Bank(made("small"))
    bank.advance({0: ids("small", 38)})
    done = bank.advance({0: [5]}).counters
    assert (done.groups_scored, done.groups_selected, done.largest_width) == (9, 2, 11)
    assert done.gathered_rows == 2 * 4 + 3
    assert done.gathered_bytes == 11 * 2 * 16 * 4 * 2
    assert done.pooled_key_bytes == 9 * 8 * 4


def test_workspace_grows_with_the_history_and_not_with_its_square() -> None:
    from assay.impl.model.bank import Bank

    sizes = []
    for length in (60, 120, 240):
        bank = Bank(made("small"))
        sizes.append(bank.advance({0: ids("small", length)}).counters.workspace_bytes)
    assert sizes[2] < 3 * sizes[0]


@pytest.mark.parametrize("visible", [39, 40, 41, 4_097])
def test_one_query_publishes_its_own_rows_and_moves_none(visible: int) -> None:
    """The rows of one token behind the history: a key and a value a head, an index key, and a pooled one per fourth token."""
    from assay.impl.model.long_query import LongHistory

    g = made("small").geometry
    history = LongHistory(g, visible, seed=visible)
    for _ in range(2):  # what was measured is given back, so that it can be measured again
        done = history.ask()
        values = 2 * g.kv_heads * g.head_dim + g.index_dim * (2 if visible % g.ratio == 0 else 1)
        assert done.published_bytes == 4 * values
        assert done.history_bytes == 4 * (
            (visible - 1) * (2 * g.kv_heads * g.head_dim + g.index_dim)
            + (visible - 1) // g.ratio * g.index_dim
        )
        groups = history.scores()
        ranked = np.argsort(-groups, kind="stable")[: min(g.budget_groups, visible // g.ratio)]
        wanted = (np.sort(ranked)[:, None] * g.ratio + np.arange(g.ratio)).reshape(-1).tolist()
        assert done.rows == [*wanted, *range(visible // g.ratio * g.ratio, visible)]


def test_memory_of_a_chunk_grows_with_its_tokens_and_not_with_their_square() -> None:
    """What the allocator says, not what we count: eight times the tokens of one chunk take about eight times as much."""
    from dataclasses import replace

    import mlx.core as mx

    from assay.impl.model.bank import Bank
    from assay.impl.model.graph import Model

    shipped = made("small")
    model = Model(replace(shipped.geometry, context=4096), shipped.weights, shipped.numerics)
    peaks = {}
    for tokens in (256, 2048):
        bank = Bank(model, rows=tokens)
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        bank.advance({0: [5 + place % 50 for place in range(tokens)]})
        peaks[tokens] = mx.get_peak_memory() - before
    assert peaks[2048] < 1.5 * 8 * peaks[256]


@pytest.mark.slow
@pytest.mark.parametrize("visible", [65_535, 65_536, 65_537, 100_000, 262_143, 262_144])
def test_one_query_at_the_published_dimensions_selects_what_a_sort_selects(visible: int) -> None:
    """One layer, one query, a long history: membership against a full sort, attention against the gathered rows."""
    from assay.impl.model.long_query import LongHistory

    history = LongHistory(geometry(), visible, seed=visible)
    done = history.ask()
    complete = visible // 4
    ranked = np.argsort(-history.scores(), kind="stable")[: min(512, complete)]
    wanted = (np.sort(ranked)[:, None] * 4 + np.arange(4)).reshape(-1).tolist()
    assert done.rows == [*wanted, *range(complete * 4, visible)]
    assert done.counters.largest_width == len(done.rows) <= 2051
    assert np.allclose(done.output, history.attention(done.rows), rtol=1e-4, atol=1e-5)
