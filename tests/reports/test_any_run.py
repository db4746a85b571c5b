"""Whatever a run document may hold, every format of it can be read again."""

import json
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from assay.reports.compare import compare
from assay.reports.pretty import pretty
from assay.reports.render import render
from assay.spec.documents.base import FindingRecord
from assay.spec.documents.run import GateRecord, LabelRecord, Run, SupportRecord
from assay.spec.verdicts import LADDER

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "",
        "a",
        "a.b",
        "<u>",
        "`",
        "``",
        "|",
        "&lt;",
        "]]>",
        "\\",
        "-->",
        "{{ x }}",
        "\x00",
        "\r\n",
        "\u2028",
        "\ufeff",
    ]
)
OUTCOMES = st.sampled_from(["pass", "fail", "inconclusive", "not-run"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
FINDINGS = st.builds(
    FindingRecord, code=WORDS, stage=WORDS, where=WORDS, expected=WORDS, got=WORDS, hint=WORDS
)
KEYS = WORDS | st.sampled_from(["battery", "ladder"])
GATES = st.builds(
    GateRecord, id=WORDS, outcome=OUTCOMES, components=st.lists(WORDS, max_size=2), title=WORDS, reason=WORDS,
    measurements=st.dictionaries(KEYS, JSON, max_size=3), findings=st.lists(FINDINGS, max_size=2),
    required=st.booleans(), needs=st.lists(WORDS, max_size=1),
)  # fmt: skip
LABELS = st.builds(
    LabelRecord, component=WORDS, title=WORDS, label=st.sampled_from([str(one) for one in LADDER]), claim=WORDS,
    missing=st.lists(WORDS, max_size=2), gates=st.dictionaries(WORDS, OUTCOMES | WORDS, max_size=2),
    stale=st.lists(WORDS, max_size=1),
)  # fmt: skip
RUNS = st.builds(
    Run, run=WORDS, outcome=OUTCOMES, gates=st.lists(GATES, max_size=3), report=WORDS, started=WORDS,
    labels=st.lists(LABELS, max_size=2), not_claimed=st.lists(WORDS, max_size=2), next_steps=st.lists(WORDS, max_size=2),
    seam=st.sampled_from([None, "private"]),
    support=st.lists(st.builds(SupportRecord, profile=WORDS, state=st.just("pinned-not-supported"),
                               gates=st.dictionaries(WORDS, OUTCOMES, max_size=2)), max_size=1),
)  # fmt: skip


def refuse(name: str) -> None:
    raise AssertionError(name)


class Strict(HTMLParser):
    """Fails on an element that is left open, closed twice, or that a text smuggled in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "u"}
        self.handle_startendtag(tag, attrs)
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag.isascii()
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@settings(max_examples=25)
@given(RUNS)
def test_the_page_of_any_run_is_whole_and_its_links_lead_somewhere(run: Run) -> None:
    page = Strict(render(run, "html"))
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


@settings(max_examples=25)
@given(RUNS, RUNS)
def test_the_other_formats_of_any_run_and_comparison_can_be_read(a: Run, b: Run) -> None:
    for document in (b, compare(a, b)):
        json.loads(render(document, "json"), parse_constant=refuse)
        ET.fromstring(render(document, "junit"))  # noqa: S314 - our own text
        lines = [*render(document, "markdown").splitlines(), *pretty(document).split("\n")]
        assert all(line.isprintable() for line in lines)
    Strict(render(compare(a, b), "html"))


@settings(max_examples=25)
@given(RUNS)
def test_nothing_regresses_against_itself(run: Run) -> None:
    assert compare(run, run).regressions == []
