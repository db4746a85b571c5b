"""What the tests of the MLX model share: models, token ids and refusals. MLX is imported when a test runs."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from assay.provenance.captures.geometries import GEOMETRIES, counter_tokens
from assay.spec.errors import AssayError


@cache
def made(name: str) -> Any:
    """The MLX model of a geometry of the captures, in deterministic mode."""
    from assay.impl.model.numerics import Numerics
    from assay.provenance.captures.mlx_run import rule_model

    return rule_model(GEOMETRIES[name], Numerics(is_deterministic=True), by_role=name == "contract-fixture")


def ids(geometry: str, count: int, salt: int = 4) -> list[int]:
    """Token ids of a geometry by the counter rule, without its end-of-text id."""
    text = GEOMETRIES[geometry]
    return list(counter_tokens(salt, count, text["vocab_size"], avoid=text["eos_token_id"]))


def assert_refused(code: str, where: str, work: Callable[[], object]) -> None:
    """The work is refused under this clause, at this place."""
    with pytest.raises(AssayError) as caught:
        work()
    assert (caught.value.finding.code, caught.value.finding.where) == (code, where)
