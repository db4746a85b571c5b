"""Gates about checkpoints: the real description where it is here, and both sides of the private seam."""

import shutil

from assay.impl.stores.checkpoint.judge import judge_checkpoint
from assay.provenance.gates.base import GateContext, GateResult
from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding, most_telling
from assay.spec.judgement import Judgement, JudgeOptions
from assay.spec.verdicts import Outcome, Verdict

SEAM = declare(
    "gate.checkpoint-seam",
    Authority.PROCESS,
    "The miniature is accepted through the private seam and refused without it.",
    source="AFN-013",
    cause="a private profile became selectable, or the reader or writer of checkpoints changed",
)


def real_description(context: GateContext) -> GateResult:
    """Judges the description of the real checkpoint; what is not there is said, and is no pass of it."""
    assert context.checkpoint is not None  # noqa: S101 - the gate needs it
    options = JudgeOptions(checkpoint=context.checkpoint, jobs=context.jobs)
    judgement = judge_checkpoint(context.checkpoint, options)
    areas = {name: verdict.value for name, verdict in judgement.areas.items()}
    measurements = {
        "areas": areas,
        "not_judged": [finding.line for finding in judgement.gaps] + judgement.not_checked,
        "facts": judgement.facts,
    }
    if judgement.faults:
        return GateResult(
            Outcome.FAIL, measurements, tuple(judgement.faults), most_telling(judgement.faults).line
        )
    lacking = [name for name in ("config", "hash", "index", "inventory") if areas.get(name) != "accepted"]
    if lacking:
        reason = f"not judged in full: {', '.join(lacking)}"
        return GateResult(Outcome.INCONCLUSIVE, measurements, tuple(judgement.gaps), reason)
    return GateResult(Outcome.PASS, measurements)


def private_seam(context: GateContext) -> GateResult:
    """Writes the miniature's checkpoint, and judges it through the private seam and without it."""
    from assay.provenance.miniature import write_miniature

    folder = context.out / "miniature"
    shutil.rmtree(folder, ignore_errors=True)
    write_miniature(folder)
    through = judge_checkpoint(folder, JudgeOptions(is_private=True, jobs=context.jobs))
    public = judge_checkpoint(folder, JudgeOptions(jobs=context.jobs))
    shutil.rmtree(folder)
    findings = []
    if through.verdict is not Verdict.ACCEPTED:
        findings += [_seam("with --private", "accepted", through), *through.findings]
    if public.verdict is not Verdict.REJECTED:
        findings.append(_seam("without --private", "rejected", public))
    measurements = {
        "with_private": through.verdict.value,
        "without_private": public.verdict.value,
        "refused_by": sorted({finding.code for finding in public.faults}),
    }
    outcome = Outcome.FAIL if findings else Outcome.PASS
    reason = findings[0].line if findings else ""
    return GateResult(outcome, measurements, tuple(findings), reason, is_private=True)


def _seam(where: str, expected: str, judgement: Judgement) -> Finding:
    return Finding.of(SEAM, "gate", f"miniature {where}", expected=expected, got=judgement.verdict.value)
