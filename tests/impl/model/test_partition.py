"""Chunks, batches and neighbours are invisible: every owner and every logit is the same to the last bit."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_toys import assert_refused, ids, made

TOKENS = 41


def in_chunks(model: Any, tokens: list[int], widths: list[int]) -> tuple[Any, bytes, dict[str, bytes]]:
    """State, logits and routes of one sequence run in calls of these widths."""
    from assay.impl.model.bank import Bank
    from assay.impl.model.trace import Recorder

    bank, logits, routes, start = Bank(model), [], {}, 0
    for width in widths:
        recorder = Recorder()
        done = bank.advance({0: tokens[start : start + width]}, recorder, every_logit=True)
        logits.append(np.array(done.logits[0]))
        for (stage, layer, part), arrays in recorder.arrays.items():
            if stage == "router" and part == "ids":
                routes[f"{layer}"] = routes.get(f"{layer}", b"") + np.array(arrays[0]).tobytes()
        start += width
    return bank.state(), np.concatenate(logits).tobytes(), routes


def assert_same(one: tuple[Any, bytes, Any], other: tuple[Any, bytes, Any]) -> None:
    from assay.impl.model.state import differing

    assert differing(one[0], other[0]) == []
    assert one[1:] == other[1:]


@pytest.mark.parametrize("geometry", ["small", "two-ple"])
def test_token_by_token_is_one_shot(geometry: str, model: Any) -> None:
    tokens = ids(geometry, TOKENS)
    assert_same(
        in_chunks(model(geometry), tokens, [TOKENS]), in_chunks(model(geometry), tokens, [1] * TOKENS)
    )


@settings(max_examples=15, deadline=None)
@given(cuts=st.sets(st.integers(1, TOKENS - 1), max_size=8))
def test_any_partition_is_one_shot(cuts: set[int]) -> None:
    tokens, edges = ids("small", TOKENS), [0, *sorted(cuts), TOKENS]
    widths = [stop - start for start, stop in itertools.pairwise(edges)]
    assert_same(in_chunks(made("small"), tokens, [TOKENS]), in_chunks(made("small"), tokens, widths))


@pytest.mark.parametrize(
    "widths", [[96], [80, *[1] * 16], [1, 62, 1, 1, 31], [64, 32], [65, 31], [3, 29, 64]]
)
def test_partitions_of_the_miniature_past_its_budget_agree(widths: list[int], model: Any) -> None:
    tokens = ids("miniature", 96)
    assert_same(
        in_chunks(model("miniature"), tokens, [48, 48]), in_chunks(model("miniature"), tokens, widths)
    )


def test_an_end_of_text_inside_a_chunk_is_the_same_as_at_its_edge(model: Any) -> None:
    tokens = ids("small", 30)
    tokens[9] = tokens[17] = tokens[18] = 3
    for widths in ([9, 21], [10, 20], [11, 19], [17, 1, 12], [18, 12], [1, 8, 1, 7, 1, 1, 11]):
        assert_same(in_chunks(model("small"), tokens, [30]), in_chunks(model("small"), tokens, widths))


def test_interleaved_sequences_are_the_sequences_alone(model: Any) -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.model.state import differing

    own = model("small")
    first, second = ids("small", 30, 4), ids("small", 30, 9)
    bank = Bank(own, 2)
    for place in range(0, 30, 5):
        bank.advance({0: first[place : place + 5]})
        bank.advance({1: second[place : place + 5]})
    assert differing(bank.state(0), in_chunks(own, first, [30])[0]) == []
    assert differing(bank.state(1), in_chunks(own, second, [30])[0]) == []


def test_a_batch_is_its_sequences_alone(model: Any) -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.model.state import differing

    own = model("small")
    lines = [ids("small", count, salt) for count, salt in ((30, 4), (13, 9), (1, 2))]
    bank = Bank(own, 3)
    bank.advance(dict(enumerate(line[:-1] or line for line in lines)))
    bank.advance({0: lines[0][-1:], 1: lines[1][-1:]})
    for slot, line in enumerate(lines):
        assert differing(bank.state(slot), in_chunks(own, line, [len(line)])[0]) == []


@pytest.mark.parametrize("pads", [1, 3, 4, 5])
def test_a_padded_row_is_the_row_alone(pads: int, model: Any) -> None:
    """Bug report A12: grouping, rotation and tail go by logical position; padding is nowhere."""
    from assay.impl.model.bank import Bank
    from assay.impl.model.state import differing

    own, row = model("small"), ids("small", 9)
    long = ids("small", 9 + pads, 7)
    bank = Bank(own, 2)
    bank.advance_padded([0, 1], [[3] * pads + row, long], [[False] * pads + [True] * 9, [True] * (9 + pads)])
    assert differing(bank.state(0), in_chunks(own, row, [9])[0]) == []
    assert differing(bank.state(1), in_chunks(own, long, [9 + pads])[0]) == []


@pytest.mark.parametrize("seen", [[True, False, True], [True, True, False], [False, False, False]])
def test_a_hole_is_not_padding(seen: list[bool], model: Any) -> None:
    from assay.impl.model.bank import Bank

    bank = Bank(model("small"))
    assert_refused("model.padding", "rows[0]", lambda: bank.advance_padded([0], [[5, 6, 7]], [seen]))


def test_slot_zero_is_a_slot_and_filler_rows_write_nowhere(model: Any) -> None:
    """Bug report A15: rows in slots 0, 2 and 5, filled up to four."""
    from assay.impl.model.bank import FILLER, Bank

    bank = Bank(model("small"), 6)
    before = [bank.state(slot) for slot in range(6)]
    rows = [[5], [6], [7], [0]]
    bank.advance_padded([0, 2, 5, FILLER], rows, [[True]] * 4)
    changed = [slot for slot in range(6) if bank.state(slot) is not before[slot]]
    assert changed == [0, 2, 5]


@pytest.mark.parametrize("slot", [6, -2])
def test_a_slot_outside_the_bank_is_refused(slot: int, model: Any) -> None:
    from assay.impl.model.bank import Bank

    bank = Bank(model("small"), 6)
    assert_refused("model.slot", "slot", lambda: bank.advance_padded([slot], [[5]], [[True]]))


def test_a_first_position_moves_rotation_and_nothing_else(model: Any) -> None:
    """The anchor may be anything: groups and history count from it."""
    from assay.impl.model.graph import Chunk
    from assay.impl.model.state import fresh, owners

    own, tokens = model("small"), ids("small", 12)
    at_zero = owners(own.run([Chunk(fresh(own.geometry), tokens)]).states[0])
    later = owners(own.run([Chunk(fresh(own.geometry, 5), tokens)]).states[0])
    assert (later["positions"] == at_zero["positions"] + 5).all()
    assert (later["gdn_conv.0"] == at_zero["gdn_conv.0"]).all()
    assert later["qsa_raw_index.3"].tobytes() == at_zero["qsa_raw_index.3"].tobytes()
    assert later["qsa_key.3"].tobytes() != at_zero["qsa_key.3"].tobytes()
