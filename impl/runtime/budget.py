"""One memory budget: who owns how much of it, decided before anything is read or allocated.

What a run takes is added up by owner, from the process that is already there to the slots of the cache. A budget that
can't hold all of it is refused with every number, so that a user sees which of them to change; nothing is shrunk in
silence.
"""

import ctypes
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.impl.runtime.clauses import refuse
from assay.spec.clauses import Authority, declare
from assay.spec.errors import usage_error

BUDGET: Final = declare(
    "runtime.budget", Authority.PROCESS,
    "A run starts only when its memory budget holds everything that it will own at the same time.",
    source="field note AFN-019; reports of swap storms that took a machine down",
    cause="an expert cache, a context or a number of lanes that is larger than the budget",
    fix="a larger --memory-budget, a smaller --expert-cache, or a shorter context",
)  # fmt: skip
SIZE: Final = declare(
    "runtime.budget.size", Authority.FORM,
    "A size is a number of bytes, with B, kB, MB, GB (powers of 1000) or KiB, MiB, GiB (powers of 1024) behind it.",
    source="assay: command line", cause="a unit of bits, a comma, or a negative number",
)  # fmt: skip

_UNITS: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"([0-9]{1,18})(\.[0-9]{1,9})?\s*([A-Za-z]{0,3})")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's mallopt
LARGEST: Final = 1 << 62
ALLOWANCE: Final = 12
"""Share of the budget that is kept free, 1 in this many: what an allocator and a thread stack take beside what is asked."""


ALLOWANCE_NAME: Final = "allocator and threads"


@dataclass(frozen=True, slots=True)
class Owner:
    """One owner of memory, in words that a user can act on, and its bytes."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Who owns what within a budget.

    Attributes:
        budget_bytes: what there is, or None where nobody set a bound.
        owners: in the order in which they are made.
    """

    budget_bytes: int | None
    owners: tuple[Owner, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all owners."""
        return sum(one.size_bytes for one in self.owners)

    @property
    def left_bytes(self) -> int | None:
        """Bytes that nobody owns, or None without a bound."""
        return None if self.budget_bytes is None else self.budget_bytes - self.total_bytes

    @property
    def least_bytes(self) -> int:
        """The smallest budget that this plan fits into; what is kept free of a budget grows with it."""
        kept = sum(one.size_bytes for one in self.owners if one.name == ALLOWANCE_NAME)
        fixed = self.total_bytes - kept
        return fixed if fixed == self.total_bytes else fixed + max(0, fixed - 1) // (ALLOWANCE - 1)

    def require(self, where: str = "--memory-budget") -> None:
        """Refuses a plan that its budget can't hold.

        Raises:
            ContractError: runtime.budget, with the bytes of every owner.
        """
        if self.budget_bytes is None or self.total_bytes <= self.budget_bytes:
            return
        parts = ", ".join(f"{one.name} {one.size_bytes}" for one in self.owners)
        raise refuse(
            BUDGET, where, expected=f"at least {self.least_bytes} bytes", got=f"{self.budget_bytes} bytes",
            hint=f"in bytes: {parts}",
        )  # fmt: skip

    def with_owners(self, more: Sequence[Owner]) -> "Plan":
        """Returns the plan with more owners."""
        return Plan(self.budget_bytes, (*self.owners, *more))


def parse_size(text: str, where: str) -> int:
    """Returns the bytes that a size such as `200MB`, `1.5GiB` or `4096` stands for.

    Args:
        text: digits, at most one decimal point, a unit in any case.
        where: the option, for the error.

    Raises:
        UsageError: runtime.budget.size.
    """
    found = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(found[3].lower()) if found is not None else None
    if found is None or unit is None:
        raise usage_error(where, expected="a size such as 200MB or 1GiB", got=text, code=SIZE)
    places = (found[2] or ".")[1:]
    size = int(found[1] + places) * unit // int(f"1{'0' * len(places)}")
    if not 0 < size <= LARGEST:
        raise usage_error(where, expected=f"1 to {LARGEST} bytes", got=text, code=SIZE)
    return size


def allowance(budget_bytes: int | None) -> Owner:
    """Returns what is kept free of a budget for what no plan can count: allocator, fragments, thread stacks."""
    return Owner(ALLOWANCE_NAME, 0 if budget_bytes is None else budget_bytes // ALLOWANCE)


def return_freed_memory() -> None:
    """Lets the C library give large freed blocks back at once, where it can be told so.

    glibc raises the size from which blocks are returned whenever one is freed, up to 32 MiB; what it keeps is in nobody's
    plan.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(parameter, 1 << 18)


def process_bytes() -> int:
    """Returns the resident bytes of this process: of itself where the system says so, else its highest so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10
    return pages * os.sysconf("SC_PAGE_SIZE")
