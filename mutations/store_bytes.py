"""Battery `store-bytes`: every byte of every manifest flipped in turn, nothing signed again.

The manifests are an ExpertMajor header with its descriptors and padding, a PLE header with its digest table and padding, and the
directory of a GGUF file whose stores are opened through it. No byte may be free.
"""

import functools
import tempfile
from pathlib import Path
from typing import Final

from assay.impl.stores.expert_major.families import DEEPSEEK4
from assay.impl.stores.expert_major.repack import STORE_NAME
from assay.impl.stores.expert_major.store import ExpertStore, judge_expert_store
from assay.impl.stores.gguf.reader import Gguf, read_gguf
from assay.impl.stores.gguf.rules import judge_gguf
from assay.mutations import expert_store, ple_store
from assay.mutations.battery import Battery, BatteryContext, Mutation
from assay.mutations.store_memory import memory_extent
from assay.mutations.store_samples import native_gguf
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

DIRECTORY: Final = declare(
    "gguf.directory.expected",
    Authority.PIN,
    "Metadata and tensor directory are those that the caller expects, types and order included.",
    source="GGUF artifact: closed metadata and tensor set",
    cause="an edited directory that is still well formed",
)


@functools.cache
def gguf_sample() -> bytes:
    """Returns the published native file of family 1."""
    with tempfile.TemporaryDirectory() as folder:
        return native_gguf(Path(folder), "deepseek4")[1].read_bytes()


@functools.cache
def gguf_expected() -> Gguf:
    """Returns the directory of that file, which a caller with a closed set expects."""
    return read_gguf(memory_extent(gguf_sample()))


def judge_gguf_copy(data: bytes) -> list[Finding]:
    """Returns what is wrong with a copy of the native file: structure, then the closed set, then its store."""
    extent = memory_extent(data)
    try:
        found = read_gguf(extent)
        findings = judge_gguf(found, extent)
        if findings:
            return findings
        findings = _differences(found, gguf_expected())
        tensor = found.tensor(STORE_NAME)
        if findings or tensor is None or tensor.bytes is None:
            return findings
        store = extent.part(found.data_start + tensor.offset, tensor.bytes, STORE_NAME)
        manifest, findings = judge_expert_store(store, DEEPSEEK4)
        if findings or manifest is None:
            return findings
        return list(ExpertStore(store, manifest).verify_all(threads=1).findings)
    except AdmissionError as error:
        return [error.finding]


def mutations(context: BatteryContext) -> list[Mutation]:
    """Lists one mutation for each byte of each manifest."""
    del context
    sizes = {"expert": 4096, "ple": 4096, "gguf": gguf_expected().data_start}
    return [
        Mutation(
            id=f"{kind}:{offset}",
            area=kind,
            field=f"{kind}[{offset}]",
            change=f"byte xor {1 << offset % 8:#04x}",
            payload=(kind, offset, 1 << offset % 8),
        )
        for kind, size in sizes.items()
        for offset in range(size)
    ]


def judge(mutation: Mutation, context: BatteryContext) -> list[Finding]:
    """Judges a copy with one byte changed."""
    del context
    kind, offset, bits = mutation.payload
    sample, judge_copy = {
        "expert": (expert_store.sample, expert_store.judge_store),
        "ple": (ple_store.sample, ple_store.judge_store),
        "gguf": (gguf_sample, judge_gguf_copy),
    }[kind]
    data = sample()
    return judge_copy(data[:offset] + bytes([data[offset] ^ bits]) + data[offset + 1 :])


def _differences(found: Gguf, wanted: Gguf) -> list[Finding]:
    findings = []
    for name in ("entries", "tensors", "alignment", "data_start"):
        one, other = getattr(wanted, name), getattr(found, name)
        if one != other:
            findings.append(Finding.of(DIRECTORY, "gguf", name, expected=one, got=other))
    return findings


BATTERY: Final = Battery(
    name="store-bytes",
    title="No byte of a manifest is free: each one, changed alone, is noticed.",
    mutations=mutations,
    judge=judge,
    control=lambda _context: [
        *expert_store.judge_store(expert_store.sample()),
        *ple_store.judge_store(ple_store.sample()),
        *judge_gguf_copy(gguf_sample()),
    ],
    forced=lambda _context: Mutation(
        "forced", "ple", "ple[0]", "byte xor 0x01", ("ple-store.magic",), payload=("ple", 0, 1)
    ),
)
