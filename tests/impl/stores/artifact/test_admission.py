"""Admission of the structural fixture: its published sizes, its report, and 107 files that must not pass."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay.impl.stores.artifact.admission import Admission, admit
from assay.impl.stores.artifact.descriptor import STAGES, fixture_descriptor
from assay.impl.stores.artifact.judge import judge_gguf_path
from assay.impl.stores.artifact.structural import write_structural
from assay.impl.stores.gguf.reader import read_gguf
from assay.mutations.artifact_cases import FATAL, REJECTED, Case, all_cases, fuzz_cases
from assay.mutations.artifact_sketch import Record, Sketch, structural_sketch
from assay.provenance.cli import main
from assay.provenance.kinds import judge_path
from assay.spec.errors import AdmissionError
from assay.spec.judgement import JudgeOptions
from assay.spec.profiles import load_profile
from assay.spec.verdicts import Verdict

PRIVATE = JudgeOptions(is_private=True)
SIZES = {
    "fileBytes": 180_243_750_912,
    "headerBytes": 115_552,
    "denseBytes": 9_895_397_120,
    "expertBytes": 67_947_737_088,
    "pleBytes": 102_400_499_712,
    "paddingBytes": 1_440,
    "ownedBytes": 180_243_633_920,
    "densePageBytes": 9_895_399_424,
    "physicalTensors": 1069,
    "denseTensors": 1067,
}
"""The published sizes of the structural fixture."""


@pytest.fixture(scope="module")
def fixture_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("structural") / "fixture.gguf"
    write_structural(path)
    return path


def admitted(sketch: Sketch, known: tuple[str, ...] | None = None) -> Admission:
    extent, descriptor = sketch.extent(), fixture_descriptor()
    profiles = (descriptor.physical_profile_id,) if known is None else known
    return admit(read_gguf(extent), extent, descriptor, profiles)


def test_the_fixture_has_its_true_size_and_takes_almost_none_of_the_disk(fixture_file: Path) -> None:
    status = fixture_file.stat()
    assert status.st_size == SIZES["fileBytes"]
    assert 512 * status.st_blocks < 64 << 20


def test_the_fixture_has_the_published_sizes(fixture_file: Path) -> None:
    found = judge_gguf_path(fixture_file, PRIVATE)
    report = found.facts["ownership"]
    assert {key: report[key] for key in SIZES} == SIZES
    assert found.facts["densePages"] == [[114_688, 114_688 + 9_895_399_424]]


def test_the_metadata_block_and_the_stores_lie_where_they_are_published(fixture_file: Path) -> None:
    with fixture_file.open("rb") as file:
        head = file.read(1 << 17)
    assert head.index(b"lm_head.weight") - 8 - 24 == 6_164
    found = admitted(structural_sketch())
    assert found.owned is not None
    assert (found.owned.expert.start, found.owned.ple.start) == (9_895_514_112, 77_843_251_200)


def test_the_writer_and_the_mutations_own_renderer_agree_on_every_byte(fixture_file: Path) -> None:
    sketch = structural_sketch()
    assert sketch.file_bytes == fixture_file.stat().st_size
    with fixture_file.open("rb") as file:
        for offset, data in sketch.pieces().items():
            file.seek(offset)
            assert file.read(len(data)) == data


def test_the_fixture_is_accepted_only_with_private(fixture_file: Path) -> None:
    found = judge_gguf_path(fixture_file, PRIVATE)
    assert (found.verdict, found.stage, found.is_private) == (Verdict.ACCEPTED, "accepted", True)
    assert list(found.areas) == list(STAGES)


def test_the_public_route_refuses_the_fixture_at_its_physical_profile(fixture_file: Path) -> None:
    found = judge_gguf_path(fixture_file, JudgeOptions())
    assert (found.verdict, found.stage, found.is_private) == (Verdict.REJECTED, "physical_profile", False)
    assert [(one.code, one.where) for one in found.faults] == [
        ("artifact.physical-profile", "ds4.model.physical_profile_id")
    ]


def test_the_report_has_the_contracts_30_fields_in_order(fixture_file: Path) -> None:
    report = judge_gguf_path(fixture_file, PRIVATE).facts["ownership"]
    admission = load_profile("qwen4exp").admission
    assert admission is not None
    schema = admission.report
    assert list(report) == [field.name for field in schema.fields]
    python = {"UINT32": int, "UINT64": int, "STRING": str, "BOOL": bool, "REJECTION": type(None)}
    assert all(type(report[field.name]) is python[field.type] for field in schema.fields)
    assert {field.name: field.value for field in schema.fields if field.value is not None} == {
        field.name: report[field.name] for field in schema.fields if field.value is not None
    }


def test_a_rejected_report_is_cleared_and_names_field_expected_and_observed() -> None:
    report = admitted(next(one for one in REJECTED if one.name == "top_k").sketch()).report
    assert report["rejection"] == {
        "field": "qwen4exp.text.num_experts_per_tok",
        "expected": "UINT32 10",
        "observed": "UINT32 9",
    }
    assert report["stage"] == "metadata"
    kept = {"schemaVersion", "family", "profileId", "stage", "rejection"}
    assert not any(value for key, value in report.items() if key not in kept)


def test_a_rejection_is_cut_to_its_published_lengths_and_never_empty() -> None:
    def change(sketch: Sketch) -> None:
        sketch.records[0] = Record(f"mtp.{'x' * 300}", [1], 30)

    report = admitted(structural_sketch(change)).report["rejection"]
    assert len(report["field"]) == 127
    assert all(1 <= len(text) <= 159 for text in report.values())
    assert len(report["field"]) <= 127


@pytest.mark.parametrize(
    "case", [case for case in (*REJECTED, *fuzz_cases()) if case.stage], ids=lambda case: case.name
)
def test_a_published_case_stops_at_its_stage_and_field(case: Case) -> None:
    found = admitted(case.sketch())
    first = found.first
    assert first is not None
    assert (first.stage, case.where in first.where) == (case.stage, True)
    assert not found.report["admitted"]


FUZZED_DIRECTORIES = {
    0: ("gguf", "magic"),
    1: ("gguf", "version"),
    2: ("gguf", "tensors[1069].name"),
    3: ("gguf", "tensors[0].name"),
    4: ("identity", "general.architecture"),
    5: ("physical_profile", "ds4.model.physical_profile_id"),
    6: ("inventory", "lm_head.weight"),
    7: ("gguf", "lm_head.weight"),
    8: ("inventory", "lm_head.weight.dim[0]"),
    9: ("inventory", "lm_head.weight.type"),
    10: ("inventory", "lm_head.weight.offset"),
    11: ("gguf", "tensors[0].name"),
}
"""Where each fuzzed directory stops, and at which place."""


@pytest.mark.parametrize(("number", "expected"), FUZZED_DIRECTORIES.items())
def test_a_fuzzed_directory_is_refused_at_its_place(
    number: int, expected: tuple[str, str], tmp_path: Path
) -> None:
    case = next(one for one in fuzz_cases() if one.name == f"fuzz_gguf_{number}")
    case.sketch().write(tmp_path / "fuzzed.gguf")
    first = judge_path(tmp_path / "fuzzed.gguf", PRIVATE).faults[0]
    assert (first.stage, first.where.startswith(expected[1])) == (expected[0], True)


@pytest.mark.parametrize("case", FATAL, ids=lambda case: case.name)
def test_a_fatal_case_is_refused_by_the_parser_without_a_report(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "fatal.gguf"
    case.sketch().write(path)
    with pytest.raises(AdmissionError) as caught:
        judge_gguf_path(path, PRIVATE)
    assert caught.value.finding.stage == "gguf"
    assert case.where in caught.value.finding.where


def test_there_are_107_published_cases() -> None:
    assert (len(REJECTED), len(FATAL), len(list(fuzz_cases()))) == (66, 5, 36)
    assert len({case.name for case in all_cases()}) == 107


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_the_command_refuses_a_case_with_its_path_and_at_most_one_report(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{case.name}.gguf"
    case.sketch().write(path)
    code = main(["validate", "--private", "--format", "json", str(path)])
    (line,) = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert (code, document["verdict"], document["path"], document["seam"]) == (
        1, "rejected", str(path), "private"
    )  # fmt: skip
    report = ((document["report"] or {}).get("facts") or {}).get("ownership")
    if case in FATAL:
        assert report is None
    elif case.stage:
        assert len(report) == 30
        assert (report["admitted"], report["runtimeSupported"], report["payloadVerified"]) == (False,) * 3


def test_a_stage_lists_all_of_its_findings_and_later_stages_theirs() -> None:
    def change(sketch: Sketch) -> None:
        del sketch.entries[sketch.entry("qwen4exp.text.head_dim")]
        del sketch.entries[sketch.entry("qwen4exp.text.hidden_act")]
        sketch.records[4].type_id = 1

    found = admitted(structural_sketch(change))
    assert [one.where for one in found.findings["metadata"]] == [
        "metadata entry count", "qwen4exp.text.head_dim", "qwen4exp.text.hidden_act"
    ]  # fmt: skip
    assert [one.code for one in found.findings["inventory"]] == ["artifact.tensor.type"]
    assert found.skipped == ()


def test_nothing_is_compared_with_a_profile_that_the_file_does_not_claim() -> None:
    found = admitted(next(one for one in REJECTED if one.name == "profile").sketch())
    assert found.skipped == STAGES[1:]


def test_padding_between_owners_must_be_zero() -> None:
    sketch = structural_sketch()
    place = sketch.expert_at - 1
    sketch.patches[place] = b"\x01"
    found = admitted(sketch)
    assert [(one.code, one.where) for one in found.findings["ownership"]] == [
        ("artifact.owner.padding", f"padding bytes: {place}")
    ]


def test_a_store_that_states_a_payload_digest_is_no_structural_fixture() -> None:
    sketch = structural_sketch()
    sketch.rows[344] = 1
    sketch.sign_rows()
    sketch.expert[128] = 1
    sketch.sign_expert()
    found = admitted(sketch)
    assert [(one.code, one.where) for one in found.findings["expert_store"]] == [
        ("expert-store.identity", "ds4.expert_major.v2: payload_sha256")
    ]
    assert [(one.code, one.where) for one in found.findings["ple_store"]] == [
        ("artifact.no-payload", "ds4.ple_rows.v1: payload_sha256")
    ]


def test_admission_reads_the_directory_and_the_manifests_only(fixture_file: Path) -> None:
    sketch = structural_sketch()
    extent = sketch.extent()
    read: list[tuple[int, int]] = []
    real = extent.file.system.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        read.append((offset, size))
        return real(descriptor, size, offset)

    extent.file.system.pread = counted  # type: ignore[method-assign]
    admit(read_gguf(extent), extent, fixture_descriptor(), (fixture_descriptor().physical_profile_id,))
    assert sum(size for _, size in read) < 300_000
    assert max(offset + size for offset, size in read) < 77_843_251_200 + 4096 + 1


@pytest.mark.slow
def test_a_directory_of_strangers_is_refused_in_bounded_words() -> None:
    def strangers(sketch: Sketch) -> None:
        sketch.records[:0] = [Record(f"mtp.{one}", [1], 30) for one in range(20_000)]
        sketch.records[:0] = [Record(f"odd.{one}", [1], 30) for one in range(20_000)]

    found = admitted(structural_sketch(strangers))
    assert found.first is not None
    assert found.first.where == "physical tensor count"
    assert len(found.findings["inventory"]) < 100


def test_admission_runs_where_mlx_torch_and_numpy_cannot_be_imported(fixture_file: Path) -> None:
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'mlx', 'torch', 'numpy', 'transformers', 'rich'}:\n"
        "            raise ImportError(f'{name} is refused')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from assay.provenance.cli import main\n"
        "sys.exit(main(['validate', '--private', '--format', 'json', sys.argv[1]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(fixture_file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["report"]["facts"]["ownership"]["admitted"] is True
