"""Memory budgets: what a size means, and that a plan too large is refused with the bytes of every owner."""

import pytest

from assay.impl.runtime.budget import Owner, Plan, allowance, parse_size, process_bytes
from assay.spec.errors import ContractError, UsageError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("200MB", 200_000_000),
        ("1GiB", 1_073_741_824),
        ("1.5GiB", 1_610_612_736),
        ("4096", 4096),
        ("64 kib", 65536),
        ("0.5KB", 500),
        ("7b", 7),
        ("2TiB", 2_199_023_255_552),
    ],
)
def test_a_size_is_exact(text: str, size_bytes: int) -> None:
    assert parse_size(text, "--memory-budget") == size_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MB",
        "-1MB",
        "1e9",
        "1,5GB",
        "0",
        "0.1B",
        "5 Mbit",
        "200MBB",
        "1.GB",
        "9" * 19,
        "٣MB",
        "9999999TiB",
    ],
)
def test_what_is_no_size_is_refused_where_it_was_said(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text, "--memory-budget")
    assert (caught.value.finding.code, caught.value.finding.where) == (
        "runtime.budget.size",
        "--memory-budget",
    )


OWNERS = (Owner("process", 60), Owner("dense weights", 30), Owner("expert cache of 4 records", 11))


def test_a_plan_within_its_budget_is_allowed_to_the_last_byte() -> None:
    Plan(101, OWNERS).require()
    assert Plan(101, OWNERS).left_bytes == 0
    assert Plan(None, OWNERS).left_bytes is None
    Plan(None, OWNERS).require()


def test_a_plan_beyond_its_budget_is_refused_with_the_bytes_of_every_owner() -> None:
    with pytest.raises(ContractError) as caught:
        Plan(100, OWNERS).require()
    found = caught.value.finding
    assert (found.code, found.where) == ("runtime.budget", "--memory-budget")
    assert (found.expected, found.got) == ("at least 101 bytes", "100 bytes")
    assert found.hint == "in bytes: process 60, dense weights 30, expert cache of 4 records 11"


@pytest.mark.parametrize(
    ("fixed", "least"), [(11, 11), (12, 13), (110, 119), (1_100_000, 1_199_999), (108_835_271, 118_729_386)]
)
def test_the_budget_that_a_refusal_names_is_the_least_that_is_enough(fixed: int, least: int) -> None:
    """A twelfth of any budget is kept free, so that what is missing grows with what is given; values by hand."""

    def plan(budget: int) -> Plan:
        return Plan(budget, (Owner("process", fixed), allowance(budget)))

    with pytest.raises(ContractError) as caught:
        plan(least - 1).require()
    found = caught.value.finding
    assert (found.code, found.where) == ("runtime.budget", "--memory-budget")
    assert found.expected == f"at least {least} bytes"
    plan(least).require()


def test_the_process_is_counted_as_it_is() -> None:
    before = process_bytes()
    held = bytearray(32 << 20)
    held[::4096] = b"\1" * len(held[::4096])
    assert 24 << 20 <= process_bytes() - before <= 48 << 20
