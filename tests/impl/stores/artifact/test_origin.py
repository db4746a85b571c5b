"""The dry run: the real 1,658 tensors with their published byte totals, and what must stop it."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.impl.stores.artifact.conversion import compare_report, report_digest, save_report
from assay.impl.stores.artifact.origin import BuildRefusedError, dry_run, refuse_public_route
from assay.impl.stores.checkpoint.header_set import HEADER_SET_NAME
from assay.impl.stores.publication import PublicationError
from assay.mutations.store_faults import Fault, FaultySystem
from assay.spec.contract import Contract
from assay.spec.documents.build import Conversion
from assay.spec.errors import AdmissionError, AssayError
from assay.spec.profiles import profile_document

from .conftest import write_small

CLASSES = {
    "dense": (1061, 9_829_717_760),
    "dense-control": (6, 65_679_360),
    "ple-rows": (128, 102_400_491_520),
    "ple-metadata": (3, 280),
    "routed-experts": (96, 241_591_910_400),
    "excluded-vision": (333, 897_862_112),
    "excluded-mtp": (31, 5_214_301_696),
}
"""Tensors and bytes of each destination, as published."""
GATE = "model.language_model.layers.0.mlp.gate.weight"


@pytest.fixture(scope="session")
def report(checkpoint: Path) -> dict[str, Any]:
    return dry_run(checkpoint)


@pytest.mark.checkpoint
def test_the_real_inventory_has_its_published_destinations(report: dict[str, Any]) -> None:
    assert {name: (one["tensors"], one["bytes"]) for name, one in report["classes"].items()} == CLASSES
    assert (report["sourceTensors"], report["sourceBytes"], report["expertComponents"]) == (
        1658, 359_999_963_128, 144
    )  # fmt: skip
    assert report["bytes"] == {
        "dense": 9_829_717_760,
        "ple": 102_466_171_160,
        "routed": 241_591_910_400,
        "vision": 897_862_112,
        "mtp": 5_214_301_696,
    }


@pytest.mark.checkpoint
def test_every_real_tensor_has_one_destination_and_exclusions_are_named(report: dict[str, Any]) -> None:
    lines = report["destinations"]
    assert len({line["source"] for line in lines}) == len(lines) == 1658
    assert all((line["policy"] is None) == bool(line["targets"]) for line in lines)
    fused = next(line for line in lines if line["source"].endswith("layers.7.mlp.experts.gate_up_proj"))
    assert fused["targets"] == ["blk.7.ffn_gate_exps.weight", "blk.7.ffn_up_exps.weight"]


@pytest.mark.checkpoint
def test_the_report_has_its_schema_and_its_digest(report: dict[str, Any]) -> None:
    Conversion.model_validate(report)
    assert report["reportSha256"] == report_digest(report)
    assert report["inventorySha256"] == "a639efc7a5147b04200e870d7e320335527f4361a8327b137feca2683b1dc434"
    assert report["seam"] is None


@pytest.mark.checkpoint
def test_the_real_checkpoint_is_planned_but_not_built_on_the_public_route(checkpoint: Path) -> None:
    refuse_public_route(checkpoint, dry_run=True)
    with pytest.raises(AdmissionError) as caught:
        refuse_public_route(checkpoint, dry_run=False)
    assert (caught.value.finding.code, caught.value.finding.where) == ("build.no-codec", "qwen4exp-base-v1")


def test_a_private_checkpoint_is_not_even_planned_on_the_public_route(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "small")
    with pytest.raises(AdmissionError) as caught:
        refuse_public_route(folder, dry_run=True)
    assert (caught.value.finding.code, caught.value.finding.where) == ("build.private", str(folder))


# --- The nine negatives ----------------------------------------------------------------------------------------------


def described(checkpoint: Path, folder: Path) -> Path:
    """Links the real description into a folder of our own, so that single files of it can be replaced."""
    folder.mkdir()
    for entry in checkpoint.iterdir():
        (folder / entry.name).symlink_to(entry.resolve())
    return folder


def edit_header(folder: Path, change: Callable[[dict[str, Any]], None], *, owner_of: str = GATE) -> None:
    """Changes the header of the shard that owns a tensor."""
    path = folder / HEADER_SET_NAME
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    for line in lines:
        header = json.loads(line["header"])
        if owner_of not in header:
            continue
        change(header)
        line["header"] = json.dumps(header)
        for key in ("header_length_bytes", "header_sha256", "data_start", "tensor_count", "file_size"):
            line.pop(key, None)
    path.unlink()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def edit_json(folder: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    found = json.loads((folder / name).read_text())
    change(found)
    (folder / name).unlink()
    (folder / name).write_text(json.dumps(found))


def refused(folder: Path, contract: Contract | None = None) -> list[tuple[str, str]]:
    with pytest.raises(BuildRefusedError) as caught:
        dry_run(folder, contract=contract)
    return [(one.code, one.where) for one in caught.value.findings]


@pytest.mark.checkpoint
def test_a_changed_shape_no_longer_fits_its_span(checkpoint: Path, tmp_path: Path) -> None:
    folder = described(checkpoint, tmp_path / "d")
    edit_header(folder, lambda header: header[GATE].update(shape=[512, 2561]))
    found = refused(folder)
    assert found[0][0] == "safetensors.span.bytes"
    assert GATE in found[0][1]


@pytest.mark.checkpoint
def test_a_changed_dtype_of_the_same_width_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    folder = described(checkpoint, tmp_path / "d")
    edit_header(folder, lambda header: header[GATE].update(dtype="I16"))
    found = [(code, where.rsplit(" ", 1)[-1]) for code, where in refused(folder)]
    assert {("inventory.dtype", GATE), ("build.source.dtype", GATE)} <= set(found)


@pytest.mark.checkpoint
def test_a_tensor_in_another_shard_than_the_index_says_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    folder = described(checkpoint, tmp_path / "d")
    other = "model-00131-of-00131.safetensors"
    edit_json(folder, "model.safetensors.index.json", lambda index: index["weight_map"].update({GATE: other}))
    assert ("inventory.absent", GATE) in refused(folder)


@pytest.mark.checkpoint
def test_a_name_that_stands_twice_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    folder = described(checkpoint, tmp_path / "d")
    other = "model.language_model.layers.47.mlp.gate.weight"
    owners = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert owners[GATE] != owners[other]
    edit_header(folder, lambda header: header.update({GATE: header.pop(other)}), owner_of=other)
    assert ("inventory.unowned", f"{owners[other]}: {GATE}") in refused(folder)


@pytest.mark.checkpoint
def test_a_missing_tensor_is_refused_by_name(checkpoint: Path, tmp_path: Path) -> None:
    folder = described(checkpoint, tmp_path / "d")
    edit_header(folder, lambda header: header.pop(GATE))
    edit_json(folder, "model.safetensors.index.json", lambda index: index["weight_map"].pop(GATE))
    assert {("inventory.missing", GATE), ("build.source.missing", GATE)} <= set(refused(folder))


@pytest.mark.checkpoint
def test_an_added_top_level_field_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    folder = described(checkpoint, tmp_path / "d")
    edit_json(folder, "config.json", lambda config: config.update(quantized=False))
    assert refused(folder) == [("config.extra", "config.json: quantized")]


@pytest.mark.checkpoint
def test_an_edited_contract_is_refused(checkpoint: Path) -> None:
    document = copy.deepcopy(profile_document("qwen4exp"))
    document["identity"]["revision"] = "0" * 40
    codes = [where for _, where in refused(checkpoint, Contract.model_validate(document))]
    assert "identity.revision" in codes


@pytest.mark.checkpoint
def test_a_failing_rename_keeps_the_old_report(report: dict[str, Any], tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_bytes(b"old")
    with pytest.raises(PublicationError) as caught:
        save_report(target, report, FaultySystem(Fault("rename", 0, "error:EACCES")))
    assert (caught.value.finding.code, caught.value.finding.where) == ("publish.rename", "plan.json")
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.checkpoint
def test_a_kept_report_that_drifted_is_told_from_one_that_was_altered(
    report: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    save_report(path, report)
    assert compare_report(path, report) == []
    drifted = copy.deepcopy(report)
    drifted["destinations"][5]["destination"] = "ple-metadata"
    drifted["profileId"] = "another"
    drifted["reportSha256"] = report_digest(drifted)
    save_report(path, drifted)
    name = report["destinations"][5]["source"]
    assert [(one.code, one.where) for one in compare_report(path, report)] == [
        ("build.report.drift", "plan.json: profileId"), ("build.report.drift", f"plan.json: {name}")
    ]  # fmt: skip
    drifted["profileId"] = report["profileId"]
    save_report(path, drifted)
    assert [(one.code, one.where) for one in compare_report(path, report)] == [
        ("build.report.altered", "plan.json: reportSha256")
    ]


# --- Hostile sources --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "code"),
    [("{", "input.json.syntax"), ("[]", "input.json.object"), ('{"model_type":"llama"}', "config.family")],
)
def test_a_configuration_that_is_none_is_refused_with_its_own_finding(
    config: str, code: str, tmp_path: Path
) -> None:
    folder = write_small(tmp_path / "small")
    (folder / "config.json").write_text(config)
    with pytest.raises(AssayError) as caught:
        dry_run(folder)
    assert caught.value.finding.code == code


def test_an_absent_shard_stops_a_build_and_a_dry_run_alike(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "small")
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(BuildRefusedError) as caught:
        dry_run(folder)
    # The tensors of the shard that isn't there are not blamed one by one.
    assert [(one.code, one.where) for one in caught.value.findings] == [
        ("files.missing", "model-00002-of-00002.safetensors")
    ]


@pytest.mark.parametrize(
    ("model_type", "codes"),
    [("llama", ["config.family", "config.family", "private.geometry"]), ("qwen4_exp_text", ["private.geometry"]),
     ([], ["config.family", "config.family", "private.geometry"])],
    ids=str,
)  # fmt: skip
def test_only_a_configuration_of_another_family_is_said_to_be_one(
    model_type: Any, codes: list[str], tmp_path: Path
) -> None:
    folder = write_small(tmp_path / "small")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": model_type, "hc_count": 0}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BuildRefusedError) as caught:
        dry_run(folder)
    assert [one.code for one in caught.value.findings] == codes
    assert caught.value.findings[-1].where == "text_config.hc_count"
