"""Where a piece of text comes from, and the one error for text whose origin can't be kept.

The error derives from none of the exceptions that Jinja and its filters swallow, and every refusal is also noted
for the render in progress: a template that catches it can't go on as if nothing had happened.
"""

import json
import re
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from assay.spec.clauses import Authority, declare
from assay.spec.errors import AssayError, Finding

ORIGIN_LOST = declare(
    "chat.origin.lost",
    Authority.RULE,
    "A template may use only operations through which the origin of every character can be followed.",
    source="field note AFN-006",
    cause="the template uses a filter, method or value form whose result can't be attributed to template or caller",
    fix="rewrite that expression of the template with an operation that the message names as supported",
)


_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class OriginKind(StrEnum):
    """Who made a piece of text."""

    TEMPLATE = "template"
    VOCABULARY = "vocabulary"  # a caller's word that was found in a closed set of the contract
    CALLER = "caller"
    COMPUTED = "computed"  # made by an operation: numbers, punctuation of JSON, padding, the clock


class Place:
    """A place in the caller's JSON: what holds it, and one step from there.

    Places share what they have in common, so that a long key costs once and not once for each value below it. The
    text of a place is made when it is asked for; no two places have the same.

    Args:
        parent: the place that holds this one; None for a variable.
        step: a key, an index, or None for the keys of the parent themselves.
    """

    __slots__ = ("parent", "step")

    def __init__(self, parent: "Place | None", step: str | int | None) -> None:
        self.parent = parent
        self.step = step

    def __str__(self) -> str:
        steps: list[str] = []
        place: Place | None = self
        while place is not None:
            step = place.step
            if step is None:
                steps.append(" (key)")
            elif isinstance(step, int):
                steps.append(f"[{step}]")
            elif place.parent is None:
                steps.append(step)
            else:
                steps.append(f".{step}" if _PLAIN.fullmatch(step) else f"[{json.dumps(step)}]")
            place = place.parent
        return "".join(reversed(steps))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Place):
            return NotImplemented
        one: Place | None = self
        two: Place | None = other
        while one is not two:
            if one is None or two is None or one.step != two.step:
                return False
            one, two = one.parent, two.parent
        return True

    def __hash__(self) -> int:
        return hash(self.step)


@dataclass(frozen=True, slots=True)
class Origin:
    """The maker of a piece of text, and for a caller's text the field that it stands in."""

    kind: OriginKind
    place: Place | str = ""

    @property
    def path(self) -> str:
        """The field as text, empty for what no caller wrote."""
        return str(self.place)

    @property
    def may_spell_control(self) -> bool:
        """Whether text of this origin may become a control token."""
        return self.kind is OriginKind.TEMPLATE or self.kind is OriginKind.VOCABULARY


TEMPLATE: Final = Origin(OriginKind.TEMPLATE)
COMPUTED: Final = Origin(OriginKind.COMPUTED)


class OriginError(AssayError):
    """An operation would lose the origin of its text."""


_REFUSALS: ContextVar[list[OriginError] | None] = ContextVar("refusals", default=None)


def refuse(
    operation: str, got: str, *, expected: str = "an operation that keeps the origin of text"
) -> OriginError:
    """Returns the error, already noted for the render in progress, for an operation whose result has no known origin."""
    error = OriginError(Finding.of(ORIGIN_LOST, "render", operation, expected=expected, got=got))
    noted = _REFUSALS.get()
    if noted is not None:
        noted.append(error)
    return error


class watching:  # noqa: N801 - reads as a verb where it is used
    """A block in which refusals are noted; `first` is the earliest one, swallowed or not."""

    def __enter__(self) -> Self:
        self._list: list[OriginError] = []
        self._token = _REFUSALS.set(self._list)
        return self

    def __exit__(self, *_: object) -> None:
        _REFUSALS.reset(self._token)

    @property
    def first(self) -> OriginError | None:
        """The first refusal of this block."""
        return self._list[0] if self._list else None
