"""The colours of the report can be read in both themes and on paper: WCAG 2.2 contrast, computed from the style."""

import re
from pathlib import Path

import pytest

import assay.reports

STYLE = (Path(assay.reports.__file__).parent / "templates" / "style.css.j2").read_text(encoding="utf-8")
BLOCKS = [
    dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
    for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
]
THEMES = dict(zip(("light", "dark", "print"), BLOCKS, strict=True))
STATES = ("pass", "fail", "inconclusive", "not-run", "stale")
PAIRS = [
    *((ink, paper) for ink in ("ink", "muted", "link", *STATES) for paper in ("paper", "card", "code")),
    *((state, f"{state}-tint") for state in STATES),
    *(("ink", f"{state}-tint") for state in STATES),
    ("muted", "inconclusive-tint"), ("link", "inconclusive-tint"),
]  # fmt: skip


def luminance(colour: str) -> float:
    """Relative luminance of sRGB, as WCAG 2.2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_formula_gives_the_known_extremes() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("ink", "paper"), PAIRS)
def test_text_stands_out_from_its_ground(theme: str, ink: str, paper: str) -> None:
    colours = THEMES[theme]
    assert contrast(colours[ink], colours[paper]) >= 4.5


def test_every_theme_sets_every_colour() -> None:
    assert set(THEMES["light"]) == set(THEMES["dark"]) == set(THEMES["print"])
    assert len(THEMES["light"]) == 18
