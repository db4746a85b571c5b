"""What an id is, for everyone who takes one: a whole number, and nothing that merely behaves like one."""

from assay.spec.clauses import Authority, declare
from assay.spec.errors import ContractError, Finding

ID = declare(
    "vocabulary.id",
    Authority.RULE,
    "An id is an integer inside the domain of whoever consumes it; it is never clamped.",
    source="field note AFN-005; mlx-vlm 1917",
    cause="an unassigned row of the output matrix was sampled, or a negative filler reached a lookup",
)


def is_integer(value: object) -> bool:
    """Whether a value is a whole number of Python or NumPy: booleans, floats and texts are not."""
    return hasattr(type(value), "__index__") and type(value).__name__ not in {"bool", "bool_"}


def integer(value: int, where: str) -> int:
    """Returns an id as Python's integer.

    Raises:
        ContractError: vocabulary.id, for what is no whole number.
    """
    if not is_integer(value):
        raise ContractError(
            Finding.of(
                ID, "vocabulary", where, expected="an integer", got=f"{type(value).__name__} {value!r}"
            )
        )
    return value.__index__()


def shown_id(value: object) -> object:
    """Returns what a finding may print: a number too long for Python's own conversion by its size."""
    return (
        f"an integer of {value.bit_length()} bits"
        if isinstance(value, int) and value.bit_length() > 128
        else value
    )
