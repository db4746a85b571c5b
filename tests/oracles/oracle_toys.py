"""The toy hash of the public bug reports, and the clause that a refusal must name."""

from collections.abc import Callable
from typing import Any

import pytest

from assay.oracles import ple
from assay.spec.errors import AssayError

TOY = {"multipliers": [7, 11, 13], "primes": [53, 59], "offsets": [0, 53], "heads_per_ngram": 1, "eos": 2}


def toy_rows(tokens: list[int], history: list[int] | None = None) -> list[list[int]]:
    return ple.rows(tokens, **TOY, history=history or [])


def assert_refused(code: str, where: str, call: Callable[[], Any]) -> None:
    with pytest.raises(AssayError) as caught:
        call()
    assert (caught.value.finding.code, caught.value.finding.where) == (code, where)
