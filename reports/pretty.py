"""A run or a comparison as lines for a terminal: the first screen of the report, without colour."""

from collections.abc import Iterable

from assay.reports.text import clean
from assay.reports.view import view_of
from assay.spec.documents.run import Run
from assay.spec.documents.run_comparison import RunComparison

_ROWS = 30
_WIDTH = 1000


def pretty(document: Run | RunComparison) -> str:
    """Returns the lines of a document."""
    lines = _run(document) if isinstance(document, Run) else _comparison(document)
    return "\n".join(clean(line, _WIDTH) for line in lines)


def _run(run: Run) -> list[str]:
    view = view_of(run)
    seam = " [seam: private]" if run.seam else ""
    lines = [f"{clean(run.run, 120)}: {view.headline}{seam}", view.boundary]
    lines.append(", ".join(f"{tile.count:,} {tile.text}" for tile in view.tiles))
    if run.labels:
        width = max(len(one.record.label) for one in view.labels)
        lines += ["", "what holds (a hypothesis claims nothing)"]
        for one in view.labels:
            said = clean(one.record.claim, 400) if one.is_shown else "nothing is claimed"
            lines.append(f"  {one.record.label:<{width}}  {clean(one.record.component, 60)}: {said}")
            open_ = one.record.not_shown or (
                [] if one.is_shown or not one.record.claim else [one.record.claim]
            )
            if open_:
                lines.append(f"  {'':<{width}}    not yet shown: {clean(' '.join(open_), 600)}")
    lines += _section(
        "what does not hold",
        (f"{one.word}: {clean(one.name, 80)}: {clean(one.text, 260)}" for one in view.red),
    )
    if view.hidden_red:
        lines.append(f"  and {view.hidden_red:,} more")
    lines += _section("what is not claimed", (clean(one) for one in view.not_claimed))
    lines += _section("what to run next", (clean(one) for one in view.next_steps))
    return lines


def _comparison(comparison: RunComparison) -> list[str]:
    head = f"{clean(comparison.a.run, 80)} -> {clean(comparison.b.run, 80)}: {comparison.verdict}"
    moved = [
        f"{clean(one.component, 80)}: {one.before or 'absent'} -> {one.after or 'absent'}"
        for one in (*comparison.labels, *comparison.support)
        if one.before != one.after
    ]
    improved = [clean(one.id, 80) for one in comparison.gates if one.change == "improved"]
    lines = [head]
    lines += _section("what regressed", (clean(one, 400) for one in comparison.regressions[:_ROWS]))
    if len(comparison.regressions) > _ROWS:
        lines.append(f"  and {len(comparison.regressions) - _ROWS:,} more")
    lines += _section("which labels moved", moved)
    lines += _section("which gates improved", improved)
    lines += _section("caution", comparison.cautions)
    return lines


def _section(title: str, rows: Iterable[str]) -> list[str]:
    found = [f"  {row}" for row in rows]
    return ["", title, *found] if found else []
