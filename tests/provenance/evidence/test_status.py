"""Labels follow from evidence alone, and losing evidence never raises one."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.provenance.components import Component
from assay.provenance.evidence.checkpoint_input import pinned_files
from assay.provenance.evidence.durable import Disk
from assay.provenance.evidence.ledger import Chain, Entry, Ledger
from assay.provenance.evidence.status import Present, Registry, compute_status, decisive_records
from assay.provenance.gates.base import Gate
from assay.spec.documents.evidence import Bench, CheckpointInput, Evidence, Subject
from assay.spec.documents.status import Status
from assay.spec.errors import Finding
from assay.spec.verdicts import LADDER, Label

MakeRecord = Callable[..., Evidence]
SUBJECT = Subject(code="a" * 64, contract="b" * 64, fixtures="c" * 64)
OTHER = Subject(code="d" * 64, contract="b" * 64, fixtures="c" * 64)
BENCH = Bench(python="3.11", platform="linux-x86_64", device="cpu", packages={"numpy": "2.0"})
RUNGS = {
    "structure": Label.STRUCTURAL_ONLY,
    "build": Label.IMPLEMENTED,
    "vectors": Label.CORRECTNESS_FIXTURE,
    "parity": Label.CORRECTNESS_FIXTURE,
    "quality": Label.QUALIFIED,
}
GATES = tuple(Gate(id_, "A gate.", ("sample",), rung, "") for id_, rung in RUNGS.items())
SUPPORT = (Gate("support.one", "A gate.", (), Label.SUPPORTED, ""),)
BLOCKED = (Gate("support.one", "A gate.", (), Label.SUPPORTED, "", blocked="no product"),)
SAMPLE = Component("sample", "Sample", "A claim.", ())
REGISTRY = Registry((SAMPLE,), GATES, {"family": SUPPORT})
IDS = [*RUNGS, "support.one"]
PRESENT = Present({"sample": SUBJECT}, dict.fromkeys(IDS), dict.fromkeys(IDS, BENCH))


def chain_of(*records: Evidence) -> Chain:
    return Chain(tuple(Entry(f"{number:064x}", record) for number, record in enumerate(records)))


def status_of(*records: Evidence, registry: Registry = REGISTRY) -> Status:
    return compute_status(chain_of(*records), PRESENT, registry)


def label_of(*records: Evidence) -> str:
    return status_of(*records).labels[0].label


@pytest.fixture
def passes(make_record: MakeRecord) -> Callable[..., list[Evidence]]:
    return lambda *ids, **changes: [make_record(id_, **changes) for id_ in ids]


Passes = Callable[..., list[Evidence]]


def test_without_evidence_a_component_is_a_hypothesis() -> None:
    assert label_of() == "hypothesis"


@pytest.mark.parametrize(
    ("ids", "label"),
    [
        (["structure"], "structural-only"),
        (["structure", "build"], "implemented"),
        (["structure", "build", "vectors"], "implemented"),
        (["structure", "build", "vectors", "parity"], "correctness-fixture"),
        (["structure", "build", "vectors", "parity", "quality"], "qualified"),
        (["structure", "build", "vectors", "parity", "quality", "support.one"], "supported"),
        (["build", "vectors", "parity", "quality", "support.one"], "hypothesis"),
        (["structure", "build", "vectors", "parity", "support.one"], "correctness-fixture"),
    ],
)
def test_a_label_needs_every_gate_of_its_rung_and_of_all_lower_ones(
    passes: Passes, ids: list[str], label: str
) -> None:
    assert label_of(*passes(*ids)) == label


@pytest.mark.parametrize("outcome", ["fail", "inconclusive", "not-run"])
def test_only_a_pass_counts(passes: Passes, make_record: MakeRecord, outcome: str) -> None:
    assert label_of(make_record("structure", outcome), *passes("build", "vectors", "parity")) == "hypothesis"


@pytest.mark.parametrize("outcome", ["fail", "inconclusive"])
def test_the_newest_decision_about_the_same_subject_counts(
    passes: Passes, make_record: MakeRecord, outcome: str
) -> None:
    records = [*passes("structure", "build"), make_record("build", outcome)]
    assert label_of(*records) == "structural-only"
    assert label_of(*records, *passes("build")) == "implemented"


def test_a_gate_that_could_not_run_later_takes_nothing_back(passes: Passes, make_record: MakeRecord) -> None:
    assert label_of(*passes("structure", "build"), make_record("build", "not-run")) == "implemented"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"subjects": {"sample": OTHER}}, "code"),
        ({"subjects": {"sample": SUBJECT.model_copy(update={"contract": "e" * 64})}}, "contract"),
        ({"subjects": {"sample": SUBJECT.model_copy(update={"fixtures": "e" * 64})}}, "fixtures"),
        ({"gate_code": "f" * 64}, "the gate itself"),
        ({"bench": BENCH.model_copy(update={"python": "3.12"})}, "python 3.12 -> 3.11"),
        (
            {"bench": BENCH.model_copy(update={"platform": "darwin-arm64"})},
            "platform darwin-arm64 -> linux-x86_64",
        ),
        ({"bench": BENCH.model_copy(update={"device": "gpu"})}, "device gpu -> cpu"),
        ({"bench": BENCH.model_copy(update={"packages": {"numpy": "1.9"}})}, "numpy 1.9 -> 2.0"),
        ({"bench": BENCH.model_copy(update={"packages": {}})}, "numpy not recorded -> 2.0"),
    ],
)
def test_stale_evidence_lowers_the_label_and_says_what_changed(
    passes: Passes, make_record: MakeRecord, changes: dict[str, object], why: str
) -> None:
    status = status_of(*passes("structure"), make_record("build", **changes))
    (label,) = status.labels
    assert label.label == "structural-only"
    assert label.stale == [f"build: changed since: {why}"]
    assert label.gates["build"] == "stale"
    assert label.missing == [f"implemented: build is stale: changed since: {why}"]
    assert any(step.startswith("renew stale evidence: assay gate build") for step in status.next_steps)


def test_evidence_of_an_earlier_state_counts_again_when_that_state_is_back(
    passes: Passes, make_record: MakeRecord
) -> None:
    later = make_record("structure", "fail", subjects={"sample": OTHER})
    assert label_of(*passes("structure"), later) == "structural-only"


def test_private_evidence_reaches_correctness_but_never_qualified(passes: Passes) -> None:
    assert label_of(*passes(*RUNGS, seam="private")) == "correctness-fixture"


@pytest.mark.parametrize("id_", list(RUNGS))
def test_one_private_record_among_public_ones_keeps_qualified_away(passes: Passes, id_: str) -> None:
    public = [one for one in RUNGS if one != id_]
    status = status_of(*passes(*public), *passes(id_, seam="private"))
    assert status.labels[0].label == "correctness-fixture"
    assert status.labels[0].missing == [
        f"qualified: {id_} is private-only: evidence of the private seam only"
    ]


def test_public_evidence_counts_under_a_later_private_record(passes: Passes) -> None:
    assert label_of(*passes(*RUNGS), *passes("build", seam="private")) == "qualified"


def test_a_private_failure_is_a_failure(passes: Passes, make_record: MakeRecord) -> None:
    assert label_of(*passes(*RUNGS), make_record("build", "fail", seam="private")) == "structural-only"


def test_a_component_without_gates_stays_a_hypothesis() -> None:
    bare = Registry((SAMPLE,), (), {"family": SUPPORT})
    (label,) = compute_status(Chain(), PRESENT, bare).labels
    assert (label.label, label.missing) == ("hypothesis", ["no gate is registered for this component"])


def test_support_alone_lifts_no_component(passes: Passes) -> None:
    bare = Registry((SAMPLE,), GATES[:1], {"family": SUPPORT})
    status = status_of(*passes("structure", "support.one"), registry=bare)
    assert status.labels[0].label == "structural-only"


def test_a_profile_is_pinned_until_every_support_gate_passes(passes: Passes) -> None:
    assert status_of(*passes(*RUNGS)).support[0].state == "pinned-not-supported"
    assert status_of(*passes("support.one")).support[0].state == "supported"
    assert status_of(*passes("support.one", seam="private")).support[0].state == "pinned-not-supported"


def test_a_passing_record_of_a_gate_that_has_no_procedure_counts_for_nothing(passes: Passes) -> None:
    registry = Registry((SAMPLE,), GATES, {"family": BLOCKED})
    status = status_of(*passes(*IDS), registry=registry)
    assert status.support[0].model_dump() == {
        "profile": "family", "state": "pinned-not-supported", "gates": {"support.one": "not-run"},
    }  # fmt: skip
    assert status.labels[0].label == "qualified"
    assert status.labels[0].missing == ["supported: support.one is not-run: no product"]


def test_nothing_stands_on_a_damaged_chain(passes: Passes) -> None:
    finding = Finding("evidence.record.missing", "ledger", "x.json", "a record", "no such file")
    damaged = Chain(chain_of(*passes(*IDS)).entries, (finding,), 6)
    status = compute_status(damaged, PRESENT, REGISTRY)
    assert status.labels[0].label == "hypothesis"
    assert status.support[0].state == "pinned-not-supported"
    assert status.ledger.findings[0].where == "x.json"


def test_evidence_about_another_component_does_not_count(make_record: MakeRecord) -> None:
    assert label_of(make_record("structure", subjects={"other": SUBJECT})) == "hypothesis"


def test_the_next_step_of_a_gate_that_needs_an_input_says_what_to_bring() -> None:
    gate = Gate("vectors", "A gate.", ("sample",), Label.CORRECTNESS_FIXTURE, "", needs=("metal",))
    assert status_of(registry=Registry((SAMPLE,), (gate,), {})).next_steps == [
        "with an Apple GPU: assay gate vectors"
    ]


def test_the_decisive_records_are_those_that_the_labels_stand_on(
    passes: Passes, make_record: MakeRecord
) -> None:
    chain = chain_of(*passes("structure", "structure", "build"), make_record("vectors", "fail"))
    assert [entry.digest for entry in decisive_records(chain, PRESENT, REGISTRY)] == [
        f"{1:064x}",
        f"{2:064x}",
    ]


class Unflushed(Disk):
    """A disk that does not wait for the device, since these ledgers need not survive a power cut."""

    def flush(self, descriptor: int) -> None:
        pass


events = st.tuples(
    st.sampled_from(IDS),
    st.sampled_from(["pass", "pass", "pass", "fail", "inconclusive", "not-run"]),
    st.sampled_from([SUBJECT, SUBJECT, OTHER]),
    st.sampled_from([None, None, "private"]),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(history=st.lists(events, min_size=1, max_size=14), data=st.data())
def test_removing_any_evidence_never_raises_a_label(
    history: list[tuple[str, str, Subject, str | None]], data: st.DataObject, make_record: MakeRecord
) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        ledger = Ledger(folder, Unflushed())
        for id_ in IDS:
            ledger.append(make_record(id_))  # so that there is a high label to fall from
        for id_, outcome, subject, seam in history:
            ledger.append(make_record(id_, outcome, subjects={"sample": subject}, seam=seam))
        before = compute_status(ledger.read(), PRESENT, REGISTRY)
        files = sorted(
            path.name for path in folder.iterdir() if path.suffix == ".json" or path.name == "HEAD"
        )
        for name in data.draw(st.sets(st.sampled_from(files), min_size=1), label="removed"):
            (folder / name).unlink()
        after = compute_status(ledger.read(), PRESENT, REGISTRY)
    finally:
        shutil.rmtree(folder)
    assert LADDER.index(Label(after.labels[0].label)) <= LADDER.index(Label(before.labels[0].label))
    assert (after.support[0].state, before.support[0].state) != ("supported", "pinned-not-supported")


@settings(max_examples=100, deadline=None, derandomize=True)
@given(history=st.lists(events, max_size=14))
def test_a_label_never_stands_on_less_than_the_passes_it_names(
    history: list[tuple[str, str, Subject, str | None]], make_record: MakeRecord
) -> None:
    records = [
        make_record(id_, outcome, subjects={"sample": subject}, seam=seam)
        for id_, outcome, subject, seam in history
    ]
    height = LADDER.index(Label(label_of(*records)))
    needed = {id_ for id_, rung in RUNGS.items() if LADDER.index(rung) <= height}
    is_public = height >= LADDER.index(Label.QUALIFIED)
    passed = {
        id_
        for id_, outcome, subject, seam in history
        if outcome == "pass" and subject == SUBJECT and not (is_public and seam)
    }
    assert needed <= passed


CLAIMING = Component(
    "sample", "Sample", "No more.", (),
    claims={Label.STRUCTURAL_ONLY: "It stands.", Label.CORRECTNESS_FIXTURE: "It is right.", Label.QUALIFIED: "It is good."},
)  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "claim", "not_shown"),
    [
        (
            [],
            "",
            ["structural-only: It stands.", "correctness-fixture: It is right.", "qualified: It is good."],
        ),
        (
            ["structure"],
            "It stands. No more.",
            ["correctness-fixture: It is right.", "qualified: It is good."],
        ),
        (
            ["structure", "build", "vectors", "parity"],
            "It stands. It is right. No more.",
            ["qualified: It is good."],
        ),
    ],
)
def test_only_the_sentences_of_reached_rungs_are_claimed(
    passes: Passes, ids: list[str], claim: str, not_shown: list[str]
) -> None:
    (label,) = status_of(*passes(*ids), registry=Registry((CLAIMING,), GATES, {})).labels
    assert (label.claim, label.not_shown) == (claim, not_shown)


PINS = pinned_files()
assert PINS is not None
PUBLISHED = CheckpointInput(
    files={"config.json": PINS.files["config.json"].sha256}, headers="1" * 64, inventory=PINS.inventory_sha256
)
MORE = PUBLISHED.model_copy(update={"headers": "2" * 64})
OTHERS = {
    "another config": PUBLISHED.model_copy(update={"files": {"config.json": "0" * 64}}),
    "another vocabulary": PUBLISHED.model_copy(update={"files": {**PUBLISHED.files, "vocab.json": "0" * 64}}),
    "other headers": PUBLISHED.model_copy(update={"inventory": "0" * 64}),
    "no config": PUBLISHED.model_copy(update={"files": {}}),
}
JUDGING = Gate("structure", "A gate.", ("sample",), Label.STRUCTURAL_ONLY, "", needs=("checkpoint",))
CHECKPOINT = Registry((SAMPLE,), (JUDGING,), {})


def standing(record: Evidence, at_hand: CheckpointInput | None = None) -> tuple[str, str]:
    present = replace(PRESENT, checkpoint=at_hand, pins=PINS)
    (label,) = compute_status(chain_of(record), present, CHECKPOINT).labels
    return label.label, label.gates["structure"]


@pytest.mark.parametrize("outcome", ["pass", "fail", "inconclusive"])
@pytest.mark.parametrize("other", list(OTHERS))
def test_a_judgement_of_another_checkpoint_decides_nothing_about_a_component(
    make_record: MakeRecord, other: str, outcome: str
) -> None:
    assert standing(make_record("structure", outcome, checkpoint=OTHERS[other])) == ("hypothesis", "not-run")


@pytest.mark.parametrize("at_hand", [None, PUBLISHED, OTHERS["another config"]])
def test_a_judgement_of_the_published_checkpoint_counts(
    make_record: MakeRecord, at_hand: CheckpointInput | None
) -> None:
    assert standing(make_record("structure", checkpoint=PUBLISHED), at_hand) == ("structural-only", "pass")
    assert standing(make_record("structure", "fail", checkpoint=PUBLISHED), at_hand) == ("hypothesis", "fail")


def test_evidence_about_another_part_of_the_checkpoint_than_is_at_hand_is_stale(
    make_record: MakeRecord,
) -> None:
    assert standing(make_record("structure", checkpoint=PUBLISHED), MORE) == ("hypothesis", "stale")


def test_evidence_that_does_not_name_its_checkpoint_is_stale(make_record: MakeRecord) -> None:
    assert standing(make_record("structure")) == ("hypothesis", "stale")


def test_what_is_to_be_run_is_one_command_for_each_need() -> None:
    gates = tuple(
        Gate(f"g.{number}", "A gate.", ("sample",), Label.IMPLEMENTED, "", needs=needs)
        for number, needs in enumerate(
            [("checkpoint",), (), ("metal",), ("checkpoint",), ("checkpoint", "metal")]
        )
    )
    ids = [gate.id for gate in gates]
    present = Present({"sample": SUBJECT}, dict.fromkeys(ids), dict.fromkeys(ids, BENCH))
    steps = compute_status(Chain(), present, Registry((SAMPLE,), gates, {})).next_steps
    assert [step.rpartition(": ")[2] for step in steps] == [
        "assay gate g.1",
        "assay gate g.0 g.3 --checkpoint DIR",
        "assay gate g.4 --checkpoint DIR",
        "assay gate g.2",
    ]
