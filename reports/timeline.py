"""Draws a timeline as one SVG that needs no script: rows of bars, a scale, and a key; texture tells what colour does."""

from typing import Final

from markupsafe import Markup, escape

from assay.spec.documents.measurements import TimelineBar, TimelineMeasurement

_WIDTH: Final = 1100
_LABEL: Final = 150
_ROW: Final = 22
_BAR: Final = 14
_KEY: Final[dict[str, str]] = {
    "exact": "exact read",
    "near": "near prediction",
    "speculative": "speculation",
    "background": "warming",
    "failed": "failed read",
    "compute": "compute",
    "wait": "wait",
}
_MARKS: Final = {"failed": "✕", "wait": "…"}

STYLE: Final = Markup("""
.timeline { max-width: 100%; height: auto; display: block; font: 11px var(--sans, system-ui, sans-serif); }
.timeline text { fill: var(--ink, #1c1e22); } .timeline .quiet { fill: var(--muted, #5a606b); }
.timeline .grid { stroke: var(--line, #dedbd3); } .timeline .base { stroke: var(--strong-line, #b9b5aa); }
.timeline .exact { fill: #2f6db3; } .timeline .near { fill: url(#tl-near); stroke: #2f6db3; }
.timeline .speculative { fill: url(#tl-far); stroke: #2f6db3; stroke-dasharray: 3 2; }
.timeline .background { fill: none; stroke: #2f6db3; stroke-dasharray: 1 2; }
.timeline .failed { fill: none; stroke: var(--fail, #a8201a); stroke-width: 2; }
.timeline .compute { fill: #3f8f5b; } .timeline .wait { fill: url(#tl-wait); stroke: #b3702f; }
@media (prefers-color-scheme: dark) {
  .timeline .exact { fill: #6aa5e8; } .timeline .near, .timeline .speculative, .timeline .background { stroke: #6aa5e8; }
  .timeline .compute { fill: #6dbb88; } .timeline .wait { stroke: #e0a15c; }
}
""")


def timeline_file(found: TimelineMeasurement) -> str:
    """Returns the picture as a file of its own: namespace and style within; empty without rows."""
    inline = str(timeline_svg(found))
    return inline.replace("><defs>", f' xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style><defs>', 1)


def timeline_svg(found: TimelineMeasurement) -> Markup:
    """Returns the picture for a page that holds `STYLE`; empty without rows."""
    if not found.rows:
        return Markup("")
    height = 44 + _ROW * len(found.rows) + 28
    span = found.end - found.start
    parts = [_patterns()]
    for tick in _ticks(found.start, found.end):
        x = _LABEL + (_WIDTH - _LABEL) * (tick - found.start) / span
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="26" y2="{height - 34}"/>')
        anchor = "end" if x > _WIDTH - 30 else "middle"
        parts.append(f'<text class="quiet" x="{x:.1f}" y="18" text-anchor="{anchor}">{_time(tick)}</text>')
    for number, row in enumerate(found.rows):
        y = 30 + _ROW * number
        parts.append(f'<text x="{_LABEL - 8}" y="{y + 11}" text-anchor="end">{escape(row.name[:24])}</text>')
        parts.append(f'<line class="base" x1="{_LABEL}" x2="{_WIDTH}" y1="{y + _BAR}.5" y2="{y + _BAR}.5"/>')
        parts += [_bar(bar, found, y) for bar in row.bars]
    parts.append(_key(found, height))
    label = f"{found.title}: {len(found.rows)} rows over {_time(span)}"
    return Markup(  # noqa: S704 - every text of the run is escaped where it enters
        f'<svg class="timeline" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def timeline_page(found: TimelineMeasurement) -> str:
    """Returns a whole page with the picture: light and dark, no script."""
    omitted = (
        f"<p>{found.omitted:,} more bars are not drawn; look at a shorter time.</p>" if found.omitted else ""
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(found.title)}</title><style>:root {{ --ink: #1c1e22; --muted: #5a606b; --line: #dedbd3; "
        "--strong-line: #b9b5aa; --fail: #a8201a; } @media (prefers-color-scheme: dark) { :root { --ink: #e7e5e0; "
        "--muted: #a2a8b3; --line: #2d3138; --strong-line: #4a505a; --fail: #ff978d; } } "
        "body { margin: 24px; background: Canvas; color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }"
        f"{STYLE}</style></head><body><h1>{escape(found.title)}</h1>{timeline_svg(found)}{omitted}</body></html>\n"
    )


def _bar(bar: TimelineBar, found: TimelineMeasurement, y: int) -> str:
    scale = (_WIDTH - _LABEL) / (found.end - found.start)
    x = _LABEL + max(0, bar.start - found.start) * scale
    width = max(1.0, (min(bar.end, found.end) - max(bar.start, found.start)) * scale)
    title = f"{bar.text}: {_time(bar.start)}, for {_time(bar.end - bar.start)}"
    shape = f'<rect class="{bar.kind}" x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_BAR}" rx="1.5">'
    mark = ""
    if bar.kind in _MARKS and width > 9:
        mark = f'<text x="{x + width / 2:.1f}" y="{y + 11}" text-anchor="middle">{_MARKS[bar.kind]}</text>'
    return f"{shape}<title>{escape(title)}</title></rect>{mark}"


def _key(found: TimelineMeasurement, height: int) -> str:
    kinds = {bar.kind for row in found.rows for bar in row.bars}
    parts, x = [], _LABEL
    for kind, text in _KEY.items():
        if kind in kinds:
            parts.append(f'<rect class="{kind}" x="{x}" y="{height - 20}" width="18" height="12" rx="1.5"/>')
            parts.append(f'<text x="{x + 24}" y="{height - 10}">{text}</text>')
            x += 40 + 7 * len(text)
    return "".join(parts)


def _patterns() -> str:
    def stripes(name: str, colour: str, width: float, gap: int, angle: int) -> str:
        return (
            f'<pattern id="{name}" width="{gap}" height="{gap}" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate({angle})"><rect width="{width}" height="{gap}" fill="{colour}"/></pattern>'
        )

    return (
        f"<defs>{stripes('tl-near', '#5b92d0', 3, 5, 45)}{stripes('tl-far', '#5b92d0', 1.5, 6, 45)}"
        f"{stripes('tl-wait', '#cf8a45', 2, 5, 135)}</defs>"
    )


def _ticks(start: int, end: int) -> list[int]:
    """Returns round times of a run, a dozen at most, from a start to an end."""
    step = 1
    while (end - start) / step > 10:
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    return list(range(-(-start // step) * step, end + 1, step))


def _time(nanoseconds: int) -> str:
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds} ns" if nanoseconds else "0"
