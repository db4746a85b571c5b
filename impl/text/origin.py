"""Where a piece of text comes from, and the one error for text whose origin can't be kept.

A character's origin is who made it and, for what the template wrote, where in its source it stands: only what stands
together there may spell a control token together. The error derives from none of the exceptions that Jinja and its
filters swallow, and every refusal is also noted for the render in progress: a template that catches it can't go on
as if nothing had happened.
"""

import json
import re
import sys
from contextvars import ContextVar
from enum import StrEnum
from types import FrameType
from typing import Final, NamedTuple, Self

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


class Unit:
    """One concatenation in the source of a template; what stands in it, stands together. Compared by identity."""

    __slots__ = ("line",)

    def __init__(self, line: int) -> None:
        self.line = line


class Spot(NamedTuple):
    """Where in the template's source a text stands.

    Attributes:
        unit: the concatenation that it is an operand of.
        start: its beginning there: constants count their characters, every other operand counts one.
        stop: its end there.
    """

    unit: Unit
    start: int
    stop: int


class Origin(NamedTuple):
    """The maker of a piece of text, and the place: a field of the caller's, or a spot of the template's source."""

    kind: OriginKind
    place: Place | str = ""
    spot: Spot | None = None

    @property
    def path(self) -> str:
        """The field as text, empty for what no caller wrote."""
        return str(self.place)

    @property
    def may_spell_control(self) -> bool:
        """Whether text of this origin may become a control token."""
        return self.kind is OriginKind.TEMPLATE or self.kind is OriginKind.VOCABULARY

    @property
    def line(self) -> int | None:
        """The line of the template's source, None for what has no spot there."""
        return None if self.spot is None else self.spot.unit.line

    def part(self, start: int, stop: int) -> "Origin":
        """Returns the origin of a part of a text of this origin; a part of a closed word is the caller's text again."""
        if self.kind is OriginKind.VOCABULARY:
            return Origin(OriginKind.CALLER, self.place)
        if self.spot is None:
            return self
        at = self.spot.start
        return Origin(self.kind, self.place, Spot(self.spot.unit, at + start, at + stop))

    def without_spot(self) -> "Origin":
        """Returns the origin of a text that was changed, so that its characters stand nowhere in the source."""
        return self if self.spot is None else Origin(self.kind, self.place)

    def leads_to(self, other: "Origin") -> bool:
        """Whether the template's source has the text of `other` directly behind the text of this origin."""
        one, two = self.spot, other.spot
        return one is not None and two is not None and one.unit is two.unit and one.stop == two.start


TEMPLATE: Final = Origin(OriginKind.TEMPLATE)
COMPUTED: Final = Origin(OriginKind.COMPUTED)


class OriginError(AssayError):
    """An operation would lose the origin of its text."""


_REFUSALS: ContextVar[list[OriginError] | None] = ContextVar("refusals", default=None)


def template_line() -> int | None:
    """Returns the line of the template whose code is running, None outside of one."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the way to a frame, in spite of its name
    while frame is not None:
        template = frame.f_globals.get("__jinja_template__")
        if template is not None:
            return int(template.get_corresponding_lineno(frame.f_lineno))
        frame = frame.f_back
    return None


def note(error: "OriginError") -> "OriginError":
    """Notes an error for the render in progress, so that no template can swallow it, and returns it."""
    noted = _REFUSALS.get()
    if noted is not None:
        noted.append(error)
    return error


def refuse(
    operation: str, got: str, *, expected: str = "an operation that keeps the origin of text"
) -> OriginError:
    """Returns the error, already noted for the render in progress, for an operation whose result has no known origin."""
    line = template_line()
    where = operation if line is None else f"line {line}: {operation}"
    return note(OriginError(Finding.of(ORIGIN_LOST, "render", where, expected=expected, got=got)))


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
