"""Judges a GGUF file for `assay validate`: an artifact by admission, anything else by what it is.

An artifact is recognised by the keys that only this project's files have. It is then judged in the loader's order and
nothing of it is interpreted in another way; a file that isn't one is described area by area.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Final

from assay.impl.stores.artifact.admission import Admission, admit
from assay.impl.stores.artifact.descriptor import (
    EXPERT_TENSOR,
    PLE_TENSOR,
    PROFILE_KEY,
    STAGES,
    ArtifactDescriptor,
    fixture_descriptor,
)
from assay.impl.stores.artifact.private import is_private_artifact, read_private
from assay.impl.stores.artifact.report import rejected_report
from assay.impl.stores.checkpoint.config_fields import PRIVATE
from assay.impl.stores.expert_major.store import ExpertStore
from assay.impl.stores.extents import Extent, StoreFile
from assay.impl.stores.gguf.reader import Gguf, read_gguf
from assay.impl.stores.ple_rows.store import PleStore
from assay.impl.stores.steps import increments
from assay.spec.errors import Finding
from assay.spec.judgement import Judgement, JudgeOptions

KIND: Final = "gguf"
_MARKS: Final = ("ds4.model.", "ds4.expert_store.", "ds4.ple_store.", "assay.private.")


def judge_gguf_path(path: Path, options: JudgeOptions) -> Judgement:
    """Judges a GGUF file of any kind.

    Raises:
        AdmissionError: `store.file.*` or `gguf.*`, when the directory can't be read; then there is no report.
    """
    with StoreFile.open(path) as file:
        extent = file.extent()
        gguf = read_gguf(extent)
        if is_artifact(gguf):
            return judge_artifact(gguf, extent, options)
    from assay.impl.stores.artifact.other import judge_other

    return judge_other(path, gguf, options)


def is_artifact(gguf: Gguf) -> bool:
    """Says whether a file claims to be an artifact, however wrong: by its keys, or by holding both stores."""
    names = {tensor.name for tensor in gguf.tensors}
    return {EXPERT_TENSOR, PLE_TENSOR} <= names or any(entry.key.startswith(_MARKS) for entry in gguf.entries)


def descriptor_of(
    gguf: Gguf, *, is_private: bool
) -> tuple[ArtifactDescriptor, tuple[str, ...], list[Finding]]:
    """Returns what a file must be, the physical profiles that may be admitted, and why nothing can be compared.

    On the public route no physical profile is known, and a private profile isn't even looked at.
    """
    fixture = fixture_descriptor()
    if not is_private_artifact(gguf):
        return fixture, (fixture.physical_profile_id,) if is_private else (), []
    if not is_private:
        got = gguf.value(PROFILE_KEY)
        refused = Finding.of(
            PRIVATE,
            "identity",
            PROFILE_KEY,
            expected="a public profile",
            got=got.shown() if got is not None else "nothing",
            hint="--private accepts it, and stamps the result `seam: private`",
        )
        return fixture, (), [refused]
    private, findings = read_private(gguf)
    if private is None:
        return fixture, (), findings
    return private, (private.physical_profile_id,), []


def judge_artifact(gguf: Gguf, extent: Extent, options: JudgeOptions) -> Judgement:
    """Judges an artifact stage by stage; the 30-field report is the fact `ownership`."""
    judgement = Judgement(KIND, is_private=options.is_private)
    descriptor, known, refused = descriptor_of(gguf, is_private=options.is_private)
    if refused:
        judgement.judged("identity", refused)
        judgement.not_checked.append(f"{', '.join(STAGES[1:])}: nothing that may be admitted is claimed")
        judgement.facts["ownership"] = rejected_report(refused[0])
        return judgement
    found = admit(gguf, extent, descriptor, known)
    record(judgement, found)
    if found.first is None and not options.with_payload:
        judgement.not_checked.append("payload: not asked for (--payload reads both stores)")
    if options.with_payload and found.first is None:
        _judge_payload(judgement, gguf, extent, found, options)
    return judgement


def _judge_payload(
    judgement: Judgement, gguf: Gguf, extent: Extent, found: Admission, options: JudgeOptions
) -> None:
    """Reads both stores whole; a fixture without payload leaves the area open."""
    descriptor, experts, rows = found.descriptor, gguf.tensor(EXPERT_TENSOR), gguf.tensor(PLE_TENSOR)
    if descriptor.is_structural or found.experts is None or experts is None or rows is None:
        gap = Finding.of(
            "artifact.no-payload",
            "payload",
            "payload",
            expected="a payload",
            got="a structural fixture's hole",
        )
        judgement.judged("payload", gaps=[gap])
        return
    total = found.experts.data_bytes + descriptor.rows.payload_bytes
    opened = options.progress("payload", total) if options.progress is not None else nullcontext(_silent)
    with opened as advance:
        place = extent.part(gguf.data_start + experts.offset, experts.bytes or 0, EXPERT_TENSOR)
        experts_store = ExpertStore(place, found.experts)
        whole = experts_store.verify_all(max(2, options.jobs), increments(advance), derive=False)
        place = extent.part(gguf.data_start + rows.offset, rows.bytes or 0, PLE_TENSOR)
        store = PleStore.open(place, descriptor.rows, table_budget=0)
        pages = store.verify_all(max(2, options.jobs), increments(advance))
    records: list[Finding] = []
    if whole.findings:
        from assay.impl.stores.expert_major.record_digests import damaged_records

        records = damaged_records(experts_store, options.evidence)
    judgement.judged("payload", [*whole.findings, *records, *pages.findings])
    judgement.facts |= {
        "expertPayloadSha256": whole.payload_sha256.hex(),
        "plePayloadSha256": pages.payload_sha256.hex(),
    }
    judgement.not_checked.append(
        "dense tensors: no digest of them is stored; a build compares them with its source"
    )


def record(judgement: Judgement, found: Admission) -> None:
    """Writes what admission came to into a judgement."""
    for stage, findings in found.findings.items():
        judgement.judged(stage, findings)
    if found.skipped:
        judgement.not_checked.append(f"{', '.join(found.skipped)}: the file is not of an admissible profile")
    judgement.facts["ownership"] = found.report
    if found.owned is not None and found.first is None:
        judgement.facts["densePages"] = [[one.start, one.end] for one in found.owned.warm]
    if found.first is None and found.descriptor.is_structural:
        judgement.not_checked.append("generation: structural admission-only; the fixture has no payload")


def _silent(_more: int) -> None:
    """Shows nothing."""
