"""The clauses that batteries themselves must keep."""

from typing import Final

from assay.spec.clauses import Authority, declare

CONTROL: Final = declare(
    "mutations.control",
    Authority.PROCESS,
    "A battery accepts the unchanged input and rejects its forced mistake before any other mutation is counted.",
    source="AFN-008",
    cause="The checks report findings on a good input, or a check was disabled, so that nothing is caught any more.",
    fix="Run `assay validate` on the same input and read its findings first.",
)
SURVIVOR: Final = declare(
    "mutations.survivor",
    Authority.PROCESS,
    "Every mutation is caught by a clause, or carries a written reason why it changes nothing.",
    source="AFN-001, AFN-008",
    cause="A fact of the contract that no rule, no upstream datum and no pin guards.",
    fix="Add the clause that should have caught it, with this mutation as its negative test.",
)
