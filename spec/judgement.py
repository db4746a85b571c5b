"""What judging code hands back: every fault and every gap, with the verdict that follows from them.

A *fault* is a wrong fact and rejects. A *gap* is something required that could not be judged, such as an absent
file, and makes the verdict inconclusive. What nobody asked for is neither: it stands in `not_checked`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from assay.spec.errors import Finding
from assay.spec.verdicts import ExitCode, Verdict, verdict_exit, worst_verdict

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Opens a display of a title and a total number of units; it is then told how many more units are done."""

OMITTED: Final = "findings_omitted"
"""The fact that counts, by code, the findings beyond the limit."""

_KEPT_OF_A_CODE: Final = 1000
_MOST_TOLD: Final = 100_000


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """What the user asked of a judgement, beside the path.

    Attributes:
        is_private: the private seam was asked for, so that private profiles may be accepted.
        with_payload: digests of the payload are to be computed.
        is_fresh: digests that an unfinished run left are not to be used.
        checkpoint: directory that describes the real checkpoint, for kinds that need it; None when absent.
        jobs: workers for what can be done in parallel; at least 1.
        state: folder for the state of work that can be resumed, or None.
        evidence: folder with what this machine kept of stores that it built or verified, or None.
        progress: given a title and a total, opens a progress display; what it opens is told each advance. None: no display.
    """

    is_private: bool = False
    with_payload: bool = False
    is_fresh: bool = False
    checkpoint: Path | None = None
    jobs: int = 1
    state: Path | None = None
    evidence: Path | None = None
    progress: Progress | None = None


@dataclass(slots=True)
class Judgement:
    """The judgement of one path, filled in stage by stage.

    Attributes:
        kind: what the path was judged as.
        faults: wrong facts, in the order of the stages.
        gaps: required things that could not be judged.
        areas: verdict of each area that was looked at.
        not_checked: what was not asked for, or stands outside this check, in plain words.
        facts: what was read and measured on the way; JSON values.
        is_private: whether the private seam was used.
        is_evidence: whether a fault is damage of evidence, so that the exit code is 4 and not 1.
    """

    kind: str
    faults: list[Finding] = field(default_factory=list)
    gaps: list[Finding] = field(default_factory=list)
    areas: dict[str, Verdict] = field(default_factory=dict)
    not_checked: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    is_private: bool = False
    is_evidence: bool = False
    _of_code: Counter[str] = field(default_factory=Counter)
    _told: set[tuple[str, ...]] = field(default_factory=set)

    @property
    def verdict(self) -> Verdict:
        """Rejected with any fault, inconclusive with any gap, else accepted; nothing judged is inconclusive."""
        return worst_verdict(
            [
                *([Verdict.REJECTED] if self.faults else []),
                *([Verdict.INCONCLUSIVE] if self.gaps else []),
                *self.areas.values(),
            ]
        )

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the verdict; damage of evidence is 4."""
        if self.is_evidence and self.verdict is Verdict.REJECTED:
            return ExitCode.EVIDENCE
        return verdict_exit(self.verdict)

    @property
    def stage(self) -> str:
        """The stage of the first fault, else of the first gap, else `accepted`."""
        return next((finding.stage for finding in (*self.faults, *self.gaps)), "accepted")

    @property
    def findings(self) -> list[Finding]:
        """Faults first, then gaps."""
        return [*self.faults, *self.gaps]

    def judged(self, area: str, faults: Iterable[Finding] = (), gaps: Iterable[Finding] = ()) -> Verdict:
        """Adds what one area came to and returns its verdict; an area may be added to more than once."""
        wrong, absent = list(faults), list(gaps)
        verdict = Verdict.REJECTED if wrong else Verdict.INCONCLUSIVE if absent else Verdict.ACCEPTED
        self.areas[area] = worst_verdict([self.areas.get(area, Verdict.ACCEPTED), verdict])
        self.faults += self._kept(wrong)
        self.gaps += self._kept(absent)
        return self.areas[area]

    def _kept(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yields the findings up to a limit a code, and counts the others: a hostile file may have millions."""
        for finding in findings:
            told = (
                finding.code,
                finding.where,
                finding.got,
                "" if _is_of_input(finding) else finding.expected,
            )
            if told in self._told:
                continue  # two stages met the same thing
            if len(self._told) < _MOST_TOLD:
                self._told.add(told)
            self._of_code[finding.code] += 1
            if self._of_code[finding.code] <= _KEPT_OF_A_CODE:
                yield finding
            else:
                omitted = self.facts.setdefault(OMITTED, {})
                omitted[finding.code] = omitted.get(finding.code, 0) + 1

    def document(self, path: str) -> dict[str, Any]:
        """Returns the `assay.validation/1` document as a JSON value."""
        report = {
            "areas": {name: verdict.value for name, verdict in self.areas.items()},
            "notChecked": list(self.not_checked),
            "facts": dict(self.facts),
        }
        return {
            "schema": "assay.validation/1",
            "path": path,
            "kind": self.kind,
            "verdict": self.verdict.value,
            "stage": self.stage,
            "findings": [finding.as_json() for finding in self.findings],
            "report": report if any(report.values()) else None,
            "seam": "private" if self.is_private else None,
        }


def _is_of_input(finding: Finding) -> bool:
    """Says whether a finding is about a file as a whole, which each stage expects in its own words."""
    return finding.code.startswith("input.") or finding.code == "files.missing"
