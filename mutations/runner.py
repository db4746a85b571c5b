"""Runs batteries: controls first, then every mutation, in this process or behind an executor.

Workers are told a battery's name and a range of indices, and list the mutations themselves: nothing large or
unpicklable crosses a process border, and a cluster's executor works as well as a local pool.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass
from typing import Final

from assay.impl.workers import spawn_pool, worker_deaths
from assay.mutations.battery import Battery, BatteryContext, InvalidMutationError, Mutation
from assay.mutations.catalogue import battery as battery_named
from assay.mutations.clauses import CONTROL
from assay.spec.clauses import Authority, clause
from assay.spec.documents.mutation_run import (
    AreaCounts,
    BatteryCounts,
    BatteryDetail,
    MutationRecord,
    MutationRun,
    PinOnly,
)
from assay.spec.errors import EvidenceError, Finding

_STRONGEST_FIRST = (
    Authority.RULE,
    Authority.UPSTREAM,
    Authority.FORM,
    Authority.INPUT,
    Authority.PROCESS,
    Authority.PIN,
)
CHUNKS_PER_WORKER = 8


@dataclass(frozen=True, slots=True)
class Fate:
    """What happened to one mutation: `how` is killed, killed_elsewhere, survived, equivalent or invalid.

    `places` names what caught it, where its battery says how.
    """

    index: int
    how: str
    codes: tuple[str, ...]
    authority: Authority | None
    reason: str = ""
    places: tuple[str, ...] = ()


UPSTREAM_ABSENT: Final = (
    "Upstream's data judges these leaves, and it is absent from this run: name the real checkpoint's description with"
    " --checkpoint."
)


def run_batteries(
    names: Iterable[str],
    context: BatteryContext,
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> MutationRun:
    """Runs whole batteries and counts what was killed, where, and what survived.

    Args:
        names: batteries, in order.
        context: what they may use.
        jobs: worker processes when no executor is given; 1 stays in this process.
        executor: any `concurrent.futures.Executor` whose workers can import assay.
        progress: called with battery, done and total.

    Raises:
        EvidenceError: mutations.control, when a battery's clean pass or forced failure does not come out; then
            nothing else that it says could be believed.
    """
    counts: dict[str, BatteryCounts] = {}
    details: dict[str, BatteryDetail] = {}
    survivors: list[MutationRecord] = []
    elsewhere: list[MutationRecord] = []
    for name in names:
        chosen = battery_named(name)
        prove_controls(chosen, context)
        mutations = chosen.mutations(context)
        fates = sorted(
            _fates(name, len(mutations), context, jobs, executor, progress), key=lambda fate: fate.index
        )
        counts[name], details[name] = _summary(chosen, context, mutations, fates)
        for fate in fates:
            record = _record(chosen.name, mutations[fate.index], fate)
            if fate.how in {"survived", "invalid"}:
                survivors.append(record)
            elif fate.how == "killed_elsewhere":
                elsewhere.append(record)
    return MutationRun(batteries=counts, survivors=survivors, killed_elsewhere=elsewhere, details=details)


def prove_controls(chosen: Battery, context: BatteryContext) -> None:
    """Requires the clean pass and the forced failure of a battery.

    Raises:
        EvidenceError: mutations.control.
    """
    clean = chosen.control(context)
    if clean:
        raise _broken(chosen.name, "no finding on the unchanged input", clean[0].line)
    forced = chosen.forced(context)
    fate = judge_one(chosen, 0, forced, context)
    if fate.how != "killed":
        got = f"{fate.how} ({', '.join(fate.codes) or fate.reason or 'no finding'})"
        raise _broken(chosen.name, f"{forced.id} killed by {' or '.join(forced.expected)}", got)


def judge_one(chosen: Battery, index: int, mutation: Mutation, context: BatteryContext) -> Fate:
    """Applies one mutation and says what became of it; a check that crashes has not killed anything."""
    try:
        findings = chosen.judge(mutation, context)
    except InvalidMutationError as error:
        return Fate(index, "invalid", (), None, str(error))
    except Exception as error:  # noqa: BLE001 - a crash of the check is a result: it must not count as a kill
        return Fate(index, "survived", (), None, f"the check crashed: {type(error).__name__}: {error}")
    codes = tuple(dict.fromkeys(finding.code for finding in findings))
    if mutation.equivalent:
        how = "equivalent" if not findings else "killed"
        return Fate(index, how, codes, _authority(chosen, mutation, findings), mutation.equivalent)
    if not findings:
        return Fate(index, "survived", (), None)
    hit = any(
        finding.code in mutation.expected and mutation.where in finding.where for finding in findings
    )  # fmt: skip
    how = "killed" if hit or not mutation.expected else "killed_elsewhere"
    places = () if chosen.place is None else tuple(dict.fromkeys(map(chosen.place, findings)))
    return Fate(index, how, codes, _authority(chosen, mutation, findings), places=places)


def _authority(chosen: Battery, mutation: Mutation, findings: list[Finding]) -> Authority | None:
    if not findings:
        return None
    if chosen.authority is not None:
        return chosen.authority(mutation, findings)
    fired = {known.authority for finding in findings if (known := clause(finding.code)) is not None}
    return next((authority for authority in _STRONGEST_FIRST if authority in fired), None)


def _fates(
    name: str,
    total: int,
    context: BatteryContext,
    jobs: int,
    executor: Executor | None,
    progress: Callable[[str, int, int], None] | None,
) -> Iterator[Fate]:
    done = 0
    for part in _parts(name, total, context, jobs, executor):
        done += len(part)
        if progress is not None:
            progress(name, done, total)
        yield from part


def _parts(
    name: str, total: int, context: BatteryContext, jobs: int, executor: Executor | None
) -> Iterator[list[Fate]]:
    size = max(1, -(-total // (max(1, jobs) * CHUNKS_PER_WORKER)))
    ranges = [(start, min(start + size, total)) for start in range(0, total, size)]
    if executor is None and jobs <= 1:
        yield from (_judge_range(name, context, start, stop) for start, stop in ranges)
        return
    if executor is not None:
        yield from _gather(executor, name, context, ranges)
        return
    # spawn, never fork: MLX hangs in a forked child once its parent has evaluated anything.
    with worker_deaths(name), spawn_pool(jobs) as pool:
        yield from _gather(pool, name, context, ranges)


def _gather(
    pool: Executor, name: str, context: BatteryContext, ranges: list[tuple[int, int]]
) -> Iterator[list[Fate]]:
    futures: list[Future[list[Fate]]] = [
        pool.submit(_judge_range, name, context, start, stop) for start, stop in ranges
    ]
    yield from (future.result() for future in as_completed(futures))


@functools.cache
def _listed(name: str, context: BatteryContext) -> tuple[Battery, list[Mutation]]:
    chosen = battery_named(name)
    return chosen, chosen.mutations(context)


def _judge_range(name: str, context: BatteryContext, start: int, stop: int) -> list[Fate]:
    chosen, mutations = _listed(name, context)
    return [judge_one(chosen, index, mutations[index], context) for index in range(start, stop)]


def _summary(
    chosen: Battery, context: BatteryContext, mutations: list[Mutation], fates: list[Fate]
) -> tuple[BatteryCounts, BatteryDetail]:
    how = Counter(fate.how for fate in fates)
    totals: Counter[str] = Counter(mutation.area for mutation in mutations)
    killed: Counter[str] = Counter()
    by: Counter[tuple[str, Authority | None]] = Counter()
    pinned: dict[str, list[str]] = {}
    for fate in fates:
        mutation = mutations[fate.index]
        if fate.how in {"killed", "killed_elsewhere"}:
            killed[mutation.area] += 1
            by[mutation.area, fate.authority] += 1
            if fate.authority is Authority.PIN and chosen.pin_reasons is not None:
                reason = chosen.pin_reasons(mutation) or ("" if context.checkpoint else UPSTREAM_ABSENT)
                pinned.setdefault(reason, []).append(mutation.field)
    areas = {
        area: AreaCounts(
            total=total,
            killed=killed[area],
            by_rule=by[area, Authority.RULE],
            by_upstream=by[area, Authority.UPSTREAM],
            by_pin=by[area, Authority.PIN],
            by_form=killed[area]
            - by[area, Authority.RULE]
            - by[area, Authority.UPSTREAM]
            - by[area, Authority.PIN],
        )
        for area, total in totals.items()
    }
    detail = BatteryDetail(
        areas=areas,
        pin_only=[
            PinOnly(leaves=sorted(set(leaves)), reason=reason) for reason, leaves in sorted(pinned.items())
        ],
        controls={"clean pass": True, "forced failure": True},
        not_run=chosen.not_run(context),
        caught_by={mutations[fate.index].id: list(fate.places) for fate in fates if fate.places},
    )
    counts = BatteryCounts(
        total=len(mutations),
        killed=how["killed"],
        killed_elsewhere=how["killed_elsewhere"],
        survived=how["survived"],
        equivalent=how["equivalent"],
        invalid=how["invalid"],
    )
    return counts, detail


def _record(name: str, mutation: Mutation, fate: Fate) -> MutationRecord:
    return MutationRecord(
        battery=name,
        id=mutation.id,
        area=mutation.area,
        field=mutation.field,
        change=mutation.change,
        expected_code=" or ".join(mutation.expected),
        got_codes=list(fate.codes),
        reason=fate.reason or fate.how.replace("_", " "),
    )


def _broken(name: str, expected: str, got: str) -> EvidenceError:
    return EvidenceError(
        Finding.of(
            CONTROL,
            "control",
            name,
            expected=expected,
            got=got,
            hint="the battery itself is broken; what it says of its mutations is worth nothing",
        )
    )
