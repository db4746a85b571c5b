"""A GGUF file that is no artifact is told what it is, area by area, and rejected only for its real reasons."""

from pathlib import Path

import pytest

from assay.impl.stores.artifact.descriptor import PLE_TENSOR
from assay.impl.stores.artifact.judge import judge_gguf_path
from assay.impl.stores.artifact.opened import Artifact, StructuralOnlyError
from assay.impl.stores.artifact.structural import write_structural
from assay.impl.stores.expert_major.blocks import BF16, Block
from assay.impl.stores.gguf.reader import Entry
from assay.impl.stores.gguf.values import ValueType, array, scalar
from assay.impl.stores.gguf.writer import Planned, plan_gguf, write_gguf
from assay.impl.stores.ple_rows.tables import derived_table, paged, raw_codec
from assay.impl.stores.ple_rows.writer import write_ple_store
from assay.mutations.store_samples import canonical_gguf, native_gguf
from assay.provenance.cli import main
from assay.spec.errors import AdmissionError
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.verdicts import Verdict

U32, STRING, F32 = ValueType.UINT32, ValueType.STRING, ValueType.FLOAT32


def write(path: Path, entries: list[Entry], tensors: list[Planned]) -> Path:
    write_gguf(path, plan_gguf(entries, tensors), lambda *_: None)
    return path


def llama_cpp(path: Path, *, blocks: int = 48, embedding: int = 2560, architecture: str = "qwen4exp") -> Path:
    """A file as llama.cpp would convert this family, with its standard keys and a few standard tensors."""
    entries = [
        Entry("general.architecture", scalar(STRING, architecture)),
        Entry(f"{architecture}.block_count", scalar(U32, blocks)),
        Entry(f"{architecture}.embedding_length", scalar(U32, embedding)),
        Entry(f"{architecture}.rope.freq_base", scalar(F32, 10_000_000.0)),
        Entry("tokenizer.ggml.tokens", array(STRING, [f"t{one}" for one in range(64)])),
    ]
    return write(path, entries, [Planned("token_embd.weight", (2560, 248320), 30)])


def named(found: Judgement) -> list[tuple[str, str]]:
    return [(one.code, one.where) for one in found.faults]


def test_a_llama_cpp_conversion_is_recognised_and_judged_area_by_area(tmp_path: Path) -> None:
    found = judge_gguf_path(llama_cpp(tmp_path / "q.gguf"), JudgeOptions())
    assert found.facts["conversion"] == "a llama.cpp GGUF conversion of this family"
    assert {name: verdict.value for name, verdict in found.areas.items()} == {
        "identity": "inconclusive",
        "headers": "accepted",
        "config": "inconclusive",
        "hash": "inconclusive",
        "inventory": "inconclusive",
        "tokenizer": "rejected",
    }
    assert named(found) == [("foreign.gguf.tokens", "tokenizer.ggml.tokens")]


def test_a_conversion_of_another_size_is_rejected_for_its_sizes(tmp_path: Path) -> None:
    found = judge_gguf_path(llama_cpp(tmp_path / "q.gguf", blocks=40, embedding=2048), JudgeOptions())
    assert [pair for pair in named(found) if pair[0] == "foreign.gguf.key"] == [
        ("foreign.gguf.key", "qwen4exp.block_count"),
        ("foreign.gguf.key", "qwen4exp.embedding_length"),
    ]


@pytest.mark.parametrize("architecture", ["llama", "qwen4", "qwen3.8-flash", "Qwen4Exp"])
def test_another_model_is_one_finding_and_not_a_thousand(architecture: str, tmp_path: Path) -> None:
    found = judge_gguf_path(llama_cpp(tmp_path / "q.gguf", architecture=architecture), JudgeOptions())
    assert named(found) == [("foreign.gguf.architecture", "general.architecture")]
    assert found.facts["types"] == {"BF16": 1}
    assert found.not_checked == ["configuration, tensors and tokenizer: nothing here knows that model"]


def test_a_file_without_an_architecture_stays_open(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", [Entry("a", scalar(U32, 1))], [Planned("t", (32,), 0)])
    found = judge_gguf_path(path, JudgeOptions())
    assert (found.verdict, found.areas["identity"]) == (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)


def test_a_canonical_file_of_a_routed_family_is_named_as_one_to_repack(tmp_path: Path) -> None:
    canonical_gguf(tmp_path / "d.gguf", "deepseek4")
    found = judge_gguf_path(tmp_path / "d.gguf", JudgeOptions())
    assert (found.verdict, found.facts["conversion"]) == (
        Verdict.INCONCLUSIVE,
        "a canonical file of family 1, DEEPSEEK4",
    )
    assert "`assay build` repacks them" in found.not_checked[0]


def test_a_native_file_has_its_expert_store_judged(tmp_path: Path) -> None:
    path = native_gguf(tmp_path, "qwen35moe")[1]
    found = judge_gguf_path(path, JudgeOptions())
    assert (found.areas["expert_store"], found.facts["conversion"]) == (
        Verdict.ACCEPTED,
        "a native file of family 3, QWEN35_MOE",
    )
    data = bytearray(path.read_bytes())
    data[data.index(b"DS4EXPV2") + 168] ^= 1
    path.write_bytes(data)
    assert named(judge_gguf_path(path, JudgeOptions())) == [
        ("expert-store.manifest-digest", "manifest_sha256")
    ]


def test_a_structural_fixture_computes_nothing_even_through_the_seam(tmp_path: Path) -> None:
    write_structural(tmp_path / "s.gguf")
    with pytest.raises(StructuralOnlyError, match="structural admission-only") as caught:
        Artifact.open(tmp_path / "s.gguf", is_private=True)
    assert caught.value.finding.code == "artifact.structural-only"
    assert (caught.value.report["admitted"], caught.value.report["runtimeSupported"]) == (True, False)


def test_a_file_of_another_project_is_no_artifact_to_open(tmp_path: Path) -> None:
    path = llama_cpp(tmp_path / "q.gguf")
    with pytest.raises(AdmissionError) as caught:
        Artifact.open(path, is_private=True)
    assert (caught.value.finding.code, caught.value.finding.where) == ("artifact.kind", str(path))


def test_the_payload_of_a_structural_fixture_stays_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_structural(tmp_path / "s.gguf")
    code = main(["validate", "--private", "--payload", "--format", "json", str(tmp_path / "s.gguf")])
    assert code == 3
    assert '"artifact.no-payload"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (300, ("expert-store.manifest-digest", "manifest_sha256")),
        (-1, ("expert-store.payload-digest", "payload_sha256")),
    ],
)
def test_the_payload_of_a_store_inside_a_native_file_is_judged_when_asked_for(
    place: int, expected: tuple[str, str], tmp_path: Path
) -> None:
    _, native = native_gguf(tmp_path, "deepseek4")
    data = bytearray(native.read_bytes())
    data[place if place < 0 else data.index(b"DS4EXPV2") + place] ^= 1
    native.write_bytes(data)
    found = judge_gguf_path(native, JudgeOptions(with_payload=True))
    assert expected in named(found)


def test_a_row_store_inside_another_model_is_judged_too(tmp_path: Path) -> None:
    table = derived_table(family=0x80000005, profile="assay-rows-v1", base=500, heads=4, width=8, alignment=4)
    geometry = paged(table, raw_codec("assay-bf16", BF16, 8), 4096)
    write_ple_store(tmp_path / "rows", geometry, lambda _, count: bytes(16 * count))
    rows = bytearray((tmp_path / "rows").read_bytes())
    rows[-4096 + 70] ^= 1
    planned = [Planned(PLE_TENSOR, (len(rows),), 24, page=4096)]
    plan = plan_gguf([Entry("general.architecture", scalar(ValueType.STRING, "llama"))], planned)
    write_gguf(tmp_path / "x.gguf", plan, lambda draft, _, start: draft.write(start, rows))
    unread = judge_gguf_path(tmp_path / "x.gguf", JudgeOptions(is_private=True))
    assert any(text.startswith("payload") for text in unread.not_checked)
    found = judge_gguf_path(tmp_path / "x.gguf", JudgeOptions(is_private=True, with_payload=True))
    assert ("ple-store.page.digest", "pages[8]") in named(found)
    assert found.areas[f"{PLE_TENSOR} payload"] is Verdict.REJECTED


@pytest.mark.parametrize(
    ("architecture", "area", "verdict"),
    [("qwen4exp", "headers", "inconclusive"), ("llama", "structure", "rejected")],
)
def test_a_type_that_is_newer_than_the_table_here_is_no_fault_of_the_file(
    architecture: str, area: str, verdict: str, tmp_path: Path
) -> None:
    entries = [Entry("general.architecture", scalar(STRING, architecture))]
    newer = {200: Block(200, "newer", 32, 18)}
    plan = plan_gguf(entries, [Planned("odd.weight", (32, 4), 200)], blocks=newer)
    path = tmp_path / "q.gguf"
    path.write_bytes(plan.head + bytes(plan.file_bytes - len(plan.head)))
    found = judge_gguf_path(path, JudgeOptions())
    gaps = [(one.code, one.where.removeprefix("q.gguf: "), one.got) for one in found.gaps]
    assert ("gguf.tensor.type", "odd.weight.type", "200") in gaps
    assert found.areas[area] is Verdict.INCONCLUSIVE
    assert found.verdict.value == verdict  # another model is rejected for being one, and for nothing else
    assert {one.code for one in found.faults} <= {"foreign.gguf.architecture"}
