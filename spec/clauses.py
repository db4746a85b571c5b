"""The register of clauses: one stable id for each rule, and what `assay explain` says about it.

A clause is declared beside the code that checks it. Its id is a stable word path (`ple.hash.multipliers`), never
renumbered or reused, and it is the code of every finding, the name of its negative test and a row of the report.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Authority(StrEnum):
    """What stands behind a clause, strongest first."""

    RULE = "rule"  # recomputation, arithmetic or agreement of several fields
    UPSTREAM = "upstream"  # data that upstream published
    PIN = "pin"  # a recorded value, compared with its own copy
    FORM = "form"  # type, presence or order of fields
    INPUT = "input"  # a file that can't be read or parsed
    PROCESS = "process"  # how assay's own gates, evidence and commands must behave


@dataclass(frozen=True, slots=True)
class Clause:
    """One rule.

    Attributes:
        id: stable word path.
        authority: what stands behind it.
        meaning: what must hold, in one or two sentences.
        source: where it comes from: a field note, a format, an upstream file.
        cause: the usual cause of a failure.
        fix: what to do about it; may be empty.
    """

    id: str
    authority: Authority
    meaning: str
    source: str
    cause: str
    fix: str = ""


_CLAUSES: dict[str, Clause] = {}


def declare(id_: str, authority: Authority, meaning: str, *, source: str, cause: str, fix: str = "") -> str:
    """Registers a clause and returns its id; the same id can't be declared twice with another text."""
    clause = Clause(id_, authority, meaning, source, cause, fix)
    if _CLAUSES.setdefault(id_, clause) != clause:
        raise ValueError(f"clause {id_} is declared twice")
    return id_


def clause(id_: str) -> Clause | None:
    """Returns the clause with this id among the modules imported so far."""
    return _CLAUSES.get(id_)


def clauses() -> Iterator[Clause]:
    """Yields all clauses declared so far, by id."""
    yield from (_CLAUSES[key] for key in sorted(_CLAUSES))
