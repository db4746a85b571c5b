"""What the benchmarks of streaming read: an expert store of the real record size, and fio beside it."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.impl.stores.expert_major.blocks import AFFINE4
from assay.impl.stores.expert_major.families import ExpertFamily, ExpertGeometry, private_expert_family
from assay.impl.stores.expert_major.layout import Layer, Source, Storage, plan_manifest
from assay.impl.stores.expert_major.store import ExpertStore, RecordDigests
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import StoreFile
from assay.provenance.benchmarks.base import BenchContext, BenchmarkNotRunError

RECORD_BYTES: Final = 2_764_800
PAGE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Sample:
    """A store on disk."""

    path: Path
    family: ExpertFamily
    digests: RecordDigests
    experts: int

    def opened(self, file: StoreFile) -> ExpertStore:
        """Opens the store with its record digests."""
        return ExpertStore.open(file.extent(), self.family).with_digests(self.digests)


def expert_sample(context: BenchContext) -> Sample:
    """Writes a store of one layer whose records are those of the real geometry in 4 bits."""
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
    return Sample(path, family, digests, experts)


def fio_mib_per_s(path: Path, block_bytes: int, depth: int, seconds: float, seed: int) -> float:
    """Returns what fio reads at random, directly, with `depth` synchronous threads, never writing.

    Raises:
        BenchmarkNotRunError: when fio isn't installed or didn't measure.
    """
    program = shutil.which("fio")
    if program is None:
        raise BenchmarkNotRunError("needs fio to compare with")
    size = path.stat().st_size // block_bytes * block_bytes
    done = subprocess.run(
        [
            program, "--name=read", f"--filename={path}", "--readonly", "--rw=randread", "--ioengine=psync",
            "--direct=1", f"--bs={block_bytes}", f"--size={size}", f"--numjobs={depth}", "--thread",
            "--group_reporting", "--time_based", f"--runtime={seconds:.1f}", "--allow_file_create=0",
            f"--randseed={seed}", "--output-format=json",
        ],
        capture_output=True, text=True, check=False, timeout=60 + 10 * seconds,
    )  # fmt: skip
    try:
        jobs = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
        return float(sum(job["read"]["bw_bytes"] for job in jobs) / (1 << 20))
    except (ValueError, KeyError) as error:
        raise BenchmarkNotRunError(f"fio did not measure: {done.stderr.strip()[:160]}") from error
