"""Canonical JSON: one byte string for one value, so that a digest names a document.

Keys are sorted, separators are `,` and `:`, text is UTF-8 and not escaped. Integers outside the range in which
a double is exact must travel as strings; floats must be finite.
"""

import hashlib
import json
import math
from typing import Any

EXACT_INTEGER = 2**53 - 1


def canonical_json(value: Any) -> bytes:
    """Returns the canonical UTF-8 bytes of a JSON value.

    Raises:
        ValueError: for an integer beyond ±(2^53 - 1), a float that is not finite, or a value that JSON lacks.
    """
    _refuse_inexact(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def canonical_digest(value: Any) -> str:
    """Returns the SHA-256 of the canonical JSON, 64 lower-case hexadecimal digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _refuse_inexact(value: Any) -> None:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int):
        if abs(value) > EXACT_INTEGER:
            raise ValueError(f"integer {value} must travel as a string")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a float must be finite")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"key {key!r} is not text")  # noqa: TRY004 - one error type for one caller
            _refuse_inexact(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _refuse_inexact(item)
    else:
        raise ValueError(f"{type(value).__name__} is not a JSON value")  # noqa: TRY004 - as above
