"""What the rules share: how a finding is collected, and how a rule that fails inside is reported."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from assay.spec.clauses import Authority, declare
from assay.spec.contract.contract import Contract
from assay.spec.errors import Finding
from assay.spec.leaves import same

RULE_FAILED: Final = declare(
    "contract.rule-failed",
    Authority.RULE,
    "Every rule can be computed on the contract; arithmetic that fails inside a rule is itself a finding.",
    source="assay",
    cause="A value so wrong that a rule divides by zero or indexes past an end; other findings name it.",
    fix="Repair the other findings first.",
)

FACTS: Final = "published contract of the profile"
CONFIG: Final = "config.json of the pinned checkpoint"


def rule(id_: str, meaning: str, *, cause: str, source: str = FACTS, fix: str = "") -> str:
    """Declares a clause that recomputation stands behind."""
    return declare(id_, Authority.RULE, meaning, source=source, cause=cause, fix=fix)


@dataclass(slots=True)
class Judge:
    """Collects the findings of one layer of judgement."""

    stage: str
    findings: list[Finding] = field(default_factory=list)

    def equal(self, code: str, where: str, expected: Any, got: Any, hint: str = "") -> bool:
        """Adds a finding unless both are equal in value and type; returns whether they are."""
        if same(expected, got):
            return True
        self.findings.append(Finding.of(code, self.stage, where, expected=expected, got=got, hint=hint))
        return False

    def holds(self, code: str, where: str, claim: bool, expected: Any, got: Any, hint: str = "") -> bool:
        """Adds a finding unless the claim holds; returns whether it does."""
        if not claim:
            self.findings.append(Finding.of(code, self.stage, where, expected=expected, got=got, hint=hint))
        return claim

    def items(self, code: str, where: str, expected: Iterable[Any], got: Iterable[Any]) -> None:
        """Compares two sequences: a length finding at the whole, then one finding an item that differs."""
        wanted, found = tuple(expected), tuple(got)
        if len(wanted) != len(found):
            self.equal(code, where, f"{len(wanted)} items", f"{len(found)} items")
        for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
            self.equal(code, f"{where}[{index}]", one, other)


Check = Callable[[Contract, Judge], None]


def run_checks(contract: Contract, stage: str, checks: Iterable[Check]) -> list[Finding]:
    """Runs every check; one that raises leaves a finding with its name instead of ending the run."""
    judge = Judge(stage)
    for check in checks:
        try:
            check(contract, judge)
        except Exception as error:  # noqa: BLE001 - a damaged contract may break any arithmetic; it must stay a finding
            judge.findings.append(
                Finding.of(
                    RULE_FAILED,
                    stage,
                    check.__name__,
                    expected="a rule that can be computed",
                    got=f"{type(error).__name__}: {error}",
                )
            )
    return judge.findings
