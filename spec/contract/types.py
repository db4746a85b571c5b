"""Value types of the contract: what a leaf may be, in memory and in JSON."""

import re
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

T = TypeVar("T")

Seq = Annotated[tuple[T, ...], Field(strict=False)]
"""A JSON array, held as a tuple; `strict=False` speaks of the container only, the items stay strict."""

LARGEST: Final = 2**63 - 1
"""No count of the contract passes this, so that the arithmetic of a damaged contract stays cheap."""

Count = Annotated[int, Field(ge=0, le=LARGEST)]
Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Text = Annotated[str, StringConstraints(min_length=1)]
Hex64 = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{16}$")]
GitCommit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Shape = Annotated[tuple[Positive, ...], Field(strict=False, min_length=1, max_length=8)]

DECIMAL: Final = r"^(0|[1-9][0-9]{0,18}|1[0-9]{19})$"
"""A non-negative integer below 2 x 10^19 without sign or leading zero."""


def _from_decimal(value: Any) -> int:
    if not isinstance(value, str) or re.fullmatch(DECIMAL, value) is None:
        raise PydanticCustomError("decimal_text", "Input should be an integer written as a decimal string")
    return int(value)


def _only_float(value: Any) -> Any:
    # Strict pydantic still takes 0 for 0.0; a field that changed its type is another document.
    if not isinstance(value, float):
        raise PydanticCustomError("float_type", "Input should be a number with a fraction or exponent")
    return value


BigInteger = Annotated[
    int,
    BeforeValidator(_from_decimal),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DECIMAL}),
]
"""An integer that may pass 2^53: a decimal string in JSON, an int in memory."""

Float = Annotated[float, BeforeValidator(_only_float), Field(allow_inf_nan=False)]
"""A finite float that is written as one."""
