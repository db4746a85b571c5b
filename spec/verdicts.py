"""Verdicts, outcomes, labels and exit codes, with their order.

Missing evidence never becomes a pass: a check that was not run ranks below one that ran, and a required check
that was skipped makes the whole inconclusive.
"""

from collections.abc import Iterable
from enum import IntEnum, StrEnum


class Verdict(StrEnum):
    """What `assay validate` says of one path."""

    ACCEPTED = "accepted"
    INCONCLUSIVE = "inconclusive"
    REJECTED = "rejected"


class Outcome(StrEnum):
    """What one gate, or a whole run, came to."""

    PASS = "pass"  # noqa: S105 - an outcome, not a secret
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not-run"


class Label(StrEnum):
    """The status ladder of a component, lowest first."""

    HYPOTHESIS = "hypothesis"
    STRUCTURAL_ONLY = "structural-only"
    IMPLEMENTED = "implemented"
    CORRECTNESS_FIXTURE = "correctness-fixture"
    QUALIFIED = "qualified"
    SUPPORTED = "supported"


LADDER = tuple(Label)


class ExitCode(IntEnum):
    """Process exit codes; among several, 1 beats 4 beats 3."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    EVIDENCE = 4
    BUG = 70


_EXIT_RANK = (
    ExitCode.BUG,
    ExitCode.USAGE,
    ExitCode.FAILED,
    ExitCode.EVIDENCE,
    ExitCode.INCONCLUSIVE,
    ExitCode.OK,
)


def worst_exit(codes: Iterable[int]) -> ExitCode:
    """Returns the exit code that stands for all of `codes`; no code at all is OK."""
    return min((ExitCode(code) for code in codes), key=_EXIT_RANK.index, default=ExitCode.OK)


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns rejected before inconclusive before accepted; nothing judged is inconclusive."""
    found = list(verdicts)
    if not found:
        return Verdict.INCONCLUSIVE
    return max(found, key=tuple(Verdict).index)


def verdict_exit(verdict: Verdict) -> ExitCode:
    """Returns the exit code of one verdict."""
    return {
        Verdict.ACCEPTED: ExitCode.OK,
        Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
        Verdict.REJECTED: ExitCode.FAILED,
    }[verdict]
