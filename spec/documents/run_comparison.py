"""`assay.run-comparison/1`: what changed between two runs, what regressed, which labels moved."""

from typing import Any, Literal

from pydantic import Field

from assay.spec.documents.base import Document, FindingRecord
from assay.spec.documents.run import OutcomeText

Change = Literal["regressed", "improved", "changed", "added", "removed", "same"]
"""`removed` is a thing whose loss takes no claim away; losing a pass or a label is `regressed`."""


class RunIdentity(Document):
    """Which run one side of a comparison is."""

    run: str
    outcome: OutcomeText
    started: str
    revision: str
    seam: Literal["private"] | None


class GateChange(Document):
    """One gate in both runs; None stands for a gate that a run lacks."""

    id: str
    before: OutcomeText | None
    after: OutcomeText | None
    change: Change
    reasons: list[str]
    new_findings: list[FindingRecord] = Field(default_factory=list)
    gone_findings: list[FindingRecord] = Field(default_factory=list)


class LabelChange(Document):
    """One component's label in both runs."""

    component: str
    before: str | None
    after: str | None
    change: Change
    reasons: list[str]


class BatteryChange(Document):
    """One battery's counts in both runs."""

    gate: str
    battery: str
    before: dict[str, int] | None
    after: dict[str, int] | None
    change: Change
    reasons: list[str]


class MeasurementChange(Document):
    """One measured value that differs; speed and counts are shown, not judged."""

    gate: str
    name: str
    before: Any
    after: Any


class SettingChange(Document):
    """One fact of the environment or the command that differs between the runs."""

    name: str
    before: str
    after: str


class RunComparison(Document):
    """The result of `assay report A B`; B is judged against A."""

    schema_: Literal["assay.run-comparison/1"] = Field("assay.run-comparison/1", alias="schema")
    a: RunIdentity
    b: RunIdentity
    verdict: Literal["regressed", "inconclusive", "not-regressed"]
    regressions: list[str]
    gates: list[GateChange]
    labels: list[LabelChange]
    support: list[LabelChange]
    batteries: list[BatteryChange]
    measurements: list[MeasurementChange]
    settings: list[SettingChange]
    cautions: list[str]
