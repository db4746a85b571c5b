"""The judgement of a contract, in four layers: form, rules, upstream's data, pins."""

import json
from typing import Any

from assay.spec.contract.contract import Contract
from assay.spec.errors import Finding
from assay.spec.rules import (
    admission,
    config,
    derived,
    expert_store,
    formulas,
    identity,
    metadata,
    ple,
    tensors,
    vocabulary,
)
from assay.spec.rules.base import Check, run_checks
from assay.spec.rules.form import TYPE, judge_form
from assay.spec.rules.pins import judge_pins
from assay.spec.rules.upstream import UpstreamFacts, upstream_checks

RULES: tuple[Check, ...] = (
    *identity.CHECKS,
    *config.CHECKS,
    *derived.CHECKS,
    *formulas.CHECKS,
    *ple.CHECKS,
    *tensors.CHECKS,
    *expert_store.CHECKS,
    *vocabulary.CHECKS,
    *metadata.CHECKS,
    *admission.CHECKS,
)
"""Every rule, in the order of the sections."""


def judge_contract(
    contract: Contract | Any,
    *,
    upstream: UpstreamFacts | None = None,
    pins: bool = True,
    profile: str | None = None,
) -> list[Finding]:
    """Returns every finding of every layer that can be judged; an empty list means that all clauses hold.

    Args:
        contract: a contract, or its JSON document (which may be anything at all).
        upstream: what is at hand of the published checkpoint; without it that layer is not judged.
        pins: whether to compare with the packaged profile.
        profile: name of the packaged profile to compare with; without it the document's own profile id decides.

    Rules and upstream's data need a document of the right form: when the form is broken, only form and pins are
    judged, and a pin keeps silent at a place where the form has spoken.
    """
    if isinstance(contract, Contract):
        return _judge(
            contract, json.loads(contract.model_dump_json(by_alias=True)), [], upstream, pins, profile
        )
    try:
        parsed, found = judge_form(contract)
    except RecursionError:
        limit = "a document of bounded depth"
        return [Finding.of(TYPE, "form", "contract", expected=limit, got="deeper nesting")]
    return _judge(parsed, contract, found, upstream, pins, profile)


def _judge(
    contract: Contract | None,
    document: Any,
    form: list[Finding],
    upstream: UpstreamFacts | None,
    pins: bool,
    profile: str | None,
) -> list[Finding]:
    found = list(form)
    if contract is not None:
        found += run_checks(contract, "rules", RULES)
        if upstream is not None:
            found += run_checks(contract, "upstream", upstream_checks(upstream))
    if pins:
        spoken = tuple(finding.where for finding in form)
        found += [one for one in judge_pins(document, profile) if not _below(one.where, spoken)]
    return found


def _below(where: str, places: tuple[str, ...]) -> bool:
    return any(where == place or where.startswith((f"{place}.", f"{place}[")) for place in places)
