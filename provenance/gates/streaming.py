"""The gate of streamed execution: tokens and states of a resident run, whatever the cache holds and the disk does."""

from dataclasses import replace
from typing import Any, Final

from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.gates.stream_clauses import IDENTITY
from assay.spec.errors import Finding
from assay.spec.verdicts import Outcome

SHOWN: Final = 20
PROMPT: Final = tuple(range(5, 29))
NEW_TOKENS: Final = 5


def stream_identity(context: GateContext) -> GateResult:
    """Streams the miniature under cache sizes, policies, orders of arrival, faults, prefill modes and lanes."""
    from assay.impl.model.backend import choose_numerics
    from assay.impl.model.bank import Bank
    from assay.impl.runtime.faulty_device import FaultyDevice
    from assay.impl.runtime.opening import Wish
    from assay.impl.runtime.prefill import Rates
    from assay.impl.runtime.serving import Server
    from assay.impl.runtime.stream_types import Options
    from assay.impl.stores.artifact.build import build_artifact
    from assay.provenance.captures.mlx_stream import (
        FAULTS,
        Source,
        conditions_of,
        differing_streams,
        run_bank,
        run_resident,
        streamed,
    )
    from assay.provenance.miniature import miniature_checkpoint

    target = context.out / "miniature.gguf"
    build_artifact(miniature_checkpoint(context.out / "checkpoint"), target, replace=True)
    source = Source.of(target, choose_numerics(fast=False), PROMPT, NEW_TOKENS)
    wrong, counts = differing_streams(source, conditions_of(4, 16, 8, context.seed))
    resident = run_resident(source)
    rates = {"macro": Rates(1.0, 1e9), "micro": Rates(1e9, 1.0)}
    modes: dict[str, int] = {}
    options = Options(0, row_slot_bytes=1 << 14, row_window=8)
    for name, measured in rates.items():
        with streamed(source, Wish(records=128, context=64), replace(options, rates=measured)) as opened:
            outcome = run_bank(Bank(opened.loaded.model), source)
            modes[name] = opened.stream.counts.modes.get(name, 0)  # type: ignore[call-overload]
        if not outcome.same_as(resident) or not modes[name]:
            wrong.append(
                (f"prefill {name}", "tokens and states of the resident run", f"others, {modes[name]} layers")
            )
    prompts = {"a": PROMPT[:6], "b": (40, 41, 42), "c": (99, 7, 99, 7)}
    alone = {name: run_resident(replace(source, prompt=prompt)) for name, prompt in prompts.items()}
    turns = 0
    for faults in ("delays", "failing"):
        device = FaultyDevice(FAULTS[faults], context.seed)
        with streamed(source, Wish(records=12, context=64, chunk=8), options, device) as opened:
            server = Server(opened)
            for name in prompts:
                server.admit(name, 64, 8)

            def work(name: str, after: Any = opened.stream.pass_on) -> Any:
                mine = replace(source, prompt=prompts[name])
                return lambda bank, _lane: run_bank(bank, mine, after=after)

            for one in server.run([work(name) for name in prompts]):
                turns += one.lane.counts.turns
                if one.answer is None or not one.answer.same_as(alone[one.lane.name]):
                    got = "others" if one.error is None else f"{one.error}"
                    wrong.append((f"lane {one.lane.name}, disk {faults}", "what it gives alone", got))
    measurements = {**counts, "prefill layers": modes, "lanes": len(prompts), "turns": turns}
    findings = tuple(
        Finding.of(IDENTITY, "streaming", where, expected=expected, got=got)
        for where, expected, got in wrong[:SHOWN]
    )
    if findings:
        return GateResult(
            Outcome.FAIL, measurements, findings, f"{len(wrong)} conditions differ", is_private=True
        )
    if not counts["failed chunks"] or not counts["guesses used"] or not counts["misses"]:
        return GateResult(
            Outcome.INCONCLUSIVE, measurements, (), "no fault, guess or miss was exercised", is_private=True
        )
    return GateResult(Outcome.PASS, measurements, is_private=True)
