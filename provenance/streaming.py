"""A streamed run of a command: digests found or derived, memory granted, a reader with its recorder, and what came of it."""

import argparse
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from assay import __version__
from assay.impl.model.geometry import read_geometry
from assay.impl.model.trace import Trace
from assay.impl.runtime.budget import parse_size, process_bytes, return_freed_memory
from assay.impl.runtime.opening import Ringing, Wish, fit_chunk, open_stream, reader_limits
from assay.impl.runtime.page_cache import cached_share, start_label
from assay.impl.runtime.plans import store_digest
from assay.impl.runtime.prefill import Rates
from assay.impl.runtime.probe import load_probe, probe, save_probe
from assay.impl.runtime.recorder import Recorder, physical_bytes, trace_header
from assay.impl.runtime.routes import Routes
from assay.impl.runtime.service import StreamReader
from assay.impl.runtime.stream_types import Options
from assay.impl.runtime.targets import TRACE_HEAD, obstacle
from assay.impl.stores.expert_major.record_digests import load_digests, save_digests
from assay.impl.stores.expert_major.store import RecordDigests
from assay.impl.stores.publication import PublicationError
from assay.provenance.output import say
from assay.provenance.paths import cache_directory, evidence_directory
from assay.provenance.progress import progress_bar
from assay.spec.documents.device_probe import ProbeChoice
from assay.spec.documents.generation import MemoryOwner, Policies, Streaming
from assay.spec.errors import AdmissionError, usage_error

if TYPE_CHECKING:
    from assay.impl.model.numerics import Numerics
    from assay.impl.stores.artifact.opened import Artifact


_MIB: Final = 1 << 20
PROBED_FROM_BYTES: Final = 256 << 20
"""Bytes of an expert store from which its device is probed before the first run; a smaller one fits into every cache."""


class StreamedRun:
    """An artifact opened as the options of a command say; a context that ends its reads and its recording."""

    def __init__(
        self, arguments: argparse.Namespace, artifact: "Artifact", numerics: "Numerics", context: int
    ) -> None:
        """Plans memory, then opens.

        Args:
            arguments: with the options of `stream_options`.
            artifact: admitted; stays open.
            numerics: how reductions are made.
            context: most tokens of the sequence.

        Raises:
            UsageError: usage.argument, for a trace that would take the place of something else.
            ContractError: runtime.budget or runtime.cache.working-set, before anything is read.
            AdmissionError: expert-store.*, for a store that verification finds damaged.
        """
        if arguments.trace is not None and (got := obstacle(arguments.trace, TRACE_HEAD)) is not None:
            raise usage_error("--trace", expected="a new file, or an earlier trace to replace", got=got)
        budget = arguments.memory_budget
        self._budget_bytes = None if budget is None else parse_size(budget, "--memory-budget")
        context = min(context, read_geometry(artifact.config).context)
        if self._budget_bytes is not None:
            return_freed_memory()  # also of what comes before the run, such as a verification
        wish = Wish(
            self._budget_bytes, arguments.expert_cache, context, min(arguments.chunk, context),
            process_bytes=process_bytes(),
        )  # fmt: skip
        page = artifact.rows.geometry.page_stride
        self._policy: Policies = arguments.policy or "lru"
        options = Options(0, self._policy, row_slot_bytes=page, row_window=32)
        choice = _probed(artifact, page, is_quiet=arguments.quiet)
        self._is_measured = choice is not None
        if choice is not None:
            rates = Rates(choice.record_mib_per_s * _MIB, choice.sequential_mib_per_s * _MIB)
            options = replace(
                options, readers=choice.expert_readers, row_readers=choice.ple_readers, rates=rates
            )
        limits = reader_limits(artifact, options)
        reader_bytes = sum(one.memory_bytes for one in limits.values())
        wish = fit_chunk(artifact, wish, reader_bytes)  # refused before a long verification
        if wish.chunk < min(arguments.chunk, context) and not arguments.quiet:
            say(f"the budget holds the work on {wish.chunk} tokens at a time")
        arguments.chunk = self._chunk = wish.chunk
        digests = _digests(artifact, arguments)
        extent = artifact.experts.extent  # after a verification, which warms what it reads
        start = start_label(cached_share(extent.file, extent.start, extent.size), is_new_process=True)
        self._is_verified = digests is not None
        file = artifact.experts.extent.file
        stores = {store_digest(artifact.experts): "experts", store_digest(artifact.rows): "rows"}
        self._recorder: Recorder | None = None
        self._stack = ExitStack()
        with ExitStack() as stack:
            if arguments.trace is not None:
                header = trace_header(
                    limits, stores, producer=f"assay {__version__}", is_private=True,
                    wants_direct=choice is not None and choice.wants_direct, start=start,
                )  # fmt: skip
                self._recorder = Recorder(arguments.trace, header)
                stack.push(self._end_trace)
                if self._recorder.finding is not None:  # before the work, not after it
                    raise AdmissionError(self._recorder.finding)
            self.opened = open_stream(
                artifact, arguments.path, numerics, digests, wish, options,
                lambda ring: StreamReader(
                    dict.fromkeys(stores, file), limits, observer=Ringing(ring, self._recorder),
                    wants_direct=choice is not None and choice.wants_direct,
                ),
                reader_bytes,
            )  # fmt: skip
            self.opened.stream.notes = self._recorder
            self._stack.push(stack.pop_all())
        self._physical = physical_bytes()
        self._routes = Routes(Trace(), self.opened.stream, None)

    def new_trace(self, inner: Trace) -> Trace:
        """Returns a trace of the next chunk that tells `inner` everything and notes routes, if they are recorded."""
        if self._recorder is None:
            return inner
        self._routes.flush()
        self._routes = Routes(inner, self.opened.stream, self._recorder)
        return self._routes

    def statistics(self) -> Streaming:
        """Returns what was read and waited for so far."""
        stream = self.opened.stream
        cache, lane, now = stream.cache.counts, stream.lane.counts, physical_bytes()
        return Streaming(
            expert_cache_records=stream.cache.capacity,
            policy=self._policy,
            hits=cache.hits,
            joined=cache.joined,
            misses=cache.misses,
            evicted=cache.evicted,
            guessed=cache.predicted,
            guessed_used=cache.predicted_used,
            exact_bytes=stream.counts.exact_bytes,
            guessed_bytes=stream.counts.guessed_bytes,
            row_bytes=stream.counts.row_bytes,
            physical_bytes=None if now is None or self._physical is None else now - self._physical,
            expert_wait_seconds=lane.expert_wait_ns / 1e9,
            row_wait_seconds=lane.row_wait_ns / 1e9,
            exposed_wait_seconds=lane.exposed_ns / 1e9,
            verified=self._is_verified,
            measured=self._is_measured,
            chunk=self._chunk,
            budget_bytes=self._budget_bytes,
            memory=[MemoryOwner(owner=one.name, bytes=one.size_bytes) for one in self.opened.plan.owners],
        )

    def sentence(self) -> str:
        """Returns the same in a line."""
        found = self.statistics()
        uses = found.hits + found.joined + found.misses
        return (
            f"streamed: {found.hits} of {uses} records were resident, {found.joined} on their way; "
            f"{(found.exact_bytes + found.guessed_bytes) / 1e6:.1f} MB of records and {found.row_bytes / 1e6:.1f} MB of "
            f"pages; waited {found.exposed_wait_seconds:.3f} s"
            + ("" if found.verified else "; records were not verified")
        )

    def __enter__(self) -> Self:
        self._stack.enter_context(self.opened.stream)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._routes.flush()
        self._stack.__exit__(kind, error, trace)
        if kind is None and self._recorder is not None and self._recorder.finding is not None:
            raise AdmissionError(self._recorder.finding)

    def _end_trace(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ends the recording; that of a run that was interrupted or failed gets no footer, which would call it whole."""
        if self._recorder is not None:
            self._recorder.close(is_whole=kind is None)


def _probed(artifact: "Artifact", page_bytes: int, *, is_quiet: bool) -> ProbeChoice | None:
    """Returns what a probe of the artifact's device chose; a store too small to say anything is not probed."""
    file = artifact.experts.extent.file
    record = max(layer.record_bytes for layer in artifact.experts.manifest.layers)
    folder = cache_directory() / "device-probe"
    found = load_probe(folder, file, record, page_bytes)
    if found is None and artifact.experts.manifest.data_bytes >= PROBED_FROM_BYTES:
        if not is_quiet:
            say("probing the device: sizes and depth of reads, for this and later runs")
        found = probe(file, record, page_bytes)
        save_probe(folder, found)
    return None if found is None else found.choice


def _digests(artifact: "Artifact", arguments: argparse.Namespace) -> RecordDigests | None:
    """Returns the record digests that this machine derived; without any, the whole store is verified once, or nothing is."""
    found = load_digests(evidence_directory(), artifact.experts.manifest.header.payload_sha256)
    if found is not None or arguments.unverified:
        return found
    if not arguments.quiet:
        say("deriving record digests: the expert store is read and verified once")
    with progress_bar(quiet=arguments.quiet, bytes_=True) as report:
        threads = 3 if arguments.memory_budget is None else 1
        verified = artifact.experts.verify_all(threads, partial(report, "verifying experts"))
    if verified.digests is None:
        raise AdmissionError(verified.findings[0])
    try:
        save_digests(evidence_directory(), verified.digests, "verify-all")
    except PublicationError as error:  # this run has them all the same
        if not arguments.quiet:
            say(f"record digests are not kept for the next run: {error.finding.where}: {error.finding.got}")
    return verified.digests
