"""A ledger of parameters: each declared name is filled exactly once, or there is no model.

Memory that a loader never wrote holds plausible numbers. Two places that can hold one scale, one of them never
written, give fluent and wrong output; so a name is declared in one place, filled once, and asked for afterwards.
"""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, Finding

Filled = TypeVar("Filled")

ONCE: Final = declare(
    "parameters.once",
    Authority.RULE,
    "Every declared parameter is filled from the artifact exactly once, and nothing else is.",
    source="bug report A9",
    cause="a loader that forgets a scale, fills a name twice, or fills a name that nobody declared",
)


class FillOnce(Generic[Filled]):
    """Collects parameters and hands them over only when each has been filled once."""

    def __init__(self, names: Iterable[str]) -> None:
        self._declared = list(names)
        self._filled: dict[str, Filled] = {}

    def fill(self, name: str, value: Filled) -> None:
        """Takes the value of one parameter.

        Raises:
            AdmissionError: parameters.once, for a name filled before or not declared.
        """
        if name not in self._declared:
            raise _error(name, "a declared name", "a name that nobody declared")
        if name in self._filled:
            raise _error(name, "one value", "a second one")
        self._filled[name] = value

    def finish(self) -> dict[str, Filled]:
        """Returns all parameters in the order of their declaration.

        Raises:
            AdmissionError: parameters.once, naming the first that was never filled.
        """
        missing = [name for name in self._declared if name not in self._filled]
        if missing:
            raise _error(missing[0], "one value", f"none ({len(missing)} of {len(self._declared)} missing)")
        return {name: self._filled[name] for name in self._declared}


def _error(name: str, expected: object, got: object) -> AdmissionError:
    return AdmissionError(Finding.of(ONCE, "parameters", name, expected=expected, got=got))
