"""Checks the payload of a checkpoint: the SHA-256 of each shard, in parallel, resumable shard by shard.

The expected digests are the published ones; a private checkpoint brings its own manifest. The state of an unfinished
run lies in one small file, replaced atomically after each shard; a run that came to its end leaves none.
"""

import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.checkpoint.layout import Layout
from assay.impl.stores.checkpoint.payload_state import UNSAVED, PayloadState, identity_of
from assay.impl.stores.files import file_digest, open_regular, read_exactly
from assay.impl.stores.strict_json import read_json_object
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract
from assay.spec.errors import AdmissionError, Finding
from assay.spec.judgement import JudgeOptions

DIGEST: Final = declare(
    "payload.digest", Authority.PIN, "A shard has its published SHA-256.", source="the file list of the pinned revision",
    cause="a damaged or altered shard; normal use may not show it", fix="fetch this shard again",
)  # fmt: skip
UNKNOWN: Final = declare(
    "payload.unknown", Authority.PROCESS, "The digest of each shard is known from its publication or a manifest.",
    source="assay: payload", cause="a private checkpoint without checkpoint-manifest.json",
)  # fmt: skip
UNREAD: Final = declare(
    "payload.unread", Authority.PROCESS, "Each shard can be read to its end.", source="assay: payload",
    cause="a shard that is not there, or a damaged disk",
)  # fmt: skip
BUFFERS: Final = declare(
    "payload.hash_buffers", Authority.RULE, "The stored hash buffers hold the multipliers, primes and offsets of the profile.",
    source="ggml-org/llama.cpp#13557; transformers 5.24.0", cause="buffers rewritten by a tool, or never written",
)  # fmt: skip

MANIFEST_NAME: Final = "checkpoint-manifest.json"
STAGE: Final = "payload"


@dataclass(slots=True)
class PayloadResult:
    """What the payload came to: faults, gaps, and how many shards were hashed or taken from an earlier run."""

    faults: list[Finding] = field(default_factory=list)
    gaps: list[Finding] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def judge_payload(layout: Layout, contract: Contract, options: JudgeOptions) -> PayloadResult:
    """Hashes every shard that is there and compares; memory is one MiB for each worker."""
    result = PayloadResult()
    expected = _expected_digests(layout, contract, result)
    present = [name for name in layout.names if name.endswith(".safetensors")]
    result.gaps += [
        Finding.of(UNREAD, STAGE, name, expected=digest, got="no such file")
        for name, digest in expected.items()
        if name not in present
    ]
    state = PayloadState.load(layout.folder, options.state, is_fresh=options.is_fresh)
    done, failed = _hash_all(layout.folder, present, state, options)
    result.gaps += failed
    state.drop()
    for name in present:
        digest = done.get(name)
        if digest is None:
            continue
        if name not in expected:
            result.gaps.append(
                Finding.of(UNKNOWN, STAGE, name, expected="a known digest", got=f"only computed: {digest}")
            )
        elif digest != expected[name]:
            result.faults.append(Finding.of(DIGEST, STAGE, name, expected=expected[name], got=digest))
    result.faults += judge_hash_buffers(layout, contract)
    result.facts = {
        "shards_hashed": len(done) - state.resumed,
        "shards_resumed": state.resumed,
        "state": UNSAVED if state.is_unsaved else "dropped" if state.path is not None else "not asked for",
    }
    return result


def judge_hash_buffers(layout: Layout, contract: Contract) -> list[Finding]:
    """Reads the few integers of the hash buffers and compares them with the profile."""
    faults: list[Finding] = []
    for name, values in hash_buffer_values(contract).items():
        header = next(
            (one for one in layout.headers.values() if any(t.name == name for t in one.tensors)), None
        )
        if header is None or layout.header_set is not None:
            continue
        tensor = next(tensor for tensor in header.tensors if tensor.name == name)
        if tensor.dtype != "I64" or tensor.end - tensor.begin != 8 * len(values):
            continue  # the inventory stage says so
        try:
            with open_regular(layout.folder / header.file, stage=STAGE, where=header.file) as file:
                file.seek(header.data_start + tensor.begin)
                raw = read_exactly(file, 8 * len(values), stage=STAGE, where=header.file)
        except AdmissionError as error:
            faults.append(error.finding)
            continue
        got = struct.unpack(f"<{len(values)}q", raw)
        if got != values:
            faults.append(Finding.of(BUFFERS, STAGE, f"{header.file}: {name}", expected=values, got=got))
    return faults


def hash_buffer_values(contract: Contract) -> dict[str, tuple[int, ...]]:
    """Returns the values of the three int64 hash buffers by tensor name."""
    folder = f"{contract.tensor_roles.ple_layer_pattern}ple_embedding."
    pinned = contract.ple_hash
    return {
        f"{folder}layer_multipliers": tuple(pinned.layer_multipliers),
        f"{folder}ngram_heads_offsets": tuple(pinned.head_offsets),
        f"{folder}ngram_heads_vocab_sizes": tuple(pinned.head_primes),
    }


def _hash_all(
    folder: Path, names: list[str], state: PayloadState, options: JudgeOptions
) -> tuple[dict[str, str], list[Finding]]:
    identities: dict[str, list[int]] = {}
    failed: list[Finding] = []
    for name in names:
        try:
            identities[name] = identity_of(folder / name)
        except OSError as error:
            failed.append(Finding.of(UNREAD, STAGE, name, expected="a readable file", got=error.strerror))
    done = {name: digest for name, identity in identities.items() if (digest := state.known(name, identity))}
    state.resumed = len(done)
    left = [name for name in identities if name not in done]
    total = sum(identities[name][0] for name in left)
    display = (
        options.progress("payload", total) if options.progress is not None and left else nullcontext(None)
    )
    stop = threading.Event()
    with display as advance, ThreadPoolExecutor(max(1, options.jobs)) as pool:
        watched = _watched(advance, stop)
        work = {pool.submit(_hash_one, folder, name, state, identities[name], watched): name for name in left}
        try:
            for future in as_completed(work):
                try:
                    done[work[future]] = future.result()
                except AdmissionError as error:
                    failed.append(error.finding)
        except (
            BaseException
        ):  # an interrupt must not wait for 360 GB: what is under way stops at its next piece
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return done, failed


class _StoppedError(Exception):
    """Ends a worker whose result nobody waits for."""


def _watched(advance: Callable[[int], None] | None, stop: threading.Event) -> Callable[[int], None]:
    def step(done: int) -> None:
        if stop.is_set():
            raise _StoppedError
        if advance is not None:
            advance(done)

    return step


def _hash_one(
    folder: Path, name: str, state: PayloadState, identity: list[int], progress: Callable[[int], None]
) -> str:
    digest, _ = file_digest(folder / name, stage=STAGE, where=name, progress=progress)
    if identity_of(folder / name) == identity:  # a file that changed under the reader is not remembered
        state.keep(name, identity, digest)
    return digest


def _expected_digests(layout: Layout, contract: Contract, result: PayloadResult) -> dict[str, str]:
    if contract.source_pins is not None:
        return {shard.name: shard.sha256 for shard in contract.source_pins.shards}
    if MANIFEST_NAME not in layout.names:
        return {}
    try:
        document = read_json_object(layout.folder / MANIFEST_NAME, stage=STAGE)
    except AdmissionError as error:
        result.faults.append(error.finding)
        return {}
    shards = document.get("shards")
    rows = shards.items() if isinstance(shards, dict) else ()
    return {
        name: row["sha256"]
        for name, row in rows
        if isinstance(row, dict) and isinstance(row.get("sha256"), str)
    }
