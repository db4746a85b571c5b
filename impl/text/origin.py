"""Where a piece of text comes from, and the one error for text whose origin can't be kept.

The error derives from none of the exceptions that Jinja and its filters swallow, and every refusal is also noted
for the render in progress: a template that catches it can't go on as if nothing had happened.
"""

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


class OriginKind(StrEnum):
    """Who made a piece of text."""

    TEMPLATE = "template"
    VOCABULARY = "vocabulary"  # a caller's word that was found in a closed set of the contract
    CALLER = "caller"
    COMPUTED = "computed"  # made by an operation: numbers, punctuation of JSON, padding, the clock


@dataclass(frozen=True, slots=True)
class Origin:
    """The maker of a piece of text, and for a caller's text the field that it stands in."""

    kind: OriginKind
    path: str = ""

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
