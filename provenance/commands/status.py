"""`assay status`: the labels that follow from the evidence, why, and what is missing for the next rung."""

import argparse
from pathlib import Path

from assay.provenance.evidence.claims import check_claims, overclaims
from assay.provenance.evidence.heads import read_against_runs
from assay.provenance.evidence.ledger import Ledger
from assay.provenance.evidence.status import Registry, compute_status, present_state
from assay.provenance.evidence.subjects import SourceTree
from assay.provenance.output import emit, emit_json, output_format, say
from assay.provenance.paths import checkpoint_directory, evidence_directory, runs_directory
from assay.spec.documents.status import Status
from assay.spec.errors import usage_error
from assay.spec.verdicts import ExitCode, Label, worst_exit


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("component", nargs="*", help="only these components")
    parser.add_argument("--evidence", type=Path, metavar="DIR", help="the evidence folder (default: .assay)")
    parser.add_argument(
        "--check", type=Path, metavar="FILE", help="compare the labels claimed in FILE (README.md) with these"
    )
    parser.add_argument(
        "--column", metavar="TITLE", help="with --check: the column of labels (default: the first)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the labels; 4 when evidence is damaged, 1 when --check finds a claim beyond its evidence."""
    registry = Registry.default()
    known = {one.id for one in registry.components}
    for name in arguments.component:
        if name not in known:
            raise usage_error("component", expected=f"one of {', '.join(sorted(known))}", got=name)
    ledger = Ledger(evidence_directory(arguments.evidence))
    chain = read_against_runs(ledger, runs_directory(arguments.out))
    present = present_state(registry, SourceTree(), checkpoint_directory())
    status = compute_status(chain, present, registry)
    codes = [ExitCode.EVIDENCE] if chain.findings else []
    if arguments.check is not None:
        labels = {one.component: Label(one.label) for one in status.labels}
        status = status.model_copy(
            update={"claims": check_claims(_text(arguments.check), labels, arguments.column)}
        )
        for finding in overclaims(status.claims):
            say(finding.line)
            codes.append(ExitCode.FAILED)
    if arguments.component:
        chosen = [one for one in status.labels if one.component in arguments.component]
        status = status.model_copy(update={"labels": chosen})
    for finding in chain.findings:
        say(finding.line)
    style = output_format(arguments)
    if style == "json":
        emit_json(status.model_dump(mode="json", by_alias=True))
    elif style == "markdown":
        emit(as_markdown(status))
    elif style == "junit":
        raise usage_error("--format", expected="pretty, json or markdown", got="junit")
    else:
        emit(as_text(status))
    return worst_exit(codes)


def as_text(status: Status) -> str:
    """Returns the status for a terminal: labels first, then what is missing, what is not claimed, what to run."""
    width = max((len(one.component) for one in status.labels), default=0)
    lines = []
    for one in status.labels:
        passed = sum(state == "pass" for state in one.gates.values())
        lines.append(f"{one.component:<{width}}  {one.label:<19}  {passed}/{len(one.gates)} gates pass")
        lines += [f"{'':<{width}}    holds: {one.claim}"] if one.claim else []
        lines += [f"{'':<{width}}    not yet shown: {' '.join(one.not_shown)}"] if one.not_shown else []
        lines += [f"{'':<{width}}    missing: {why}" for why in one.missing]
    lines += [f"{one.profile}: {one.state}" for one in status.support]
    for title, texts in (
        ("evidence", _ledger_lines(status)),
        ("claims", [f"{one.component}: {one.claimed}: {one.verdict}" for one in status.claims]),
        ("not claimed", status.not_claimed),
        ("next", status.next_steps),
    ):
        if texts:
            lines += ["", f"{title}:", *(f"  {text}" for text in texts)]
    return "\n".join(lines)


def as_markdown(status: Status) -> str:
    """Returns the labels as a table that can stand between the markers of a README."""
    rows = [
        f"| {one.component} | {one.label} | {one.claim or 'nothing is claimed'} | {'; '.join(one.not_shown) or '-'} |"
        for one in status.labels
    ]
    return "\n".join(["| component | label | what holds | not yet shown |", "|---|---|---|---|", *rows])


def _ledger_lines(status: Status) -> list[str]:
    ledger = status.ledger
    damage = [f"{one.code}: {one.where}: expected {one.expected}, got {one.got}" for one in ledger.findings]
    return [f"{ledger.records} records, head {ledger.head or 'none'}. {ledger.boundary}", *damage]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(
            "--check", expected="a text file that can be read", got=f"{path}: {error}"
        ) from error
