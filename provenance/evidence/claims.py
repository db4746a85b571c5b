"""Labels that a document claims by hand, checked against the computed ones.

A document states labels in one table between two marker comments, the component in the first column and labels in the
others. A table may have a column for each condition, such as what is embedded and what needs more input. Claiming less than the evidence allows is fine, and is named; claiming more is not.
"""

import re
from collections.abc import Mapping
from typing import Final

from assay.spec.clauses import Authority, declare
from assay.spec.documents.status import ClaimRecord
from assay.spec.errors import ContractError, Finding
from assay.spec.verdicts import LADDER, Label

BEGIN: Final = "<!-- status:begin -->"
END: Final = "<!-- status:end -->"
_LABELS: Final = {label.value: height for height, label in enumerate(LADDER)}

MARKERS = declare(
    "claims.markers",
    Authority.PROCESS,
    f"A document that claims labels holds one table between {BEGIN} and {END}.",
    source="design: status is computed",
    cause="a marker was deleted, or the table was moved out of the markers",
)
OVERCLAIMED = declare(
    "claims.overclaimed",
    Authority.PROCESS,
    "A claimed label is at most the computed one.",
    source="design: status is computed",
    cause="evidence is missing or stale, or the claim was written by hand in advance",
    fix="run `assay status`: it names what is missing; lower the claim or renew the evidence",
)


def check_claims(text: str, labels: Mapping[str, Label], column: str | None = None) -> list[ClaimRecord]:
    """Returns one record for each claimed label; `overclaimed` also for an unknown component or label.

    Args:
        text: the document, Markdown.
        labels: component id -> computed label.
        column: title of the column of labels; without one, the first after the component.

    Raises:
        ContractError: claims.markers, when the markers, the column or all rows are missing.
    """
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ContractError(
            Finding.of(MARKERS, "claims", "document", expected=f"{BEGIN} ... {END}", got="not once")
        )
    title, *rows = _rows(text[begin + len(BEGIN) : end]) or [[]]
    if column is not None and column not in title[1:]:
        expected = f"a column {column}"
        raise ContractError(Finding.of(MARKERS, "claims", "document", expected=expected, got=title))
    place = title.index(column) if column is not None else 1
    records = [_judge(row[0], row[place] if place < len(row) else "", labels) for row in rows]
    if not records:
        raise ContractError(Finding.of(MARKERS, "claims", "document", expected="rows of claims", got="none"))
    return records


def overclaims(records: list[ClaimRecord]) -> list[Finding]:
    """Returns a finding for every claim that is more than its evidence."""
    return [
        Finding.of(
            OVERCLAIMED, "claims", one.component,
            expected=f"at most {one.computed}" if one.computed else "a known component", got=one.claimed,
        )
        for one in records
        if one.verdict == "overclaimed"
    ]  # fmt: skip


def _rows(table: str) -> list[list[str]]:
    """Returns the cells of every row, the titles first, without the ruler."""
    rows = []
    for line in (line.strip() for line in table.splitlines()):
        cells = [re.sub(r"^[`*_\s]+|[`*_\s]+$", "", cell) for cell in line.strip("|").split("|")]
        if line.startswith("|") and not set(line) <= set("|-: ") and len(cells) > 1:
            rows.append(cells)
    return rows


def _judge(component: str, claimed: str, labels: Mapping[str, Label]) -> ClaimRecord:
    computed = labels.get(component)
    height = _LABELS.get(claimed)
    if computed is None or height is None or height > LADDER.index(computed):
        verdict = "overclaimed"
    else:
        verdict = "holds" if height == LADDER.index(computed) else "modest"
    return ClaimRecord.model_validate(
        {
            "component": component,
            "claimed": claimed,
            "computed": computed.value if computed is not None else None,
            "verdict": verdict,
        }
    )
