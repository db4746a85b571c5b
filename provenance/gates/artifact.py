"""Gates about the artifact: its published sizes, its refusals, both sides of the seam, isolation, and building."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.artifact.build import build_artifact
from assay.impl.stores.artifact.descriptor import STAGES
from assay.impl.stores.artifact.judge import judge_gguf_path
from assay.impl.stores.artifact.opened import Artifact, StructuralOnlyError
from assay.impl.stores.artifact.origin import dry_run, refuse_public_route
from assay.impl.stores.artifact.structural import write_structural
from assay.impl.stores.checkpoint.reader import CheckpointReader
from assay.impl.stores.publication import sweep
from assay.mutations import gguf as battery
from assay.mutations.artifact_cases import Case, all_cases
from assay.mutations.store_faults import MUTATING, DyingSystem, FaultySystem, KilledError, StoreObserver
from assay.provenance.evidence.subjects import SourceTree
from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.gates.batteries import battery_result
from assay.provenance.miniature import miniature_checkpoint
from assay.spec.clauses import Authority, declare
from assay.spec.errors import AssayError, Finding
from assay.spec.judgement import JudgeOptions
from assay.spec.verdicts import Outcome, Verdict

SIZES: Final = {
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
"""Published sizes of the structural fixture; the artifact's facts, file shape."""
PLANNED: Final = {
    "dense": (1061, 9_829_717_760),
    "dense-control": (6, 65_679_360),
    "ple-rows": (128, 102_400_491_520),
    "ple-metadata": (3, 280),
    "routed-experts": (96, 241_591_910_400),
    "excluded-vision": (333, 897_862_112),
    "excluded-mtp": (31, 5_214_301_696),
}
"""Published destinations of the real inventory: tensors and bytes."""
SPREAD: Final = 24
"""Kills among the many calls that read and write, beside all of the few that do something else."""
HEAVY: Final = ("mlx", "torch", "numpy", "transformers")

KILLED: Final = declare(
    "gate.artifact-kill",
    Authority.PROCESS,
    "A build that is killed leaves the whole old file or the whole new one, and nothing that the next one can't remove.",
    source="field note AFN-003, transactional publication",
    cause="a target that is written in place, or a leftover under a name that nobody looks for",
)
SHAPE: Final = declare(
    "gate.artifact-sizes",
    Authority.UPSTREAM,
    "The structural fixture has every published size, and takes almost none of the disk.",
    source="the artifact's file shape",
    cause="a writer that lays the file out in another way",
)
STAGED: Final = declare(
    "gate.artifact-cases",
    Authority.UPSTREAM,
    "Each of the 107 published bad artifacts is refused at its published stage and field.",
    source="the artifact's reject, fatal and fuzz cases",
    cause="a check that moved to another stage",
)
SEAM: Final = declare(
    "gate.artifact-seam",
    Authority.PROCESS,
    "Private artifacts are admitted through the private seam, and nothing at all is admitted without it.",
    source="field note AFN-013",
    cause="a profile that became selectable because its code exists",
)
ISOLATION: Final = declare(
    "gate.artifact-isolation",
    Authority.PROCESS,
    "Admission stands on no array or device library: none is in its import closure, and it runs where none can be imported.",
    source="field note AFN-004",
    cause="a helper that imports numpy for convenience",
)
BUILT: Final = declare(
    "gate.artifact-build",
    Authority.RULE,
    "A built artifact holds the bits of its checkpoint, tensor by tensor, and each source tensor has one destination.",
    source="field note AFN-004",
    cause="a converter that drops, repeats or re-encodes a tensor",
)


def sizes(context: GateContext) -> GateResult:
    """Writes the structural fixture and compares every published size."""
    path = _fresh(context, "sizes") / "fixture.gguf"
    write_structural(path)
    status = path.stat()
    report = judge_gguf_path(path, JudgeOptions(is_private=True)).facts["ownership"]
    findings = [
        Finding.of(SHAPE, "artifact", key, expected=wanted, got=report[key])
        for key, wanted in SIZES.items()
        if report[key] != wanted
    ]
    allocated = 512 * status.st_blocks
    if status.st_size != SIZES["fileBytes"] or allocated > 64 << 20:
        got = f"{status.st_size}, {allocated} allocated"
        findings.append(
            Finding.of(SHAPE, "artifact", "file", expected="its size, 64 MiB allocated at most", got=got)
        )
    shutil.rmtree(path.parent)
    return _result(findings, {"file_bytes": str(status.st_size), "allocated_bytes": allocated})


def cases(context: GateContext) -> GateResult:
    """Judges the 107 published bad artifacts, each as a file of its true size."""
    folder = _fresh(context, "cases")
    findings = [found for case in all_cases() if (found := _case(case, folder)) is not None]
    shutil.rmtree(folder)
    return _result(findings, {"cases": len(all_cases()), "wrong": len(findings)})


def private_seam(context: GateContext) -> GateResult:
    """Admits the fixture and the miniature through the private seam; only the miniature may compute."""
    folder = _fresh(context, "private")
    structural, miniature = folder / "structural.gguf", folder / "miniature.gguf"
    write_structural(structural)
    build_artifact(_source(folder), miniature)
    findings = []
    for path in (structural, miniature):
        found = judge_gguf_path(path, JudgeOptions(is_private=True))
        report = found.facts["ownership"]
        if found.verdict is not Verdict.ACCEPTED:
            findings.append(Finding.of(SEAM, "artifact", path.name, expected="accepted", got=found.stage))
        if report["runtimeSupported"] or report["payloadVerified"] or report["tokenizerContentVerified"]:
            findings.append(Finding.of(SEAM, "artifact", path.name, expected="no claim", got="a claim"))
    Artifact.open(miniature, is_private=True).close()
    try:
        Artifact.open(structural, is_private=True).close()
    except StructuralOnlyError:
        pass
    else:
        findings.append(
            Finding.of(SEAM, "artifact", "structural", expected="refused to compute", got="opened")
        )
    shutil.rmtree(folder)
    return _result(findings, {"admitted": 2 - len(findings)}, is_private=True)


def public_route(context: GateContext) -> GateResult:
    """Tries everything on the public route: judging, opening and building; all of it must be refused."""
    folder = _fresh(context, "public")
    structural, miniature, source = folder / "structural.gguf", folder / "miniature.gguf", _source(folder)
    write_structural(structural)
    build_artifact(source, miniature)
    findings, refused = [], {}
    for path, stage in ((structural, "physical_profile"), (miniature, "identity")):
        found = judge_gguf_path(path, JudgeOptions())
        refused[path.name] = found.stage
        if found.verdict is not Verdict.REJECTED or found.stage != stage:
            findings.append(
                Finding.of(SEAM, "artifact", path.name, expected=f"rejected at {stage}", got=found.stage)
            )
        if found.facts["ownership"]["admitted"]:
            findings.append(Finding.of(SEAM, "artifact", path.name, expected="not admitted", got="admitted"))
        try:
            Artifact.open(path, is_private=False).close()
        except AssayError:
            pass
        else:
            findings.append(Finding.of(SEAM, "artifact", path.name, expected="not opened", got="opened"))
    for is_plan in (True, False):
        try:
            refuse_public_route(source, dry_run=is_plan)
        except AssayError as error:
            refused[f"build, plan {is_plan}"] = error.finding.code
        else:
            findings.append(Finding.of(SEAM, "artifact", "build", expected="refused", got="allowed"))
    shutil.rmtree(folder)
    return _result(findings, {"refused": refused})


def isolation(context: GateContext) -> GateResult:
    """Looks for array and device libraries in the import closure, and runs admission where they can't be imported."""
    tree = SourceTree()
    modules = sorted(tree.closure(["assay.impl.stores.artifact.judge", "assay.provenance.kinds"]))
    findings = [
        Finding.of(ISOLATION, "artifact", module, expected=f"no import of {', '.join(HEAVY)}", got=name)
        for module in modules
        for name in sorted(_outside(tree.root, module) & set(HEAVY))
    ]
    path = _fresh(context, "isolation") / "fixture.gguf"
    write_structural(path)
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {HEAVY!r}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from assay.provenance.cli import main\n"
        "sys.exit(main(['validate', '--private', '--format', 'json', sys.argv[1]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    admitted = done.returncode == 0 and json.loads(done.stdout)["verdict"] == "accepted"
    if not admitted:
        got = (done.stderr or done.stdout)[-200:]
        findings.append(Finding.of(ISOLATION, "artifact", "command", expected="admitted", got=got))
    shutil.rmtree(path.parent)
    return _result(findings, {"modules": len(modules), "admitted_without_them": admitted})


def gguf_battery(context: GateContext) -> GateResult:
    """Changes every metadata entry and tensor record of the artifact; each change must be found."""
    return battery_result(battery.BATTERY.name, context)


def miniature_build(context: GateContext) -> GateResult:
    """Builds the miniature and compares every tensor of its checkpoint with what the artifact holds."""
    folder = _fresh(context, "build")
    source, target = _source(folder), folder / "miniature.gguf"
    built = build_artifact(source, target)
    reader = CheckpointReader.open(source)
    findings: list[Finding] = []
    with Artifact.open(target, is_private=True) as artifact:
        for name in artifact.names:
            _, shape, extent = artifact.dense(name)
            if shape != reader.rows[name].shape or extent.read(0, extent.size) != reader.read(name):
                findings.append(
                    Finding.of(BUILT, "artifact", name, expected="the source's bits", got="others")
                )
        findings += _experts(artifact, reader)
        findings += _rows(artifact, reader)
    lines = [line["source"] for line in built.report["destinations"]]
    if sorted(lines) != sorted(reader.rows):
        findings.append(
            Finding.of(BUILT, "artifact", "destinations", expected=len(reader.rows), got=len(lines))
        )
    again = folder / "again.gguf"
    build_artifact(source, again)
    if again.read_bytes() != target.read_bytes():
        findings.append(
            Finding.of(BUILT, "artifact", "second build", expected="the same bytes", got="others")
        )
    shutil.rmtree(folder)
    return _result(findings, {"tensors": len(lines)}, is_private=True)


def killed_build(context: GateContext) -> GateResult:
    """Kills a build of the miniature before calls of every kind: the old file or the new one is there, and no third."""
    folder = _fresh(context, "kill")
    source, target = _source(folder), folder / "target" / "miniature.gguf"
    target.parent.mkdir()
    clean, seen, old = FaultySystem(), StoreObserver(target.parent), b"the old file"
    build_artifact(source, target, system=clean, replace=True)
    new, commit = seen.data(target.name), clean.calls.index("rename")
    few = {call for call in MUTATING if clean.count(call) < 8}
    step = max(1, len(clean.calls) // SPREAD)
    moments = [nth for nth, call in enumerate(clean.calls) if call in few or not nth % step]
    findings: list[Finding] = []
    for nth in moments:
        target.write_bytes(old)
        outcome = "a build that ended"
        try:
            build_artifact(source, target, system=DyingSystem(nth), replace=True)
        except KilledError:
            right = new if nth > commit else old
            outcome = "the right file" if seen.data(target.name) == right else "another file"
        sweep(target)
        left = seen.names() - {target.name}
        if outcome != "the right file" or left:
            where = f"before call {nth}, {clean.calls[nth]}"
            got = f"{outcome}, {len(left)} left"
            findings.append(Finding.of(KILLED, "artifact", where, expected="the right file, 0 left", got=got))
    shutil.rmtree(folder)
    return _result(findings, {"calls": len(clean.calls), "kills": len(moments)}, is_private=True)


def real_plan(context: GateContext) -> GateResult:
    """Plans the conversion of the real inventory and compares tensors and bytes of every destination."""
    assert context.checkpoint is not None  # noqa: S101 - the gate needs it
    report = dry_run(context.checkpoint)
    got = {name: (one["tensors"], one["bytes"]) for name, one in report["classes"].items()}
    findings = [
        Finding.of(BUILT, "artifact", name, expected=wanted, got=got.get(name))
        for name, wanted in PLANNED.items()
        if got.get(name) != wanted
    ]
    names = [line["source"] for line in report["destinations"]]
    if len(set(names)) != len(names) or report["sourceBytes"] != 359_999_963_128:
        findings.append(
            Finding.of(BUILT, "artifact", "total", expected=359_999_963_128, got=report["sourceBytes"])
        )
    return _result(findings, {"tensors": len(names), "report_sha256": report["reportSha256"]})


def _case(case: Case, folder: Path) -> Finding | None:
    path = folder / f"{case.name}.gguf"
    case.sketch().write(path)
    try:
        found = judge_gguf_path(path, JudgeOptions(is_private=True)).faults
    except AssayError as error:
        found = [error.finding]
    path.unlink()
    first = found[0] if found else None
    stages = (case.stage,) if case.stage else ("gguf", *STAGES)
    if first is not None and first.stage in stages and case.where in first.where:
        return None
    got = f"{first.stage}: {first.where}" if first is not None else "accepted"
    return Finding.of(
        STAGED, "artifact", case.name, expected=f"{case.stage or 'any stage'}: {case.where}", got=got
    )


def _experts(artifact: Artifact, reader: CheckpointReader) -> list[Finding]:
    findings = []
    for layer in artifact.experts.manifest.layers:
        stem = f"model.language_model.layers.{layer.layer_id}.mlp.experts."
        fused, down = reader.read(f"{stem}gate_up_proj"), reader.read(f"{stem}down_proj")
        one, other = len(fused) // layer.expert_count, len(down) // layer.expert_count
        for expert in range(layer.expert_count):
            record = artifact.experts.read_record(layer.layer_id, expert).data
            wanted = fused[expert * one : (expert + 1) * one] + down[expert * other : (expert + 1) * other]
            if record != wanted:
                where = f"layer {layer.layer_id} expert {expert}"
                findings.append(
                    Finding.of(BUILT, "artifact", where, expected="the source's bits", got="others")
                )
    return findings


def _rows(artifact: Artifact, reader: CheckpointReader) -> list[Finding]:
    stem = next(name for name in reader.rows if name.endswith("shard_0.weight")).removesuffix("0.weight")
    parts = sum(name.startswith(stem) for name in reader.rows)
    table = b"".join(reader.read(f"{stem}{part}.weight") for part in range(parts))
    rows = artifact.rows.geometry.table.rows
    if artifact.rows.read_rows(list(range(rows))) != table:
        return [Finding.of(BUILT, "artifact", "rows", expected="the source's rows in order", got="others")]
    return []


def _outside(root: Path, module: str) -> set[str]:
    """Returns the packages beside assay that a module imports, anywhere in it."""
    stem = root.joinpath(*module.split(".")[1:])
    path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def _source(folder: Path) -> Path:
    return miniature_checkpoint(folder / "checkpoint")


def _fresh(context: GateContext, name: str) -> Path:
    folder = context.out / f"artifact-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _result(findings: list[Finding], measurements: dict[str, Any], *, is_private: bool = False) -> GateResult:
    if findings:
        return GateResult(Outcome.FAIL, measurements, tuple(findings[:20]), findings[0].line, is_private)
    return GateResult(Outcome.PASS, measurements, is_private=is_private)
