"""Fails a chunk of the MLX model after every stage call, in every kind, and looks for what the failure left behind."""

import contextlib
import threading
from typing import Any

import numpy as np

from assay.impl.model import backend
from assay.impl.model.bank import Bank
from assay.impl.model.clauses import CLOSED
from assay.impl.model.faults import KINDS, Abandoned, Fault, InjectedError, Kind
from assay.impl.model.graph import Chunk
from assay.impl.model.numerics import Numerics
from assay.impl.model.state import differing
from assay.impl.model.transaction import Transaction
from assay.provenance.captures.mlx_run import rule_model
from assay.spec.errors import ContractError

SENTINEL = 123.0
Wrong = list[tuple[str, str, str]]


def surviving_faults(config: dict[str, Any], numerics: Numerics) -> tuple[Wrong, dict[str, int]]:
    """Returns what faults left behind (where, expected, got), and how many were injected of each kind."""
    model = rule_model(config, numerics)
    first, rest = [5, 6, 4, 9, 11, 2, 8], [1, 10, 5]
    bank, untouched = Bank(model, 2), Bank(model, 2)
    for one in (bank, untouched):
        one.advance({0: first, 1: first[:3]})
    counting = Fault()
    untouched.advance({0: rest, 1: rest}, counting)
    digest, wrong, counts = bank.digest(), [], {str(kind): 0 for kind in (*KINDS, "abandoned")}
    for kind in KINDS:
        for at in range(1, counting.calls + 1):
            counts[kind] += 1
            wrong += _one(bank, rest, kind, at, digest)
    for at in (1, counting.calls // 2, counting.calls):
        counts["abandoned"] += 1
        with contextlib.suppress(InjectedError):
            bank.advance({0: rest, 1: rest}, Abandoned(at))
            wrong.append((f"abandoned after call {at}", "a failure", "a publication"))
        try:
            Bank(model).advance({0: rest})
        except (ContractError, RuntimeError) as error:
            wrong.append((f"abandoned after call {at}", "a chunk that runs", str(error)))
    bank.advance({0: rest, 1: rest})
    for slot in (0, 1):
        wrong += [
            ("retry", "the owner of a fresh run", name)
            for name in differing(bank.state(slot), untouched.state(slot))
        ]
    return wrong, {**counts, "stageCalls": counting.calls}


def _one(bank: Bank, rest: list[int], kind: Kind, at: int, digest: str) -> Wrong:
    wrong: Wrong = []
    backend.DEVICE.failures = (
        0  # what is injected here is refused before the device has it, and leaves nothing there
    )
    fault = Fault(kind, at)
    into = np.full((2, bank.geometry.physical_rows), SENTINEL, np.float32)
    asked = [Chunk(bank.state(slot), rest) for slot in (0, 1)]
    private = bank.model.begin(asked)
    where = f"{kind} after call {at}"
    try:
        if kind == "late":
            bank.model.run(asked, fault, transaction=private)
        else:
            bank.advance({0: rest, 1: rest}, fault, into=into)
        wrong.append((where, "a failure", "a publication"))
    except (ContractError, InjectedError):
        pass
    if kind == "late" and not _is_refused_late(private, bank):
        wrong.append((where, CLOSED, "a late delivery was taken"))
    if bank.digest() != digest:
        wrong.append((f"{where}, {fault.place}", "the public state as it was", "another digest"))
    if not (into == SENTINEL).all():
        wrong.append((f"{where}, {fault.place}", "the caller's output untouched", "numbers in it"))
    return wrong


def _is_refused_late(private: Transaction, bank: Bank) -> bool:
    """Whether what a worker thread delivers after the end of a transaction is refused."""
    codes: list[str] = []

    def work() -> None:
        try:
            private.install("gdn", 0, [bank.state(slot).gdn[0] for slot in (0, 1)])
        except ContractError as error:
            codes.append(error.finding.code)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    return codes == [CLOSED]
