"""The picture of a run: well formed, escaped, told apart without colour."""

from xml.etree import ElementTree as ET

import pytest
from pydantic import ValidationError

from assay.reports.render import render
from assay.reports.timeline import timeline_file, timeline_page, timeline_svg
from assay.spec.documents.measurements import BarKind, TimelineBar, TimelineMeasurement, TimelineRow
from assay.spec.documents.run import GateRecord, Run

KINDS: tuple[BarKind, ...] = ("exact", "near", "speculative", "background", "failed", "compute", "wait")
HOSTILE = '<script>"&'


def picture() -> TimelineMeasurement:
    bars = [
        TimelineBar(start=100 * n, end=100 * n + 90, kind=kind, text=HOSTILE) for n, kind in enumerate(KINDS)
    ]
    return TimelineMeasurement(
        title=HOSTILE, start=0, end=700, rows=[TimelineRow(name=HOSTILE, bars=bars)], omitted=3
    )


def test_every_bar_and_every_kind_in_use_is_drawn_and_in_the_key() -> None:
    root = ET.fromstring(str(timeline_svg(picture())))  # noqa: S314 - our own output
    classes = [one.get("class") for one in root.iter("rect")]
    assert all(classes.count(kind) == 2 for kind in KINDS)  # the bar, and its key


def test_bars_lie_to_scale() -> None:
    root = ET.fromstring(str(timeline_svg(picture())))  # noqa: S314 - our own output
    bars = [one for one in root.iter("rect") if one.get("class") in KINDS and one.find("title") is not None]
    assert [float(one.get("x", 0)) for one in bars] == pytest.approx(
        [150 + 950 * n / 7 for n in range(7)], abs=0.01
    )
    assert {one.get("width") for one in bars} == {f"{950 * 90 / 700:.2f}"}


def test_a_file_of_its_own_has_the_namespace_and_a_colour_for_every_kind() -> None:
    root = ET.fromstring(timeline_file(picture()))  # noqa: S314 - our own output
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    style = root.findtext("{http://www.w3.org/2000/svg}style") or ""
    assert all(f".timeline .{kind} {{ fill:" in style for kind in KINDS)


def test_the_scale_shows_round_times_of_the_run() -> None:
    late = picture().model_copy(update={"start": 33_330_000, "end": 363_330_000})
    root = ET.fromstring(str(timeline_svg(late)))  # noqa: S314 - our own output
    times = [one.text for one in root.iter("text") if one.get("class") == "quiet"]
    assert times == ["50 ms", "100 ms", "150 ms", "200 ms", "250 ms", "300 ms", "350 ms"]


def test_what_a_run_says_can_not_become_markup() -> None:
    assert "<script" not in timeline_page(picture())


def test_a_page_says_what_it_left_out() -> None:
    assert "3 more bars are not drawn" in timeline_page(picture())


def test_a_timeline_without_time_is_none() -> None:
    with pytest.raises(ValidationError, match="a timeline ends after it starts"):
        TimelineMeasurement(title="", start=5, end=5, rows=[], omitted=0)


def test_a_timeline_without_rows_is_no_picture() -> None:
    assert timeline_svg(TimelineMeasurement(title="", start=0, end=1, rows=[], omitted=0)) == ""


def test_a_report_shows_the_timeline_of_a_gate(good_run: Run) -> None:
    first = good_run.gates[0]
    with_picture = GateRecord.model_validate(
        {**first.model_dump(by_alias=True), "measurements": {"timeline": picture().model_dump()}}
    )
    page = render(good_run.model_copy(update={"gates": [with_picture, *good_run.gates[1:]]}), "html")
    assert page.count('<svg class="timeline"') == 1
    assert "timeline.rows" not in page
    assert '<svg class="timeline"' not in render(good_run, "html")


def test_a_timeline_of_another_version_is_left_out(good_run: Run) -> None:
    first = good_run.gates[0]
    odd = GateRecord.model_validate(
        {**first.model_dump(by_alias=True), "measurements": {"timeline": {"rows": 7}}}
    )
    page = render(good_run.model_copy(update={"gates": [odd, *good_run.gates[1:]]}), "html")
    assert '<svg class="timeline"' not in page
