"""Renders one run, or the comparison of two, as HTML, JSON, JUnit or Markdown, and writes the files of a run.

Nothing here decides anything: outcomes and labels come from the run document, and a format can only leave out
what it counts aloud.
"""

import json
import math
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import jinja2
from markupsafe import Markup

from assay.provenance.evidence.durable import write_durably
from assay.reports.junit import junit_of, junit_of_comparison
from assay.reports.text import clean, html, markdown, markdown_code
from assay.reports.timeline import STYLE, timeline_svg
from assay.reports.view import OUTCOME_WORDS, view_of
from assay.spec.documents.base import Document
from assay.spec.documents.mutation_run import AreaCounts
from assay.spec.documents.run import Run
from assay.spec.documents.run_comparison import RunComparison

Format = Literal["html", "json", "junit", "markdown"]

RUN_FILES: Final[Mapping[Format, str]] = {
    "json": "run.json",
    "junit": "junit.xml",
    "markdown": "summary.md",
    "html": "index.html",
}
COMPARISON_FILES: Final[Mapping[Format, str]] = {
    "json": "comparison.json",
    "junit": "junit.xml",
    "markdown": "summary.md",
    "html": "index.html",
}
_STATES: Final = ("pass", "fail", "inconclusive", "not-run", "stale")


def render(document: Run | RunComparison, format_: Format) -> str:
    """Returns the text of one format; each ends with a line end."""
    if format_ == "json":
        return json_text(document)
    if isinstance(document, Run):
        if format_ == "junit":
            return junit_of(document)
        return _template(f"run.{'html' if format_ == 'html' else 'md'}.j2", v=view_of(document))
    if format_ == "junit":
        return junit_of_comparison(document)
    return _template(f"comparison.{'html' if format_ == 'html' else 'md'}.j2", c=document)


def write_reports(
    document: Run | RunComparison, directory: Path, *, without: Collection[str] = ()
) -> dict[str, Path]:
    """Writes all formats into `directory`, or all but some, and returns where each lies.

    Each file is written beside, synced and renamed, so that a reader never meets half of one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = RUN_FILES if isinstance(document, Run) else COMPARISON_FILES
    written = {}
    for format_, name in files.items():
        if format_ in without:
            continue
        written[str(format_)] = directory / name
        write_durably(directory / name, render(document, format_).encode("utf-8"))
    return written


def json_text(document: Document) -> str:
    """Returns a document as JSON that any reader takes: a number that is not finite travels as text."""
    value = _finite(document.model_dump(mode="python", by_alias=True))
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _template(name: str, **values: Any) -> str:
    return _environment().get_template(name).render(**values).rstrip("\n") + "\n"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=jinja2.select_autoescape(("html.j2", "css.j2"), ("md.j2",), default=True),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "clean": clean,
        "ticks": html,
        "md": markdown,
        "mdcode": markdown_code,
        "seconds": _seconds,
        "share_bar": _share_bar,
        "timeline_svg": timeline_svg,
    }
    environment.globals |= {
        "outcome_words": OUTCOME_WORDS,
        "icon_states": _STATES,
        "timeline_style": STYLE,
    }
    return environment


def _seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 90:
        return f"{value:.1f} s"
    return f"{int(value) // 60} min {int(value) % 60} s"


def _share_bar(area: AreaCounts) -> Markup:
    """Returns the shares of an area as SVG of four textures, so that it also reads without colour."""
    total = max(1, area.total)
    x = 0.0
    pieces = []
    for texture, count in (
        ("rule", area.by_rule), ("upstream", area.by_upstream), ("pin", area.by_pin), ("form", area.by_form)
    ):  # fmt: skip
        width = min(100.0 - x, 100.0 * count / total)
        if width > 0:
            pieces.append(f'<rect class="{texture}" x="{x:.2f}" width="{width:.2f}" height="9"/>')
        x += width
    return Markup(  # noqa: S704 - numbers and our own words only
        f'<svg class="bar" viewBox="0 0 100 9" preserveAspectRatio="none" aria-hidden="true">{"".join(pieces)}</svg>'
    )
