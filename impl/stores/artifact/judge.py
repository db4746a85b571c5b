"""Judges a GGUF file for `assay validate`: an artifact by admission, anything else by what it is.

An artifact is recognised by the keys that only this project's files have. It is then judged in the loader's order and
nothing of it is interpreted in another way; a file that isn't one is described area by area.
"""

from pathlib import Path
from typing import Final

from assay.impl.stores.artifact.admission import Admission, admit
from assay.impl.stores.artifact.descriptor import (
    EXPERT_TENSOR,
    PLE_TENSOR,
    fixture_descriptor,
)
from assay.impl.stores.extents import Extent, StoreFile
from assay.impl.stores.gguf import Gguf, read_gguf
from assay.spec.judgement import Judgement, JudgeOptions

KIND: Final = "gguf"
_MARKS: Final = ("ds4.model.", "ds4.expert_store.", "ds4.ple_store.")
_STAGES_OF_FATAL: Final = "no stage was reached: the directory itself can't be read"


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
    from assay.impl.stores.store_files import judge_gguf_file

    return judge_gguf_file(path, options)


def is_artifact(gguf: Gguf) -> bool:
    """Says whether a file claims to be an artifact, however wrong: by its keys, or by holding both stores."""
    names = {tensor.name for tensor in gguf.tensors}
    return {EXPERT_TENSOR, PLE_TENSOR} <= names or any(entry.key.startswith(_MARKS) for entry in gguf.entries)


def judge_artifact(gguf: Gguf, extent: Extent, options: JudgeOptions) -> Judgement:
    """Judges an artifact stage by stage; the 30-field report is the fact `ownership`."""
    judgement = Judgement(KIND, is_private=options.is_private)
    descriptor = fixture_descriptor()
    known = (descriptor.physical_profile_id,) if options.is_private else ()
    found = admit(gguf, extent, descriptor, known)
    record(judgement, found)
    return judgement


def record(judgement: Judgement, found: Admission) -> None:
    """Writes what admission came to into a judgement."""
    for stage, findings in found.findings.items():
        judgement.judged(stage, findings)
    if found.skipped:
        judgement.not_checked.append(f"{', '.join(found.skipped)}: the file is not of an admissible profile")
    judgement.facts["ownership"] = found.report
    if found.owned is not None and found.first is None:
        judgement.facts["densePages"] = [[one.start, one.end] for one in found.owned.warm]
    if found.first is None:
        judgement.not_checked.append("payload: no value of a tensor and no page of a store was read")
        if found.descriptor.is_structural:
            judgement.not_checked.append("generation: structural admission-only; the fixture has no payload")
