"""The gate that compares oracles with upstream: it agrees on what is shipped, and it can fail."""

from pathlib import Path

import numpy as np
import pytest

from assay.impl.captures.fixtures import read_fixture
from assay.oracles import weights as oracle_weights
from assay.provenance.captures import parity_tolerances
from assay.provenance.captures.arrays import OpenCapture
from assay.provenance.captures.geometries import CASES, GEOMETRIES
from assay.provenance.captures.oracle_run import OracleRun, committed_history, run_oracles
from assay.provenance.captures.parity import compare_case, compare_cases, summary
from assay.provenance.captures.weights import counter_values, name_role, named_weight, role_weight
from assay.provenance.gates.base import GateContext
from assay.provenance.gates.parity import cut_faults, fixtures_provenance, oracle_upstream
from assay.provenance.paths import fixture_path
from assay.spec.documents.measurements import LadderMeasurement
from assay.spec.origins import SOURCES, UPSTREAM, UPSTREAM_NAMES
from assay.spec.stages import rung_name
from assay.spec.upstream_pins import contract_difference

ROOT = fixture_path("captures")
FIXTURE = "contract-fixture/tokens"


@pytest.fixture(scope="module")
def run() -> OracleRun:
    return run_oracles(read_fixture(ROOT / FIXTURE), [2, 5, 7, 3, 9, 4])


def altered(run: OracleRun, key: tuple[str, int | None, str], token: int, change) -> OracleRun:
    rows = {name: list(values) for name, values in run.rows.items()}
    rows[key][token] = change(rows[key][token].copy())
    return OracleRun(rows, run.states)


def judged(run: OracleRun) -> dict[str, str]:
    result = compare_case(FIXTURE, read_fixture(ROOT / FIXTURE), OpenCapture(ROOT / FIXTURE), run)
    return {array.rung: array.outcome for array in result.arrays}


@pytest.mark.slow
def test_the_oracles_agree_with_every_capture(tmp_path: Path) -> None:
    result = oracle_upstream(GateContext(None, tmp_path))
    assert (result.outcome, result.findings) == ("pass", ())
    assert result.measurements["outcomes"] == {"agrees": result.measurements["arrays"]}
    assert result.measurements["cases"] == len(CASES) == 14
    ladder = LadderMeasurement.model_validate(result.measurements["ladder"])
    assert ladder.rungs == dict.fromkeys(("ple-rows", "embedding", "layer-stage", "final-logits"), "equal")
    assert (
        result.measurements["cutsNear"] == 8
    )  # four cuts of the 512 experts in each case of the fixture geometry
    assert len((tmp_path / "parity-arrays.jsonl").read_text().splitlines()) == result.measurements["arrays"]


def test_the_shipped_fixtures_pass_their_gate(tmp_path: Path) -> None:
    result = fixtures_provenance(GateContext(None, tmp_path))
    assert (result.outcome, result.measurements["fixtures"]) == ("pass", 14)


def test_a_wrong_value_is_a_disagreement(run: OracleRun) -> None:
    wrong = altered(run, ("gdn", 2, ""), 3, lambda row: row + np.float32(1e-3))
    assert {rung for rung, outcome in judged(wrong).items() if outcome == "differs"} == {"layers.2.gdn"}


def test_a_wrong_table_row_is_a_disagreement(run: OracleRun) -> None:
    wrong = altered(run, ("ple_rows", 1, ""), 5, lambda row: row + 1)
    assert judged(wrong)["layers.1.ple_rows"] == "differs"


def swap_last_two(row: np.ndarray) -> np.ndarray:
    row[[-1, -2]] = row[[-2, -1]]
    return row


def test_a_swapped_expert_is_excused_only_where_upstream_itself_was_near(run: OracleRun) -> None:
    """Gaps are taken from the capture; the fixture geometry has near cuts, so both kinds of place exist."""
    logits = OpenCapture(ROOT / FIXTURE).whole(("router", 0, "logits"))
    ranked = np.sort(logits, axis=-1)[:, ::-1][:, :11]
    gaps = (ranked[:, :-1] - ranked[:, 1:]).min(axis=-1)
    near, far = int(gaps.argmin()), int(gaps.argmax())
    assert gaps[near] <= 1e-4 < gaps[far]
    excused = judged(altered(run, ("router", 0, "ids"), near, swap_last_two))
    assert excused["layers.0.router.ids"] == "rounding"
    assert "differs" not in excused.values()
    assert judged(altered(run, ("router", 0, "ids"), far, swap_last_two))["layers.0.router.ids"] == "differs"


def test_after_an_excused_choice_later_rungs_are_not_asked(run: OracleRun) -> None:
    logits = OpenCapture(ROOT / FIXTURE).whole(("router", 0, "logits"))
    ranked = np.sort(logits, axis=-1)[:, ::-1][:, :11]
    near = int((ranked[:, :-1] - ranked[:, 1:]).min(axis=-1).argmin())
    wrong = altered(run, ("router", 0, "ids"), near, swap_last_two)
    result = compare_case(FIXTURE, read_fixture(ROOT / FIXTURE), OpenCapture(ROOT / FIXTURE), wrong)
    head = next(array for array in result.arrays if array.rung == "output_head")
    states = [array for array in result.arrays if array.stage == "state"]
    assert (head.tokens_asked, result.excused) == (near, 1)
    assert {array.outcome for array in states} == {"not-asked"}


def test_the_summary_keeps_the_farthest_array_of_each_operation() -> None:
    figures = summary(list(compare_cases(ROOT, [FIXTURE])))
    operation = figures["operations"]["ple_rows"]
    assert (operation["max_absolute"], operation["rtol"], operation["atol"]) == (0.0, 0.0, 0.0)
    assert operation["reason"] == "ids, rows and positions are integers"


@pytest.mark.parametrize(("history", "left"), [([5, 6], [5, 6]), ([3, 6], [6]), ([5, 3], []), ([3, 3], [])])
def test_an_end_of_text_cuts_the_history(history: list[int], left: list[int]) -> None:
    assert committed_history(np.array(history), 3) == left


def test_the_counter_rule_by_hand() -> None:
    """One value worked out in whole numbers: role 100, index 1."""
    mask = 2**64 - 1
    word = 0x4E585134 ^ (100 * 0xD6E8FEB86659FD93 & mask) ^ 0xA0761D6478BD642F
    word = (word + 0x9E3779B97F4A7C15) & mask
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & mask
    word = (word ^ word >> 27) * 0x94D049BB133111EB & mask
    word ^= word >> 31
    expected = ((word >> 40 & 0xFFFF) - 32768) * (0.12 / 32768)
    assert counter_values(100, 2)[1] == expected


def test_fnv_of_a_known_text() -> None:
    """With the contract's offset basis, which is not the usual one; `a` is one round by hand."""
    assert name_role("a") == ((1469598103934665603 ^ 0x61) * 1099511628211) % 2**64


@pytest.mark.parametrize(
    ("parameter", "shape"),
    [
        ("model.layers.0.linear_attn.norm.weight", (16,)),
        ("model.layers.3.self_attn.q_proj.weight", (8, 6)),
        ("lm_head.weight", (5, 7)),
    ],
)
def test_the_capture_and_the_oracles_read_the_weight_rule_alike(
    parameter: str, shape: tuple[int, ...]
) -> None:
    """Two statements of one rule that share no code."""
    name = parameter.replace("model.", "model.language_model.", 1)
    assert np.array_equal(named_weight(parameter, shape, 4), oracle_weights.tensor(name, shape))


def test_the_gate_of_a_query_follows_it_inside_each_head() -> None:
    """Fixture geometry: rows 0, 1 of a head are the query (role 4000), rows 2, 3 its gate (role 4003)."""
    config = GEOMETRIES["contract-fixture"]
    made = role_weight("model.layers.3.self_attn.q_proj.weight", (8, 4), config)
    query, gate = counter_values(4000, 16).astype(np.float32), counter_values(4003, 16).astype(np.float32)
    assert made[0].tolist() == query[:4].tolist()
    assert made[2].tolist() == gate[:4].tolist()
    assert made[4].tolist() == query[8:12].tolist()


def test_every_shipped_array_has_a_source_and_only_upstreams_names_are_upstream_captures() -> None:
    for case in CASES:
        for array in read_fixture(ROOT / case.id).arrays:
            source = SOURCES[(array.stage, array.part)]
            assert (array.origin == UPSTREAM) == (array.qualified_name in UPSTREAM_NAMES)
            assert (source.origin, source.qualified_name) == (array.origin, array.qualified_name)


def test_the_pins_say_that_the_contract_pins_other_sources() -> None:
    assert set(contract_difference().values()) == {False}


def test_the_shipped_vectors_stay_below_ten_megabytes() -> None:
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) < 10_000_000


@pytest.mark.parametrize("case", [case.id for case in CASES])
def test_the_cuts_that_a_fixture_states_are_those_of_its_scores(case: str) -> None:
    assert cut_faults(case, read_fixture(ROOT / case), OpenCapture(ROOT / case)) == []


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("selection", {"cuts": 1}),
        ("selection", {"smallest_gap": 0.25}),
        ("routing", {"near": 3}),
        ("routing", {"ties": 1}),
        ("routing", {"near_places": [[0, 0], [0, 2], [1, 0], [2, 4]]}),
    ],
)
def test_a_cut_that_was_counted_otherwise_is_found(kind: str, change: dict[str, object]) -> None:
    """A record that states fewer near cuts, signed again, would pass every digest."""
    fixture = read_fixture(ROOT / FIXTURE)
    cuts = {**fixture.cuts, kind: fixture.cuts[kind].model_copy(update=change)}
    found = cut_faults(FIXTURE, fixture.model_copy(update={"cuts": cuts}), OpenCapture(ROOT / FIXTURE))
    assert [(one.code, one.where) for one in found] == [
        ("parity.oracle-upstream.cuts", f"{FIXTURE}: cuts.{kind}")
    ]


def test_a_kind_of_cut_that_is_not_stated_is_found() -> None:
    fixture = read_fixture(ROOT / FIXTURE).model_copy(update={"cuts": {}})
    found = cut_faults(FIXTURE, fixture, OpenCapture(ROOT / FIXTURE))
    assert [(one.where, one.got) for one in found] == [
        (f"{FIXTURE}: cuts.selection", "null"), (f"{FIXTURE}: cuts.routing", "null"),
    ]  # fmt: skip


def test_the_four_near_cuts_of_the_contracts_geometry_are_counted_from_its_logits() -> None:
    """By hand: sorted logits of 512 experts, the tenth less the eleventh."""
    capture, near = OpenCapture(ROOT / FIXTURE), []
    for layer in range(4):
        for token, row in enumerate(capture.whole(("router", layer, "logits"))):
            ranked = np.sort(row)[::-1]
            near += [[layer, token]] * bool(ranked[9] - ranked[10] <= 1e-4)
    assert near == read_fixture(ROOT / FIXTURE).cuts["routing"].near_places
    assert len(near) == 4


@pytest.mark.parametrize(
    "key", [("routed_shared_moe", 2, ""), ("router", 1, "weights"), ("qsa", 3, ""), ("attn_gr_apply", 0, "")]
)
def test_an_error_of_one_part_in_two_hundred_is_no_rounding(
    run: OracleRun, key: tuple[str, int | None, str]
) -> None:
    """The experts of this geometry give values of 1e-4, which an absolute 2e-5 would let be wrong by a seventh."""
    name = rung_name(*key)
    assert judged(altered(run, key, 3, lambda row: row * np.float32(1.005)))[name] == "differs"
    assert judged(run)[name] == "agrees"


def test_the_room_of_an_operation_is_a_few_times_what_was_seen_and_no_more() -> None:
    assert {
        name: share
        for name, share in parity_tolerances.BY_RUNG.items()
        if not 2.9 * share.seen <= share.of_rms <= 5 * share.seen
    } == {}
    assert all(share.reason for share in parity_tolerances.BY_RUNG.values())


def test_every_float_array_of_upstream_has_a_room_of_its_own() -> None:
    listed = set(parity_tolerances.BY_RUNG) | parity_tolerances.COPIES
    held = {
        (array.stage, array.part)
        for case in CASES
        for array in read_fixture(ROOT / case.id).arrays
        if array.dtype == "f32" and array.origin == UPSTREAM
    }
    assert held - listed == set()


@pytest.mark.parametrize(
    ("stage", "part", "array", "atol"),
    [
        ("gdn", "", np.full(4, 0.5, np.float32), 2e-5),
        ("gdn", "", np.full(4, 0.01, np.float32), 4e-7),
        ("gdn", "", np.array([3, -4], np.float32) / 100, 4e-5 * np.sqrt(12.5) / 100),
        ("gdn", "", np.zeros(4, np.float32), 0.0),
        ("qsa", "index_scores", np.full(4, 10, np.float32), 6e-5),
        ("embedding", "", np.ones(4, np.float32), 0.0),
        ("gdn", "of nobody", np.ones(4, np.float32), 0.0),
        ("router", "ids", np.ones(4, np.int64), 0.0),
    ],
)
def test_the_absolute_room_follows_the_size_of_the_array(
    stage: str, part: str, array: np.ndarray, atol: float
) -> None:
    found = parity_tolerances.parity_tolerance(stage, part, array)
    assert found.atol == pytest.approx(atol, rel=1e-6)
    assert found.rtol == (2e-5 if stage in {"gdn", "qsa"} and part != "of nobody" else 0.0)
