"""Who takes an id takes whole numbers only, and a turn that was ended takes nothing more."""

from typing import Any

import numpy as np
import pytest

from assay.impl.text.engine import Tokenizer
from assay.impl.text.parser import IdFeed, ToolCall, TurnParser, typed_arguments
from assay.spec.errors import ContractError


@pytest.mark.parametrize("wrong", [True, float("nan"), 1.0, "1", None, np.True_, np.float32(1)], ids=repr)
def test_what_is_no_whole_number_is_no_id(wrong: Any, miniature: Tokenizer) -> None:
    takers = [
        miniature.decoder().push,
        lambda one: miniature.decode([one]),
        miniature.token_bytes,
        IdFeed(miniature, in_reasoning=False).push,
    ]
    for take in takers:
        with pytest.raises(ContractError) as caught:
            take(wrong)
        assert (caught.value.finding.code, caught.value.finding.where) == ("vocabulary.id", "id")


def test_numpys_whole_numbers_are_ids(miniature: Tokenizer) -> None:
    assert miniature.decode([np.int64(39), np.uint8(40)]) == miniature.decode([39, 40]) != ""


@pytest.mark.parametrize("outside", [-1, 353, 384, 248_320, 2**31 - 1, 2**63, 10**400])
def test_any_whole_number_decodes_and_most_to_nothing(outside: int, miniature: Tokenizer) -> None:
    assert miniature.decode([outside]) == ""


def test_a_turn_that_was_ended_takes_no_more_text() -> None:
    parser = TurnParser(in_reasoning=False)
    parser.feed("a")
    parser.finish()
    assert parser.finish() == []
    with pytest.raises(ContractError) as caught:
        parser.feed("b")
    assert (caught.value.finding.code, caught.value.finding.where) == ("turn.closed", "feed")
    assert parser.turn.content == "a"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "[1, NaN]", '{"a": -1e999}'])
def test_a_number_that_json_lacks_is_no_argument(text: str) -> None:
    tools = [
        {
            "name": "f",
            "parameters": {"properties": {"x": {"type": ["number", "array", "object"]}}},
        }
    ]
    with pytest.raises(ContractError) as caught:
        typed_arguments(ToolCall("f", {"x": text}), tools)
    assert (caught.value.finding.code, caught.value.finding.where) == ("turn.call.value", "f.x")
