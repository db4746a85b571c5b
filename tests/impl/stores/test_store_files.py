"""`assay validate` judges a single store file; private families only through the private seam."""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay.impl.stores.artifact.judge import judge_gguf_path
from assay.impl.stores.expert_major.blocks import AFFINE4, BF16
from assay.impl.stores.expert_major.families import QWEN4EXP
from assay.impl.stores.expert_major.layout import Source, Storage, plan_manifest
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.ple_rows import verify as ple_verify
from assay.impl.stores.ple_rows.layout import PleGeometry, unpack_ple_header
from assay.impl.stores.ple_rows.store import PleStore
from assay.impl.stores.ple_rows.tables import STRUCTURAL, derived_table, paged, raw_codec
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.impl.stores.store_files import judge_expert_file, judge_ple_file
from assay.mutations.store_samples import (
    SMALL_FAMILY,
    golden_ple,
    native_gguf,
    small_component,
    small_manifest,
)
from assay.provenance.cli import main
from assay.provenance.kinds import KINDS, judge_path
from assay.spec.errors import ContractError
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.verdicts import Verdict


def codes(judgement: Judgement) -> list[tuple[str, str]]:
    return [(one.code, one.where) for one in judgement.findings]


@pytest.fixture
def experts(tmp_path: Path) -> Path:
    write_expert_store(tmp_path / "small.experts", small_manifest(), SMALL_FAMILY, small_component)
    return tmp_path / "small.experts"


@pytest.fixture
def private_rows() -> PleGeometry:
    table = derived_table(family=0x80000005, profile="assay-rows-v1", base=5, heads=4, width=8, alignment=4)
    return paged(table, raw_codec("assay-bf16", BF16, 8), 4096)


def test_a_private_expert_store_is_refused_on_the_public_route(experts: Path) -> None:
    found = judge_expert_file(experts, JudgeOptions())
    assert (found.verdict, codes(found), found.is_private) == (
        Verdict.REJECTED,
        [("store.private", "family")],
        False,
    )


def test_a_private_expert_store_is_accepted_and_stamped_behind_the_seam(experts: Path) -> None:
    found = judge_expert_file(experts, JudgeOptions(is_private=True, with_payload=True))
    assert (found.verdict, found.is_private) == (Verdict.ACCEPTED, True)
    assert found.areas == {"manifest": Verdict.ACCEPTED, "payload": Verdict.ACCEPTED}


def test_a_payload_that_was_not_asked_for_is_said_to_be_unread(experts: Path) -> None:
    found = judge_expert_file(experts, JudgeOptions(is_private=True))
    assert any(text.startswith("payload") for text in found.not_checked)


def test_a_damaged_payload_is_found_when_asked_for(experts: Path) -> None:
    data = bytearray(experts.read_bytes())
    data[-1] ^= 1
    experts.write_bytes(data)
    assert judge_expert_file(experts, JudgeOptions(is_private=True)).verdict is Verdict.ACCEPTED
    found = judge_expert_file(experts, JudgeOptions(is_private=True, with_payload=True))
    assert codes(found) == [("expert-store.payload-digest", "payload_sha256")]


def test_the_public_family_4_is_accepted_by_its_manifest(tmp_path: Path) -> None:
    geometry = QWEN4EXP.geometry
    assert geometry is not None
    manifest = plan_manifest(
        4,
        Storage.MLX_AFFINE4,
        experts=512,
        used=10,
        layers=geometry.shapes(AFFINE4),
        source=Source(1658, 1, bytes(32)),
    )
    write_expert_store(tmp_path / "store", manifest, QWEN4EXP, None)
    found = judge_expert_file(tmp_path / "store", JudgeOptions())
    assert (found.verdict, found.facts["codecStatus"]) == (Verdict.ACCEPTED, "structural-only")


@pytest.mark.parametrize("number", [5, 0x7FFFFFFF])
def test_an_unknown_public_family_is_refused(tmp_path: Path, number: int) -> None:
    family = replace(SMALL_FAMILY, id=number)
    write_expert_store(tmp_path / "store", small_manifest(family), family, small_component)
    for options in (JudgeOptions(), JudgeOptions(is_private=True)):
        assert codes(judge_expert_file(tmp_path / "store", options)) == [("expert-store.family", "family")]


def test_a_row_store_of_another_table_is_not_the_public_one(tmp_path: Path) -> None:
    golden_ple(tmp_path / "rows")
    assert ("ple-store.table", "rows") in codes(
        judge_ple_file(tmp_path / "rows", JudgeOptions(is_private=True))
    )


def test_the_structural_row_store_is_accepted_by_its_manifest(tmp_path: Path) -> None:
    write_ple_store(tmp_path / "rows", STRUCTURAL, None)
    found = judge_ple_file(tmp_path / "rows", JudgeOptions())
    assert (found.verdict, found.facts["rows"]) == (Verdict.ACCEPTED, "320001536")


def test_a_private_row_store_needs_the_seam(tmp_path: Path, private_rows: PleGeometry) -> None:
    write_ple_store(tmp_path / "rows", private_rows, lambda _, count: bytes(16 * count))
    assert codes(judge_ple_file(tmp_path / "rows", JudgeOptions())) == [("store.private", "family")]
    found = judge_ple_file(tmp_path / "rows", JudgeOptions(is_private=True, with_payload=True))
    assert (found.verdict, found.is_private, found.facts["badPages"]) == (Verdict.ACCEPTED, True, 0)


def test_verification_resumes_with_the_pages_that_an_earlier_run_judged(
    tmp_path: Path, private_rows: PleGeometry, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ple_store(tmp_path / "rows", private_rows, lambda _, count: bytes(16 * count))
    with StoreFile.open(tmp_path / "rows") as file:
        store = PleStore.open(file.extent(), private_rows)
        manifest, identity = store.header.manifest_sha256.hex(), [str(one) for one in file.identity]
    state = tmp_path / "state"
    state.mkdir()
    options = JudgeOptions(is_private=True, with_payload=True, state=state)
    for stored, judged in ((identity, 0), (["another"], 1)):
        (state / f"pages-{manifest}.json").write_text(
            json.dumps({"manifest": manifest, "file": stored, "pages": private_rows.page_count})
        )
        found = judge_ple_file(tmp_path / "rows", options)
        assert (found.verdict, found.facts["pagesJudged"]) == (
            Verdict.ACCEPTED,
            judged * private_rows.page_count,
        )
        assert list(state.iterdir()) == []


def test_an_interrupted_verification_leaves_how_far_it_came(
    tmp_path: Path, private_rows: PleGeometry, monkeypatch: pytest.MonkeyPatch
) -> None:
    geometry = replace(private_rows, rows_per_page=1)
    write_ple_store(tmp_path / "rows", geometry, lambda _, count: bytes(16 * count))
    monkeypatch.setattr(ple_verify, "_RUN_BYTES", 4096)
    monkeypatch.setattr(ple_verify, "CHECKPOINT_BYTES", 4096)

    @contextlib.contextmanager
    def interrupted(_title: str, _total: int) -> Iterator[Callable[[int], None]]:
        seen = 0

        def advance(more: int) -> None:
            nonlocal seen
            seen += more
            if seen == 8 * 4096:
                raise KeyboardInterrupt

        yield advance

    options = JudgeOptions(is_private=True, with_payload=True, state=tmp_path / "state", progress=interrupted)
    with pytest.raises(KeyboardInterrupt):
        judge_ple_file(tmp_path / "rows", options)
    (left,) = (tmp_path / "state").iterdir()
    assert json.loads(left.read_bytes())["pages"] == 8
    found = judge_ple_file(tmp_path / "rows", replace(options, progress=None))
    assert (found.verdict, found.facts["pagesJudged"]) == (Verdict.ACCEPTED, geometry.page_count - 8)
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.parametrize("size", [0, 100, 511])
def test_a_file_shorter_than_a_header_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "short").write_bytes(bytes(size))
    assert codes(judge_ple_file(tmp_path / "short", JudgeOptions())) == [
        ("ple-store.size", str(tmp_path / "short"))
    ]
    if size < 256:
        assert codes(judge_expert_file(tmp_path / "short", JudgeOptions())) == [
            ("expert-store.size", str(tmp_path / "short"))
        ]


def test_a_gguf_of_good_structure_is_inconclusive_until_its_contract_is_judged(tmp_path: Path) -> None:
    found = judge_gguf_path(native_gguf(tmp_path, "deepseek4")[1], JudgeOptions())
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.areas == {
        "structure": Verdict.ACCEPTED,
        "expert_store": Verdict.ACCEPTED,
        "contract": Verdict.INCONCLUSIVE,
    }
    assert codes(found) == [("gguf.contract", "metadata and tensors")]


def test_a_gguf_of_bad_structure_is_rejected(tmp_path: Path) -> None:
    path = native_gguf(tmp_path, "deepseek4")[1]
    with path.open("ab") as file:
        file.write(bytes(32))
    assert codes(judge_gguf_path(path, JudgeOptions()))[0] == ("gguf.trailing", "file length")


@pytest.mark.parametrize(
    ("kind", "options", "exit_code"),
    [("gguf", [], 3), ("expert-store", [], 1), ("expert-store", ["--private"], 0), ("ple-store", [], 1)],
)
def test_the_command_recognises_each_store_by_its_first_bytes(
    kind: str, options: list[str], exit_code: int, experts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = experts.parent
    golden_ple(folder / "rows")
    paths = {
        "gguf": native_gguf(folder, "deepseek4")[1],
        "expert-store": experts,
        "ple-store": folder / "rows",
    }
    unnamed = folder / "unnamed"
    paths[kind].rename(unnamed)
    assert main(["validate", str(unnamed), "--format", "json", *options]) == exit_code
    printed = json.loads(capsys.readouterr().out)
    assert (printed["kind"], printed["seam"]) == (kind, "private" if options else None)
    assert kind in {one.name for one in KINDS}


@pytest.mark.parametrize("profile", ["qwen4exp-base-v1", "Qwen4Exp-x", "", "a\0b", "é"])
def test_a_private_row_store_under_a_name_that_confuses_is_neither_written_nor_accepted(
    tmp_path: Path, private_rows: PleGeometry, profile: str
) -> None:
    write_ple_store(tmp_path / "rows", private_rows, lambda _, count: bytes(16 * count))
    data = bytearray((tmp_path / "rows").read_bytes())
    assert data[24:37] == b"assay-rows-v1"
    data[24:56] = profile.encode().ljust(32, b"\0")
    (tmp_path / "rows").write_bytes(data)
    found = judge_ple_file(tmp_path / "rows", JudgeOptions(is_private=True))
    assert codes(found) == [("ple-store.names", "profile")]
    named = replace(private_rows, table=replace(private_rows.table, profile=profile))
    with pytest.raises(ContractError) as caught:
        write_ple_store(tmp_path / "other", named, lambda _, count: bytes(16 * count))
    assert (caught.value.finding.code, caught.value.finding.where) == ("ple-store.names", "profile")


@pytest.mark.parametrize("family", [-1, 0, 1 << 32])
def test_a_family_that_the_header_can_not_hold_is_refused(
    tmp_path: Path, private_rows: PleGeometry, family: int
) -> None:
    numbered = replace(private_rows, table=replace(private_rows.table, family=family))
    with pytest.raises(ContractError) as caught:
        write_ple_store(tmp_path / "rows", numbered, lambda _, count: bytes(16 * count))
    assert (caught.value.finding.code, caught.value.finding.where) == ("ple-store.names", "family")


def test_the_writer_refuses_a_codec_id_that_the_judge_would(
    tmp_path: Path, private_rows: PleGeometry
) -> None:
    odd = replace(private_rows, codec=replace(private_rows.codec, id="é"))
    with pytest.raises(ContractError) as caught:
        write_ple_store(tmp_path / "rows", odd, lambda _, count: bytes(16 * count))
    assert (caught.value.finding.code, caught.value.finding.where) == ("ple-store.codec", "codec.id")


def nine_pages(target: Path) -> tuple[str, list[str]]:
    """Writes a private row store of nine pages and returns its manifest digest and the identity of its file."""
    table = derived_table(family=0x80000005, profile="assay-rows-v1", base=500, heads=4, width=8, alignment=4)
    write_ple_store(
        target, paged(table, raw_codec("assay-bf16", BF16, 8), 4096), lambda _, count: bytes(16 * count)
    )
    with StoreFile.open(target) as file:
        header = unpack_ple_header(file.extent().read(0, 512))
        return header.manifest_sha256.hex(), [str(one) for one in file.identity]


@pytest.mark.parametrize("state", [b"[" * 200_000, b"9" * 5000, None])
def test_a_state_that_makes_no_sense_or_can_not_be_saved_costs_the_resumption_only(
    tmp_path: Path, state: bytes | None
) -> None:
    digest, _ = nine_pages(tmp_path / "rows")
    folder = tmp_path / "state"
    if state is None:
        folder.write_bytes(b"a plain file")
    else:
        folder.mkdir()
        (folder / f"pages-{digest}.json").write_bytes(state)
    found = judge_ple_file(tmp_path / "rows", JudgeOptions(is_private=True, with_payload=True, state=folder))
    assert (found.verdict, found.facts["pagesJudged"]) == (Verdict.ACCEPTED, 9)


@pytest.mark.parametrize("pages", [10, 1 << 70, True])
def test_a_state_of_more_pages_than_the_store_has_is_ignored(tmp_path: Path, pages: int) -> None:
    digest, identity = nine_pages(tmp_path / "rows")
    (tmp_path / f"pages-{digest}.json").write_text(
        json.dumps({"manifest": digest, "file": identity, "pages": pages})
    )
    found = judge_ple_file(
        tmp_path / "rows", JudgeOptions(is_private=True, with_payload=True, state=tmp_path)
    )
    assert found.facts["pagesJudged"] == 9


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs /proc")
def test_a_file_whose_reading_fails_is_a_finding() -> None:
    found = judge_path(Path("/proc/self/mem"), JudgeOptions())
    assert codes(found) == [("input.file.unreadable", "/proc/self/mem")]


@pytest.mark.parametrize(
    ("kind", "code"), [("expert-store", "expert-store.magic"), ("ple-store", "ple-store.magic")]
)
def test_another_kind_of_file_is_told_by_its_magic_whatever_else_it_holds(
    kind: str, code: str, tmp_path: Path
) -> None:
    """Where one kind has its family, the other may have a number that looks like a private one."""
    (tmp_path / "other").write_bytes(b"\xff" * 4096)
    for options in (JudgeOptions(), JudgeOptions(is_private=True, with_payload=True)):
        found = judge_path(tmp_path / "other", options, kind)
        assert (codes(found), found.verdict) == ([(code, "magic")], Verdict.REJECTED)


def test_a_store_that_says_it_has_no_payload_is_rejected_without_reading_the_hole(tmp_path: Path) -> None:
    write_ple_store(tmp_path / "rows", STRUCTURAL, None)
    manifest = plan_manifest(
        4, Storage.MLX_AFFINE4, experts=512, used=10, layers=QWEN4EXP.geometry.shapes(AFFINE4),
        source=Source(1658, 1, bytes(32)),
    )  # fmt: skip
    write_expert_store(tmp_path / "experts", manifest, QWEN4EXP, None)
    options = JudgeOptions(with_payload=True)
    for found, code in (
        (judge_ple_file(tmp_path / "rows", options), "ple-store.payload-digest"),
        (judge_expert_file(tmp_path / "experts", options), "expert-store.payload-digest"),
    ):
        assert (codes(found), found.verdict) == ([(code, "payload_sha256")], Verdict.REJECTED)
