"""The battery `contract`: the published 153, and at least one mutation of every leaf of contract, config and inventory.

Data that is compared with its own copy kills everything and proves nothing. So every mutation goes through all layers
of judgement, and what killed it is counted by the strongest: a rule, upstream's data, the form, or a pin alone.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Final

from assay.mutations import contract_inventory, contract_published
from assay.mutations.battery import Battery, BatteryContext, InvalidMutationError, Mutation
from assay.mutations.json_edits import Edit, another_type, another_value, apply_edits, value_at
from assay.spec.errors import Finding
from assay.spec.leaves import Path, leaves, path_text
from assay.spec.profiles import load_profile, profile_document
from assay.spec.rules.judge import judge_contract
from assay.spec.rules.pin_reasons import pin_reason
from assay.spec.rules.pins import pin_clause
from assay.spec.rules.upstream import UpstreamFacts
from assay.spec.rules.upstream_files import read_upstream

PROFILE: Final = "qwen4exp"
_FORM: Final = tuple(
    f"contract.form.{name}" for name in ("type", "missing", "extra", "constant", "domain", "length")
)
_CONFIG: Final = ("config.value", "config.type", "config.missing", "config.extra", "config.family")


def list_mutations(context: BatteryContext) -> list[Mutation]:
    """Lists the published mutations, then those of the contract, the real config and the real inventory."""
    found = [*_published(), *_of_contract()]
    if (upstream := _upstream(context.checkpoint)) is not None:
        found.append(_published_classification())
        if upstream.all_zero_rows is not None:
            found.append(_published_padding_row())
        found += _of_config(dict(upstream.config or {}))
    if context.checkpoint is not None:
        found += contract_inventory.list_mutations(context.checkpoint)
    return found


def judge(mutation: Mutation, context: BatteryContext) -> list[Finding]:
    """Applies one mutation to a copy and judges it in every layer."""
    target, payload = mutation.payload
    upstream = _upstream(context.checkpoint)
    if target == "contract":
        return judge_contract(apply_edits(_document(), payload), upstream=upstream)
    if target == "facts":
        if upstream is None:
            raise InvalidMutationError("upstream's data is absent")
        return judge_contract(load_profile(PROFILE), upstream=_changed_facts(upstream, payload))
    if context.checkpoint is None:
        raise InvalidMutationError("the real checkpoint's description is absent")
    if target == "config":
        return _judge_config(apply_edits(_real_config(context.checkpoint), payload))
    return contract_inventory.judge(payload, context.checkpoint)


def _published() -> Iterator[Mutation]:
    for name, make, clauses in contract_published.PUBLISHED:
        edit = make()
        yield Mutation(
            name,
            f"published {name.partition('.')[0]}",
            path_text(edit.path),
            edit.text,
            tuple(clauses.split("|")),
            payload=("contract", (edit,)),
        )


def _published_classification() -> Mutation:
    change = "upstream's headers: one base tensor is named as a vision tensor"
    return Mutation(
        "fixtureClassification", "published facts", "headers", change, ("upstream.totals",),
        "source_pins.classification", payload=("facts", "classification"),
    )  # fmt: skip


def _published_padding_row() -> Mutation:
    change = "upstream's probe: the padding row of the embedding is all zero"
    return Mutation(
        "fixturePaddingProbe", "published facts", "embedding row", change, ("upstream.padding-row",),
        "graph_facts.embedding_padding_row", payload=("facts", "padding row"),
    )  # fmt: skip


def _changed_facts(upstream: UpstreamFacts, change: str) -> UpstreamFacts:
    if change == "classification":
        first, *rest = upstream.tensors or ()
        return replace(upstream, tensors=[("model.visual.renamed", *first[1:]), *rest])
    rows = dict.fromkeys(upstream.all_zero_rows or {}, True)
    return replace(upstream, all_zero_rows=rows)


def _of_contract() -> Iterator[Mutation]:
    for edit, kind in leaf_edits(_document()):
        where = path_text(edit.path)
        section = f"contract {edit.path[0]}"
        yield Mutation(
            f"contract:{where}:{kind}", section, where, edit.text, (*_pins(edit.path), *_FORM),
            payload=("contract", (edit,)),
        )  # fmt: skip


def _pins(path: Path) -> tuple[str, ...]:
    # A section that the contract does not have is the form's business alone.
    return (pin_clause(path),) if path[0] in _document() else ()


def _of_config(config: dict[str, Any]) -> Iterator[Mutation]:
    unjudged = {leaf.path: leaf.reason for leaf in load_profile(PROFILE).config.unjudged}
    for edit, kind in leaf_edits(config):
        where = path_text(edit.path)
        yield Mutation(
            f"config:{where}:{kind}", "real config", where, edit.text, _CONFIG,
            equivalent=unjudged.get(where, ""), payload=("config", (edit,)),
        )  # fmt: skip


def leaf_edits(document: Any) -> Iterator[tuple[Edit, str]]:
    """Yields at least one edit for every leaf, and the kind of each.

    For a leaf: another value, another type with the same printed value, absence. For an object: one more field.
    For an array: one item more, two neighbours exchanged where they differ.
    """
    for path, value in leaves(document):
        if not path:
            continue
        yield Edit("set", path, another_value(value)), "value"
        yield Edit("set", path, another_type(value)), "type"
        yield Edit("remove", path), "missing"
    for path, container in _containers(document):
        if isinstance(container, dict):
            yield Edit("add", (*path, "unknown_field"), 1), "extra"
            continue
        if container:
            yield Edit("add", (*path, len(container)), container[-1]), "extra"
        for index in range(len(container) - 1):
            if container[index] != container[index + 1]:
                yield Edit("swap", (*path, index)), "order"


def _containers(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, (dict, list)):
        yield path, value
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _containers(item, (*path, key))


def _judge_config(config: Any) -> list[Finding]:
    from assay.impl.stores.checkpoint.config_fields import judge_config, judge_family
    from assay.impl.stores.checkpoint.hash_derivation import judge_hash

    contract = load_profile(PROFILE)
    return [
        *judge_family(config, contract),
        *judge_config(config, contract),
        *judge_hash(config, contract),
        *_judge_rules(config),
    ]


def _judge_rules(config: Any) -> list[Finding]:
    """Puts the config in the contract's place and asks the rules alone, where its form allows."""
    document = profile_document(PROFILE)
    section, words = document["config"], set(document["config"]["top"])
    section["top"] = {key: value for key, value in config.items() if key in words}
    section["text"], section["vision"] = config.get("text_config"), config.get("vision_config")
    found = judge_contract(document, pins=False)
    return [one for one in found if one.stage == "rules"]


def _control(context: BatteryContext) -> list[Finding]:
    found = judge_contract(profile_document(PROFILE), upstream=_upstream(context.checkpoint))
    if context.checkpoint is not None:
        found += _judge_config(_real_config(context.checkpoint))
        found += contract_inventory.judge(None, context.checkpoint)
    return found


def _forced(_context: BatteryContext) -> Mutation:
    edit = Edit(
        "set", ("ple_hash", "layer_multipliers", 0), value_at(profile_document(PROFILE), ("ple_hash", "seed"))
    )
    return Mutation(
        "forced",
        "control",
        path_text(edit.path),
        edit.text,
        ("ple.hash.multipliers",),
        payload=("contract", (edit,)),
    )


def _not_run(context: BatteryContext) -> list[str]:
    if context.checkpoint is None:
        return ["everything that upstream's data decides: the real checkpoint's description is absent"]
    upstream = _upstream(context.checkpoint)
    if upstream is not None and upstream.all_zero_rows is None:
        return ["fixturePaddingProbe: the rows of the embedding can be read from real shards only"]
    return []


def _pin_reason(mutation: Mutation) -> str:
    """Says why only a pin caught this; a leaf of the real config is a leaf of the contract's section `config`."""
    target, payload = mutation.payload
    if target == "inventory":
        return contract_inventory.PIN_REASON
    path: Path = payload[0].path
    found = pin_reason(path if target == "contract" else _contract_path(path))
    if found is None and payload[0].action == "swap":
        return (
            "The order of a list whose items are judged one by one; the order itself is a published choice."
        )
    return found.reason if found is not None else ""


def _contract_path(path: Path) -> Path:
    first, *rest = path
    if first in {"text_config", "vision_config"}:
        return ("config", str(first).removesuffix("_config"), *rest)
    return ("config", "top", *path)


@cache
def _document() -> dict[str, Any]:
    return profile_document(PROFILE)


@cache
def _upstream(checkpoint: FilePath | None) -> UpstreamFacts | None:
    return None if checkpoint is None else read_upstream(checkpoint)


def _real_config(checkpoint: FilePath) -> dict[str, Any]:
    upstream = _upstream(checkpoint)
    if upstream is None or upstream.config is None:
        raise InvalidMutationError("config.json is absent")
    return dict(upstream.config)


BATTERY: Final = Battery(
    name="contract",
    title="Every fact of the contract, the real config and the real inventory is guarded by some check.",
    mutations=list_mutations,
    judge=judge,
    control=_control,
    forced=_forced,
    pin_reasons=_pin_reason,
    not_run=_not_run,
)
