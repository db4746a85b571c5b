"""Streamed runs beside a resident one: the same tokens and the same state after every chunk, whatever the disk does."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np

from assay.impl.model import state
from assay.impl.model.bank import Bank
from assay.impl.model.loader import load_artifact
from assay.impl.model.numerics import Numerics
from assay.impl.runtime.device import Device
from assay.impl.runtime.faulty_device import Faults, FaultyDevice
from assay.impl.runtime.opening import Opened, Ringing, Wish, open_stream, reader_limits
from assay.impl.runtime.plans import store_digest
from assay.impl.runtime.policies import POLICIES
from assay.impl.runtime.service import StreamReader
from assay.impl.runtime.stream_types import Options
from assay.impl.stores.artifact.opened import Artifact
from assay.impl.stores.expert_major.store import RecordDigests
from assay.spec.errors import AssayError

MOST_RETRIES: Final = 400
FAULTS: Final = {
    "none": Faults(),
    "delays": Faults(delay=0.5, delay_s=0.001),
    "short and interrupted": Faults(short=0.4, interrupt=0.2, delay=0.1, delay_s=0.0005),
    "failing": Faults(error=0.002, corrupt=0.004, end=0.001, delay=0.1, delay_s=0.0005),
}
"""What the disk does, by name. The first three must not be seen at all; the last one ends chunks, which are run again."""


@dataclass(frozen=True, slots=True)
class Source:
    """An artifact to run, and the digests of its records."""

    path: Path
    digests: RecordDigests
    numerics: Numerics
    prompt: tuple[int, ...]
    new_tokens: int

    @classmethod
    def of(cls, path: Path, numerics: Numerics, prompt: Sequence[int], new_tokens: int) -> "Source":
        """Verifies the records of an artifact once."""
        with Artifact.open(path, is_private=True) as artifact:
            found = artifact.experts.verify_all()
        if found.digests is None:
            raise AssertionError(found.findings)
        return cls(path, found.digests, numerics, tuple(prompt), new_tokens)


@dataclass(slots=True)
class Outcome:
    """What a run gave.

    Attributes:
        tokens: chosen greedily.
        digests: of the whole state after every chunk.
        failures: code -> chunks that ended with it and were run again.
        broken: chunks that failed and left a state other than the one before.
    """

    tokens: list[int] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    broken: int = 0

    def same_as(self, other: "Outcome") -> bool:
        """Says whether tokens and every state are equal."""
        return (self.tokens, self.digests) == (other.tokens, other.digests) and not self.broken


@dataclass(frozen=True, slots=True)
class Condition:
    """One way to stream."""

    records: int
    policy: str
    faults: str
    seed: int
    is_barrier: bool = False
    has_guesses: bool = True
    splits: bool = True

    def __str__(self) -> str:
        ways = ", barrier" * self.is_barrier + ", no guesses" * (not self.has_guesses)
        ways += ", whole records" * (not self.splits)
        return f"{self.records} records, {self.policy}, disk {self.faults} {self.seed}{ways}"


def run_resident(source: Source) -> Outcome:
    """Returns what the model gives with every weight in memory."""
    with Artifact.open(source.path, is_private=True) as artifact:
        return run_bank(Bank(load_artifact(artifact, source.path, source.numerics).model), source)


def run_streamed(source: Source, condition: Condition) -> tuple[Outcome, Opened, dict[str, int]]:
    """Returns what the model gives under a condition, the stream with its counts, and what the disk did how often."""
    device = FaultyDevice(FAULTS[condition.faults], condition.seed)
    options = Options(
        0, condition.policy, is_barrier=condition.is_barrier, has_guesses=condition.has_guesses,
        row_slot_bytes=1 << 14, row_window=8, splits=condition.splits,
    )  # fmt: skip
    with streamed(source, Wish(records=condition.records, context=256), options, device) as opened:
        outcome = run_bank(Bank(opened.loaded.model), source)
        if opened.stream.cache.leased:
            raise AssertionError("a lease outlived its chunk")
    return outcome, opened, device.injected


@contextmanager
def streamed(
    source: Source, wish: Wish, options: Options, device: Device | None = None, *, wants_direct: bool = False
) -> Iterator[Opened]:
    """Opens a source for streaming, and closes everything at the end."""
    with Artifact.open(source.path, is_private=True) as artifact:
        limits = reader_limits(artifact, options)
        file = artifact.experts.extent.file
        files = {store_digest(artifact.experts): file, store_digest(artifact.rows): file}
        opened = open_stream(
            artifact, source.path, source.numerics, source.digests, wish, options,
            lambda ring: StreamReader(
                files, limits, device=device, wants_direct=wants_direct, observer=Ringing(ring)
            ),
            sum(one.memory_bytes for one in limits.values()),
        )  # fmt: skip
        with opened.stream:
            yield opened


def run_bank(bank: Bank, source: Source, after: Callable[[], None] = lambda: None) -> Outcome:
    """Prefills and decodes greedily; a chunk that ends with a typed error is run again, and `after` follows each."""
    found = Outcome()
    chunk = list(source.prompt)
    for _ in range(source.new_tokens):
        _advance(bank, chunk, found)
        found.digests.append(state.digest(bank.state()))
        found.tokens.append(int(np.asarray(bank.state().logits).argmax()))
        chunk = found.tokens[-1:]
        after()
    return found


def differing_streams(
    source: Source, conditions: Sequence[Condition]
) -> tuple[list[tuple[str, str, str]], dict[str, int]]:
    """Runs every condition; returns what differs as (where, expected, got), and counts that show what was exercised."""
    resident = run_resident(source)
    wrong: list[tuple[str, str, str]] = []
    counts = {"conditions": 0, "chunks": 0, "misses": 0, "joined": 0, "guesses used": 0, "failed chunks": 0}
    for condition in conditions:
        outcome, opened, _ = run_streamed(source, condition)
        cache = opened.stream.cache.counts
        for name, more in (
            ("conditions", 1), ("chunks", len(outcome.digests)), ("misses", cache.misses), ("joined", cache.joined),
            ("guesses used", cache.predicted_used), ("failed chunks", sum(outcome.failures.values())),
        ):  # fmt: skip
            counts[name] += more
        if outcome.broken:
            wrong.append((str(condition), "a failed chunk publishes nothing", f"{outcome.broken} did"))
        if not outcome.same_as(resident):
            pairs = zip(outcome.digests, resident.digests, strict=True)
            first = next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), -1)
            wrong.append(
                (str(condition), "tokens and states of the resident run", f"others from chunk {first}")
            )
    return wrong, counts


def conditions_of(experts_used: int, experts: int, layers: int, seed: int) -> list[Condition]:
    """Returns cache sizes by policies, and disks by sizes: every pair of a size with each of the two."""
    everything = experts * layers
    sizes = sorted({experts_used, experts_used + 1, 2 * experts_used, experts, everything // 2, everything})
    found = [Condition(size, policy, "none", seed) for size, policy in product(sizes, POLICIES)]
    found += [
        Condition(size, "lru", faults, seed + number)
        for size, faults, number in product(sizes, list(FAULTS)[1:], range(2))
    ]
    found += [Condition(size, "lru", "delays", seed, is_barrier=True, has_guesses=False) for size in sizes]
    found += [Condition(size, "lru", "failing", seed + 5, splits=False) for size in sizes[1::2]]
    return found


def _advance(bank: Bank, chunk: list[int], found: Outcome) -> None:
    for _ in range(MOST_RETRIES):
        before = bank.digest()
        try:
            bank.advance({0: chunk})
        except AssayError as error:
            code = error.finding.code
            found.failures[code] = found.failures.get(code, 0) + 1
            found.broken += bank.digest() != before
        else:
            return
    raise AssertionError(f"{MOST_RETRIES} attempts at one chunk failed")
