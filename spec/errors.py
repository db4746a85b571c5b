"""The one form in which assay says that something is wrong.

A `Finding` is a single disagreement between a contract and an input. An `AssayError` carries one finding and
ends the work at hand; judging code collects findings instead, so that all of them reach the user at once.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def shown(value: Any, limit: int = 160) -> str:
    """Returns `value` as one printable line of at most `limit` characters, for the expected and got fields.

    Control characters, lone surrogates and line ends are escaped, so that a hostile file name or JSON string
    can't forge a second line of output.
    """
    try:
        text = value if isinstance(value, str) else _written(value)
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        text = f"{type(value).__name__} too large to print"
    text = printable(text)
    if not text.strip():
        text = repr(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _written(value: Any) -> str:
    """Returns a value as its file would spell it: objects and null as JSON; an exception by its words."""
    if value is None:
        return "null"
    if isinstance(value, Exception):
        return str(value) or type(value).__name__
    return json.dumps(value, ensure_ascii=False, default=repr) if isinstance(value, dict) else repr(value)


def printable(text: str) -> str:
    """Returns `text` with everything escaped that a terminal can't show on one line."""
    return text if text.isprintable() else text.encode("unicode_escape", "backslashreplace").decode("ascii")


@dataclass(frozen=True, slots=True)
class Finding:
    """One disagreement, with both values.

    Attributes:
        code: id of the clause that was broken, such as `ple.hash.multipliers`.
        stage: the step of judgement at which it showed, such as `config` or `headers`.
        where: field, tensor or file, in the input's own words.
        expected: what the contract asks for.
        got: what the input holds.
        hint: what to look at next; may be empty.
    """

    code: str
    stage: str
    where: str
    expected: str
    got: str
    hint: str = ""

    @classmethod
    def of(cls, code: str, stage: str, where: str, *, expected: Any, got: Any, hint: str = "") -> "Finding":
        """Makes a finding of values of any type, each shown on one line."""
        return cls(code, stage, shown(where), shown(expected), shown(got), hint)

    @property
    def line(self) -> str:
        """The finding as one line, without the hint."""
        return f"{self.code}: {self.where}: expected {self.expected}, got {self.got}"

    def as_json(self) -> dict[str, str]:
        """The finding as it stands in every JSON document."""
        return asdict(self)


class HasFindingFields(Protocol):
    """A `Finding`, or the record of one in a document."""

    @property
    def where(self) -> str:
        """Field, tensor or file."""
        ...

    @property
    def got(self) -> str:
        """What the input holds."""
        ...


AnyFinding = TypeVar("AnyFinding", bound=HasFindingFields)


def most_telling(findings: Sequence[AnyFinding]) -> AnyFinding:
    """Returns the one to show when only one is shown: the first that says more than that a file has other bytes."""

    def says_more(one: AnyFinding) -> bool:
        return not _SHA256.search(one.got) and not one.where.endswith("size_bytes")

    return next(filter(says_more, findings), findings[0])


class AssayError(Exception):
    """A finding that ends the work, with others that were found on the way; subclasses say who must act."""

    exit_code: ClassVar[int] = 1

    def __init__(self, finding: Finding, more: Sequence[Finding] = ()) -> None:
        super().__init__(finding.line)
        self.finding = finding
        self.more = tuple(more)

    def __reduce__(self) -> tuple[type["AssayError"], tuple[Any, ...]]:
        """Keeps the findings when a worker process hands the error back."""
        return type(self), (self.finding, self.more) if self.more else (self.finding,)


class ContractError(AssayError):
    """An input breaks a clause of the contract."""


class AdmissionError(AssayError):
    """A checkpoint or artifact is damaged or is not what it says it is."""


class ParityError(AssayError):
    """Numbers differ."""


class EvidenceError(AssayError):
    """A report, capture or piece of evidence is incomplete or altered."""

    exit_code: ClassVar[int] = 4


class IncompleteError(AssayError):
    """Work ended before it was done, by a full disk or a kill: nothing is damaged, and nothing is decided."""

    exit_code: ClassVar[int] = 3


class UsageError(AssayError):
    """The command line asks for something that it can't have."""

    exit_code: ClassVar[int] = 2


def usage_error(
    where: str, *, expected: Any, got: Any, hint: str = "", code: str = "usage.argument"
) -> UsageError:
    """Makes the error for an argument that can't be used."""
    return UsageError(Finding.of(code, "usage", where, expected=expected, got=got, hint=hint))
