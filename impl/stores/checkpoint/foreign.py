"""Recognises a directory that is something else than the pinned checkpoint, and judges it area by area.

A conversion is not a damaged checkpoint. Saying that a thousand fields are missing helps nobody; saying what it is,
which areas agree with the profile all the same, and what can't be judged, does.
"""

import re
from dataclasses import dataclass
from typing import Final

from assay.impl.stores.checkpoint.config_fields import (
    EXTRA,
    MISSING,
    is_other_family,
    judge_config,
    judge_family,
)
from assay.impl.stores.checkpoint.foreign_names import ConversionMap, map_conversion
from assay.impl.stores.checkpoint.hash_derivation import INPUTS, judge_hash
from assay.impl.stores.checkpoint.inventory import gather_inventory
from assay.impl.stores.checkpoint.layout import Layout
from assay.impl.stores.checkpoint.published_files import judge_carried_files
from assay.impl.stores.checkpoint.tokenizer_ids import judge_declared_ids
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract, expand_tensors
from assay.spec.errors import Finding
from assay.spec.judgement import Judgement

CONVERSION: Final = declare(
    "foreign.conversion", Authority.UPSTREAM,
    "A directory holds the pinned checkpoint itself; a conversion can agree with it, but can't be shown to be it.",
    source="assay: conversions", cause="a GGUF, MLX or re-quantised release, or a re-save of the model",
    fix="validate the checkpoint that it was made from, and compare captures of both",
)  # fmt: skip
SHAPE: Final = declare(
    "foreign.shape", Authority.RULE, "The stored geometry of a converted tensor can hold its role's logical shape.",
    source="the roles of the profile", cause="another size of the model, or a codec whose groups do not fit the width",
)  # fmt: skip
DROPPED: Final = declare(
    "foreign.dropped", Authority.RULE, "A role that a conversion holds in some layers is there in all of them.",
    source="the roles of the profile", cause="tensors lost in the conversion",
)  # fmt: skip
UNMAPPED: Final = declare(
    "foreign.unmapped", Authority.PROCESS, "Every role is found under a name that conversions are known to use.",
    source="assay: conversions", cause="a conversion with names of its own; the role may be there and not be recognised",
)  # fmt: skip
CONTRADICTED: Final = declare(
    "foreign.contradicted", Authority.RULE, "A config that says that weights are packed stands beside packed weights.",
    source="assay: conversions", cause="a field added by hand or by a tool, beside the tensors of the checkpoint itself",
    fix="remove the field, or fetch the tensors that it speaks of",
)  # fmt: skip
RETYPED: Final = declare(
    "foreign.retyped", Authority.RULE, "A parameter keeps a type that holds all of its values.",
    source="assay: conversions", cause="BF16 stored as F16: values above 65,504 and below 2^-24 do not survive",
    fix="compare the values with the checkpoint's; headers don't show them",
)  # fmt: skip
UNJUDGED: Final = declare(
    "checkpoint.unjudged", Authority.PROCESS, "An area holds what its judgement needs.",
    source="assay: checkpoints", cause="a file is absent or illegible, or a conversion keeps it elsewhere",
)  # fmt: skip

_SPLIT_EXPERT: Final = re.compile(r"\.mlp\.experts\.\d+\.")
_REQUANTISED: Final = re.compile(r"[._](weight_scale|weight_scale_inv|weight_packed|qweight|scale_inv)$")
_SHOWN_NAMES: Final = 6
_CLAIMS: Final = ("quantization", "quantization_config")


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a directory turned out to be, and the marks that say so."""

    title: str
    marks: tuple[str, ...]


def recognise(layout: Layout, contract: Contract) -> Conversion | None:
    """Returns what a directory is when it is not the checkpoint itself; None when nothing says otherwise."""
    config = layout.config or {}
    if layout.config is not None and is_other_family(config, contract):
        return Conversion(f"a checkpoint of another family, {config.get('model_type')}", ("model_type",))
    gguf = [name for name in layout.names if name.endswith(".gguf")]
    if gguf and not layout.headers:
        return Conversion("a llama.cpp GGUF conversion", tuple(gguf[:_SHOWN_NAMES]))
    names = [tensor.name for header in layout.headers.values() for tensor in header.tensors]
    names = names or list(layout.index.owners if layout.index is not None else ())
    has_affine = any(name.endswith(".scales") for name in names) and any(
        name.endswith(".biases") for name in names
    )
    claims = [key for key in _CLAIMS if isinstance(config.get(key), dict)]
    if claims and _is_unchanged(layout, contract):
        return None  # the mark is contradicted: judged as what the tensors are
    if isinstance(config.get("quantization"), dict) or has_affine or _starts(names, "language_model."):
        marks = _marks(("config.json: quantization", "quantization" in config), ("*.scales and *.biases", has_affine),
                       ("language_model.* names", _starts(names, "language_model.")))  # fmt: skip
        return Conversion("an MLX conversion", marks)
    has_scales = any(_REQUANTISED.search(name) for name in names)
    if isinstance(config.get("quantization_config"), dict) or has_scales:
        method = config.get("quantization_config")
        word = method.get("quant_method") if isinstance(method, dict) else None
        title = f"a re-quantised release ({word})" if isinstance(word, str) else "a re-quantised release"
        marks = _marks(
            ("config.json: quantization_config", "quantization_config" in config),
            ("scale tensors", has_scales),
        )
        return Conversion(title, marks)
    if any(_SPLIT_EXPERT.search(name) for name in names):
        return Conversion("a re-save with one tensor an expert", ("*.mlp.experts.N.* names",))
    return None


def contradicted_marks(layout: Layout, contract: Contract) -> list[Finding]:
    """Returns the marks of a conversion that the tensors contradict: packed weights are claimed and none is there."""
    claims = [key for key in _CLAIMS if (layout.config or {}).get(key) is not None]
    if not claims or not _is_unchanged(layout, contract):
        return []
    return [
        Finding.of(CONTRADICTED, "config", f"config.json: {key}", expected="scale tensors, or packed weights",
                   got="names and types of the roles themselves, and no others")
        for key in claims
    ]  # fmt: skip


def _is_unchanged(layout: Layout, contract: Contract) -> bool:
    """Says whether every tensor that is known has the name and the type of its role, so that nothing was packed."""
    types = {spec.name: spec.dtype for spec in expand_tensors(contract)}
    excluded = (contract.exclusions.vision_prefix, contract.exclusions.mtp_prefix)
    if layout.headers:
        tensors = (tensor for header in layout.headers.values() for tensor in header.tensors)
        return all(
            types.get(one.name) == one.dtype or (one.name.startswith(excluded) and one.dtype == "BF16")
            for one in tensors
        )
    owners = layout.index.owners if layout.index is not None else {}
    return bool(owners) and all(name in types or name.startswith(excluded) for name in owners)


def judge_foreign(judgement: Judgement, layout: Layout, contract: Contract, conversion: Conversion) -> None:
    """Judges what can be judged of a conversion, area by area."""
    judgement.facts |= {"conversion": conversion.title, "marks": list(conversion.marks)}
    if layout.config is not None and is_other_family(layout.config, contract):
        judgement.judged("config", judge_family(layout.config, contract))
        judgement.not_checked += [
            "hash: another family has none, or another",
            "inventory: the roles of this profile say nothing about another family's tensors",
        ]
        if layout.headers or layout.unread_shards:
            judgement.judged("headers", layout.found("headers")[0])
        _judge_tokenizer(judgement, layout, contract)
        return
    judgement.gaps.append(
        Finding.of(CONVERSION, "identity", str(layout.folder.name), expected=f"{contract.identity.repository} itself",
                   got=f"{conversion.title}, by {', '.join(conversion.marks)}")
    )  # fmt: skip
    gguf = [name for name in layout.names if name.endswith(".gguf")]
    if gguf and not layout.headers:
        from assay.impl.stores.gguf.foreign import judge_gguf_folder

        judge_gguf_folder(judgement, layout.folder, gguf, contract)
        judgement.not_checked.append("values: a conversion's numbers are not those of the checkpoint")
        return
    _judge_config(judgement, layout, contract)
    if layout.headers:
        _judge_tensors(judgement, layout, contract)
    else:
        judgement.judged("inventory", gaps=[_unjudged("inventory", "no safetensors header is here")])
    _judge_tokenizer(judgement, layout, contract)
    judgement.not_checked.append("values: a conversion's numbers are not those of the checkpoint")


def _judge_config(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    """Judges the fields that are there; a converter adds some and drops others, which is said but not held wrong."""
    if layout.config is None:
        judgement.judged("config", layout.found("config")[0], [_unjudged("config", "no config.json is here")])
        judgement.judged("hash", gaps=[_unjudged("hash", "no config.json is here")])
        return
    findings = judge_config(layout.config, contract)
    added = [finding.where.removeprefix("config.json: ") for finding in findings if finding.code == EXTRA]
    dropped = [finding.where.removeprefix("config.json: ") for finding in findings if finding.code == MISSING]
    judgement.facts["config_fields_added"] = added
    gaps = (
        [_unjudged("config", f"{len(dropped)} pinned fields are not in it: {_some(dropped)}")]
        if dropped
        else []
    )
    judgement.judged("config", [one for one in findings if one.code not in {EXTRA, MISSING}], gaps)
    hash_findings = judge_hash(layout.config, contract)
    absent = [
        finding.where for finding in hash_findings if finding.code == INPUTS and finding.got == "nothing"
    ]
    if absent:
        judgement.judged(
            "hash", gaps=[_unjudged("hash", f"{len(absent)} of its inputs are not in config.json")]
        )
    else:
        judgement.judged("hash", hash_findings)


def _judge_tensors(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    judgement.judged("index", layout.found("index")[0])
    judgement.judged("headers", *layout.found("headers"))
    absent = {*layout.absent_shards, *layout.unread_shards}
    inventory, faults = gather_inventory(layout.index, layout.headers, absent)
    mapped = map_conversion(inventory.rows, contract, block=_scale_block(layout))
    judgement.facts |= {
        "tensors": len(inventory.rows),
        "payload_bytes": inventory.total_bytes,
        "roles_as_is": sum(role.as_is for role in mapped.roles.values()),
        "roles_recoded": sum(role.recoded for role in mapped.roles.values()),
        "codecs": mapped.codecs,
        "bits_per_weight": mapped.bits_per_weight,
    }
    shape_faults, gaps = _role_findings(mapped, is_complete=layout.is_complete)
    if not layout.is_complete:
        entries = sum(len(header.unread) for header in layout.headers.values())
        gaps.append(_unjudged("inventory", f"{len(absent)} shards and {entries} entries could not be read"))
    of_index = [one for one in faults if one.stage == "index"]
    if of_index:
        judgement.judged("index", of_index)
    judgement.judged("inventory", [*(one for one in faults if one.stage != "index"), *shape_faults], gaps)
    judgement.not_checked.append("excluded tensors (vision, draft head): a conversion may leave them out")


def _role_findings(mapped: ConversionMap, *, is_complete: bool) -> tuple[list[Finding], list[Finding]]:
    faults: list[Finding] = []
    gaps: list[Finding] = []
    for role in mapped.roles.values():
        for name, expected, got in role.misfits[:1]:
            count = f" (and {len(role.misfits) - 1} more of this role)" if len(role.misfits) > 1 else ""
            faults.append(Finding.of(SHAPE, "inventory", name, expected=expected, got=f"{got}{count}"))
        if role.narrowed:
            got = f"{len(role.narrowed)} of {role.expected} stored as F16, such as {role.narrowed[0]}"
            gaps.append(Finding.of(RETYPED, "inventory", role.pattern, expected="BF16 or F32", got=got))
        if not role.absent:
            continue
        if len(role.absent) == role.expected:
            got = "nothing under a known name"
            gaps.append(
                Finding.of(UNMAPPED, "inventory", role.pattern, expected=f"{role.expected} tensors", got=got)
            )
        elif is_complete:
            got = f"{role.expected - len(role.absent)}; not {_some(role.absent)}"
            faults.append(
                Finding.of(DROPPED, "inventory", role.pattern, expected=f"{role.expected} tensors", got=got)
            )
    gaps += [
        Finding.of(UNMAPPED, "inventory", pattern, expected="a name that conversions are known to use",
                   got=f"{count} tensors that no role explains")
        for pattern, count in mapped.unexplained.items()
    ]  # fmt: skip
    return faults, gaps


def _judge_tokenizer(judgement: Judgement, layout: Layout, contract: Contract) -> None:
    faults, absent = judge_declared_ids(layout.folder, layout.names, contract)
    judgement.judged("tokenizer", faults, [_unjudged("tokenizer", f"no {name} is here") for name in absent])
    judge_carried_files(judgement, layout, contract)
    judgement.not_checked.append(
        "tokenizer behaviour: declared ids, file digests and the meaning of tokenizer.json are judged here"
    )


def _scale_block(layout: Layout) -> tuple[int, int] | None:
    """Returns the rows and columns that share a scale, where the config says so legibly."""
    claim = (layout.config or {}).get("quantization_config")
    block = claim.get("weight_block_size") if isinstance(claim, dict) else None
    if isinstance(block, list) and len(block) == 2 and all(type(one) is int and one > 0 for one in block):
        return block[0], block[1]
    return None


def _starts(names: list[str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in names)


def _marks(*found: tuple[str, bool]) -> tuple[str, ...]:
    return tuple(mark for mark, is_there in found if is_there)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def _unjudged(area: str, why: str) -> Finding:
    return Finding.of(UNJUDGED, area, area, expected="something to judge", got=why)
