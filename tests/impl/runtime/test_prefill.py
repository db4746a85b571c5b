"""How a tile's experts are read: by the time that it takes on a measured device, never by the number of tokens."""

from typing import Any

import pytest

from assay.impl.runtime.prefill import Mode, Rates, choose

SLOW_RECORDS = Rates(record=500e6, extent=1000e6)


@pytest.mark.parametrize(
    ("needed", "lacking", "tokens", "rates", "mode"),
    [
        (4, 32, 1, SLOW_RECORDS, Mode.DECODE),  # one token never reads a layer
        (15, 32, 4096, SLOW_RECORDS, Mode.MICRO),  # 15 at half the speed are 30
        (16, 32, 4096, SLOW_RECORDS, Mode.MACRO),  # 16 are as slow as all 32
        (16, 32, 2, SLOW_RECORDS, Mode.MACRO),  # whatever the number of tokens
        (4, 8, 2, SLOW_RECORDS, Mode.MACRO),  # what the cache has needs no reading
        (31, 32, 512, Rates(1000e6, 1000e6), Mode.MICRO),  # no gain in reading one more
        (32, 32, 512, Rates(1000e6, 1000e6), Mode.MACRO),
        (32, 32, 512, Rates(1000e6, 900e6), Mode.MICRO),  # a disk on which single records are faster
        (32, 32, 512, None, Mode.MICRO),  # nothing was measured
        (0, 32, 512, SLOW_RECORDS, Mode.MICRO),  # nothing is missing
    ],
)
def test_the_way_follows_from_missing_records_and_measured_bandwidth(
    needed: int, lacking: int, tokens: int, rates: Rates | None, mode: Mode
) -> None:
    assert choose(needed, lacking, tokens, rates) is mode


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from stream_toys import miniature_source

    return miniature_source(tmp_path_factory.mktemp("prefill"))


@pytest.mark.parametrize(
    ("rates", "expected"),
    [(Rates(1.0, 1e9), Mode.MACRO), (Rates(1e9, 1.0), Mode.MICRO), (None, Mode.MICRO)],
)
@pytest.mark.parametrize("records", [32, 128])
def test_every_way_of_prefill_gives_the_resident_states(
    source: Any, records: int, rates: Rates | None, expected: Mode
) -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.stream_types import Options
    from assay.provenance.captures.mlx_stream import run_bank, run_resident, streamed

    options = Options(0, row_slot_bytes=1 << 14, row_window=8, rates=rates)
    with streamed(source, Wish(records=records, context=64), options) as opened:
        outcome = run_bank(Bank(opened.loaded.model), source)
        modes = opened.stream.counts.modes
    assert outcome.same_as(run_resident(source))
    assert modes[Mode.DECODE] == 7 * (
        len(outcome.tokens) - 1
    )  # every layer but the first, every token but the prompt's
    other = Mode.MICRO if expected is Mode.MACRO else Mode.MACRO
    assert modes[expected] + modes.get(other, 0) == 7
    assert modes[expected] > modes.get(other, 0)
