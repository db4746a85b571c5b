"""Opens an artifact for streaming: its memory is planned and granted first, then a reader, a cache and a model are made."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Final

import mlx.core as mx

from assay.impl.model.experts import Codec
from assay.impl.model.geometry import Geometry, read_geometry
from assay.impl.model.loader import Elsewhere, Loaded, load_artifact
from assay.impl.model.numerics import Numerics
from assay.impl.model.sizes import state_size
from assay.impl.runtime.budget import BUDGET, Owner, Plan, allowance, process_bytes, return_freed_memory
from assay.impl.runtime.cache import WORKING_SET
from assay.impl.runtime.clauses import refuse
from assay.impl.runtime.device import Transfer
from assay.impl.runtime.limits import LaneLimits
from assay.impl.runtime.pool import record_memory_bytes
from assay.impl.runtime.schedule import Change, Read
from assay.impl.runtime.service import Observer
from assay.impl.runtime.stream_types import MakeReader, Options
from assay.impl.runtime.streamed_rows import StreamedRows
from assay.impl.runtime.streaming import Stream
from assay.impl.runtime.tickets import Lane as ReadLane
from assay.impl.runtime.tickets import Ticket
from assay.impl.runtime.wave import MOST_AT_ONCE, StreamedExperts
from assay.impl.stores.artifact.opened import Artifact
from assay.impl.stores.expert_major.store import RecordDigests
from assay.spec.errors import ContractError

SLOT_BYTES: Final = 32 << 20
"""Bytes of the reader's slots for records that were read ahead, unless one record is larger."""
LEAST_CHUNK: Final = 16
AT_ONCE: Final = 3
"""How many times over the largest arrays of a chunk live at once, from peaks that were measured at 64 to 512 tokens."""
FEW_TOKENS_BYTES: Final = 8 << 20
"""What a chunk takes however short it is."""
_WIDENED_BYTES: Final = 4
_LOADING_COPIES: Final = 3
"""Copies of the largest tensor while it is loaded: its bytes, its values, and those transposed."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller asks of a streamed run.

    Attributes:
        budget_bytes: bound of all memory of the process; None sets none.
        records: of the expert cache; None takes what the budget leaves, or half of all without one.
        context: most tokens of a sequence.
        chunk: most tokens of a prefill chunk.
        lanes: sequences at the same time.
        process_bytes: what the process takes without the run; None measures it when memory is planned.
    """

    budget_bytes: int | None = None
    records: int | None = None
    context: int = 4096
    chunk: int = 512
    lanes: int = 1
    process_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A streamed model: its experts and rows come through `stream`, which must be entered while it runs.

    Attributes:
        stream: where experts and rows come from.
        loaded: the model.
        plan: memory, with one lane in it.
        lane_bytes: what the plan holds for that lane: state and work.
    """

    stream: Stream
    loaded: Loaded
    plan: Plan
    lane_bytes: int


def plan_memory(artifact: Artifact, wish: Wish, reader_bytes: int) -> tuple[int, Plan]:
    """Returns the records of the cache, and who owns what.

    Args:
        artifact: admitted.
        wish: what is asked for.
        reader_bytes: of the reader's slots.

    Raises:
        ContractError: runtime.budget or runtime.cache.working-set, before anything was taken.
    """
    geometry = read_geometry(artifact.config)
    codec = codec_of(artifact)
    least, most = geometry.experts_used * wish.lanes, geometry.experts * geometry.layers
    if wish.records is not None and wish.records < least:
        raise refuse(
            WORKING_SET, "--expert-cache", expected=f"at least {least} records", got=wish.records,
            hint=f"one token's experts of a layer are {geometry.experts_used}, and {wish.lanes} lane(s) run",
        )  # fmt: skip
    base = Plan(wish.budget_bytes, _owners(artifact, geometry, wish, reader_bytes))
    size = record_memory_bytes(codec, geometry)
    if wish.records is not None:
        count = min(wish.records, most)
    elif base.left_bytes is None:
        count = max(least, most // 2)
    else:
        count = max(least, min(most, base.left_bytes // size))
    plan = base.with_owners([Owner(f"expert cache of {count} records", count * size)])
    plan.require()
    return count, plan


def fit_chunk(artifact: Artifact, wish: Wish, reader_bytes: int) -> Wish:
    """Returns the wish with the largest chunk, of those halved from the one asked for, that its budget holds.

    Any chunk gives the same result; it bounds memory. Where the cache takes what is left, a chunk that leaves room for
    half of all records is preferred. The least is 16 tokens.

    Raises:
        ContractError: runtime.budget or runtime.cache.working-set, as of the least chunk.
    """
    geometry = read_geometry(artifact.config)
    while True:
        is_least = wish.chunk <= LEAST_CHUNK
        try:
            count, _ = plan_memory(artifact, wish, reader_bytes)
        except ContractError as error:
            if is_least or error.finding.code != BUDGET:
                raise
        else:
            is_roomy = wish.records is not None or 2 * count >= geometry.experts * geometry.layers
            if is_roomy or is_least:
                return wish
        wish = replace(wish, chunk=max(LEAST_CHUNK, wish.chunk // 2))


def open_stream(
    artifact: Artifact,
    path: Path,
    numerics: Numerics,
    digests: RecordDigests | None,
    wish: Wish,
    options: Options,
    make_reader: MakeReader,
    reader_bytes: int,
) -> Opened:
    """Returns the streamed model of an admitted artifact.

    Args:
        artifact: open as long as the stream is.
        path: its file.
        numerics: how reductions are made.
        digests: of the records; None leaves what is read unverified.
        wish: what is asked for.
        options: how it runs; the records of the cache are planned here.
        make_reader: makes the reader.
        reader_bytes: what its slots take.

    Raises:
        ContractError: runtime.budget or runtime.cache.working-set.
        AdmissionError: what loading finds.
    """
    count, plan = plan_memory(artifact, wish, reader_bytes)
    if wish.budget_bytes is not None:
        mx.set_cache_limit(0)  # buffers that MLX keeps for later are nobody's in the plan
        return_freed_memory()
    store = artifact.experts if digests is None else artifact.experts.with_digests(digests)
    stream = Stream(
        store, artifact.rows, read_geometry(artifact.config), codec_of(artifact), replace(options, capacity=count),
        make_reader,
    )  # fmt: skip
    stream.lanes = wish.lanes
    elsewhere = Elsewhere(
        lambda layer: StreamedExperts(stream, layer), lambda layer: StreamedRows(stream, layer)
    )
    try:
        loaded = load_artifact(artifact, path, numerics, elsewhere)
        return Opened(stream, loaded, plan, lane_bytes(stream.geometry, wish.context, wish.chunk))
    except BaseException:
        with stream:  # ends its threads
            raise


class Ringing:
    """An observer of a reader that rings a stream's bell whenever somebody may go on, and tells another one everything."""

    def __init__(self, ring: Callable[[], None], inner: Observer | None = None) -> None:
        self._ring = ring
        self._inner = inner

    def changed(self, change: Change) -> None:
        """A ticket changed."""
        if self._inner is not None:
            self._inner.changed(change)
        is_whole = (
            change.what == "part" and len(change.ticket.request.parts) == 1
        )  # nothing before it is judged
        if change.what not in {"issued", "joined", "promoted", "reading"} and not is_whole:
            self._ring()

    def read(self, read: Read, done: Transfer | None, started_ns: int, ended_ns: int) -> None:
        """A read ended."""
        if self._inner is not None:
            self._inner.read(read, done, started_ns, ended_ns)

    def advanced(self, owner: str, generation: int, now_ns: int) -> None:
        """An owner began a new generation."""
        if self._inner is not None:
            self._inner.advanced(owner, generation, now_ns)

    def waited(self, ticket: Ticket, part: int | None, started_ns: int, ended_ns: int) -> None:
        """Somebody waited for a ticket."""
        if self._inner is not None:
            self._inner.waited(ticket, part, started_ns, ended_ns)


def reader_limits(artifact: Artifact, options: Options) -> dict[ReadLane, LaneLimits]:
    """Returns the bounds of a reader for an artifact: records in flight and behind, and the pages of a window."""
    record = max(layer.record_bytes for layer in artifact.experts.manifest.layers)
    slots = max(2, min(options.most_guesses, SLOT_BYTES // record))
    return {
        ReadLane.EXPERT: LaneLimits(
            readers=options.readers, slots=slots + 2, slot_bytes=record, queue=2 * MOST_AT_ONCE, reserved_slots=2
        ),
        ReadLane.PLE: LaneLimits(
            readers=options.row_readers, slots=options.row_window, slot_bytes=options.row_slot_bytes
        ),
    }  # fmt: skip


def codec_of(artifact: Artifact) -> Codec:
    """Returns how the records of an artifact are encoded."""
    codec: Codec = artifact.descriptor.facts["expertCodec"]
    return codec


def _owners(artifact: Artifact, geometry: Geometry, wish: Wish, reader_bytes: int) -> tuple[Owner, ...]:
    shapes = [artifact.dense(name)[1] for name in artifact.names]
    largest = max((prod(shape) for shape in shapes), default=0)
    state = state_size(geometry, wish.context, cache_bytes=4)
    records = geometry.experts * geometry.layers
    return (
        Owner("process", process_bytes() if wish.process_bytes is None else wish.process_bytes),
        Owner("dense weights", _WIDENED_BYTES * sum(prod(shape) for shape in shapes)),
        Owner("loading of the largest tensor", _LOADING_COPIES * _WIDENED_BYTES * largest),
        Owner("digests", artifact.rows.table_memory_bytes + 3 * 32 * records),
        Owner(
            f"state of {wish.context} tokens in {wish.lanes} lane(s)",
            wish.lanes * (state.total + state.pooled_index),
        ),
        Owner(f"work on {wish.chunk} tokens", workspace_bytes(geometry, wish.chunk, wish.context)),
        Owner("read buffers", reader_bytes),
        allowance(wish.budget_bytes),
    )


def lane_bytes(geometry: Geometry, context: int, chunk: int) -> int:
    """Returns the bytes that a lane owns: the state of its context and the arrays of one chunk."""
    size = state_size(geometry, context, cache_bytes=4)
    return size.total + size.pooled_index + workspace_bytes(geometry, chunk, context)


def workspace_bytes(geometry: Geometry, tokens: int, context: int) -> int:
    """Returns an upper estimate of the arrays that live at the same time while a chunk of tokens is computed."""
    g = geometry
    rows = tokens * g.experts_used + min(tokens * g.experts_used, g.experts) * 16
    routed = rows * (2 * g.hidden + 3 * g.expert_width)
    mixing = tokens * max(
        2 * g.channels + 3 * g.value_heads * g.value_dim,
        4 * g.heads * g.head_dim
        + 2 * g.heads * min(g.selection_width, context)
        + (g.index_heads + 2) * (context // g.ratio),
    )
    streams = tokens * (6 * g.wide + g.streams * g.hidden)
    embedding = tokens * 3 * g.ple_embedding
    alive = 4 * (routed + mixing + streams + embedding + 4 * g.physical_rows)
    return AT_ONCE * alive + FEW_TOKENS_BYTES
