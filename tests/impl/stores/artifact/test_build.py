"""Building: every byte of the source in its one place, in every spelling, and never a wrong file."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.impl.stores import target as target_module
from assay.impl.stores.artifact.build import Built, build_artifact
from assay.impl.stores.artifact.geometry import dense_shapes, read_geometry
from assay.impl.stores.artifact.judge import judge_gguf_path
from assay.impl.stores.artifact.opened import Artifact, NotAdmittedError
from assay.impl.stores.artifact.origin import BuildRefusedError
from assay.impl.stores.checkpoint.reader import CheckpointReader
from assay.impl.stores.checkpoint.writer import PlannedTensor
from assay.impl.stores.extents import Filesystem
from assay.impl.stores.publication import PublicationError, sweep
from assay.mutations.store_faults import (
    MUTATING,
    DyingSystem,
    Fault,
    FaultySystem,
    KilledError,
    PublicationContract,
    StoreObserver,
)
from assay.provenance.benchmarks.artifact import _write_source
from assay.provenance.captures.geometries import GEOMETRIES
from assay.spec.errors import AdmissionError, AssayError
from assay.spec.judgement import JudgeOptions
from assay.spec.verdicts import Verdict

from .conftest import as_is, as_saved, value_bytes, write_small

PRIVATE = JudgeOptions(is_private=True)
LAYERS = "model.language_model.layers."


@pytest.fixture(scope="module")
def built(miniature: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Built]:
    target = tmp_path_factory.mktemp("built") / "miniature.gguf"
    return target, build_artifact(miniature, target)


def codes(error: AssayError) -> list[tuple[str, str]]:
    findings = getattr(error, "findings", (error.finding,))
    return [(one.code, one.where) for one in findings]


def test_the_miniature_is_admitted_through_the_private_seam_only(built: tuple[Path, Built]) -> None:
    assert judge_gguf_path(built[0], PRIVATE).verdict is Verdict.ACCEPTED
    public = judge_gguf_path(built[0], JudgeOptions())
    assert [(one.code, one.stage, one.where) for one in public.faults] == [
        ("profile.private", "identity", "ds4.model.profile_id")
    ]


def test_its_report_claims_neither_runtime_nor_payload(built: tuple[Path, Built]) -> None:
    report = judge_gguf_path(built[0], PRIVATE).facts["ownership"]
    assert (report["admitted"], report["runtimeSupported"], report["payloadVerified"]) == (True, False, False)
    assert (report["denseTensors"], report["profileId"]) == (187, "assay-miniature-v1")


def test_every_dense_tensor_keeps_its_bits(built: tuple[Path, Built], miniature: Path) -> None:
    reader = CheckpointReader.open(miniature)
    with Artifact.open(built[0], is_private=True) as artifact:
        assert len(artifact.names) == 187
        for name in artifact.names:
            dtype, shape, extent = artifact.dense(name)
            assert (dtype, shape) == ("BF16", reader.rows[name].shape)
            assert extent.read(0, extent.size) == reader.read(name)


def test_gate_is_the_first_half_of_the_fused_rows_and_up_the_second(
    built: tuple[Path, Built], miniature: Path
) -> None:
    reader = CheckpointReader.open(miniature)
    half = 64 * 64 * 2
    with Artifact.open(built[0], is_private=True) as artifact:
        for layer, expert in ((0, 0), (7, 15), (3, 9)):
            fused = reader.read(f"{LAYERS}{layer}.mlp.experts.gate_up_proj")
            down = reader.read(f"{LAYERS}{layer}.mlp.experts.down_proj")
            record = artifact.experts.read_record(layer, expert)
            start = expert * 2 * half
            assert record.component(0) == fused[start : start + half]
            assert record.component(1) == fused[start + half : start + 2 * half]
            assert record.component(2) == down[expert * half : (expert + 1) * half]


def test_rows_come_from_the_parts_in_the_order_of_their_numbers(
    built: tuple[Path, Built], miniature: Path
) -> None:
    reader = CheckpointReader.open(miniature)
    stem = f"{LAYERS}1.ple.ple_embedding.ngram_embedding.shard_"
    table = b"".join(reader.read(f"{stem}{part}.weight") for part in range(4))
    with Artifact.open(built[0], is_private=True) as artifact:
        assert artifact.rows.read_rows(list(range(8864))) == table


def test_both_payloads_are_verified_when_asked(built: tuple[Path, Built]) -> None:
    found = judge_gguf_path(built[0], JudgeOptions(is_private=True, with_payload=True))
    assert (found.areas["payload"], found.verdict) == (Verdict.ACCEPTED, Verdict.ACCEPTED)


def test_every_byte_of_both_payloads_is_shown_as_progress(built: tuple[Path, Built]) -> None:
    shown: list[tuple[str, int]] = []
    advances: list[int] = []

    @contextmanager
    def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
        shown.append((title, total))
        yield advances.append

    judge_gguf_path(built[0], JudgeOptions(is_private=True, with_payload=True, progress=progress))
    assert shown == [("payload", sum(advances))]
    assert sum(advances) > 3_000_000


def test_one_changed_payload_byte_is_found_by_the_payload_check_only(
    built: tuple[Path, Built], tmp_path: Path
) -> None:
    data = bytearray(built[0].read_bytes())
    data[-5000] ^= 1
    path = tmp_path / "changed.gguf"
    path.write_bytes(data)
    assert judge_gguf_path(path, PRIVATE).verdict is Verdict.ACCEPTED
    found = judge_gguf_path(path, JudgeOptions(is_private=True, with_payload=True))
    assert "ple-store.page.digest" in {one.code for one in found.faults}


def test_every_source_tensor_has_exactly_one_destination(built: tuple[Path, Built], miniature: Path) -> None:
    lines = built[1].report["destinations"]
    assert sorted(line["source"] for line in lines) == sorted(CheckpointReader.open(miniature).rows)
    assert sum(line["bytes"] for line in lines) == 4_333_288


def test_building_twice_gives_the_same_bytes(
    built: tuple[Path, Built], miniature: Path, tmp_path: Path
) -> None:
    build_artifact(miniature, tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == built[0].read_bytes()


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize(
    ("spell", "parts"), [(as_is, 4), (as_saved, 4), (as_saved, 1), (as_saved, 7)], ids=str
)
def test_every_spelling_of_a_checkpoint_gives_its_own_bytes(
    spell: object, parts: int, dtype: str, tmp_path: Path
) -> None:
    folder = write_small(tmp_path / "source", spell=spell, parts=parts, dtype=dtype)  # type: ignore[arg-type]
    build_artifact(folder, tmp_path / "small.gguf")
    size = 4 if dtype == "F32" else 2
    with Artifact.open(tmp_path / "small.gguf", is_private=True) as artifact:
        name = f"{LAYERS}2.mlp.gate.weight"
        kind, shape, extent = artifact.dense(name)
        source = as_saved(name, shape, dtype)[0] if spell is as_saved else PlannedTensor(name, dtype, shape)
        assert (kind, shape) == (dtype, (12, 24))
        assert extent.read(0, extent.size) == value_bytes(source)
        record = artifact.experts.read_record(1, 11)
        if spell is as_saved:
            up = PlannedTensor("model.layers.1.mlp.experts.11.up_proj.weight", dtype, (10, 24))
            assert record.component(1) == value_bytes(up)
        else:
            fused = value_bytes(PlannedTensor(f"{LAYERS}1.mlp.experts.gate_up_proj", dtype, (12, 20, 24)))
            assert record.component(1) == fused[(11 * 20 + 10) * 24 * size : 12 * 20 * 24 * size]
        assert artifact.descriptor.profile_id.startswith("assay-private-")


def test_a_text_only_configuration_is_kept_whole(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "source")
    build_artifact(folder, tmp_path / "small.gguf")
    with Artifact.open(tmp_path / "small.gguf", is_private=True) as artifact:
        assert artifact.config["hidden_size"] == 24
        assert artifact.config["layer_types"][3] == "full_attention"


def test_without_a_codec_no_bit_is_quantised_and_with_one_the_file_says_so(
    miniature: Path, tmp_path: Path
) -> None:
    made = build_artifact(miniature, tmp_path / "four.gguf", codec="mlx-affine4")
    assert made.descriptor.physical_profile_id == "assay-physical-mlx-affine4-bf16-v1"
    with Artifact.open(tmp_path / "four.gguf", is_private=True) as artifact:
        assert artifact.experts.manifest.header.storage == 1
        assert artifact.experts.manifest.layers[0].record_bytes == 3 * 64 * 36


@pytest.mark.parametrize(
    ("dtype", "codec", "got"),
    [
        ("F32", "mlx-affine4", "F32"),
        ("F32", "bf16", "bf16"),
        ("BF16", "f32", "f32"),
        ("BF16", "q4_k", "q4_k"),
        ("BF16", "", "''"),
        ("BF16", "MLX-AFFINE4", "MLX-AFFINE4"),
    ],
)
def test_a_codec_that_would_change_values_unasked_is_refused(
    dtype: str, codec: str, got: str, tmp_path: Path
) -> None:
    folder = write_small(tmp_path / "source", dtype=dtype)
    with pytest.raises(AdmissionError) as caught:
        build_artifact(folder, tmp_path / "small.gguf", codec=codec)
    assert (caught.value.finding.code, caught.value.finding.where) == ("build.codec", "codec")
    assert caught.value.finding.got == got
    assert not (tmp_path / "small.gguf").exists()


def test_a_codec_whose_groups_do_not_cover_a_row_is_refused_with_the_numbers(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "source", dtype="BF16")
    with pytest.raises(AssayError, match="multiple of 64") as caught:
        build_artifact(folder, tmp_path / "small.gguf", codec="mlx-affine4")
    assert (caught.value.finding.code, caught.value.finding.where) == ("codec.blocks.cover", "layer 0 gate")


@pytest.mark.parametrize("page_bytes", [-4096, 0, 4095, 12288, 1 << 25])
def test_a_page_size_that_is_no_power_of_two_is_refused(
    miniature: Path, page_bytes: int, tmp_path: Path
) -> None:
    with pytest.raises(AdmissionError) as caught:
        build_artifact(miniature, tmp_path / "x.gguf", page_bytes=page_bytes)
    assert (caught.value.finding.code, caught.value.finding.where) == ("build.codec", "page bytes")


def edit(name: str, **fields: object) -> object:
    """Returns a change of the tensor of this name."""

    def change(tensors: list[PlannedTensor]) -> None:
        place = next(index for index, one in enumerate(tensors) if one.name.endswith(name))
        old = tensors[place]
        values = {"name": old.name, "dtype": old.dtype, "shape": old.shape, **fields}
        tensors[place] = PlannedTensor(**values)  # type: ignore[arg-type]

    return change


def drop(name: str) -> object:
    def change(tensors: list[PlannedTensor]) -> None:
        tensors[:] = [one for one in tensors if not one.name.endswith(name)]

    return change


def add(name: str, shape: tuple[int, ...] = (4,), dtype: str = "F32") -> object:
    return lambda tensors: tensors.append(PlannedTensor(name, dtype, shape))


SHARD_2 = "model-00002-of-00002.safetensors"
WRONG_SOURCES = [
    (drop("layers.0.mlp.gate.weight"), "build.source.missing", f"{LAYERS}0.mlp.gate.weight"),
    (drop("layers.2.mlp.experts.down_proj"), "build.source.missing", f"{LAYERS}2.mlp.experts.down_proj"),
    (drop("shard_2.weight"), "build.source.missing",
     f"{LAYERS}1.ple.ple_embedding.ngram_embedding.shard_2.weight"),
    (drop("layer_multipliers"), "build.source.missing", f"{LAYERS}1.ple.ple_embedding.layer_multipliers"),
    (add("model.language_model.norm.weight"), "build.source.unexpected",
     f"{SHARD_2}: model.language_model.norm.weight"),
    (add(f"{LAYERS}9.mlp.experts.0.up_proj.weight"), "build.source.unexpected",
     f"{SHARD_2}: {LAYERS}9.mlp.experts.0.up_proj.weight"),
    (add("model.layers.0.mlp.gate.weight"), "build.source.twice", f"{LAYERS}0.mlp.gate.weight"),
    (add(f"{LAYERS}0.mlp.experts.0.up_proj.weight"), "build.source.twice", f"{LAYERS}0.mlp.experts.gate_up_proj"),
    (edit("layers.3.self_attn.q_proj.weight", shape=(24, 128)), "build.source.shape",
     f"{SHARD_2}: {LAYERS}3.self_attn.q_proj.weight"),
    (edit("layers.3.self_attn.q_proj.weight", dtype="F64"), "build.source.dtype",
     f"{SHARD_2}: {LAYERS}3.self_attn.q_proj.weight"),
    (edit("layers.1.mlp.experts.down_proj", dtype="BF16"), "build.source.mixed", "experts"),
    (edit("shard_1.weight", dtype="BF16"), "build.source.mixed", "rows"),
    (edit("shard_1.weight", shape=(100, 2)), "build.source.shape",
     f"{LAYERS}1.ple.ple_embedding.ngram_embedding.*"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "code", "where"), WRONG_SOURCES, ids=lambda one: str(one)[:40])
def test_a_source_that_does_not_fit_is_refused_by_name(
    change: object, code: str, where: str, tmp_path: Path
) -> None:
    folder = write_small(tmp_path / "source", change=change)  # type: ignore[arg-type]
    with pytest.raises(BuildRefusedError) as caught:
        build_artifact(folder, tmp_path / "small.gguf")
    named = [
        (one, place.removeprefix("model-00001-of-00002.safetensors: ")) for one, place in codes(caught.value)
    ]
    assert (code, where) in named or (code, where.removeprefix(f"{SHARD_2}: ")) in named
    assert not list(tmp_path.glob("*small*"))


def test_all_findings_of_a_source_come_at_once(tmp_path: Path) -> None:
    def change(tensors: list[PlannedTensor]) -> None:
        del tensors[3:6]
        tensors.append(PlannedTensor("odd.weight", "F32", (3,)))

    folder = write_small(tmp_path / "source", change=change)
    with pytest.raises(BuildRefusedError) as caught:
        build_artifact(folder, tmp_path / "small.gguf")
    assert len(caught.value.findings) == 4


def test_hash_buffers_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "source")
    reader = CheckpointReader.open(folder)
    name = f"{LAYERS}1.ple.ple_embedding.layer_multipliers"
    row = reader.rows[name]
    path = folder / row.shard
    data = bytearray(path.read_bytes())
    start = 8 + struct.unpack("<Q", data[:8])[0] + row.begin
    data[start] ^= 2
    path.write_bytes(data)
    with pytest.raises(AdmissionError) as caught:
        build_artifact(folder, tmp_path / "small.gguf")
    assert (caught.value.finding.code, caught.value.finding.where) == ("build.hash-buffers", name)


def test_an_existing_target_stays_unless_its_replacement_is_asked_for(
    miniature: Path, tmp_path: Path
) -> None:
    target = tmp_path / "x.gguf"
    target.write_bytes(b"old")
    with pytest.raises(AdmissionError) as caught:
        build_artifact(miniature, target)
    assert (caught.value.finding.code, caught.value.finding.where) == ("build.target", str(target))
    assert target.read_bytes() == b"old"
    build_artifact(miniature, target, replace=True)
    assert judge_gguf_path(target, PRIVATE).verdict is Verdict.ACCEPTED


def test_a_shard_is_never_its_own_target(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "source")
    shard = folder / SHARD_2
    before = shard.read_bytes()
    with pytest.raises(AdmissionError) as caught:
        build_artifact(folder, shard, replace=True)
    assert (caught.value.finding.code, caught.value.finding.got) == ("build.target", "a file of the source")
    assert shard.read_bytes() == before


def test_a_full_disk_is_said_before_anything_is_written(
    miniature: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        free = 1000

    monkeypatch.setattr(target_module.shutil, "disk_usage", lambda _: Full())
    with pytest.raises(AdmissionError) as caught:
        build_artifact(miniature, tmp_path / "x.gguf")
    assert (caught.value.finding.code, caught.value.finding.got) == ("build.space", "1000 bytes free")
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - the system's own call


def test_a_private_artifact_is_opened_through_the_seam_only(built: tuple[Path, Built]) -> None:
    with pytest.raises(NotAdmittedError) as caught:
        Artifact.open(built[0], is_private=False)
    assert (caught.value.finding.code, caught.value.report["admitted"]) == ("profile.private", False)


class LastingBuild(PublicationContract):
    """Building as a publication that faults are injected into."""

    name = "small.gguf"

    def __init__(self, source: Path) -> None:
        self.source = source

    def build(self, target: Path, system: Filesystem) -> None:
        build_artifact(self.source, target, replace=True, system=system)


KINDS = {
    "open": ("error:EACCES",),
    "truncate": ("error:ENOSPC",),
    "pwrite": ("error:ENOSPC", "short", "lie"),
    "pread": ("error:EIO", "short", "lie"),
    "sync": ("error:EIO", "interrupt"),
    "sync_directory": ("error:EIO",),
    "rename": ("error:EACCES",),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("small") / "source")


@pytest.mark.slow
@pytest.mark.parametrize("call", KINDS)
def test_no_fault_leaves_a_wrong_or_half_file(call: str, small: Path, tmp_path: Path) -> None:
    contract = LastingBuild(small)
    right, system = contract.clean(tmp_path)
    count = system.count(call)
    for kind in KINDS[call]:
        for nth in sorted({0, count // 3, count // 2, count - 1} & set(range(count))):
            contract.judge_fault(tmp_path, Fault(call, nth, kind), right, b"the old file")


@pytest.mark.parametrize("is_replacing", [True, False])
def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(
    is_replacing: bool, small: Path, tmp_path: Path
) -> None:
    """Dies before every call that changes the disk and before some of the others; before the next is after this one."""
    target, seen = tmp_path / "small.gguf", StoreObserver(tmp_path)
    clean = FaultySystem()
    build_artifact(small, target, replace=True, system=clean)
    right = seen.data("small.gguf")
    if not is_replacing:
        target.unlink()
        clean = FaultySystem()
        build_artifact(small, target, system=clean)
    calls = clean.calls
    commit = calls.index("rename" if is_replacing else "link")
    steps = [nth for nth, call in enumerate(calls) if call in MUTATING or nth % 24 == 0 or nth > commit - 3]
    assert len(steps) > 150
    old = {"small.gguf": b"the old file"} if is_replacing else {}
    for nth in steps:
        target.unlink(missing_ok=True)
        for name, data in old.items():
            (tmp_path / name).write_bytes(data)
        with pytest.raises(KilledError):
            build_artifact(small, target, replace=is_replacing, system=DyingSystem(nth))
        wanted = {"small.gguf": right} if nth > commit else old
        assert {name: seen.data(name) for name in seen.names() if name[0] != "."} == wanted, (nth, calls[nth])
        assert len(seen.names()) - len(wanted) <= 1, (nth, calls[nth])
        sweep(target)
        assert seen.names() == set(wanted), (nth, calls[nth])
    build_artifact(small, target, replace=True)
    assert (seen.names(), seen.data("small.gguf")) == ({"small.gguf"}, right)


def test_a_file_that_appears_while_a_build_runs_is_not_replaced_unasked(small: Path, tmp_path: Path) -> None:
    target = tmp_path / "small.gguf"

    def told(what: str, done: int, total: int) -> None:
        if (what, done) == ("compare", total):
            target.write_bytes(b"another build's")

    with pytest.raises(PublicationError) as caught:
        build_artifact(small, target, progress=told)
    assert (caught.value.finding.code, caught.value.finding.got) == ("publish.rename", "File exists")
    assert StoreObserver(tmp_path).names() == {"small.gguf"}
    assert target.read_bytes() == b"another build's"


def test_every_step_is_told_to_its_last_byte(small: Path, tmp_path: Path) -> None:
    told: dict[str, list[tuple[int, int]]] = {}
    build_artifact(
        small, tmp_path / "x.gguf", progress=lambda what, done, total: told.setdefault(what, []).append((done, total))
    )  # fmt: skip
    assert list(told) == ["build", "verify", "compare"]
    assert all(steps[0][0] == 0 and steps[-1][0] == steps[-1][1] > 0 for steps in told.values())
    assert all(steps == sorted(steps) for steps in told.values())


def test_what_a_killed_build_left_does_not_count_as_a_full_disk(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / ".small.gguf.assay-0123456789ab.tmp"
    left.write_bytes(b"half")

    class Usage:
        free = property(lambda _: 0 if left.exists() else 1 << 40)

    monkeypatch.setattr(target_module.shutil, "disk_usage", lambda _: Usage())
    build_artifact(small, tmp_path / "small.gguf")
    assert StoreObserver(tmp_path).names() == {"small.gguf"}


@pytest.mark.parametrize("kind", ["fifo", "folder", "socket"])
def test_only_a_file_is_ever_replaced(kind: str, small: Path, tmp_path: Path) -> None:
    target = tmp_path / "x"
    if kind == "fifo":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(target))
    before = target.lstat()
    with pytest.raises(AdmissionError) as caught:
        build_artifact(small, target, replace=True)
    words = "a folder" if kind == "folder" else "a pipe, socket or device"
    assert (caught.value.finding.code, caught.value.finding.got) == ("build.target", words)
    assert target.lstat() == before


def test_a_link_that_leads_nowhere_is_not_replaced_unasked(small: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.gguf"
    target.symlink_to("nowhere")
    with pytest.raises(AdmissionError) as caught:
        build_artifact(small, target)
    assert (caught.value.finding.code, caught.value.finding.where) == ("build.target", str(target))
    assert target.is_symlink()


def test_replacing_a_link_leaves_what_it_leads_to(small: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"theirs")
    target = tmp_path / "x.gguf"
    target.symlink_to("theirs")
    build_artifact(small, target, replace=True)
    assert ((tmp_path / "theirs").read_bytes(), target.is_symlink()) == (b"theirs", False)


@pytest.mark.parametrize("kind", ["fifo", "folder", "dangling"])
def test_a_tokenizer_that_can_not_be_read_is_not_taken_for_none(kind: str, tmp_path: Path) -> None:
    folder = write_small(tmp_path / "source")
    path = folder / "tokenizer.json"
    code = {
        "fifo": "input.file.irregular",
        "folder": "input.file.directory",
        "dangling": "input.file.missing",
    }
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    with pytest.raises(AssayError) as caught:
        build_artifact(folder, tmp_path / "x.gguf")
    assert (caught.value.finding.code, caught.value.finding.where) == (code[kind], "tokenizer.json")
    assert not (tmp_path / "x.gguf").exists()


def test_a_value_that_a_codec_can_not_hold_is_named_by_its_component(miniature: Path, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    shutil.copytree(miniature, folder)
    row = CheckpointReader.open(folder).rows[f"{LAYERS}2.mlp.experts.down_proj"]
    path = folder / row.shard
    with path.open("r+b") as file:
        head = 8 + struct.unpack("<Q", file.read(8))[0]
        file.seek(head + row.begin + 5 * 64 * 64 * 2)  # the sixth of 16 experts of 64 x 64 BF16 values
        file.write(b"\xc0\x7f")
    with pytest.raises(AdmissionError) as caught:
        build_artifact(folder, tmp_path / "x.gguf", codec="mlx-affine4")
    assert (caught.value.finding.code, caught.value.finding.where) == ("build.codec", "layer 2 down expert 5")
    assert os.listdir(tmp_path) == ["source"]  # noqa: PTH208 - the system's own call


def test_what_is_not_finite_keeps_its_bits_without_a_codec(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "source")
    name = f"{LAYERS}2.mlp.gate.weight"
    row = CheckpointReader.open(folder).rows[name]
    path = folder / row.shard
    with path.open("r+b") as file:
        head = 8 + struct.unpack("<Q", file.read(8))[0]
        file.seek(head + row.begin)
        file.write(struct.pack("<II", 0x7FA00001, 0xFF800000))  # a signalling NaN, minus infinity
    build_artifact(folder, tmp_path / "x.gguf")
    with Artifact.open(tmp_path / "x.gguf", is_private=True) as artifact:
        assert artifact.dense(name)[2].read(0, 8) == struct.pack("<II", 0x7FA00001, 0xFF800000)


@pytest.mark.parametrize(("at_top", "in_text"), [(True, False), (False, True), (True, True), (False, False)])
def test_the_top_of_a_configuration_decides_whether_the_head_is_stored(at_top: bool, in_text: bool) -> None:
    """As upstream saves them: a head that only the inner object calls tied is stored, one that the top does is not."""
    text = {**GEOMETRIES["small"], "tie_word_embeddings": in_text}
    shapes = dense_shapes(read_geometry({"tie_word_embeddings": at_top, "text_config": text}))
    assert ("lm_head.weight" in shapes) is not at_top


# Code and not a function of this module: an interpreter of its own can't import tests.
BUILD_SLOWLY = """
import sys, time
from pathlib import Path
from assay.impl.stores.artifact.build import build_artifact

def told(what, done, _total):
    print(what, done, flush=True)
    time.sleep(0.002)

build_artifact(Path(sys.argv[1]), Path(sys.argv[2]), replace=True, progress=told)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", [("build", 1), ("build", 250_000), ("verify", 1), ("compare", 1), ("compare", 250_000)]
)
def test_a_true_kill_leaves_the_old_file_and_the_next_build_cleans_up(
    moment: tuple[str, int], small: Path, tmp_path: Path
) -> None:
    target = tmp_path / "small.gguf"
    target.write_bytes(b"the old file")
    child = subprocess.Popen(
        [sys.executable, "-c", BUILD_SLOWLY, str(small), str(target)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child, child.stdout:
        told = (line.split() for line in child.stdout)
        reached = any(what == moment[0] and int(done) >= moment[1] for what, done in told)
        child.kill()
    assert (reached, child.returncode) == (True, -signal.SIGKILL)
    assert target.read_bytes() == b"the old file"
    build_artifact(small, target, replace=True)
    assert (
        judge_gguf_path(target, JudgeOptions(is_private=True, with_payload=True)).verdict is Verdict.ACCEPTED
    )
    assert os.listdir(tmp_path) == ["small.gguf"]  # noqa: PTH208 - the killed build's temporary file is gone


def test_a_publication_error_names_its_step(miniature: Path, tmp_path: Path) -> None:
    with pytest.raises(PublicationError) as caught:
        build_artifact(miniature, tmp_path / "absent" / "x.gguf")
    assert (caught.value.finding.code, caught.value.finding.where) == ("publish.create", "x.gguf")


@pytest.mark.slow
def test_memory_holds_a_few_records_and_not_the_model(tmp_path: Path) -> None:
    """Records of 3.75 MiB: the whole is many times what is ever held."""
    size = _write_source(tmp_path / "source", 96)
    tracemalloc.start()
    build_artifact(tmp_path / "source", tmp_path / "built.gguf")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 96 << 20
    assert peak < 9 * (15 << 18)
