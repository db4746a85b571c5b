"""Expert records of the real size, read and verified, against unverified reads of the same file at the same depth."""

import os
import random
import statistics
from concurrent.futures import ThreadPoolExecutor

from assay.impl.stores.blocks import AFFINE4
from assay.impl.stores.expert_families import ExpertGeometry, private_expert_family
from assay.impl.stores.expert_layout import Layer, Source, Storage, plan_manifest
from assay.impl.stores.expert_store import ExpertStore
from assay.impl.stores.expert_writer import write_expert_store
from assay.impl.stores.extents import StoreFile
from assay.provenance.benchmarks.base import BenchContext, drop_from_cache, measurement, timed
from assay.spec.documents.bench import Measurement

RECORD_BYTES = 2_764_800
THREADS = 3


def run(context: BenchContext) -> list[Measurement]:
    """Measures records in random order: verified, and as plain preadv into one buffer a thread."""
    experts = max(16, min(512, context.size_mib * (1 << 20) // RECORD_BYTES))
    geometry = ExpertGeometry(1, experts, 10, 2560, 640)
    family = private_expert_family(0x80000011, "assay-bench-v1", geometry)
    manifest = plan_manifest(
        family.id, Storage.MLX_AFFINE4, experts=experts, used=10, layers=geometry.shapes(AFFINE4),
        source=Source(10, 1, bytes(32)),
    )  # fmt: skip
    noise = os.urandom(1 << 21)

    def component(layer: Layer, role: int, expert: int) -> bytes:
        size = layer.components[role].expert_bytes
        start = (expert * 7919 + role) % (len(noise) - size)
        return noise[start : start + size]

    path = context.folder / "experts"
    digests = write_expert_store(path, manifest, family, component)
    if digests is None:
        raise AssertionError("a store with components has digests")
    order = list(range(experts))
    random.Random(context.seed).shuffle(order)  # noqa: S311 - no secret
    size = experts * RECORD_BYTES / (1 << 20)
    found = []
    with StoreFile.open(path) as file:
        store = ExpertStore.open(file.extent(), family).with_digests(digests)
        offsets = [store.locate(0, expert, 0)[0] for expert in order]
        for state in ("cold", "warm"):
            ours: list[float] = []
            plain: list[float] = []
            for _ in range(context.rounds + 2):  # interleaved: the disk's speed drifts
                for kind, seconds in (("plain", plain), ("ours", ours)):
                    if state == "cold":
                        drop_from_cache(path)
                    with timed() as watch:
                        if kind == "plain":
                            _plain_reads(file.descriptor, offsets)
                        else:
                            for record in store.read_records([(0, expert) for expert in order], THREADS):
                                assert record.is_verified  # noqa: S101 - an unverified read would be no measurement
                    seconds.append(watch.seconds)
            found.append(
                measurement(
                    f"verified records, {state}",
                    size / statistics.median(ours),
                    "MiB/s",
                    f"{experts} records of {RECORD_BYTES} B in random order, {THREADS} threads",
                    reference=("unverified preadv, same depth", size / statistics.median(plain)),
                    target=("ratio", "at-least", 0.95) if state == "cold" else None,
                )
            )
    return found


def _plain_reads(descriptor: int, offsets: list[int]) -> None:
    """Reads records into one buffer a thread, unverified: the fastest that plain Python does."""

    def work(part: list[int]) -> None:
        buffer = bytearray(RECORD_BYTES)
        for offset in part:
            os.preadv(descriptor, [buffer], offset)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, [offsets[start::THREADS] for start in range(THREADS)]))
