"""`assay build`: each thing that it makes, each refusal, and that nothing but the option opens the seam."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.mutations.store_samples import GOLDEN_NATIVE, canonical_gguf
from assay.provenance.cli import main
from assay.spec.documents.build import Build, Conversion


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(["build", "--format", "json", *arguments])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def test_the_structural_fixture_is_written_at_its_true_size(capsys: pytest.CaptureFixture[str]) -> None:
    code, document, _ = run(capsys, "--structural", "-o", "s.gguf")
    made = Build.model_validate(document)
    assert (code, made.kind, made.file_bytes) == (0, "structural", 180_243_750_912)
    assert made.allocated_bytes < 64 << 20
    assert main(["validate", "--format", "json", "s.gguf"]) == 1
    assert json.loads(capsys.readouterr().out)["stage"] == "physical_profile"
    assert main(["validate", "--private", "--format", "json", "s.gguf"]) == 0


def test_the_miniature_is_built_through_the_seam_and_stamped(capsys: pytest.CaptureFixture[str]) -> None:
    code, document, _ = run(capsys, "--miniature", "--private", "-o", "m.gguf")
    made = Build.model_validate(document)
    assert (code, made.seam, made.profile_id) == (0, "private", "assay-miniature-v1")
    assert made.report is not None
    assert (made.report.seam, len(made.report.destinations)) == ("private", 210)
    assert main(["validate", "--private", "--payload", "--format", "json", "m.gguf"]) == 0
    digests = list(Path(".assay/record-digests").iterdir())
    assert [path.stem for path in digests] == [made.payload_sha256]


def test_the_artifact_names_the_tokenizer_that_belongs_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    import hashlib

    from assay.impl.stores.artifact.opened import Artifact
    from assay.impl.text.miniature import tokenizer_files

    run(capsys, "--miniature", "--private", "-o", "m.gguf")
    with Artifact.open(Path("m.gguf"), is_private=True) as artifact:
        stated = artifact.descriptor.entries["ds4.tokenizer.digest"].python()
    assert stated == hashlib.sha256(tokenizer_files()["tokenizer.json"]).hexdigest()


def test_a_canonical_gguf_is_repacked_bit_for_bit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import hashlib

    canonical_gguf(tmp_path / "d.gguf", "deepseek4")
    code, document, _ = run(capsys, "d.gguf", "-o", "native.gguf")
    assert (code, Build.model_validate(document).kind) == (0, "repack")
    assert hashlib.sha256((tmp_path / "native.gguf").read_bytes()).hexdigest() == GOLDEN_NATIVE["deepseek4"]


@pytest.mark.checkpoint
def test_the_real_checkpoint_is_planned_and_not_built(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, document, _ = run(capsys, str(checkpoint), "--dry-run", "-o", "plan.json")
    assert (code, Conversion.model_validate(document).sourceTensors) == (0, 1658)
    assert json.loads((tmp_path / "plan.json").read_text()) == document
    assert run(capsys, str(checkpoint), "--check", "plan.json")[0] == 0
    code, document, said = run(capsys, str(checkpoint), "-o", "x.gguf")
    assert (code, document) == (1, {})
    assert said.startswith("assay: error: build.no-codec: qwen4exp-base-v1: expected")
    assert not (tmp_path / "x.gguf").exists()


def test_an_altered_plan_ends_with_the_code_of_damaged_evidence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from assay.provenance.miniature import miniature_checkpoint

    source = str(miniature_checkpoint())
    run(capsys, source, "--private", "--dry-run", "-o", "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["sourceTensors"] += 1
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    code, _, said = run(capsys, source, "--private", "--check", "plan.json")
    assert code == 4
    assert "build.report.altered: plan.json: reportSha256" in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--miniature", "-o", "m.gguf"], 1, "build.private: miniature"),
        (["-o", "m.gguf"], 2, "usage.argument: SOURCE"),
        (["--structural"], 2, "usage.argument: -o"),
        (["--structural", "--miniature", "-o", "x"], 2, "usage.argument: --miniature"),
        (["somewhere", "--structural", "-o", "x"], 2, "usage.argument: SOURCE"),
        (["--structural", "--dry-run"], 2, "usage.argument: --dry-run"),
        (["absent", "-o", "x"], 1, "store.file.open: absent"),
        (["--structural", "-o", "x", "--codec", "bf16"], 2, "usage.argument: --codec"),
        (["--structural", "-o", "x", "--page-bytes", "4096"], 2, "usage.argument: --page-bytes"),
        (["--structural", "-o", "x", "--checkpoint", "."], 2, "usage.argument: --checkpoint"),
        ([".", "--dry-run", "--codec", "bf16"], 2, "usage.argument: --codec"),
        ([".", "--dry-run", "--page-bytes", "4096"], 2, "usage.argument: --page-bytes"),
        ([".", "--dry-run", "--force"], 2, "usage.argument: --force"),
        (["--dry-run", "--checkpoint", "absent"], 2, "usage.argument: checkpoint"),
        (["--miniature", "--private", "-o", "x", "--page-bytes", "12288"], 1, "build.codec: page bytes"),
        (["--miniature", "--private", "-o", "x", "--codec", "q4_k"], 1, "build.codec: codec"),
    ],
)
def test_what_can_not_be_built_is_said_in_one_line(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    got, document, err = run(capsys, *arguments)
    assert (got, document) == (code, {})
    assert err.startswith(f"assay: error: {said}")
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize("name", ["ASSAY_PRIVATE", "PRIVATE", "ASSAY_SEAM", "DS4_TEST_HOOKS"])
def test_no_environment_variable_or_file_opens_the_seam(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(capsys, "--structural", "-o", "s.gguf")
    monkeypatch.setenv(name, "1")
    for file in ("assay.toml", ".assayrc", "private", "setup.cfg"):
        (tmp_path / file).write_text("[assay]\nprivate = true\n")
    assert main(["validate", "--format", "json", "s.gguf"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["stage"], document["seam"]) == ("physical_profile", None)
    assert run(capsys, "--miniature", "-o", "m.gguf")[0] == 1


def test_all_findings_of_a_source_are_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from assay.provenance.miniature import write_miniature

    folder = tmp_path / "source"
    write_miniature(folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["hc_lowrank"] = 17
    (folder / "config.json").write_text(json.dumps(config))
    code, _, said = run(capsys, str(folder), "--private", "-o", "x.gguf")
    assert code == 1
    assert said.count("build.source.shape") > 30


def test_a_plan_without_a_source_is_of_the_checkpoint_that_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.provenance.miniature import miniature_checkpoint

    source = miniature_checkpoint()
    code, document, _ = run(capsys, "--dry-run", "--private", "--checkpoint", str(source))
    assert (code, document["sourceTensors"]) == (0, 210)
    monkeypatch.setenv("ASSAY_CHECKPOINT", str(source))
    assert run(capsys, "--dry-run", "--private") == (0, document, "")
    code, _, said = run(capsys, "--private", "-o", "x.gguf")  # what is built is always named
    assert (code, said.startswith("assay: error: usage.argument: SOURCE")) == (2, True)


def test_a_plan_replaces_no_file_unasked_and_no_file_of_its_source_ever(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from assay.provenance.miniature import write_miniature

    folder = tmp_path / "source"
    write_miniature(folder)
    (tmp_path / "mine").write_text("mine")
    asked = (str(folder), "--private", "--dry-run", "-o")
    code, _, said = run(capsys, *asked, "mine")
    assert (code, said.startswith("assay: error: build.target: mine: expected")) == (1, True)
    assert (tmp_path / "mine").read_text() == "mine"
    assert run(capsys, *asked, "mine", "--force")[0] == 0
    before = (folder / "config.json").read_bytes()
    code, _, said = run(capsys, *asked, str(folder / "config.json"), "--force")
    assert (code, "got a file of the source" in said) == (1, True)
    assert (folder / "config.json").read_bytes() == before


def test_whatever_is_made_with_the_seam_open_is_stamped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    canonical_gguf(tmp_path / "d.gguf", "deepseek4")
    for arguments in (["--structural"], ["d.gguf"]):
        assert run(capsys, *arguments, "-o", "x", "--force")[1]["seam"] is None
        assert run(capsys, *arguments, "-o", "x", "--force", "--private")[1]["seam"] == "private"
        assert main(["build", "--format", "pretty", *arguments, "-o", "x", "--force", "--private"]) == 0
        assert "[seam: private]" in capsys.readouterr().out


@pytest.mark.checkpoint
def test_a_plan_of_the_real_checkpoint_is_stamped_when_the_seam_was_open(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, str(checkpoint), "--dry-run")[1]["seam"] is None
    assert run(capsys, str(checkpoint), "--dry-run", "--private")[1]["seam"] == "private"


@pytest.mark.parametrize("arguments", [["--structural"], ["d.gguf"], ["--miniature", "--private"]])
def test_what_a_killed_build_left_is_removed_and_told(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    canonical_gguf(tmp_path / "d.gguf", "deepseek4")
    left = tmp_path / ".x.gguf.assay-0123456789ab.tmp"
    left.write_bytes(b"half")
    code, _, said = run(capsys, *arguments, "-o", "x.gguf")
    assert (code, left.exists()) == (0, False)
    assert said == f"assay: removed {left.name}, which a killed build of this target left; building anew\n"


def test_a_repack_tells_its_steps_to_their_last_byte(tmp_path: Path) -> None:
    from assay.impl.stores.expert_major.repack import repack

    canonical_gguf(tmp_path / "d.gguf", "deepseek4")
    told: dict[str, tuple[int, int]] = {}
    repack(
        tmp_path / "d.gguf",
        tmp_path / "x.gguf",
        progress=lambda what, done, total: told.update({what: (done, total)}),
    )
    assert list(told) == ["hash", "build", "verify", "compare", "hash again"]
    assert all(done == total > 0 for done, total in told.values())


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"{}", "gguf.magic: odd.gguf: magic: expected GGUF, got b'{}'"),
     (b"GGUF\3\0\0\0", "gguf.truncated: odd.gguf: file length: expected at least 32, got 8"),
     (b"GGUF\0\0\0\3" + bytes(24), "gguf.version: odd.gguf: version: expected 3, little-endian, got 3, big-endian")],
)  # fmt: skip
def test_a_file_that_is_no_gguf_is_named(
    data: bytes, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "odd.gguf").write_bytes(data)
    code, _, err = run(capsys, "odd.gguf", "-o", "x.gguf")
    assert (code, err.splitlines()[0]) == (1, f"assay: error: {said}")


@pytest.mark.parametrize("arguments", [["--miniature", "--private"], ["d.gguf"]], ids=["artifact", "repack"])
def test_a_damaged_record_is_named_where_the_digests_of_its_build_are_kept(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from assay.impl.stores.expert_major.layout import HEADER_BYTES, unpack_header
    from assay.impl.stores.extents import StoreFile
    from assay.impl.stores.gguf.reader import read_gguf

    canonical_gguf(tmp_path / "d.gguf", "deepseek4")
    run(capsys, *arguments, "-o", "x.gguf")
    with StoreFile.open(Path("x.gguf")) as file:
        directory = read_gguf(file.extent())
        tensor = directory.tensor("ds4.expert_major.v2")
        assert tensor is not None
        start = directory.data_start + tensor.offset
        header = unpack_header(file.extent(start).read(0, HEADER_BYTES))
    data = bytearray(Path("x.gguf").read_bytes())
    data[start + header.data_offset] ^= 1  # the first byte of the first record
    Path("x.gguf").write_bytes(data)
    asked = ["validate", "x.gguf", "--payload", "--private", "--format", "json"]

    def said() -> list[tuple[str, str]]:
        assert main(asked) == 1
        findings = json.loads(capsys.readouterr().out)["findings"]
        return [(one["code"], one["where"]) for one in findings if one["code"].startswith("expert-store.")]

    payload = ("expert-store.payload-digest", "payload_sha256")
    assert said() == [payload, ("expert-store.record-digest", "layer 0 expert 0")]
    shutil.rmtree(".assay")
    assert said() == [payload]


def test_a_native_file_is_not_repacked_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    canonical_gguf(tmp_path / "d.gguf", "deepseek4")
    run(capsys, "d.gguf", "-o", "native.gguf")
    code, _, said = run(capsys, "native.gguf", "-o", "again.gguf")
    assert (code, said.startswith("assay: error: repack.canonical: ds4.expert_major.v2: expected")) == (
        1,
        True,
    )


def test_a_build_whose_digests_can_not_be_kept_is_right_all_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / ".assay").write_text("in the way")
    canonical_gguf(tmp_path / "d.gguf", "deepseek4")
    code, document, said = run(capsys, "d.gguf", "-o", "native.gguf")
    assert (code, document["kind"]) == (0, "repack")
    assert said.startswith("assay: the file is in place; the digests of its records could not be kept: ")


def test_a_shard_that_can_not_be_read_is_blamed_and_its_tensors_are_not(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from assay.provenance.miniature import write_miniature

    folder = tmp_path / "source"
    write_miniature(folder)
    shard = next(iter(sorted(folder.glob("*.safetensors"))))
    shard.write_bytes(b"")
    code, _, said = run(capsys, str(folder), "--private", "-o", "x.gguf")
    assert code == 1
    assert said.splitlines() == [
        f"assay: error: input.file.empty: {shard.name}: expected a safetensors file, got 0 bytes"
    ]


def test_building_needs_neither_numpy_nor_mlx_unless_it_quantises(tmp_path: Path) -> None:
    from assay.provenance.miniature import miniature_checkpoint

    source = miniature_checkpoint()
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'mlx', 'torch', 'numpy', 'transformers', 'rich'}:\n"
        "            raise ImportError(f'{name} is refused')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from assay.provenance.cli import main\n"
        "sys.exit(main(['build', '--private', '--format', 'json', sys.argv[1], '-o', 'm.gguf']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(source)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
