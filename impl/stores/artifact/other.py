"""Judges a GGUF file that is no artifact: what it is, which areas agree with the profile, and what can't be judged.

A conversion of this family by another project is compared area by area in that project's own words. A file of the
routed families 1 to 3 is one that `assay build` repacks, or already repacked. Any other model is another model, which
is one finding and not a thousand.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

from assay.impl.stores.artifact.descriptor import EXPERT_TENSOR, PLE_TENSOR
from assay.impl.stores.checkpoint.foreign import CONVERSION
from assay.impl.stores.expert_major.blocks import CONVERTER, GGML
from assay.impl.stores.expert_major.repack import ARCHITECTURES
from assay.impl.stores.expert_major.store import judge_expert_store
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.gguf.foreign import ARCHITECTURE, judge_gguf_folder
from assay.impl.stores.gguf.reader import Gguf, read_gguf
from assay.impl.stores.gguf.rules import OPAQUE_NAMES, judge_gguf, split_unknown
from assay.impl.stores.store_files import CONTRACT, judge_expert_payload, judge_experts, judge_rows
from assay.spec.contract import Contract
from assay.spec.errors import Finding
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.profiles import load_profile

KIND: Final = "gguf"


def judge_other(path: Path, gguf: Gguf, options: JudgeOptions) -> Judgement:
    """Judges a GGUF file that doesn't claim to be an artifact.

    Raises:
        AdmissionError: store.file.*, when the file can't be read again.
    """
    judgement = Judgement(KIND, is_private=options.is_private)
    contract = load_profile("qwen4exp")
    architecture = _architecture(gguf)
    judgement.facts |= _facts(gguf, architecture)
    if architecture == contract.identity.gguf_architecture:
        _conversion(judgement, path, contract)
    elif architecture in ARCHITECTURES:
        _routed_family(judgement, path, architecture, options)
    else:
        _another_model(judgement, path, architecture, contract)
    _stores(judgement, path, gguf, options, skip=EXPERT_TENSOR if architecture in ARCHITECTURES else None)
    return judgement


def _stores(judgement: Judgement, path: Path, gguf: Gguf, options: JudgeOptions, *, skip: str | None) -> None:
    """Judges the stores that a file holds, whatever it is: an opaque tensor is no reason not to look inside."""
    with StoreFile.open(path) as file:
        for tensor in gguf.tensors:
            if tensor.name not in OPAQUE_NAMES or tensor.name == skip:
                continue
            if tensor.bytes is None:
                judgement.not_checked.append(f"{tensor.name}: its directory record gives it no size")
                continue
            place = file.extent(gguf.data_start + tensor.offset, tensor.bytes, tensor.name)
            judge = judge_rows if tensor.name == PLE_TENSOR else judge_experts
            judge(place, judgement, options, f"{tensor.name} ")


def _conversion(judgement: Judgement, path: Path, contract: Contract) -> None:
    """Another project's conversion of this family: it can agree, but can't be shown to be the checkpoint."""
    judgement.facts["conversion"] = "a llama.cpp GGUF conversion of this family"
    gap = Finding.of(
        CONVERSION, "identity", path.name, expected="an artifact of this project",
        got="a llama.cpp GGUF conversion, by its architecture and the lack of ds4.* keys",
    )  # fmt: skip
    judgement.judged("identity", gaps=[gap])
    judge_gguf_folder(judgement, path.parent, [path.name], contract)
    judgement.not_checked.append("values: a conversion's numbers are not those of the checkpoint")


def _routed_family(judgement: Judgement, path: Path, architecture: str, options: JudgeOptions) -> None:
    family = ARCHITECTURES[architecture]
    with StoreFile.open(path) as file:
        extent = file.extent()
        gguf = read_gguf(extent, blocks=CONVERTER)
        judgement.judged("structure", judge_gguf(gguf, extent))
        store = gguf.tensor(EXPERT_TENSOR)
        native = store is not None and store.bytes is not None
        judgement.facts["conversion"] = (
            f"a {'native' if native else 'canonical'} file of family {family.id}, {family.name}"
        )
        if store is not None and store.bytes is not None:
            place = extent.part(gguf.data_start + store.offset, store.bytes, EXPERT_TENSOR)
            manifest, found = judge_expert_store(place, family)
            judgement.judged("expert_store", found)
            if not options.with_payload:
                judgement.not_checked.append("payload: not asked for (--payload reads the expert store)")
            elif manifest is not None and not found:
                judge_expert_payload(place, manifest, judgement, options)
        else:
            judgement.not_checked.append("routed experts: `assay build` repacks them into an expert store")
    gap = Finding.of(
        CONTRACT,
        "gguf",
        "metadata and tensors",
        expected="those of a profile",
        got=f"no profile of {family.name}",
    )
    judgement.judged("contract", gaps=[gap])


def _another_model(judgement: Judgement, path: Path, architecture: str | None, contract: Contract) -> None:
    with StoreFile.open(path) as file:
        extent = file.extent()
        gguf = read_gguf(extent)
        judgement.judged("structure", *split_unknown(judge_gguf(gguf, extent)))
    if architecture is None:
        gap = Finding.of(
            CONTRACT, "gguf", "general.architecture", expected="an architecture", got="no such text"
        )
        judgement.judged("identity", gaps=[gap])
    else:
        wanted = contract.identity.gguf_architecture
        fault = Finding.of(
            ARCHITECTURE, "identity", "general.architecture", expected=wanted, got=architecture
        )
        judgement.judged("identity", [fault])
    judgement.not_checked.append("configuration, tensors and tokenizer: nothing here knows that model")


def _facts(gguf: Gguf, architecture: str | None) -> dict[str, Any]:
    types = Counter(
        GGML[one.type_id].name if one.type_id in GGML else f"type {one.type_id}" for one in gguf.tensors
    )
    return {
        "architecture": architecture,
        "metadataEntries": len(gguf.entries),
        "tensors": len(gguf.tensors),
        "types": dict(types),
        "alignment": gguf.alignment,
        "headerBytes": gguf.data_start,
        "fileBytes": gguf.file_bytes,
    }


def _architecture(gguf: Gguf) -> str | None:
    value = gguf.value("general.architecture")
    if value is None or value.type.name != "STRING":
        return None
    return value.data[8:].decode("utf-8", "replace")
