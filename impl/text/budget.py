"""How much a template may do: a render that would not end, or would fill the memory, is refused.

A template comes with a checkpoint and is a program. Jinja's sandbox bounds one `range`, but neither loops in loops
nor repetition nor macros that call each other. Here every turn of a loop, every call and every stretch of text that
is copied is a step, and a render has so many steps: a megabyte of conversation in 20,000 messages needs some
hundredths of them. What plain Jinja does afterwards is the same work, so that it is bounded as well.
"""

from contextvars import ContextVar, Token
from typing import Any, Final, Self

from assay.impl.text.origin import OriginError, note, template_line
from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding

BUDGET = declare(
    "chat.template.budget",
    Authority.RULE,
    "Rendering a conversation takes a bounded number of steps and characters.",
    source="assay: a template is a program that comes with a checkpoint",
    cause="nested loops over ranges, endless macros, repeated text, or a conversation far beyond any context",
    fix="take the template from the pinned revision; if it is that one, shorten the conversation",
)
MAX_STEPS: Final = 2_000_000
"""Turns of loops, calls, and stretches of copied text of one render: some seconds of work."""
MAX_CHARACTERS: Final = 1 << 26
"""Characters of one text: a prompt of 64 million is a runaway template, not a conversation."""
MAX_BITS: Final = 4096
"""Bits of an integer that a template computes with."""
MAX_ITEMS: Final = 1 << 20
"""Items of a list that a template makes by repetition or padding."""
_COPIED_A_STEP: Final = 12  # log2 of the characters that are copied in the time of one step
SHORT: Final = (1 << _COPIED_A_STEP) - 1
"""Characters that cost nothing beside the step that uses them."""
_LEFT: ContextVar["Meter | None"] = ContextVar("left", default=None)


class BudgetError(OriginError):
    """A template asks for more than a render may take."""


class Meter:
    """The steps that a render has left; a block of `with` is the render."""

    __slots__ = ("_token", "left", "steps")

    def __init__(self, steps: int) -> None:
        self.left = self.steps = steps
        self._token: Token[Meter | None] | None = None

    def __enter__(self) -> Self:
        self._token = _LEFT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _LEFT.reset(self._token)


def spend(steps: int) -> None:
    """Takes steps off the render in progress.

    Raises:
        BudgetError: chat.template.budget, when none are left.
    """
    meter = _LEFT.get()
    if meter is not None:
        meter.left -= steps
        if meter.left < 0:
            raise exceeded("steps", f"at most {meter.steps}", "more")


def copied(characters: int) -> None:
    """Takes the steps of copying or scanning so many characters; short texts are part of the step that uses them."""
    if characters >> _COPIED_A_STEP:
        spend(characters >> _COPIED_A_STEP)


def sized(operation: str, characters: int) -> int:
    """Returns the number of characters that an operation is about to make.

    Raises:
        BudgetError: chat.template.budget, when it is no length of a prompt.
    """
    if characters > MAX_CHARACTERS:
        raise exceeded(operation, f"at most {MAX_CHARACTERS} characters", characters)
    copied(characters)
    return characters


def counted(value: Any) -> int:
    """Returns how many values stand in a container, repeated ones again: what comparing or printing it would touch."""
    stack = [value]
    seen = 0
    while stack:
        one = stack.pop()
        seen += 1
        if isinstance(one, (list, tuple)):
            spend(len(one))
            stack.extend(one)
        elif isinstance(one, dict):
            spend(2 * len(one))
            stack.extend(one.values())
            stack.extend(one)
    return seen


def exceeded(operation: str, expected: Any, got: Any) -> BudgetError:
    """Returns the error, already noted for the render in progress."""
    line = template_line()
    where = operation if line is None else f"line {line}: {operation}"
    error = BudgetError(Finding.of(BUDGET, "render", where, expected=expected, got=got))
    note(error)
    return error
