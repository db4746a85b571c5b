"""A summary says what the sample trace was, by hand; a picture shows each read, stage and wait once."""

import pytest

from assay.impl.runtime.trace_judge import parsed
from assay.impl.runtime.trace_summary import compare, summarise
from assay.impl.runtime.trace_timeline import first_time, timeline
from assay.mutations.trace_sample import sample_lines
from assay.spec.documents.trace import (
    AnyLine,
    EventLine,
    ReadLine,
    RouteLine,
    StageLine,
    TicketLine,
    WaitLine,
)
from assay.spec.documents.trace_summary import TraceSummary
from assay.spec.verdicts import Verdict


def lines() -> list[AnyLine]:
    found = [parsed(line) for line in sample_lines()]
    assert not any(isinstance(one, str) for one in found)
    return found  # type: ignore[return-value]


@pytest.fixture
def summary() -> TraceSummary:
    return summarise(lines(), "sample", Verdict.ACCEPTED)


def test_tickets_are_counted_by_lane_and_class(summary: TraceSummary) -> None:
    counted = {
        key: (one.issued, one.ready, one.failed, one.dropped, one.cancelled)
        for key, one in summary.tickets.items()
    }
    assert counted == {
        "expert.exact": (4, 2, 1, 0, 1),
        "expert.near": (2, 1, 0, 1, 1),
        "expert.speculative": (1, 0, 0, 0, 1),
        "expert.background": (2, 0, 0, 1, 1),
        "ple.exact": (1, 1, 0, 0, 0),
    }


def test_bytes_are_told_by_who_asked_and_who_used_them(summary: TraceSummary) -> None:
    """Exact: 15 of an expert, 10 of pages, 15 that a prediction asked for first but an exact ticket read, 10 gone stale."""
    bytes_ = summary.bytes
    assert (bytes_.exact, bytes_.predicted, bytes_.useful, bytes_.unused) == (50, 10, 0, 10)
    assert (bytes_.logical, bytes_.cached, bytes_.direct, bytes_.physical) == (60, 10, 0, 70)


def test_waits_and_what_they_leave_hidden(summary: TraceSummary) -> None:
    """Two waits of 1 us; exact tickets outstanding at 1-12 (and 1-6, which counts once), 19-24 and 34-36 us."""
    assert (summary.waits.count, summary.waits.total_us) == (2, 2.0)
    assert summary.exact_io_us == pytest.approx(18.0)
    assert summary.hidden_share == pytest.approx(1 - 2 / 18)


def test_a_prediction_counts_from_when_it_became_exact() -> None:
    """Ticket 2 is promoted when its first part has come, at 21 us, and ready at 24."""
    changed: list[AnyLine] = []
    for one in lines():
        if (
            isinstance(one, (TicketLine, EventLine))
            and (one.id if isinstance(one, TicketLine) else one.ticket) != 2
        ):
            continue
        is_later = isinstance(one, EventLine) and one.t >= 21_000
        changed.append(one.model_copy(update={"priority": 0}) if is_later else one)
    assert summarise(changed, "sample", Verdict.ACCEPTED).exact_io_us == pytest.approx(3.0)


def test_a_trace_that_names_no_stage_does_not_say_what_was_hidden() -> None:
    without = [one for one in lines() if not isinstance(one, StageLine)]
    assert summarise(without, "sample", Verdict.ACCEPTED).hidden_share is None


def test_a_picture_begins_with_what_happened_first() -> None:
    assert first_time(lines()) == 3300
    assert first_time([]) == 0


def test_a_prediction_that_was_read_and_then_needed_was_useful() -> None:
    changed = [
        one.model_copy(update={"priority": 1}) if isinstance(one, ReadLine) and one.fetch == 2 else one
        for one in lines()
    ]
    bytes_ = summarise(changed, "sample", Verdict.ACCEPTED).bytes
    assert (bytes_.predicted, bytes_.useful, bytes_.unused) == (25, 15, 10)


def test_a_prediction_that_a_later_route_finds_resident_was_useful() -> None:
    """Expert 1 is predicted alone, read, copied and given back; then a route of its layer finds it."""
    changed = []
    for one in lines():
        if (
            isinstance(one, (TicketLine, EventLine))
            and (one.id if isinstance(one, TicketLine) else one.ticket) == 4
        ):
            continue  # without the exact ticket that shared the read
        changed.append(
            one.model_copy(update={"priority": 1}) if isinstance(one, ReadLine) and one.fetch == 2 else one
        )
    route = next(one for one in changed if isinstance(one, RouteLine))
    absent = route.model_copy(update={"resident": [True, False]})
    present = route.model_copy(update={"resident": [False, True]})
    useful = [
        summarise([*changed, *later], "sample", Verdict.ACCEPTED).bytes.useful
        for later in ([], [absent], [present], [present, present])
    ]
    assert useful == [0, 0, 15, 15]


def test_routes_and_stages(summary: TraceSummary) -> None:
    routes = summary.routes
    assert (routes.routes, routes.chosen, routes.resident, routes.repeated) == (1, 2, 1, 0)
    assert summary.stages_us == {"moe": 1.0}


def test_the_first_other_route_is_named(summary: TraceSummary) -> None:
    route = next(one for one in lines() if isinstance(one, RouteLine))
    other = route.model_copy(update={"experts": [0, 2]})
    found = compare(summary, summary, [route, route], [route, other])
    assert (found.routes_compared, found.first_other_route) == (
        1,
        "lane 0 layer 0 token 0: [0, 1] against [0, 2]",
    )


def test_a_run_that_goes_on_longer_is_another_route(summary: TraceSummary) -> None:
    route = next(one for one in lines() if isinstance(one, RouteLine))
    assert (
        compare(summary, summary, [route], [route, route]).first_other_route
        == "after 1 routes only B goes on"
    )


def test_a_timeline_shows_every_read_stage_and_wait_once() -> None:
    found = timeline(lines(), "sample")
    drawn = sum(len(row.bars) for row in found.rows)
    assert drawn == sum(isinstance(one, (ReadLine, StageLine, WaitLine)) for one in lines())
    assert [row.name for row in found.rows] == [
        "expert reader 0",
        "ple reader 0",
        "lane 0 compute",
        "lane 0 waits",
    ]


def test_a_timeline_keeps_to_its_time_and_its_bound() -> None:
    found = timeline(lines(), "sample", start=10_000, end=24_000, most_bars=2)
    inside = [
        one
        for one in lines()
        if isinstance(one, (ReadLine, StageLine, WaitLine)) and one.start <= 24_000
        and (one.t if isinstance(one, ReadLine) else one.end) >= 10_000
    ]  # fmt: skip
    assert (sum(len(row.bars) for row in found.rows), found.omitted) == (2, len(inside) - 2)
    assert all(bar.end >= 10_000 and bar.start <= 24_000 for row in found.rows for bar in row.bars)


def test_reads_at_the_same_time_lie_in_rows_of_their_own() -> None:
    reads = [one for one in lines() if isinstance(one, ReadLine) and one.lane == "expert"][:2]
    spread = [one.model_copy(update={"start": 0, "t": 100}) for one in reads]
    assert [row.name for row in timeline(spread, "two").rows] == ["expert reader 0", "expert reader 1"]


def test_a_long_trace_is_counted_to_its_end() -> None:
    wait = next(one for one in lines() if isinstance(one, WaitLine))
    many = (wait.model_copy(update={"end": wait.start + 1 + number % 9}) for number in range(20_000))
    assert summarise(many, "long", Verdict.ACCEPTED).waits.count == 20_000
