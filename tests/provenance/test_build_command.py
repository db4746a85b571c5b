"""`assay build`: each thing that it makes, each refusal, and that nothing but the option opens the seam."""

import json
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
