"""Battery `fixtures`: each change of a shipped capture dies at the clause that it breaks."""

import pytest

from assay.mutations.battery import BatteryContext, Mutation
from assay.mutations.fixtures import BATTERY, judge_changed

CONTEXT = BatteryContext()
MUTATIONS = BATTERY.mutations(CONTEXT)


def test_the_unchanged_fixtures_have_no_finding() -> None:
    assert judge_changed(None) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_each_change_dies_at_its_own_clause_and_place(mutation: Mutation) -> None:
    found = [one for one in BATTERY.judge(mutation, CONTEXT) if one.code in mutation.expected]
    assert found
    assert any(mutation.where in one.where for one in found)


def test_the_four_failures_of_the_charter_are_all_in_the_battery() -> None:
    """A changed digest, a changed count, a renamed origin, an origin that its producer cannot have."""
    codes = {code for mutation in MUTATIONS for code in mutation.expected}
    assert {
        "fixture.array.digest", "fixture.counts", "fixture.origin.word", "fixture.origin.producer",
        "fixture.array.missing", "fixture.file.extra",
    } <= codes  # fmt: skip


def test_ids_are_unique() -> None:
    assert len({mutation.id for mutation in MUTATIONS}) == len(MUTATIONS)
