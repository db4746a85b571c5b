"""The HTML report: one file, readable by machine and by keyboard, whatever the run holds."""

import itertools
import re
from html.parser import HTMLParser

import pytest

from assay.reports.compare import compare
from assay.reports.render import render
from assay.reports.view import view_of
from assay.spec.documents.base import FindingRecord
from assay.spec.documents.run import GateRecord, Run

VOID = {"meta", "link", "br", "img", "hr", "input", "path", "use", "rect", "circle"}


class Page(HTMLParser):
    """Reads a page strictly: an element left open or closed twice is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"style", "title"}:
            self.text.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(name)) is not None]

    @property
    def plain(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.text))


@pytest.fixture(params=["mixed_run", "good_run", "hostile_run", "comparison"])
def page(request: pytest.FixtureRequest) -> Page:
    if request.param == "comparison":
        before, after = request.getfixturevalue("good_run"), request.getfixturevalue("hostile_run")
        return Page(render(compare(before, after), "html"))
    return Page(render(request.getfixturevalue(request.param), "html"))


def test_it_needs_no_script_and_no_other_file(page: Page) -> None:
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "img", "object", "form"}
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert all(value.startswith("#") for name in ("href", "src") for value in page.values(name))


def test_every_link_leads_to_a_place_on_the_page(page: Page) -> None:
    assert {value[1:] for value in page.values("href")} <= set(page.values("id"))


def test_no_two_places_share_a_name(page: Page) -> None:
    names = page.values("id")
    assert len(names) == len(set(names))


def test_headings_never_skip_a_level(page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_landmarks_stand_in_reading_order(page: Page) -> None:
    landmarks = [tag for tag, _ in page.tags if tag in {"header", "main", "footer"}]
    assert landmarks == ["header", "main", "footer"]
    assert next(attrs for tag, attrs in page.tags if tag == "a")["class"] == "skip"


def test_every_table_header_says_what_it_heads(page: Page) -> None:
    assert all(attrs.get("scope") in {"col", "row"} for tag, attrs in page.tags if tag == "th")


def test_every_row_of_findings_gates_and_labels_has_a_place(page: Page) -> None:
    assert all(attrs.get("id") for tag, attrs in page.tags if tag == "article")


def test_what_scrolls_can_be_reached_by_keyboard_and_is_named(page: Page) -> None:
    boxes = [attrs for _, attrs in page.tags if attrs.get("class") == "scroll"]
    assert all(
        box.get("tabindex") == "0" and box.get("role") == "region" and box.get("aria-label") for box in boxes
    )


def test_the_four_questions_are_answered_in_order(mixed_run: Run) -> None:
    heads = re.findall(r"<h2[^>]*>([^<]+?) *<", render(mixed_run, "html"))
    assert heads[:4] == ["What holds", "What does not hold", "What is not claimed", "What to run next"]


def test_each_failure_is_named_with_both_values(mixed_run: Run) -> None:
    text = Page(render(mixed_run, "html")).plain
    assert "config.text.num_experts: config.json: text_config.num_experts: expected 512, got 384" in text


def test_a_state_is_said_in_words_and_not_by_colour_alone(mixed_run: Run) -> None:
    page = Page(render(mixed_run, "html"))
    for words in ("3 fail", "1 inconclusive", "2 not run", "1 stale", "2 contract mutations survived"):
        assert words in page.plain
    cells = re.findall(r'<td><span class="[a-z-]+" title="([^"]+)">', render(mixed_run, "html"))
    assert cells
    assert set(cells) == {"pass", "fail", "inconclusive", "not-run", "stale"}


def test_the_first_differing_rung_is_marked_and_the_later_ones_are_not_blamed(mixed_run: Run) -> None:
    text = render(mixed_run, "html")
    assert text.count("first difference</span>") == 1
    assert '<li class="differs">' in text
    assert text.count('<li class="not-blamed">') == 2


def test_a_run_without_a_comparison_says_that_every_rung_is_unknown(good_run: Run) -> None:
    bare = good_run.model_copy(
        update={"gates": [gate.model_copy(update={"measurements": {}}) for gate in good_run.gates]}
    )
    text = render(bare, "html")
    assert text.count('<li class="unknown">') == 7
    assert "every rung is unknown" in text


def test_hostile_text_stays_text(hostile_run: Run) -> None:
    text = render(hostile_run, "html")
    assert "<script" not in text.lower()
    assert not [one for one in text if not one.isprintable() and one != "\n"]
    assert "alert(1)" in Page(text).plain


def test_ten_thousand_findings_stay_a_small_page_that_counts_what_it_left_out(mixed_run: Run) -> None:
    finding = mixed_run.gates[1].findings[0]
    gates = [
        mixed_run.gates[1].model_copy(update={"id": f"gate.{n}", "findings": [finding] * 1000})
        for n in range(10)
    ]
    text = render(mixed_run.model_copy(update={"gates": gates}), "html")
    assert len(text) < 400_000
    assert text.count("960 of 1,000 findings are not shown") == 10


def test_a_gate_that_is_no_document_is_shown_as_unreadable(mixed_run: Run) -> None:
    gate = GateRecord(
        id="odd",
        outcome="pass",
        components=[],
        measurements={"battery": {"schema": "other"}, "ladder": ["differs"]},
    )
    text = Page(render(mixed_run.model_copy(update={"gates": [gate]}), "html")).plain
    assert "can't be read as assay.mutation-run/1" in text
    assert "the gate's ladder could not be read" in text


def test_the_private_seam_is_stamped(mixed_run: Run) -> None:
    public = Page(render(mixed_run, "html")).plain
    private = Page(render(mixed_run.model_copy(update={"seam": "private"}), "html")).plain
    assert "Private seam" not in public
    assert "Its evidence can't reach qualified" in private


def test_an_empty_run_claims_nothing() -> None:
    empty = Run(run="r", outcome="not-run", gates=[], report="index.html")
    text = Page(render(empty, "html")).plain
    assert "nothing is claimed to hold" in text
    assert "No component is labelled" in text


def test_the_sentence_of_a_hypothesis_is_said_not_to_be_shown(mixed_run: Run) -> None:
    text = Page(render(mixed_run, "html")).plain
    assert "Not yet shown: structural-only: Nothing is claimed." in text
    assert text.count("Not yet shown: ") == len(mixed_run.labels)


def test_a_required_gate_that_was_not_run_is_in_the_red_list(good_run: Run) -> None:
    missed = good_run.gates[-1].model_copy(update={"required": True})
    text = Page(render(good_run.model_copy(update={"gates": [*good_run.gates[:-1], missed]}), "html")).plain
    assert "What does not hold (1)" in text
    assert "required, but not run: no Apple GPU on this machine" in text


def test_stale_evidence_is_named_with_its_reason_and_with_the_command_that_renews_it(mixed_run: Run) -> None:
    text = Page(render(mixed_run, "html")).plain
    assert "text.template-parity: changed since: code, the gate itself" in text
    assert "assay gate text.template-parity runs what is stale again." in text


def test_a_command_in_a_next_step_is_set_as_code(mixed_run: Run) -> None:
    told = mixed_run.model_copy(update={"next_steps": ["renew stale evidence: assay gate a.b"]})
    assert "renew stale evidence: <code>assay gate a.b</code>" in render(told, "html")


def test_unknown_rungs_are_counted_beside_the_equal_ones(good_run: Run) -> None:
    text = Page(render(good_run, "html")).plain
    assert "No rung differs: 2 of 7 are equal within the gate's tolerances, 5 are unknown." in text


def test_each_battery_is_counted_by_itself(mixed_run: Run) -> None:
    strip = re.search(r'<ul class="strip".*?</ul>', render(mixed_run, "html"), re.DOTALL)
    assert strip is not None
    words = Page(strip[0]).plain
    assert "149 contract mutations killed" in words
    assert "2 contract mutations survived" in words


def test_the_red_list_shows_what_differs_before_a_digest(mixed_run: Run) -> None:
    digest = FindingRecord(
        code="files.digest", stage="s", where="config.json", expected="a" * 64, got="b" * 64
    )
    gate = mixed_run.gates[1]
    led = gate.model_copy(update={"findings": [digest, *gate.findings]})
    red = view_of(mixed_run.model_copy(update={"gates": [led]})).red[0]
    assert red.text.startswith("config.text.num_experts: ")


def test_every_box_that_scrolls_holds_what_is_hidden_in_it(mixed_run: Run) -> None:
    """Text for screen readers stands outside the flow: without a box of its own it would widen the page."""
    assert re.search(r"^\.scroll \{ position: relative;", render(mixed_run, "html"), re.MULTILINE)


def test_commands_to_run_next_can_be_pasted(mixed_run: Run) -> None:
    many = [
        GateRecord(id=f"g.{number}", outcome="not-run", components=[], needs=["checkpoint"])
        for number in range(9)
    ]
    steps = view_of(mixed_run.model_copy(update={"gates": many, "labels": []})).next_steps
    assert any(f"`assay gate {' '.join(one.id for one in many)} --checkpoint DIR`" in step for step in steps)
