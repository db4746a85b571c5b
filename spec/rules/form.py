"""The form of a contract document: pydantic's errors as findings with a place in the document."""

from typing import Any, Final

from pydantic import ValidationError

from assay.spec.clauses import Authority, declare
from assay.spec.contract.contract import Contract
from assay.spec.errors import Finding
from assay.spec.leaves import ABSENT, Path, path_text

STAGE: Final = "form"


def _form(name: str, meaning: str, cause: str) -> str:
    return declare(
        f"contract.form.{name}", Authority.FORM, meaning, source="schema assay.contract/1", cause=cause
    )


TYPE: Final = _form(
    "type",
    'Every field has its exact type: 1, 1.0, true and "1" are four values.',
    "A writer that changes number types, or a number above 2^53 that was not written as a string.",
)
MISSING: Final = _form("missing", "Every field is present.", "A field was dropped or renamed.")
EXTRA: Final = _form("extra", "There is no other field.", "A local extension, or a misspelt field.")
CONSTANT: Final = _form(
    "constant", "A field with a closed set of values has one of them.", "A value of another schema."
)
DOMAIN: Final = _form(
    "domain",
    "Numbers are in range and finite, texts match their pattern and are not empty.",
    "A negative count, an empty text, or a digest of another length.",
)
LENGTH: Final = _form("length", "Arrays have an allowed number of items.", "An empty shape.")

_BY_ERROR: Final = {
    "missing": MISSING,
    "extra_forbidden": EXTRA,
    "literal_error": CONSTANT,
    "enum": CONSTANT,
    "too_short": LENGTH,
    "too_long": LENGTH,
    "greater_than": DOMAIN,
    "greater_than_equal": DOMAIN,
    "less_than": DOMAIN,
    "less_than_equal": DOMAIN,
    "string_pattern_mismatch": DOMAIN,
    "string_too_short": DOMAIN,
    "string_too_long": DOMAIN,
    "finite_number": DOMAIN,
}


def judge_form(document: Any) -> tuple[Contract | None, list[Finding]]:
    """Returns the contract, or None and one finding for each place that breaks the form."""
    try:
        return Contract.model_validate(document), []
    except ValidationError as error:
        found: dict[tuple[str, str], Finding] = {}
        for one in error.errors(include_url=False, include_context=False):
            path, whole = _place(document, tuple(one["loc"]), one["type"])
            # An error below a place that the document lacks speaks of one branch of a union, not of the document.
            code = _BY_ERROR.get(one["type"], TYPE) if whole else TYPE
            expected = one["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            got: Any = ABSENT if one["type"] == "missing" else one["input"]
            where = path_text(path) or "contract"
            finding = Finding.of(
                code, STAGE, where, expected=expected if whole else "one of the field's types", got=got
            )
            found.setdefault((finding.code, finding.where), finding)
        return None, list(found.values())


def _place(document: Any, location: Path, error: str) -> tuple[Path, bool]:
    """Returns the part of a pydantic location that exists in the document, and whether that is all of it."""
    value = document
    for depth, part in enumerate(location):
        if _holds(value, part):
            value = value[part]
        elif error == "missing" and depth == len(location) - 1:
            return location, True
        else:
            return location[:depth], False
    return location, True


def _holds(value: Any, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, (list, tuple)) and isinstance(part, int) and part < len(value)
