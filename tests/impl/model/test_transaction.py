"""A chunk is published whole or not at all: faults after every stage, in every kind, and what a caller may not do."""

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_toys import assert_refused, fault_on_two_streams, ids, made

from assay.spec.errors import AssayError, ContractError

BEFORE, CHUNK = 9, 5
CALLS = 33
"""Stage calls of a chunk of the four-layer geometry: 2 + 1 + 7 for each layer + 2."""
KINDS = ("exception", "non-finite", "allocation", "evaluation", "cancellation", "late")


def begun() -> Any:
    """A bank of two sequences in the middle of their work."""
    from assay.impl.model.bank import Bank

    bank = Bank(made("small"), 2)
    bank.advance({0: ids("small", BEFORE), 1: ids("small", BEFORE, 9)})
    return bank


def chunks() -> dict[int, list[int]]:
    return {slot: ids("small", BEFORE + CHUNK, salt)[BEFORE:] for slot, salt in ((0, 4), (1, 9))}


def test_a_chunk_has_the_published_number_of_stage_calls() -> None:
    from assay.impl.model.faults import Fault

    counting = Fault()
    begun().advance(chunks(), counting)
    assert counting.calls == CALLS


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_after_any_stage_publishes_nothing_and_a_retry_is_a_fresh_run(kind: str) -> None:
    from assay.impl.model.faults import Fault, InjectedError
    from assay.impl.model.graph import Chunk
    from assay.impl.model.state import differing

    bank, untouched = begun(), begun()
    untouched.advance(chunks())
    digest = bank.digest()
    places = set()
    for at in range(1, CALLS + 1):
        fault, into = Fault(kind, at), np.full((2, 64), 123.0, np.float32)
        asked = [Chunk(bank.state(slot), tokens) for slot, tokens in chunks().items()]
        transaction = bank.model.begin(asked)

        def work(
            fault: Any = fault, into: Any = into, asked: Any = asked, transaction: Any = transaction
        ) -> Any:
            if kind == "late":
                return bank.model.run(asked, fault, transaction=transaction)
            return bank.advance(chunks(), fault, into=into)

        with pytest.raises((ContractError, InjectedError)) as caught:
            work()
        places.add(fault.place)
        if isinstance(caught.value, AssayError):
            expected = {
                "non-finite": "model.finite", "allocation": "model.transaction.evaluation",
                "evaluation": "model.transaction.evaluation", "cancellation": "model.transaction.cancelled",
            }[kind]  # fmt: skip
            assert caught.value.finding.code == expected
        if kind == "late":
            _deliver_late(transaction, bank)
        assert bank.digest() == digest
        assert (into == 123.0).all()
    assert len(places) == CALLS
    bank.advance(chunks())
    for slot in (0, 1):
        assert differing(bank.state(slot), untouched.state(slot)) == []


def _deliver_late(transaction: Any, bank: Any) -> None:
    """A worker thread that finishes after the chunk was given up is refused, at the owner that it brings."""
    refused: list[str] = []

    def work() -> None:
        try:
            transaction.install("gdn", 0, [bank.state(slot).gdn[0] for slot in (0, 1)])
        except ContractError as error:
            refused.append(f"{error.finding.code} {error.finding.where}")

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert refused == ["model.transaction.closed gdn.0"]


def test_a_failure_while_columns_grow_publishes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step before the flip: room for new rows can't be had, in the middle of the owners."""
    from assay.impl.model import columns
    from assay.impl.model.state import differing

    shipped, left = columns.appended, [5]

    def failing(column: Any, new: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise MemoryError
        return shipped(column, new)

    for after in range(1, 11):
        bank, untouched = begun(), begun()
        untouched.advance(chunks())
        digest, left[0] = bank.digest(), after
        with monkeypatch.context() as patch:
            patch.setattr(columns, "appended", failing)
            assert_refused("model.transaction.evaluation", "chunk", lambda bank=bank: bank.advance(chunks()))
        assert bank.digest() == digest
        held = [bank.state(0).qsa[3].keys.buffer, bank.state(0).positions.buffer]
        bank.advance(chunks())
        assert differing(bank.state(0), untouched.state(0)) == []
        assert [bank.state(0).qsa[3].keys.buffer, bank.state(0).positions.buffer] == held


def test_published_states_never_change_afterwards() -> None:
    from assay.impl.model.state import digest

    bank = begun()
    kept = [(bank.state(0), digest(bank.state(0)))]
    for token in ids("small", 30, 7):
        bank.advance({0: [token]})
        kept.append((bank.state(0), digest(bank.state(0))))
    assert all(digest(state) == then for state, then in kept)


def test_publication_copies_no_row_that_was_there() -> None:
    """Columns of a reserved sequence stay in their buffers from the first token to the last."""
    from assay.impl.model.bank import Bank

    bank = Bank(made("small"), rows=64)
    buffers = {id(bank.state().qsa[3].keys.buffer), id(bank.state().qsa[3].raw.buffer)}
    for token in ids("small", 60):
        bank.advance({0: [token]})
    assert {id(bank.state().qsa[3].keys.buffer), id(bank.state().qsa[3].raw.buffer)} == buffers


def test_the_callers_output_is_filled_after_publication() -> None:
    bank, into = begun(), np.full((2, 64), 123.0, np.float32)
    bank.advance(chunks(), into=into)
    assert into[0].tobytes() == np.array(bank.state(0).logits).tobytes()
    assert into[1].tobytes() == np.array(bank.state(1).logits).tobytes()


@pytest.mark.parametrize(
    ("tokens", "code", "where"),
    [
        ([], "model.tokens", "sequences[0]"),
        ([64], "model.tokens", "sequences[0].tokens[0]"),
        ([5, -1], "model.tokens", "sequences[0].tokens[1]"),
        ([5, 6.0], "model.tokens", "sequences[0].tokens[1]"),
        ([True], "model.tokens", "sequences[0].tokens[0]"),
        ([5] * 248, "model.context", "sequences[0]"),
    ],
)
def test_bad_chunks_are_refused_before_anything_runs(tokens: list[Any], code: str, where: str) -> None:
    bank = begun()
    digest, into = bank.digest(), np.full((1, 64), 123.0, np.float32)
    assert_refused(code, where, lambda: bank.advance({0: tokens}, into=into))
    assert bank.digest() == digest
    assert (into == 123.0).all()


def test_the_last_position_of_the_context_is_usable() -> None:
    from assay.impl.model.bank import Bank

    bank = Bank(made("contract-fixture"))
    bank.advance({0: [2, 5, 7, 3, 9, 4, 1, 2]})
    assert_refused("model.context", "sequences[0]", lambda: bank.advance({0: [1]}))


@pytest.mark.parametrize(
    "into",
    [np.zeros((2, 63), np.float32), np.zeros((1, 64), np.float32), np.zeros((2, 64))],
    ids=["width", "rows", "type"],
)
def test_an_output_of_another_shape_or_type_is_refused(into: Any) -> None:
    assert_refused("model.slot", "into", lambda: begun().advance(chunks(), into=into))


OWNERS: dict[str, Any] = {
    "logits": lambda one: one.logits,
    "wide": lambda one: one.wide,
    "recurrent matrix": lambda one: one.gdn[0].matrix,
    "recurrent convolution": lambda one: one.gdn[0].conv,
    "dilated convolution": lambda one: one.ple_conv[1],
    "keys": lambda one: one.qsa[3].keys.buffer.view,
    "raw index keys": lambda one: one.qsa[3].raw.buffer.view,
    "pooled index keys": lambda one: one.qsa[3].pooled.buffer.view,
    "positions": lambda one: one.positions.buffer.view,
}


@pytest.mark.parametrize("owner", OWNERS)
def test_an_output_that_is_the_states_own_memory_is_refused(owner: str) -> None:
    from assay.impl.model.bank import Bank

    bank = Bank(made("small"))
    bank.advance({0: [5]})
    own = np.asarray(OWNERS[owner](bank.state())).reshape(-1)[:64][None]
    digest = bank.digest()
    assert_refused("model.slot", "into", lambda: bank.advance({0: [6]}, into=own))
    assert bank.digest() == digest


def test_a_fork_and_its_source_never_see_each_other() -> None:
    from assay.impl.model.bank import Bank
    from assay.impl.model.state import differing

    model, line = made("small"), ids("small", 30)
    bank = Bank(model, 3)
    bank.advance({0: line[:13]})
    bank.copy(0, 2)
    bank.advance({0: line[13:20]})
    bank.advance({2: line[20:30]})
    bank.advance({0: line[20:25]})
    alone = Bank(model, 2)
    alone.advance({0: line[:25], 1: [*line[:13], *line[20:30]]})
    assert differing(bank.state(0), alone.state(0)) == []
    assert differing(bank.state(2), alone.state(1)) == []


@pytest.mark.parametrize("back", [1, 2, 3, 7])
def test_a_rewind_takes_every_owner_back(back: int) -> None:
    """Bug report A7: the hash then sees the real predecessors, across an end of text as well."""
    from assay.impl.model.bank import Bank
    from assay.impl.model.state import differing

    model, line = made("small"), [*ids("small", 8), 3, *ids("small", 6, 8)]
    bank, length = Bank(model), len(line)
    bank.advance({0: line[: length - back]})
    bank.keep()
    for token in line[length - back :]:
        bank.advance({0: [token]})
        bank.keep()
    bank.rewind(0, length - back)
    bank.advance({0: [11, 12, 13]})
    alone = Bank(model)
    alone.advance({0: [*line[: length - back], 11, 12, 13]})
    assert differing(bank.state(), alone.state()) == []


def test_a_rewind_goes_to_a_kept_state_or_nowhere() -> None:
    bank = begun()
    bank.keep(0)
    bank.advance({0: [5, 6]})
    digest = bank.digest()
    assert_refused("model.rewind", "slots[0]", lambda: bank.rewind(0, BEFORE + 1))
    assert_refused("model.rewind", "slots[1]", lambda: bank.rewind(1, BEFORE))
    assert bank.digest() == digest


def test_a_reset_slot_is_a_fresh_one() -> None:
    from assay.impl.model.state import digest, fresh

    bank = begun()
    bank.reset(0)
    assert digest(bank.state(0)) == digest(fresh(made("small").geometry))


def test_every_owner_of_the_image_has_its_name() -> None:
    from assay.impl.model.state import OWNERS, owners

    assert {name.partition(".")[0] for name in owners(begun().state(0))} == set(OWNERS)


def test_an_error_of_an_asynchronous_evaluation_is_raised_before_a_chunk_is_sealed() -> None:
    """MLX keeps such an error for whatever evaluation comes next; waiting and looking do not raise it."""
    import mlx.core as mx

    from assay.impl.model import backend

    def begin_and_wait() -> None:  # the error comes at once where the device was quicker than the host
        backend.start(mx.ones((4,)) + mx.sum(mx.linalg.inv(mx.zeros((2, 2)), stream=mx.cpu)))
        backend.raise_pending()

    with pytest.raises(RuntimeError, match="Inverse"):
        begin_and_wait()
    backend.raise_pending()


@pytest.mark.parametrize("at", [1, 12, CALLS])
def test_a_chunk_that_was_given_up_leaves_no_error_for_the_next_one(at: int) -> None:
    """The device fails at work of a chunk that the host has given up already; another chunk runs as ever."""
    from assay.impl.model.bank import Bank
    from assay.impl.model.faults import Abandoned, InjectedError

    bank, alone = Bank(made("small")), Bank(made("small"))
    with pytest.raises(InjectedError):
        bank.advance({0: ids("small", 9)}, Abandoned(at))
    for one in (bank, alone):
        one.advance({0: ids("small", 9)})
    assert bank.digest() == alone.digest()


@pytest.mark.parametrize("rows", [2**50, 2**62])
def test_rows_that_no_memory_holds_are_an_error_and_not_the_end_of_the_process(rows: int) -> None:
    """MLX on the CPU does not check what malloc returns."""
    from assay.impl.model import columns

    with pytest.raises(MemoryError):
        columns.empty((8,), rows)


@pytest.mark.parametrize("kind", ["evaluation", "non-finite", "exception"])
def test_a_fault_on_two_streams_publishes_nothing_and_a_retry_is_a_fresh_run(kind: Any) -> None:
    """What the other stream still does is waited for. Each in a process of its own: after a failure there is one stream."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for at in (6, 20):
            assert pool.submit(fault_on_two_streams, kind, at).result(timeout=120) == []


def test_after_a_failed_evaluation_there_is_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX does not count a failed task down; with two busy streams it then waits for ever, some day."""
    import mlx.core as mx

    from assay.impl.model import backend
    from assay.impl.model.numerics import PLAIN

    rows, calls = mx.zeros((4, 2)), []

    def work(part: Any) -> tuple[Any]:
        calls.append(part.shape[0])
        return (part,)

    for failures in (0, 1):
        monkeypatch.setattr(backend.DEVICE, "failures", failures)
        PLAIN.halves(work, rows, is_worth=True)
    assert calls == ([2, 2, 4] if mx.default_device() == mx.Device(mx.cpu) else [4, 4])


def test_a_device_that_failed_too_often_is_refused_before_it_hangs() -> None:
    """MLX waits for ever when it has lost count of too many tasks; asked in a process that can be ended."""
    code = (
        "from collections import Counter\n"
        "from model_toys import ids, made\n"
        "from assay.impl.model.bank import Bank\n"
        "from assay.impl.model.faults import Fault\n"
        "from assay.spec.errors import ContractError\n"
        "bank, refused = Bank(made('small')), Counter()\n"
        "for at in range(130):\n"
        "    try:\n"
        "        bank.advance({0: ids('small', 3)}, Fault('evaluation', 1 + at % 33))\n"
        "    except ContractError as error:\n"
        "        refused[error.finding.code, error.finding.where] += 1\n"
        "print(dict(refused))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True,
        cwd=Path(__file__).parent,
    )  # fmt: skip
    code = "model.transaction.evaluation"
    assert done.stdout.strip() == f"{{('{code}', 'chunk'): 40, ('{code}', 'device'): 90}}"
