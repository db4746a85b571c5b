"""State sizes of the published geometry, owner by owner, with the numbers of the facts."""

from dataclasses import replace
from typing import Any

import pytest
from model_toys import assert_refused, made


def published() -> Any:
    return replace(
        made("small").geometry, kinds=("gdn", "gdn", "gdn", "qsa") * 12, hidden=2560, streams=4, heads=24, kv_heads=2,
        head_dim=256, index_dim=128, ratio=4, key_heads=16, value_heads=48, key_dim=128, value_dim=128, kernel=4,
        ple_layers=(1,), ple_kernel=4, ngram_size=3,
    )  # fmt: skip


def test_fixed_owners_have_the_published_sizes() -> None:
    from assay.impl.model.sizes import state_size

    size = state_size(published(), 1)
    assert (size.gdn_conv, size.gdn_recurrent, size.ple_history, size.ple_conv) == (
        4_423_680,
        113_246_208,
        8,
        184_320,
    )
    assert size.fixed == 117_854_216


@pytest.mark.parametrize(("context", "total"), [(1, 117_881_864), (262_144, 7_365_611_528)])
def test_totals_are_the_published_ones(context: int, total: int) -> None:
    from assay.impl.model.sizes import state_size

    size = state_size(published(), context)
    assert size.total == total
    assert (size.qsa, size.raw_index) == (24_576 * context, 3_072 * context)


def test_pooled_keys_take_a_quarter_of_the_raw_ones() -> None:
    from assay.impl.model.sizes import state_size

    size = state_size(published(), 262_144)
    assert (size.raw_index, size.pooled_index) == (805_306_368, 201_326_592)


@pytest.mark.parametrize("bytes_", [0, 3, 8, -1])
def test_other_element_sizes_are_refused(bytes_: int) -> None:
    from assay.impl.model.sizes import state_size

    assert_refused("model.state-size", "cache_bytes", lambda: state_size(published(), 1, cache_bytes=bytes_))
    assert_refused(
        "model.state-size", "recurrent_bytes", lambda: state_size(published(), 1, recurrent_bytes=bytes_)
    )


def test_a_size_beyond_64_bits_is_refused() -> None:
    from assay.impl.model.sizes import state_size

    assert state_size(published(), 2**49).total < 2**64
    assert_refused("model.state-size", "total", lambda: state_size(published(), 2**50))
    assert_refused("model.state-size", "context", lambda: state_size(published(), -1))


def test_a_states_arrays_take_what_was_computed() -> None:
    """The calculator against the arrays of a run: float32 everywhere, history in two 32-bit ids."""
    from assay.impl.model.bank import Bank
    from assay.impl.model.sizes import state_size
    from assay.impl.model.state import owners

    bank = Bank(made("small"))
    bank.advance({0: [5, 6, 7, 8, 9]})
    size = state_size(bank.geometry, 5, cache_bytes=4)
    held: dict[str, int] = {}
    for name, array in owners(bank.state()).items():
        held[name.partition(".")[0]] = held.get(name.partition(".")[0], 0) + array.nbytes
    assert (held["gdn_conv"], held["gdn_recurrent"], held["ple_conv"]) == (
        size.gdn_conv,
        size.gdn_recurrent,
        size.ple_conv,
    )
    assert (held["qsa_key"] + held["qsa_value"], held["qsa_raw_index"]) == (size.qsa, size.raw_index)
    assert held["qsa_pooled"] == size.pooled_index
