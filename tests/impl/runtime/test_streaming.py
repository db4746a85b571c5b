"""A streamed model is the resident one, bit for bit, whatever the cache holds and whatever the disk does."""

from typing import Any

import numpy as np
import pytest

from assay.impl.runtime.faulty_device import Faults, FaultyDevice
from assay.spec.errors import AssayError, ContractError

EXPERTS, LAYERS, USED = 16, 8, 4
"""Of the miniature."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from assay.impl.model.numerics import Numerics
    from assay.impl.stores.artifact.build import build_artifact
    from assay.provenance.captures.mlx_stream import Source
    from assay.provenance.miniature import miniature_checkpoint

    folder = tmp_path_factory.mktemp("streamed")
    build_artifact(miniature_checkpoint(folder / "checkpoint"), folder / "miniature.gguf")
    return Source.of(folder / "miniature.gguf", Numerics(is_deterministic=True), range(5, 29), 5)


@pytest.fixture(scope="module")
def resident(source: Any) -> Any:
    from assay.provenance.captures.mlx_stream import run_resident

    found = run_resident(source)
    assert len(set(found.digests)) == 5
    return found


def run(
    source: Any, records: int, *, policy: str = "lru", faults: str = "none", seed: int = 0, **ways: bool
) -> Any:
    from assay.provenance.captures.mlx_stream import Condition, run_streamed

    return run_streamed(source, Condition(records, policy, faults, seed, **ways))


@pytest.mark.parametrize("records", [USED, USED + 1, EXPERTS, EXPERTS * LAYERS // 2, EXPERTS * LAYERS])
def test_every_cache_size_gives_the_resident_states(source: Any, resident: Any, records: int) -> None:
    outcome, opened, _ = run(source, records)
    assert outcome.same_as(resident)
    assert opened.stream.cache.counts.misses > 0


@pytest.mark.parametrize("policy", ["lru", "lfu", "s3-fifo", "greedy-dual", "layer-lru"])
def test_every_policy_gives_the_resident_states(source: Any, resident: Any, policy: str) -> None:
    outcome, opened, _ = run(source, 24, policy=policy, faults="delays", seed=7)
    assert outcome.same_as(resident)
    assert opened.stream.cache.counts.evicted > 0


@pytest.mark.parametrize("seed", range(3))
def test_every_order_of_arrival_gives_the_resident_states(source: Any, resident: Any, seed: int) -> None:
    """Bug report A25 above a running model: short and interrupted reads, and reads that overtake each other."""
    outcome, _, injected = run(source, EXPERTS, faults="short and interrupted", seed=seed)
    assert outcome.same_as(resident)
    assert injected["short"] > 20
    assert injected["interrupt"] > 20
    assert not outcome.failures


def test_a_barrier_without_guesses_gives_the_resident_states(source: Any, resident: Any) -> None:
    outcome, opened, _ = run(source, EXPERTS, is_barrier=True, has_guesses=False)
    assert outcome.same_as(resident)
    assert opened.stream.cache.counts.predicted == 0


@pytest.mark.parametrize(("records", "seed"), [(USED, 3), (EXPERTS, 4)])
def test_a_failing_disk_ends_chunks_and_changes_nothing(
    source: Any, resident: Any, records: int, seed: int
) -> None:
    outcome, _, _ = run(source, records, faults="failing", seed=seed)
    assert outcome.failures.keys() <= {"runtime.read.io", "runtime.read.digest", "runtime.read.short"}
    assert sum(outcome.failures.values()) > 0
    assert outcome.broken == 0
    assert outcome.same_as(resident)


@pytest.mark.parametrize(
    ("fault", "code"),
    [("error", "runtime.read.io"), ("corrupt", "runtime.read.digest"), ("end", "runtime.read.short")],
)
def test_a_record_that_cannot_be_had_is_named_and_nothing_is_published(
    source: Any, fault: str, code: str
) -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.streaming import Options
    from assay.provenance.captures.mlx_stream import streamed

    device = FaultyDevice()
    options = Options(0, has_guesses=False, row_slot_bytes=1 << 14)
    with streamed(source, Wish(records=EXPERTS, context=64), options, device) as opened:
        bank = Bank(opened.loaded.model)
        bank.advance({0: [5, 6, 7]})
        before, into = bank.digest(), np.full((1, bank.geometry.physical_rows), 7.0, np.float32)
        device.faults = Faults(**{fault: 1.0})
        with pytest.raises(AssayError) as caught:
            bank.advance({0: [8]}, into=into)
        assert caught.value.finding.code == code
        assert bank.digest() == before
        assert (into == 7.0).all()
        assert opened.stream.cache.leased == 0
        device.faults = Faults()
        bank.advance({0: [8]})
        retried = bank.digest()
    with streamed(source, Wish(records=EXPERTS, context=64), options) as opened:
        bank = Bank(opened.loaded.model)
        bank.advance({0: [5, 6, 7]})
        bank.advance({0: [8]})
        assert bank.digest() == retried


def test_rows_are_asked_for_before_the_embedding_and_waited_for_at_their_layer(source: Any) -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.model.trace import Trace
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.streaming import Options
    from assay.impl.runtime.tickets import RowPages
    from assay.provenance.captures.mlx_stream import streamed

    told: list[str] = []

    class Stages(Trace):
        def stage(self, stage: str, layer: int | None, value: Any) -> Any:
            told.append(stage if layer is None else f"{stage} {layer}")
            return super().stage(stage, layer, value)

    with streamed(source, Wish(records=EXPERTS, context=64), Options(0, row_slot_bytes=1 << 14)) as opened:
        reader = opened.stream.reader
        submit, wait = reader.submit, reader.wait

        def submitted(requests: Any) -> Any:
            told.extend("rows asked for" for one in requests if isinstance(one.target, RowPages))
            return submit(requests)

        def waited(ticket: Any, part: int | None = None) -> Any:
            if isinstance(ticket.request.target, RowPages):
                told.append("rows waited for")
            return wait(ticket, part)

        reader.submit, reader.wait = submitted, waited  # type: ignore[method-assign]
        Bank(opened.loaded.model).advance({0: [5]}, Stages())
    first = opened.loaded.model.geometry.ple_layers[0]
    assert told.index("rows asked for") < told.index("embedding")
    last_asked = max(place for place, one in enumerate(told) if one == "rows asked for")
    assert last_asked < told.index("embedding")
    assert (
        told.index(f"moe_gr_apply {first - 1}") < told.index("rows waited for") < told.index(f"ple {first}")
    )


@pytest.mark.parametrize("records", [1, USED - 1])
def test_a_cache_smaller_than_one_layer_of_a_token_is_refused_before_any_work(
    source: Any, records: int
) -> None:
    """Bug report A24, in a running model: an error with the numbers, not a wrong answer."""
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.streaming import Options
    from assay.provenance.captures.mlx_stream import streamed

    with pytest.raises(ContractError) as caught, streamed(source, Wish(records=records), Options(0)):
        pass
    found = caught.value.finding
    assert (found.code, found.where) == ("runtime.cache.working-set", "--expert-cache")
    assert (found.expected, found.got) == (f"at least {USED} records", str(records))


def test_a_budget_too_small_is_refused_with_every_owner_before_any_work(source: Any) -> None:
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.streaming import Options
    from assay.provenance.captures.mlx_stream import streamed

    with pytest.raises(ContractError) as caught, streamed(source, Wish(budget_bytes=10_000_000), Options(0)):
        pass
    found = caught.value.finding
    assert (found.code, found.where, found.got) == ("runtime.budget", "--memory-budget", "10000000 bytes")
    for owner in (
        "process",
        "dense weights",
        "expert cache of 4 records",
        "read buffers",
        "state of 4096 tokens",
    ):
        assert owner in found.hint
