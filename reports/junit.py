"""JUnit XML of a run: one test case a gate, so that any CI shows what fails and what was left out.

A gate that is inconclusive, or required and not run, is an error: a CI that counts only failures must not read it
as success. A gate that was not run and not required is skipped, with its reason.
"""

from typing import Final
from xml.etree import ElementTree as ET

from assay.reports.text import clean
from assay.spec.documents.run import GateRecord, Run
from assay.spec.documents.run_comparison import GateChange, RunComparison

FINDINGS_PER_GATE: Final = 40


def junit_of(run: Run) -> str:
    """Returns the XML of one run."""
    root = ET.Element("testsuites", name="assay")
    suite = ET.SubElement(root, "testsuite", name=clean(run.run, 200), time=f"{run.duration_s:.3f}")
    if run.started:
        suite.set("timestamp", clean(run.started, 40))
    properties = ET.SubElement(suite, "properties")
    facts = {
        "outcome": run.outcome,
        "seed": str(run.seed),
        "seam": run.seam or "public",
        "ledger-head": run.head or "none",
        "revision": (run.environment.revision if run.environment else "") or "unknown",
        **{f"label:{one.component}": one.label for one in run.labels},
    }
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=clean(name, 200), value=clean(value, 200))
    for gate in run.gates:
        _case(suite, gate)
    return _finish(root, suite)


def junit_of_comparison(comparison: RunComparison) -> str:
    """Returns the XML of a comparison: one test case a gate, label or battery; a regression is a failure.

    What did not regress has not passed for that reason: a gate that does not pass in the second run is skipped, and
    a comparison that could not be made whole is an error of its own.
    """
    root = ET.Element("testsuites", name="assay comparison")
    name = f"{clean(comparison.a.run, 80)} to {clean(comparison.b.run, 80)}"
    suite = ET.SubElement(root, "testsuite", name=name)
    rows = [
        *(("gate", one.id, one.change, one.reasons, _no_pass(one)) for one in comparison.gates),
        *(("label", one.component, one.change, one.reasons, _gone(one.after)) for one in comparison.labels),
        *(
            ("support", one.component, one.change, one.reasons, _gone(one.after))
            for one in comparison.support
        ),
        *(
            ("battery", f"{one.gate}:{one.battery}", one.change, one.reasons, _gone(one.after))
            for one in comparison.batteries
        ),
    ]
    for kind, id_, change, reasons, skip in rows:
        case = ET.SubElement(suite, "testcase", classname=kind, name=clean(id_, 200))
        text = "; ".join(clean(reason, 300) for reason in reasons)
        if change == "regressed":
            ET.SubElement(case, "failure", message=text, type="regressed").text = text
        elif skip:
            ET.SubElement(case, "skipped", message="; ".join(filter(None, (skip, text))))
    if comparison.verdict == "inconclusive":
        case = ET.SubElement(suite, "testcase", classname="comparison", name="whole")
        said = "; ".join(clean(one, 300) for one in comparison.cautions)
        ET.SubElement(case, "error", message=said, type="inconclusive")
    return _finish(root, suite)


def _no_pass(gate: GateChange) -> str:
    """Returns why a gate that has not regressed is no pass either; empty when it is one."""
    if gate.after == "pass":
        return ""
    if gate.after is None:
        return "not in the second run"
    return "not run in the second run" if gate.after == "not-run" else f"{gate.after}, which is not new"


def _gone(after: object) -> str:
    return "" if after is not None else "not in the second run"


def _case(suite: ET.Element, gate: GateRecord) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=clean(gate.components[0] if gate.components else "assay", 200),
        name=clean(gate.id, 200),
        time=f"{gate.duration_s:.3f}",
    )
    reason = clean(gate.reason or "no reason was given")
    if gate.outcome == "fail":
        first = gate.findings[0].code if gate.findings else "fail"
        ET.SubElement(case, "failure", message=reason, type=clean(first, 200)).text = _findings(gate)
    elif gate.outcome == "inconclusive":
        ET.SubElement(case, "error", message=reason, type="inconclusive").text = _findings(gate)
    elif gate.outcome == "not-run" and gate.required:
        ET.SubElement(case, "error", message=f"required, but not run: {reason}", type="not-run")
    elif gate.outcome == "not-run":
        ET.SubElement(case, "skipped", message=reason)


def _findings(gate: GateRecord) -> str:
    lines = [
        f"{clean(one.code, 160)}: {clean(one.where, 300)}: expected {clean(one.expected, 300)}, got {clean(one.got, 300)}"
        + (f"\n    hint: {clean(one.hint)}" if one.hint else "")
        for one in gate.findings[:FINDINGS_PER_GATE]
    ]
    hidden = len(gate.findings) - FINDINGS_PER_GATE
    if hidden > 0:
        lines.append(f"{hidden:,} of {len(gate.findings):,} findings are not shown; all stand in run.json")
    return "\n".join(lines)


def _finish(root: ET.Element, suite: ET.Element) -> str:
    counts = {
        "tests": len(suite.findall("testcase")),
        "failures": len(suite.findall("testcase/failure")),
        "errors": len(suite.findall("testcase/error")),
        "skipped": len(suite.findall("testcase/skipped")),
    }
    for element in (root, suite):
        for name, count in counts.items():
            element.set(name, str(count))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
