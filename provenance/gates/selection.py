"""Which gates run, and which of them must decide."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from assay.provenance.gates.base import Gate
from assay.spec.errors import usage_error


@dataclass(frozen=True, slots=True)
class Selection:
    """The gates of a run.

    Attributes:
        gates: those that run, in the order of the registry, then those that are required but were left out.
        required: ids that must decide, or the run is inconclusive.
        left_out: ids that are required but not selected; they are `not-run`.
    """

    gates: tuple[Gate, ...]
    required: frozenset[str]
    left_out: frozenset[str]


def select(
    gates: Sequence[Gate], names: Sequence[str], only: Sequence[str], require: Sequence[str]
) -> Selection:
    """Returns the gates to run.

    Args:
        gates: the registry.
        names: gate ids or their beginnings; these run and must decide. Whole words are looked for first
            (`contract` means `contract` and `contract.*`, `text.cases` not `text.cases-miniature`), then beginnings.
        only: as `names`, but without the demand to decide; both narrow the run, none means all.
        require: as `names`; these must decide, and count as not run if the run was narrowed to others.

    Raises:
        UsageError: usage.argument, for a name that no gate has.
    """
    named, narrowed, required = (_match(gates, patterns) for patterns in (names, only, require))
    everything = {gate.id for gate in gates}
    selected = named & narrowed if names and only else (named | narrowed) or everything
    if names and only and not selected:
        raise usage_error("--only", expected=f"a gate among {', '.join(sorted(named))}", got=", ".join(only))
    must = named | required
    left_out = must - selected
    return Selection(
        gates=tuple(gate for gate in gates if gate.id in selected | left_out),
        required=frozenset(must),
        left_out=frozenset(left_out),
    )


def _match(gates: Sequence[Gate], patterns: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for pattern in (part.strip() for one in patterns for part in one.split(",")):
        stem = pattern.removesuffix("*").rstrip(".")
        matches = {
            gate.id for gate in gates if pattern and (not stem or f"{gate.id}.".startswith(f"{stem}."))
        }
        if stem and not matches:
            matches = {gate.id for gate in gates if gate.id.startswith(stem)}
        if not matches:
            ids = [gate.id for gate in gates]
            close = difflib.get_close_matches(pattern, ids, n=3)
            hint = f"did you mean {', '.join(close)}?" if close else "`assay gate --list` shows all gates"
            raise usage_error(
                "gate", expected="the id of a gate, or the beginning of one", got=pattern, hint=hint
            )
        found |= matches
    return found
