"""The runner of batteries is itself held to what it says: controls, counts, crashes and order."""

import pytest

from assay.mutations import runner
from assay.mutations.battery import Battery, BatteryContext, InvalidMutationError, Mutation
from assay.spec.clauses import Authority, declare
from assay.spec.errors import EvidenceError, Finding

RULE = declare("test.rule", Authority.RULE, "The value is 7.", source="this test", cause="a mutation")
PIN = declare("test.pin", Authority.PIN, "The value is recorded.", source="this test", cause="a mutation")
CONTEXT = BatteryContext()


def finding(code: str, where: str = "value") -> Finding:
    return Finding.of(code, "test", where, expected=7, got=8)


def battery(judge, mutations=(), *, control=lambda _context: [], pin_reasons=None) -> Battery:
    return Battery(
        name="toy",
        title="a toy",
        mutations=lambda _context: list(mutations),
        judge=judge,
        control=control,
        forced=lambda _context: Mutation("forced", "a", "value", "value = 8", (RULE,), payload="forced"),
        pin_reasons=pin_reasons,
    )


@pytest.fixture
def run(monkeypatch):
    def start(toy: Battery):
        monkeypatch.setattr(runner, "battery_named", lambda _name: toy)
        runner._listed.cache_clear()
        return runner.run_batteries(["toy"], CONTEXT)

    return start


def judge(mutation: Mutation, _context: BatteryContext) -> list[Finding]:
    match mutation.payload:
        case "forced" | "rule":
            return [finding(PIN), finding(RULE)]
        case "pin":
            return [finding(PIN)]
        case "invalid":
            raise InvalidMutationError("the anchor is missing")
        case "crash":
            raise ZeroDivisionError("oops")
        case _:
            return []


def mutation(payload: str, expected: tuple[str, ...] = (), **more) -> Mutation:
    return Mutation(payload, "area", f"field.{payload}", "a change", expected, payload=payload, **more)


def test_every_fate_is_counted_once(run) -> None:
    made = [
        mutation("rule", (RULE,)),
        mutation("pin", (RULE,)),
        mutation("none"),
        mutation("invalid"),
        mutation("crash"),
        mutation("same", equivalent="the order of these keys is free"),
    ]
    result = run(battery(judge, made, pin_reasons=lambda _mutation: "digest"))
    counts = result.batteries["toy"]
    assert (counts.total, counts.killed, counts.killed_elsewhere) == (6, 1, 1)
    assert (counts.survived, counts.invalid, counts.equivalent) == (2, 1, 1)
    assert [record.id for record in result.survivors] == ["none", "invalid", "crash"]
    assert [record.id for record in result.killed_elsewhere] == ["pin"]


def test_a_leaf_that_upstreams_absent_data_would_judge_says_so(run) -> None:
    result = run(battery(judge, [mutation("pin")], pin_reasons=lambda _mutation: ""))
    (pinned,) = result.details["toy"].pin_only
    assert pinned.reason.startswith("Upstream's data judges these leaves, and it is absent from this run")


def test_the_strongest_authority_that_fired_is_counted(run) -> None:
    made = [mutation("rule"), mutation("pin")]
    result = run(battery(judge, made, pin_reasons=lambda _mutation: "digest"))
    area = result.details["toy"].areas["area"]
    assert (area.by_rule, area.by_pin, area.by_upstream, area.by_form) == (1, 1, 0, 0)
    assert [(one.leaves, one.reason) for one in result.details["toy"].pin_only] == [(["field.pin"], "digest")]


def test_a_kill_at_the_right_clause_but_another_place_is_elsewhere(run) -> None:
    made = [Mutation("m", "area", "f", "a change", (RULE,), where="other", payload="rule")]
    assert run(battery(judge, made)).batteries["toy"].killed_elsewhere == 1


def test_a_check_that_crashes_has_not_killed(run) -> None:
    result = run(battery(judge, [mutation("crash")]))
    assert result.survivors[0].reason == "the check crashed: ZeroDivisionError: oops"


def test_a_mutation_declared_equivalent_that_is_caught_counts_as_killed(run) -> None:
    made = [mutation("rule", equivalent="no reader would notice")]
    assert run(battery(judge, made)).batteries["toy"].equivalent == 0


def test_findings_on_the_unchanged_input_stop_the_battery(run) -> None:
    with pytest.raises(EvidenceError) as caught:
        run(battery(judge, control=lambda _context: [finding(RULE)]))
    assert (caught.value.finding.code, caught.value.finding.where) == ("mutations.control", "toy")


def test_a_forced_mistake_that_passes_stops_the_battery(run) -> None:
    with pytest.raises(EvidenceError) as caught:
        run(battery(lambda _mutation, _context: []))
    assert (caught.value.finding.code, caught.value.finding.where) == ("mutations.control", "toy")
