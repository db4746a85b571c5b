"""`assay.run/1`: one run of gates; the JSON output of `assay gate` and the content of `run.json`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from assay.spec.documents.base import Document, FindingRecord, Sha256

OutcomeText = Literal["pass", "fail", "inconclusive", "not-run"]
LabelText = Literal[
    "hypothesis", "structural-only", "implemented", "correctness-fixture", "qualified", "supported"
]


class GateRecord(Document):
    """What one gate came to."""

    id: str
    outcome: OutcomeText
    components: list[str]
    measurements: dict[str, Any] = Field(default_factory=dict)
    reason: str = ""
    title: str = ""
    findings: list[FindingRecord] = Field(default_factory=list)
    duration_s: Annotated[float, Field(ge=0)] = 0.0
    required: bool = False
    needs: list[str] = Field(default_factory=list)
    evidence: Sha256 | None = None
    seam: Literal["private"] | None = None


class LabelRecord(Document):
    """The computed status of one component, and what is missing for the next rung.

    Attributes:
        claim: what the reached rungs allow to say, and no more; empty for a hypothesis.
        not_shown: what higher rungs would allow to say, each with its rung.
    """

    component: str
    title: str
    label: LabelText
    claim: str
    missing: list[str]
    gates: dict[str, str]
    stale: list[str] = Field(default_factory=list)
    not_shown: list[str] = Field(default_factory=list)


class SupportRecord(Document):
    """The computed support state of a profile and its support gates."""

    profile: str
    state: Literal["pinned-not-supported", "supported"]
    gates: dict[str, OutcomeText]


class Environment(Document):
    """Where a run was made."""

    assay: str
    python: str
    platform: str
    machine: str
    device: str
    packages: dict[str, str]
    revision: str = ""
    checkpoint: bool = False
    checkpoint_input: Sha256 | None = None


class Run(Document):
    """One run: its gates, the labels that follow from all evidence, and where the report lies."""

    schema_: Literal["assay.run/1"] = Field("assay.run/1", alias="schema")
    run: str
    outcome: OutcomeText
    gates: list[GateRecord]
    report: str
    started: str = ""
    duration_s: Annotated[float, Field(ge=0)] = 0.0
    seed: int = 0
    seam: Literal["private"] | None = None
    environment: Environment | None = None
    labels: list[LabelRecord] = Field(default_factory=list)
    support: list[SupportRecord] = Field(default_factory=list)
    not_claimed: list[str] = Field(default_factory=list)
    next_steps: list[str] = Field(default_factory=list)
    head: Sha256 | None = None
    cut_off: bool = False
