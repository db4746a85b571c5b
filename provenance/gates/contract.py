"""Gates about the contract: the profiles obey their rules and pins, and agree with what upstream published."""

from collections.abc import Mapping

from assay.provenance.gates.base import GateContext, GateResult
from assay.spec.errors import Finding, most_telling
from assay.spec.profiles import PROFILES, profile_document
from assay.spec.rules import judge_contract, read_upstream
from assay.spec.verdicts import Outcome

PUBLISHED = "qwen4exp"


def rules(_context: GateContext) -> GateResult:
    """Judges every packaged profile by form, rules and pins."""
    found = {name: judge_contract(profile_document(name)) for name in PROFILES}
    findings = tuple(finding for one in found.values() for finding in one)
    measurements = {"profiles": {name: {"findings": len(one)} for name, one in found.items()}}
    return _result(findings, measurements)


def upstream(context: GateContext) -> GateResult:
    """Judges the public profile by the data that upstream published, as far as it is here."""
    assert context.checkpoint is not None  # noqa: S101 - the gate needs it
    facts = read_upstream(context.checkpoint)
    at_hand = sorted(name for name, value in vars(facts).items() if value is not None)
    absent = sorted(name for name, value in vars(facts).items() if value is None)
    measurements = {"judged_by": at_hand, "not_at_hand": absent}
    if "config" in absent or "tensors" in absent:
        reason = "the configuration and the tensors of the checkpoint are not at hand"
        return GateResult(Outcome.INCONCLUSIVE, measurements, reason=reason)
    return _result(tuple(judge_contract(profile_document(PUBLISHED), upstream=facts)), measurements)


def _result(findings: tuple[Finding, ...], measurements: Mapping[str, object]) -> GateResult:
    if findings:
        return GateResult(Outcome.FAIL, dict(measurements), findings, most_telling(findings).line)
    return GateResult(Outcome.PASS, dict(measurements))
