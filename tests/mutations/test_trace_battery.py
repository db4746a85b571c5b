"""The battery of traces bites: controls hold, no lie survives, and none is caught for another reason."""

from assay.mutations.battery import BatteryContext
from assay.mutations.runner import run_batteries
from assay.mutations.trace import mutations


def test_no_lie_survives_and_each_is_caught_for_its_own_reason() -> None:
    run = run_batteries(["trace"], BatteryContext())
    counts = run.batteries["trace"]
    assert (run.survivors, run.killed_elsewhere) == ([], [])
    assert counts.killed == counts.total > 750


def test_lies_have_names_of_their_own() -> None:
    names = [one.id for one in mutations(BatteryContext())]
    assert len(names) == len(set(names))


def test_every_clause_of_traces_is_told_a_lie() -> None:
    from assay.impl.runtime import trace_clauses

    named = {
        value for name, value in vars(trace_clauses).items() if name.isupper() and not name.startswith("_")
    }
    lied = {code for one in mutations(BatteryContext()) for code in one.expected}
    assert named - lied == {"trace.truncated"}  # that is no lie, but an end that is missing
