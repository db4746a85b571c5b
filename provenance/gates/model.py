"""Gates of the MLX model: against the oracles and upstream, under any partition, and under injected faults.

Every comparison with somebody else goes through captures and `assay diff`, so that a failure names the first rung.
"""

import itertools
import multiprocessing
import platform
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Any, Final

from assay.mutations import model as battery
from assay.provenance.captures.geometries import CASES, GEOMETRIES, counter_tokens
from assay.provenance.gates.base import GateContext, GateResult
from assay.provenance.gates.batteries import battery_result
from assay.provenance.gates.model_clauses import ORACLE, PARTITION, TRANSACTION, UPSTREAM
from assay.provenance.paths import fixture_path
from assay.spec.documents.diff import Diff
from assay.spec.errors import Finding
from assay.spec.verdicts import Outcome

WIDE: Final = 2e-4
"""Relative and absolute, for 296 tokens of a whole model with random weights: a norm over a small recurrent output
multiplies its rounding, and upstream's chunked prefill differs from its own decode by as much."""
FAST_BOUND: Final = 1e-3
SHOWN: Final = 20


def mlx_oracle(context: GateContext) -> GateResult:
    """Runs the MLX model on the inputs of every capture; compares every array with the oracle and with upstream.

    Then runs an artifact in affine 4-bit codes against the oracle on the matrices that they stand for.
    """
    from assay.impl.captures.fixtures import read_fixture
    from assay.impl.captures.writing import write_capture
    from assay.impl.model.backend import choose_numerics
    from assay.provenance.captures.arrays import OpenCapture
    from assay.provenance.captures.compare import compare
    from assay.provenance.captures.mlx_affine import compare_affine
    from assay.provenance.captures.mlx_run import PRODUCER, fixture_model, run_case
    from assay.provenance.captures.oracle_run import OracleRun, as_arrays, run_oracles
    from assay.provenance.captures.parity import compare_case, summary

    numerics, upstream, findings = choose_numerics(fast=False), [], []
    arrays, oracle_largest = 0, 0.0
    for case in (one.id for one in CASES):
        root = fixture_path("captures") / case
        fixture, capture = read_fixture(root), OpenCapture(root)
        tokens = list(capture.document.token_ids or [])
        ours, _ = run_case(fixture_model(fixture, numerics), fixture)
        folder = context.out / case
        write_capture(folder / "mlx", ours, tokens, producer=PRODUCER)
        oracle = run_oracles(fixture, tokens)
        write_capture(folder / "oracle", as_arrays(oracle, ours), tokens, producer=PRODUCER)
        diff = compare(OpenCapture(folder / "mlx"), OpenCapture(folder / "oracle"), ("mlx", "oracle"))
        findings += _diff_findings(ORACLE, case, diff)
        compared = [rung for rung in diff.rungs if rung.state in {"equal", "within"}]
        arrays += len(compared)
        far = [rung.max_absolute for rung in compared if isinstance(rung.max_absolute, float)]
        oracle_largest = max([oracle_largest, *far])
        rows = {key: list(array) for key, array in ours.items() if key[0] != "state"}
        states = {key: array for key, array in ours.items() if key[0] == "state"}
        parity = compare_case(case, fixture, capture, OracleRun(rows, states))
        upstream.append(parity)
        findings += [
            Finding.of(
                ORACLE, "parity", f"{case}: {one.rung} token {one.token}",
                expected=f"{one.upstream}, as upstream held", got=f"{one.oracle}",
            )
            for one in [array for array in parity.arrays if array.outcome == "differs"][:1]
        ]  # fmt: skip
        findings += [
            Finding.of(ORACLE, "parity", f"{case}: {name}", expected="an array of the MLX model", got="none")
            for name in parity.without_oracle
        ]
    affine = compare_affine(context.out / "affine", numerics)
    findings += _diff_findings(ORACLE, "miniature in affine 4-bit", affine.diff)
    findings += [
        Finding.of(
            PARTITION,
            "parity",
            f"miniature in affine 4-bit: {where}",
            expected="the bytes of one shot",
            got="others",
        )
        for where in affine.differing
    ]
    figures = summary(upstream)
    measurements = {
        "affine4": {
            "layersInCodes": affine.packed_layers, "expertBytes": affine.expert_bytes,
            "rungsCompared": sum(affine.diff.counts[state] for state in ("equal", "within")),
            "largestAgainstOracle": max(
                (one.max_absolute for one in affine.diff.rungs if isinstance(one.max_absolute, float)), default=0.0
            ),
        },
        "cases": len(CASES), "arraysAgainstOracle": arrays, "largestAgainstOracle": oracle_largest,
        "arraysAgainstUpstream": figures["arrays"], "outcomes": figures["outcomes"],
        "cutsExcused": figures["cutsExcused"], "numerics": asdict(numerics),
    }  # fmt: skip
    return _result(findings, measurements, "arrays differ")


def mlx_upstream(context: GateContext) -> GateResult:
    """Runs upstream and the MLX model on the same saved weights, each choosing its own tokens."""
    from assay.provenance.captures.compare import Options
    from assay.provenance.captures.mlx_upstream import FIXTURES, compare_fixture

    findings: list[Finding] = []
    rows: list[dict[str, Any]] = []
    for number, fixture in enumerate(FIXTURES):
        name = f"{fixture.geometry}-{fixture.seed}"
        done = compare_fixture(fixture, context.out / f"{number}-{name}", Options(rtol=WIDE, atol=WIDE))
        rows.append(
            {
                "fixture": name, "asked": done.is_asked, "newTokens": done.tokens, "sameTokens": done.same_tokens,
                "largestLogitDifference": done.largest_logit, "cuts": done.cuts, "cutsNear": done.near,
                "smallestSelectionGap": _finite(done.selection_gap), "smallestRoutingGap": _finite(done.routing_gap),
                "rungsCompared": sum(done.diff.counts[state] for state in ("equal", "within")),
            }
        )  # fmt: skip
        if not done.is_asked:
            continue
        findings += _diff_findings(UPSTREAM, name, done.diff)
        if done.same_tokens != done.tokens or done.tokens < 256:
            expected = f"{done.tokens} equal tokens, at least 256"
            findings.append(
                Finding.of(UPSTREAM, "parity", f"{name}: tokens", expected=expected, got=done.same_tokens)
            )
    asked = [row for row in rows if row["asked"]]
    measurements = {"fixtures": rows, "asked": len(asked), "excluded": len(rows) - len(asked)}
    if len({row["fixture"].split("-")[0] for row in asked}) < 3 and not findings:
        reason = "fewer than three geometries without a near cut: upstream or its random numbers have changed"
        return GateResult(Outcome.INCONCLUSIVE, measurements, (), reason)
    return _result(findings, measurements, "fixtures differ")


def partition(context: GateContext) -> GateResult:
    """Compares partitions, batches and interleavings with one shot, byte for byte; then the same under a fast BLAS."""
    from assay.impl.model.backend import choose_numerics
    from assay.impl.model.numerics import TILE_ROWS, Numerics
    from assay.provenance.captures.mlx_fast import measure_fast
    from assay.provenance.captures.mlx_partition import differing_partitions

    chosen = choose_numerics(fast=False)
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    tiled = Numerics(is_deterministic=True, tile_rows=TILE_ROWS)
    for (name, length), numerics in itertools.product(
        (("small", 41), ("two-ple", 26), ("miniature", 96)), (chosen, tiled)
    ):
        text = GEOMETRIES[name]
        tokens = list(counter_tokens(4, length, text["vocab_size"], avoid=text["eos_token_id"]))
        label = f"{name}, {'tiles of ' + str(numerics.tile_rows) if numerics.tile_rows else 'whole products'}"
        wrong, runs = differing_partitions(text, tokens, numerics, context.seed)
        counts[label] = runs
        findings += [
            Finding.of(PARTITION, "partition", f"{label}: {where}", expected="the bytes of one shot", got=got)
            for where, got in wrong
        ]
    fast = measure_fast(GEOMETRIES["miniature"], 96, context.seed)
    if fast["isLoaded"]:
        off = fast["fast"]["largestLogitDifference"]
        if off > FAST_BOUND:
            findings.append(
                Finding.of(PARTITION, "fast", "logits", expected=f"at most {FAST_BOUND}", got=off)
            )
        findings += [
            Finding.of(PARTITION, "fast", where, expected="the bytes of one shot", got="others")
            for where in fast["differing"]
        ]
    measurements = {"runs": counts, "chosen": asdict(chosen), "fast": fast, "machine": platform.machine()}
    return _result(findings, measurements, "partitions differ")


def transaction(_context: GateContext) -> GateResult:
    """Fails a chunk after every stage of every layer in every kind; public state, output and retry must hold."""
    from assay.impl.model.backend import choose_numerics
    from assay.provenance.captures.mlx_faults import surviving_faults

    measured: dict[str, Any] = {}
    findings: list[Finding] = []
    for name in ("small", "two-ple"):
        # a fault that ends its process or never comes back must not take the gate with it
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            asked = pool.submit(surviving_faults, GEOMETRIES[name], choose_numerics(fast=False))
            wrong, counts = asked.result()
        measured[name] = counts
        findings += [
            Finding.of(TRANSACTION, "faults", f"{name}: {where}", expected=expected, got=got)
            for where, expected, got in wrong
        ]
    return _result(findings, measured, "faults left a trace")


def model_battery(context: GateContext) -> GateResult:
    """Makes every mistake of the battery `model` in the MLX code; each must be caught."""
    return battery_result(battery.BATTERY.name, context)


def metal(context: GateContext) -> GateResult:
    """Runs parity with the oracles, partitions and faults on the Apple GPU."""
    import mlx.core as mx

    if platform.system() != "Darwin" or mx.default_device() != mx.Device(mx.gpu):
        return GateResult(Outcome.INCONCLUSIVE, {}, (), "MLX does not use the GPU here")
    results = {
        "oracle": mlx_oracle(context),
        "partition": partition(context),
        "transaction": transaction(context),
    }
    findings = [finding for one in results.values() for finding in one.findings]
    return _result(
        findings, {name: one.measurements for name, one in results.items()}, "disagreements on Metal"
    )


def _diff_findings(code: str, case: str, diff: Diff) -> list[Finding]:
    found = []
    missing = [one for one in diff.rungs if one.rung != "prompt_bytes"
               and (one.state in {"unknown", "non-finite"} or one.rung in diff.partial)]  # fmt: skip
    if missing:
        one = missing[0]
        got = one.reason or f"{one.tokens} of {one.total} tokens on both sides"
        found.append(
            Finding.of(
                code,
                "parity",
                f"{case}: {one.rung}",
                expected="finite arrays of all tokens on both sides",
                got=got,
            )
        )
    if diff.first is not None:
        first = diff.first
        where = f"{case}: {first.rung} token {first.token} index {first.index}"
        got = f"{first.a}" + (f", {first.margin.judged}" if first.margin is not None else "")
        found.append(Finding.of(code, "parity", where, expected=f"{first.b}", got=got))
    return found


def _result(findings: list[Finding], measurements: dict[str, Any], what: str) -> GateResult:
    if findings:
        reason = f"{len(findings)} {what}"
        return GateResult(Outcome.FAIL, measurements, tuple(findings[:SHOWN]), reason, is_private=True)
    return GateResult(Outcome.PASS, measurements, is_private=True)


def _finite(value: float) -> float | None:
    return value if value != float("inf") else None
