"""What the tests of the MLX model share: token ids and refusals."""

from collections.abc import Callable

import pytest

from assay.provenance.captures.geometries import GEOMETRIES, counter_tokens
from assay.spec.errors import AssayError


def ids(geometry: str, count: int, salt: int = 4) -> list[int]:
    """Token ids of a geometry by the counter rule, without its end-of-text id."""
    text = GEOMETRIES[geometry]
    return list(counter_tokens(salt, count, text["vocab_size"], avoid=text["eos_token_id"]))


def assert_refused(code: str, where: str, work: Callable[[], object]) -> None:
    """The work is refused under this clause, at this place."""
    with pytest.raises(AssayError) as caught:
        work()
    assert (caught.value.finding.code, caught.value.finding.where) == (code, where)
