"""`assay capture`: run the pinned upstream on every case; `--check` compares with what is shipped."""

import argparse
from pathlib import Path

from assay.provenance.captures.geometries import CASES
from assay.provenance.output import emit, emit_json, output_format, say
from assay.provenance.paths import fixture_path
from assay.spec.documents.base import FindingRecord
from assay.spec.documents.capture_check import CaptureCheck
from assay.spec.errors import AdmissionError, Finding, usage_error
from assay.spec.verdicts import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help="cases to run (default: all)")
    parser.add_argument("--list", action="store_true", help="list the cases; needs no upstream")
    parser.add_argument(
        "--check", action="store_true", help="capture to memory and compare with the shipped bytes"
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="judge the shipped fixtures without upstream, as `assay validate` does",
    )
    parser.add_argument(
        "--fixtures", type=Path, metavar="DIR", help="the shipped fixtures (default: the package's)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes captures to --out, or checks the shipped ones."""
    known = [case.id for case in CASES]
    unknown = [name for name in arguments.cases if name not in known]
    if unknown:
        raise usage_error("capture", expected=f"one of {', '.join(known)}", got=unknown[0])
    if arguments.list:
        emit("\n".join(f"{case.id}\t{case.title}" for case in CASES))
        return ExitCode.OK
    shipped = arguments.fixtures or fixture_path("captures")
    if arguments.offline:
        from assay.impl.captures.fixtures import set_faults

        try:
            findings, facts = set_faults(shipped)
        except AdmissionError as error:  # no set to judge, such as a folder without its index
            findings, facts = [error.finding], {}
        return _report(arguments, findings, facts)
    if arguments.check:
        from assay.provenance.captures.regenerate import check

        findings, compared = check(shipped, arguments.cases)
        return _report(arguments, findings, {"arraysCompared": compared})
    if arguments.out is None:
        raise usage_error(
            "--out", expected="a folder to write captures to", got="none",
            hint="the shipped fixtures are written with --out fixtures/captures; --check compares without writing",
        )  # fmt: skip
    from assay.provenance.captures.regenerate import capture_into

    for id_ in capture_into(arguments.out, arguments.cases):
        emit(str(arguments.out / id_))
    return ExitCode.OK


def _report(arguments: argparse.Namespace, findings: list[Finding], facts: dict[str, object]) -> int:
    if output_format(arguments) == "json":
        records = [FindingRecord(**finding.as_json()) for finding in findings]
        result = CaptureCheck(outcome="fail" if findings else "pass", facts=facts, findings=records)
        emit_json(result.model_dump(by_alias=True))
    else:
        emit("; ".join(f"{name}: {value}" for name, value in facts.items()))
        for finding in findings:
            say(finding.line)
            if finding.hint:
                say(f"hint: {finding.hint}")
        emit("pass" if not findings else f"fail: {len(findings)} findings")
    return ExitCode.EVIDENCE if findings else ExitCode.OK
