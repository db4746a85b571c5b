"""Gates about the stores: published bytes, true sizes, faults, batteries, and MLX's own arithmetic."""

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.impl.stores.expert_major.blocks import AFFINE4, BF16
from assay.impl.stores.expert_major.families import QWEN4EXP
from assay.impl.stores.expert_major.layout import Source, Storage, plan_manifest
from assay.impl.stores.expert_major.store import ExpertStore
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import Filesystem, StoreFile
from assay.impl.stores.gguf.reader import read_gguf
from assay.impl.stores.gguf.rules import judge_gguf
from assay.impl.stores.ple_rows.layout import HEADER_BYTES, unpack_ple_header
from assay.impl.stores.ple_rows.store import PleStore
from assay.impl.stores.ple_rows.tables import QWEN4EXP_ROWS, paged, raw_codec
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.mutations import expert_store, ple_store, store_bytes
from assay.mutations import store_samples as samples
from assay.mutations.store_faults import PublicationContract
from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.gates.batteries import battery_result
from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding
from assay.spec.verdicts import Outcome

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GOLDEN = declare(
    "gate.stores-golden",
    Authority.UPSTREAM,
    "Our writers reproduce the published stores bit for bit.",
    source="ExpertMajor v2 and PLE rows v1, golden vectors",
    cause="a writer that changed the wire format",
)
SIZE = declare(
    "gate.stores-true-size",
    Authority.RULE,
    "The public geometries are written, opened and located at their true size without reading their payload.",
    source="ExpertMajor v2 family 4; PLE rows v1, exact numbers",
    cause="an offset that wraps, or memory that grows with the store",
)
FAULTS = declare(
    "gate.stores-faults",
    Authority.PROCESS,
    "Under every injected fault the target is the whole old file or the whole new one, and no other file is left.",
    source="AFN-003, transactional publication",
    cause="a writer that publishes before it verified, or doesn't clean up",
)
AFFINE = declare(
    "gate.affine4",
    Authority.UPSTREAM,
    "Encoder and decoder agree with MLX bit for bit, and with the container's layout.",
    source="ExpertMajor v2, storage formats; MLX affine quantisation",
    cause="another rounding or nibble order",
)


def golden(context: GateContext) -> GateResult:
    """Writes every published store and compares sizes and digests."""
    folder = _fresh(context, "golden")
    findings: list[Finding] = []
    compared = 0
    for architecture, sizes in samples.GOLDEN_BYTES.items():
        source, native = samples.native_gguf(folder, architecture)
        with StoreFile.open(native) as file:
            gguf = read_gguf(file.extent())
            findings += judge_gguf(gguf, file.extent())
        got: list[tuple[str, object, object]] = [
            ("source bytes", sizes[0], source.stat().st_size),
            ("native bytes", sizes[1], native.stat().st_size),
            ("store bytes", sizes[2], gguf.tensors[-1].bytes),
        ]
        for name, path, table in (
            ("source", source, samples.GOLDEN_SOURCE),
            ("native", native, samples.GOLDEN_NATIVE),
        ):
            if architecture in table:
                got.append((f"{name} sha256", table[architecture], _digest(path)))
        compared += len(got)
        findings += _unequal(GOLDEN, architecture, got)
    samples.golden_ple(folder / "rows")
    header = unpack_ple_header((folder / "rows").read_bytes()[:HEADER_BYTES])
    rows: list[tuple[str, object, object]] = [
        ("payload sha256", samples.GOLDEN_PLE_PAYLOAD, header.payload_sha256.hex()),
        ("manifest sha256", samples.GOLDEN_PLE_MANIFEST, header.manifest_sha256.hex()),
    ]
    findings += _unequal(GOLDEN, "ple rows", rows)
    shutil.rmtree(folder)
    return _result(findings, {"compared": compared + len(rows)})


def true_size(context: GateContext) -> GateResult:
    """Writes sparse stand-ins of both public stores and reads what was written of them."""
    folder = _fresh(context, "true-size")
    geometry = QWEN4EXP.geometry
    assert geometry is not None  # noqa: S101 - family 4 is exact
    manifest = plan_manifest(
        4,
        Storage.MLX_AFFINE4,
        experts=512,
        used=10,
        layers=geometry.shapes(AFFINE4),
        source=Source(1658, 1, bytes(32)),
    )
    write_expert_store(folder / "experts", manifest, QWEN4EXP, None)
    table = paged(QWEN4EXP_ROWS, raw_codec("assay-bf16", BF16, 160), 65536)
    last = table.page_count - 1
    write_ple_store(folder / "rows", table, _numbered, only_pages={0, last})
    with StoreFile.open(folder / "experts") as experts, StoreFile.open(folder / "rows") as rows:
        store = ExpertStore.open(experts.extent(), QWEN4EXP)
        found = PleStore.open(rows.extent(), table, table_budget=0)
        read = found.read_rows([320_001_535, 0])
        got: list[tuple[str, object, object]] = [
            ("expert store bytes", 67_947_737_088, experts.size),
            ("last component", (67_947_737_088 - 921_600, 921_600), store.locate(47, 511, 2)),
            ("rows", _numbered(320_001_535, 1) + _numbered(0, 1), read),
        ]
        measurements = {"expert_bytes": str(experts.size), "row_bytes": str(rows.size)}
    findings = _unequal(SIZE, "true size", got)
    shutil.rmtree(folder)
    return _result(findings, measurements)


def faults(context: GateContext) -> GateResult:
    """Injects one fault at a time into the publication of both stores."""
    findings: list[Finding] = []
    counts = {"injected": 0, "reported": 0, "survived": 0}
    for contract in (_Rows(), _Experts()):
        folder = _fresh(context, f"faults-{contract.name}")
        right, system = contract.clean(folder)
        for fault in contract.faults(system):
            counts["injected"] += 1
            try:
                error = contract.judge_fault(folder, fault, right, b"the old store")
            except AssertionError as wrong:
                findings.append(Finding.of(FAULTS, "faults", contract.name, expected="old or new", got=wrong))
                continue
            counts["survived" if error is None else "reported"] += 1
        shutil.rmtree(folder)
    return _result(findings, counts)


def expert_battery(context: GateContext) -> GateResult:
    """Changes every field and the payload of an expert store; each change must be found at its own clause."""
    return battery_result(expert_store.BATTERY.name, context)


def ple_battery(context: GateContext) -> GateResult:
    """Changes every field, digest and page of a row store; each change must be found at its own clause."""
    return battery_result(ple_store.BATTERY.name, context)


def bytes_battery(context: GateContext) -> GateResult:
    """Changes every byte of every manifest in turn; each change must be found."""
    return battery_result(store_bytes.BATTERY.name, context)


def affine4_layout(_context: GateContext) -> GateResult:
    """Decodes a block that was written by hand."""
    import numpy as np

    from assay.impl.stores.expert_major.affine4 import decode

    block = bytes(2 * k % 16 | (2 * k + 1) % 16 << 4 for k in range(32)) + b"\x00\x3f" + b"\x80\xbf"
    got = decode(np.frombuffer(block, dtype=np.uint8)).tolist()
    wanted = [0.5 * (one % 16) - 1.0 for one in range(64)]
    return _result(_unequal(AFFINE, "hand-written block", [("values", wanted, got)]), {"values": 64})


def affine4_bound(context: GateContext) -> GateResult:
    """Encodes and decodes random groups; no value may move by more than a step, BF16 scale rounding included."""
    import numpy as np

    from assay.impl.stores.expert_major.affine4 import decode, encode

    values = _bf16_values(context.seed)
    error = np.abs(decode(encode(values)) - values).reshape(-1, 64).max(axis=1)
    groups = values.reshape(-1, 64)
    step = (groups.max(axis=1) - groups.min(axis=1)) / 15
    worst = float((error / step).max())
    findings = (
        [] if worst <= 1.0 else [Finding.of(AFFINE, "affine4", "largest error", expected="a step", got=worst)]
    )
    return _result(findings, {"groups": len(groups), "worst_error_in_steps": worst})


def affine4_mlx(context: GateContext) -> GateResult:
    """Compares with mx.quantize and mx.dequantize, bit for bit, on this machine's default device."""
    import mlx.core as mx
    import numpy as np

    from assay.impl.stores.expert_major.affine4 import decode, encode, interleave

    values = _bf16_values(context.seed)
    weight, scales, biases = mx.quantize(mx.array(values).astype(mx.bfloat16), group_size=64, bits=4)
    theirs = interleave(np.array(weight), np.array(scales.view(mx.uint16)), np.array(biases.view(mx.uint16)))
    half = np.array(mx.dequantize(weight, scales, biases, group_size=64, bits=4).astype(mx.float32))
    scale, bias = (one.astype(mx.float32) for one in (scales, biases))
    wide = np.array(mx.dequantize(weight, scale, bias, group_size=64, bits=4))
    ours = encode(values)
    different = {
        "blocks": int((ours != theirs).sum()),
        "bf16 values": int((decode(ours, "bf16").view(np.uint32) != half.view(np.uint32)).sum()),
        "f32 values": int((decode(ours, "f32").view(np.uint32) != wide.view(np.uint32)).sum()),
    }
    findings = _unequal(AFFINE, "mlx", [(name, 0, count) for name, count in different.items()])
    return _result(
        findings, {"values": values.size, "device": str(mx.default_device()), "different": different}
    )


class _Rows(PublicationContract):
    name = "rows"

    def build(self, target: Path, system: Filesystem) -> None:
        samples.golden_ple(target, system)


class _Experts(PublicationContract):
    name = "experts"

    def build(self, target: Path, system: Filesystem) -> None:
        write_expert_store(
            target, samples.small_manifest(), samples.SMALL_FAMILY, samples.small_component, system
        )


def _bf16_values(seed: int) -> "NDArray[np.float32]":
    """Returns 4,096 groups of BF16 values of many scales, float32 [256, 1024]."""
    import numpy as np

    from assay.impl.stores.expert_major.affine4 import from_bf16, to_bf16

    rng = np.random.default_rng(seed)
    values = rng.standard_normal((256, 1024)) * 10.0 ** rng.integers(-6, 6, (256, 1))
    return from_bf16(to_bf16(values.astype(np.float32)))


def _numbered(first: int, count: int) -> bytes:
    return b"".join(row.to_bytes(8, "little").ljust(320, b"\x11") for row in range(first, first + count))


def _fresh(context: GateContext, name: str) -> Path:
    folder = context.out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _unequal(code: str, where: str, rows: list[tuple[str, object, object]]) -> list[Finding]:
    return [
        Finding.of(code, "stores", f"{where}: {name}", expected=wanted, got=got)
        for name, wanted, got in rows
        if wanted != got
    ]


def _result(findings: list[Finding], measurements: dict[str, Any]) -> GateResult:
    if findings:
        return GateResult(Outcome.FAIL, measurements, tuple(findings[:20]), findings[0].line)
    return GateResult(Outcome.PASS, measurements)
