"""Generation: prefill in chunks, then one token after another, until a stop id, a length or the context ends it."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from assay.impl.model import sampler
from assay.impl.model.bank import Bank
from assay.impl.model.clauses import CONTEXT, TOKENS, refuse
from assay.impl.model.graph import Done
from assay.impl.model.qsa import Counters
from assay.impl.model.sampler import Policy
from assay.impl.model.trace import Trace

CHUNK: Final = 512
"""Tokens of a prefill chunk; any number gives the same result, this one bounds memory."""
Ended = Literal["stop-token", "length", "context"]


@dataclass(slots=True)
class Report:
    """What a generation has done so far.

    Attributes:
        ended_by: why it ended.
        counters: work of sparse attention.
    """

    prompt_tokens: int = 0
    new_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    ended_by: Ended = "length"
    counters: Counters = field(default_factory=Counters)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        prompt: ids, at least one.
        max_new: most new tokens.
        stops: ids that end the run; empty goes on to `max_new`.
        valid_ids: ids below this can be chosen.
        policy: how.
        chunk: tokens of a prefill chunk.
    """

    prompt: Sequence[int]
    max_new: int
    stops: frozenset[int]
    valid_ids: int
    policy: Policy = field(default_factory=Policy)
    chunk: int = CHUNK


Listener = Callable[[Trace, Done, int], None]
"""Called with the trace, the result and the number of tokens of every chunk."""


def generate(
    bank: Bank,
    request: Request,
    report: Report,
    *,
    slot: int = 0,
    new_trace: Callable[[], Trace] = Trace,
    listen: Listener | None = None,
) -> Iterator[int]:
    """Yields the new ids as they are chosen, the stop id included where it ends the run.

    The last id is chosen but not run: the state stands before it.

    Args:
        bank: whose slot is continued.
        request: what is asked for.
        report: filled on the way.
        slot: the sequence.
        new_trace: makes the trace of a chunk.
        listen: told of every chunk, with the logits of all of its rows.

    Raises:
        ContractError: model.tokens for an empty prompt, model.context for one that does not fit, and what a chunk
            raises; what was yielded before stays published.
    """
    if not request.prompt:
        raise refuse(TOKENS, "prompt", expected="at least one token", got="none")
    begun = bank.state(slot)
    room = bank.geometry.context - begun.first_position - begun.frontier - len(request.prompt)
    if room < 0:
        expected = f"a prompt of at most {room + len(request.prompt)} tokens"
        raise refuse(CONTEXT, "prompt", expected=expected, got=len(request.prompt))

    def advance(tokens: Sequence[int]) -> None:
        trace = new_trace()
        done = bank.advance({slot: tokens}, trace, every_logit=listen is not None)
        _add(report.counters, done.counters)
        if listen is not None:
            listen(trace, done, len(tokens))

    started = time.perf_counter()
    for start in range(0, len(request.prompt), request.chunk):
        advance(list(request.prompt[start : start + request.chunk]))
    report.prompt_tokens = len(request.prompt)
    report.prefill_seconds = time.perf_counter() - started
    started = time.perf_counter()
    for number in range(request.max_new):
        logits = np.asarray(bank.state(slot).logits)
        chosen = sampler.choose(logits, request.valid_ids, request.policy, number)
        report.new_tokens += 1
        report.decode_seconds = time.perf_counter() - started
        yield chosen
        if chosen in request.stops:
            report.ended_by = "stop-token"
            return
        if number + 1 == request.max_new:
            return
        if number >= room:
            report.ended_by = "context"
            return
        advance([chosen])


def _add(total: Counters, more: Counters) -> None:
    total.groups_scored += more.groups_scored
    total.groups_selected += more.groups_selected
    total.largest_width = max(total.largest_width, more.largest_width)
    total.gathered_rows += more.gathered_rows
    total.gathered_bytes += more.gathered_bytes
    total.raw_key_bytes += more.raw_key_bytes
    total.pooled_key_bytes += more.pooled_key_bytes
    total.workspace_bytes = max(total.workspace_bytes, more.workspace_bytes)
