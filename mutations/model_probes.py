"""What any copy of the MLX model must do: agree with upstream's captures, and keep its state whole.

A probe takes a function that gives the modules of a copy, and returns findings. States are compared by the shipped
module, so that a copy can't hide an owner from its own comparison.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.mutations import capture_vectors
from assay.mutations.capture_vectors import Case, Rows, first_difference, read_case
from assay.mutations.model_clauses import BOUNDS, CAPTURE, RAISED, STATE, WHOLE
from assay.oracles import geometry as oracle_geometry
from assay.oracles import ple as oracle_ple
from assay.oracles import tensors as oracle_tensors
from assay.oracles import weights as oracle_weights
from assay.spec.errors import AssayError, Finding

Modules = Callable[[str], Any]
Probe = Callable[[Modules], list[Finding]]

_STAGE: Final = "probe"
_CHUNKS: Final = (7, 1, 5, 2, 11, 1, 14)
_EOS: Final = 3


def capture(case_id: str, module: Modules) -> list[Finding]:
    """Runs one capture in its own chunks with a recorder and returns the first rung that differs, if any."""
    case = read_case(case_id)
    rows, error = _recorded(case, module)
    found = first_difference(case, rows)
    if found is not None:
        return [Finding.of(CAPTURE, _STAGE, found.where, expected=found.expected, got=found.got)]
    if error is not None:
        return [Finding.of(CAPTURE, _STAGE, case_id, expected="a whole run", got=_said(error))]
    return []


def padded_batch(module: Modules) -> list[Finding]:
    """Runs a short row beside a long one, padded on the left, and each alone."""
    own = _small(module)
    bank_of = module("bank").Bank
    short, long = _ids(9, 4), _ids(14, 7)
    bank, alone = bank_of(own, 2), bank_of(own, 2)
    bank.advance_padded([0, 1], [[_EOS] * 5 + short, long], [[False] * 5 + [True] * 9, [True] * 14])
    bank.advance_padded([0, 1], [[6], [8]], [[True], [True]])
    for tokens in ({0: short}, {1: long}, {0: [6]}, {1: [8]}):
        alone.advance(tokens)
    return _differing("padded batch", bank, alone, (0, 1))


def slots(module: Modules) -> list[Finding]:
    """Runs rows in slots 0, 2 and 5 with a filler row: those change, and no other."""
    bank = module("bank").Bank(_small(module), 6)
    before = [bank.state(slot) for slot in range(6)]
    bank.advance_padded([0, 2, 5, -1], [[5], [6], [7], [8]], [[True]] * 4)
    changed = [slot for slot in range(6) if bank.state(slot) is not before[slot]]
    return [] if changed == [0, 2, 5] else [_state("slots", "0, 2 and 5 changed", changed)]


def partitions(module: Modules) -> list[Finding]:
    """Compares chunks and single tokens with one shot, every owner byte for byte, and its ends with what was told."""
    own, tokens = _small(module), _ids(41, 4)
    tokens[9] = tokens[17] = tokens[18] = tokens[39] = _EOS
    whole, recorder = module("bank").Bank(own), module("trace").Recorder()
    done = whole.advance({0: tokens}, recorder, every_logit=True)
    ends = {
        "ple_history": (whole.state().ple_history, tuple(oracle_ple.history_after(tokens, _EOS))),
        "logits": (_bits(whole.state().logits), _bits(done.logits[0][-1])),
        "wide": (_bits(whole.state().wide), _bits(recorder.arrays[("moe_gr_apply", 3, "")][0][-1])),
    }
    found = [_state(f"ends: {name}", wanted, got) for name, (got, wanted) in ends.items() if got != wanted]
    for name, widths in (("token by token", (1,) * 41), ("chunks", _CHUNKS)):
        bank, start = module("bank").Bank(own), 0
        for width in widths:
            bank.advance({0: tokens[start : start + width]})
            start += width
        found += _differing(name, bank, whole, (0,))
    return found


def forks(module: Modules) -> list[Finding]:
    """Copies a sequence, goes on with both, and compares each with a fresh run; then resets one."""
    own, line = _small(module), _ids(30, 4)
    bank_of = module("bank").Bank
    bank, alone = bank_of(own, 3), bank_of(own, 3)
    bank.advance({0: line[:13]})
    bank.copy(0, 2)
    for tokens in ({0: line[13:20]}, {2: line[20:30]}, {0: line[20:25]}):
        bank.advance(tokens)
    alone.advance({0: line[:25]})
    alone.advance({2: [*line[:13], *line[20:30]]})
    found = _differing("fork", bank, alone, (0, 2))
    bank.reset(2)
    return found + _differing("reset", bank, bank_of(own, 3), (2,))


def rewinds(module: Modules) -> list[Finding]:
    """Goes back two tokens across an end of text and on another way; a length that was not kept is refused."""
    own, line = _small(module), [*_ids(8, 4), _EOS, *_ids(6, 8)]
    bank_of = module("bank").Bank
    bank, alone = bank_of(own), bank_of(own)
    bank.advance({0: line[:12]})
    bank.keep()
    bank.advance({0: line[12:13]})
    bank.keep()
    bank.advance({0: line[13:]})
    bank.rewind(0, 12)
    bank.advance({0: [11, 12, 13]})
    alone.advance({0: [*line[:12], 11, 12, 13]})
    found = _differing("rewind", bank, alone, (0,))
    return found + _refused("model.rewind", "slots[0]", lambda: bank.rewind(0, 14))


def reservations(module: Modules) -> list[Finding]:
    """Makes room in the middle of a sequence: nothing moves afterwards, and nothing changes."""
    own, line = _small(module), _ids(80, 4)
    bank_of = module("bank").Bank
    bank, alone = bank_of(own), bank_of(own)
    bank.advance({0: line[:10]})
    bank.reserve(0, 80)
    buffers = [id(bank.state().qsa[3].keys.buffer), id(bank.state().qsa[3].raw.buffer)]
    bank.advance({0: line[10:40]})
    bank.advance({0: line[40:]})
    alone.advance({0: line})
    found = _differing("reservation", bank, alone, (0,))
    after = [id(bank.state().qsa[3].keys.buffer), id(bank.state().qsa[3].raw.buffer)]
    return found if after == buffers else [*found, _state("reservation", "the same buffers", "others")]


def failures(module: Modules) -> list[Finding]:
    """Fails chunks in every kind at a few stages; digest, output, earlier states and a retry are judged."""
    from assay.impl.model.faults import KINDS
    from assay.impl.model.state import digest

    own = _small(module)
    faults, bank_of = module("faults"), module("bank").Bank
    bank, untouched = bank_of(own), bank_of(own)
    for one in (bank, untouched):
        one.advance({0: _ids(9, 4)})
    untouched.advance({0: [8, 9, 10, 11, 12]})
    before, found = digest(bank.state()), []
    for kind in KINDS:
        for at in (1, 4, 10, 12, 15, 26, 30, 33):
            fault, into = faults.Fault(kind, at), np.full((1, 64), 123.0, np.float32)
            chunk = module("graph").Chunk(bank.state(), [8, 9, 10, 11, 12])
            private = own.begin([chunk])
            where = f"{kind} after call {at}"
            try:
                if kind == "late":
                    own.run([chunk], fault, transaction=private)
                else:
                    bank.advance({0: [8, 9, 10, 11, 12]}, fault, into=into)
                found.append(_whole(where, "a failure", "a publication"))
            except (AssayError, faults.InjectedError):
                pass
            if kind == "late":
                late = partial(private.install, "gdn", 0, [bank.state().gdn[0]])
                found += _refused("model.transaction.closed", "gdn.0", late)
            if digest(bank.state()) != before or not (into == 123.0).all():
                found.append(_whole(where, "nothing published", "a trace"))
            if found:
                return found
    found += _growth(module)
    bank.advance({0: [8, 9, 10, 11, 12]})
    return found + _differing("retry", bank, untouched, (0,))


def bounds(module: Modules) -> list[Finding]:
    """Asks for what must be refused, and for the published tie rules."""
    own = _small(module)
    bank = module("bank").Bank(own, 2)
    found = _refused("model.tokens", "sequences[0].tokens[0]", lambda: bank.advance({0: [64]}))
    found += _refused("model.tokens", "sequences[0].tokens[0]", lambda: bank.advance({0: [-1]}))
    found += _refused("model.tokens", "sequences[0]", lambda: bank.advance({0: []}))
    found += _refused("model.context", "sequences[0]", lambda: bank.advance({0: [5] * 257}))
    found += _refused("model.slot", "slot", lambda: bank.advance({2: [5]}))
    holed = partial(bank.advance_padded, [0], [[5, 6, 7]], [[True, False, True]])
    found += _refused("model.padding", "rows[0]", holed)
    found += _ties(module) + _routes(module, own.geometry) + _dense(module, own.geometry)
    return found + _sampling(module)


def abandoned(module: Modules) -> list[Finding]:
    """Gives chunks up while the device fails at work of them; the next chunk runs as if nothing had been."""
    faults, bank_of = module("faults"), module("bank").Bank
    for at in (12, 30, 33):
        try:
            bank_of(_small(module)).advance({0: _ids(9, 4)}, faults.Abandoned(at))
            return [_whole(f"abandoned after call {at}", "a failure", "a publication")]
        except faults.InjectedError:
            pass
        try:
            bank_of(_small(module)).advance({0: _ids(9, 4)})
        except (AssayError, RuntimeError) as error:
            return [_whole(f"abandoned after call {at}", "a chunk that runs", _said(error))]
    return []


def counters(module: Modules) -> list[Finding]:
    """Counts the physical work of one query past the budget."""
    own = _small(module)
    bank = module("bank").Bank(own)
    bank.advance({0: _ids(38, 4)})
    done = bank.advance({0: [5]}).counters  # 39 visible: 9 groups scored, 2 selected, a tail of 3
    got = (done.groups_scored, done.groups_selected, done.largest_width, done.dense_mask_bytes)
    return (
        [] if got == (9, 2, 11, 0) else [_bound("counters", "9 scored, 2 selected, width 11, no mask", got)]
    )


def _growth(module: Modules) -> list[Finding]:
    """Fails while the last owners of a chunk grow; the rows before must be given back."""
    from assay.impl.model.state import digest

    grown = module("columns")
    shipped, left = grown.appended, [4]

    def failing(column: Any, new: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise MemoryError
        return shipped(column, new)

    bank = module("bank").Bank(_small(module))
    bank.advance({0: _ids(9, 4)})
    before, buffer = digest(bank.state()), bank.state().qsa[3].keys.buffer
    grown.appended = failing
    try:
        bank.advance({0: [8]})
        return [_whole("growth", "a failure", "a publication")]
    except AssayError:
        pass
    finally:
        grown.appended = shipped
    if digest(bank.state()) != before:
        return [_whole("growth", "nothing published", "a trace")]
    bank.advance({0: [8]})
    return (
        [] if bank.state().qsa[3].keys.buffer is buffer else [_whole("growth", "rows given back", "a copy")]
    )


def _ties(module: Modules) -> list[Finding]:
    """Bug report A10: 2,402 visible tokens, all scores 0 or -0 but two; membership, emission and tail."""
    from assay.impl.model.arrays import on_device

    scores = np.zeros((1, 600), np.float32)
    scores[0, ::2] = -0.0
    scores[0, 300], scores[0, 599] = 4, 5
    chosen = module("qsa").select(on_device(scores), np.array([600], np.int32), 512, 512)
    groups = np.array(chosen)[0].tolist()
    if groups != [*range(511), 599]:
        return [_bound("qsa.select", "groups 0 .. 510 and 599", groups[-3:])]
    selection = module("qsa").expand(chosen, np.array([2402], np.int32), 4)
    rows = np.array(selection.rows)[0][np.array(selection.is_valid)[0]].tolist()
    wanted = [*range(2044), *range(2396, 2402)]
    return [] if rows == wanted else [_bound("qsa.expand", "2,050 rows, ascending, the tail last", rows[-4:])]


def _routes(module: Modules, geometry: Any) -> list[Finding]:
    """Bug report A18: a tie at the cut goes to the lower id; close values are no tie; wrong routes are found."""
    from assay.impl.model.arrays import on_device

    logits = np.array([[3.0, 1.0, 1.001, 3.0, 1.001, 3.0, 0, 0, 0, 0, 0, 0]], np.float32)
    routed = module("router").choose(on_device(logits), _with(geometry, experts_used=4))
    ids = np.array(routed.ids)[0].tolist()
    if ids != [0, 3, 5, 2]:
        return [_bound("router.choose", "0, 3, 5, 2", ids)]
    weights = np.array(routed.weights)
    own = _with(geometry, experts_used=4)
    found = []
    for name, wrong in (("tie", [0, 3, 5, 4]), ("order", [0, 5, 3, 2]), ("twice", [0, 3, 3, 2]), ("range", [0, 3, 5, 12]),
                        ("left out", [0, 3, 2, 1])):  # fmt: skip
        if not module("router").faults(logits, np.array([wrong], np.int32), weights, own, "x"):
            found.append(_bound(f"router.faults {name}", "a finding", "none"))
    if not module("router").faults(logits, np.array(routed.ids), weights * 1.01, own, "x"):
        found.append(_bound("router.faults weights", "a finding", "none"))
    return found


def _dense(module: Modules, geometry: Any) -> list[Finding]:
    """The dense form ends at the selection width (11 here), and agrees with the sparse one until there."""
    from assay.impl.model.arrays import on_device

    values = np.random.default_rng(5)
    q = on_device(values.standard_normal((1, geometry.heads, geometry.head_dim)).astype("f"))
    k, v = (
        on_device(values.standard_normal((12, geometry.kv_heads, geometry.head_dim)).astype("f"))
        for _ in range(2)
    )
    wide = np.array(module("qsa").dense(q, k[:11], v[:11], geometry))
    sparse = np.array(
        module("qsa").attend(
            q, k[None, :11].swapaxes(1, 2), v[None, :11].swapaxes(1, 2), on_device(np.ones((1, 11), np.bool_))
        )
    )
    if not np.allclose(wide, sparse, rtol=2e-5, atol=2e-5):
        return [_bound("qsa.dense", "the sparse form's values", "others")]
    return _refused("model.qsa.dense-ceiling", "k", lambda: module("qsa").dense(q, k, v, geometry))


def _sampling(module: Modules) -> list[Finding]:
    """Bug report A2: padding rows dominate the logits and never win; a NaN among them is no logit."""
    sampler = module("sampler")
    logits = np.full(20, -1.0, np.float32)
    logits[12], logits[13:] = -0.5, 40.0
    found = []
    for policy in (
        sampler.Policy(),
        sampler.Policy(temperature=1.0, top_k=1),
        sampler.Policy(temperature=0.01),
    ):
        chosen = sampler.choose(logits, 13, policy)
        if chosen != 12:
            found.append(_bound("sampler.choose", 12, chosen))
    flat = np.zeros(4, np.float32)
    draws = {sampler.choose(flat, 4, sampler.Policy(temperature=1.0, top_k=2, seed=1), n) for n in range(40)}
    if draws != {0, 1} or sampler.choose(flat, 4, sampler.Policy()) != 0:
        found.append(_bound("sampler.choose", "ties to the lower id, both of two drawn", sorted(draws)))
    shares = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    for policy, wanted in (
        (sampler.Policy(temperature=1.0, top_p=0.7, seed=3), {0, 1}),
        (sampler.Policy(temperature=1.0, min_p=0.2, seed=3), {0, 1, 2}),
    ):
        draws = {sampler.choose(shares, 4, policy, n) for n in range(200)}
        if draws != wanted:
            found.append(_bound("sampler.choose", sorted(wanted), sorted(draws)))
    allowed = partial(sampler.choose, logits, 13, sampler.Policy(), 0, [1 << 4])
    if allowed() != 4:
        found.append(_bound("sampler.choose", "the only allowed id", "another"))
    logits[19] = np.nan
    return found + _refused(
        "model.logits", "logits[19]", lambda: sampler.choose(logits, 13, sampler.Policy())
    )


def _recorded(case: Case, module: Modules) -> tuple[Rows, Exception | None]:
    rows: Rows = {}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a wrong model may overflow; its numbers are judged
            model = _model(module, case.id)
            bank, start = module("bank").Bank(model), 0
            recording = module("dump").Recording()
            for width in case.partition:
                recorder = module("trace").Recorder()
                bank.advance({0: case.tokens[start : start + width]}, recorder, every_logit=True)
                recording.add(recorder, [width])
                start += width
            for (stage, layer, part), array in recording.arrays(bank.state()).items():
                if stage != "state":
                    rows[(stage, layer, part)] = [_line(line, part) for line in array]
    except Exception as error:  # noqa: BLE001 - whatever a wrong model raises is a result
        return rows, error
    return rows, None


def _line(row: NDArray[Any], part: str) -> NDArray[Any]:
    """One token's values; ragged rows without their fill."""
    flat = np.asarray(row).reshape(-1)
    return flat[flat >= 0] if part in {"index_scores", "selected"} else flat


def _small(module: Modules) -> Any:
    return _model(module, "small/chunks")


def _model(module: Modules, case_id: str) -> Any:
    numerics = module("numerics").Numerics(is_deterministic=True)
    return module("loader").load_tensors(read_case(case_id).configuration, _tensors(case_id), numerics)


@cache
def _tensors(case_id: str) -> dict[str, NDArray[Any]]:
    """All tensors of a capture's geometry from the oracles' statement of the rule, tables in their shards."""
    case = read_case(case_id)
    own = oracle_geometry.from_config(case.configuration)
    named = {name: case.weights.tensor(name) for name in oracle_tensors.shapes(own)}
    width = own.ple_embedding // own.ple_heads
    for ordinal, layer in enumerate(own.ple_layers):
        stem = f"{oracle_tensors.PREFIX}layers.{layer}.ple.ple_embedding.ngram_embedding."
        padded = own.ple_primes(ordinal).padded_rows
        if isinstance(case.weights, oracle_tensors.RuleWeights):
            share = padded // own.ngram_parts
            for part in range(own.ngram_parts):
                name = f"{stem}shard_{part}.weight"
                named[name] = oracle_weights.tensor(name, (share, width))
        else:
            named[f"{stem}weight"] = case.weights.ple_rows(layer, list(range(padded)))
    return named


def _bits(array: Any) -> str:
    return np.array(array).tobytes().hex()


def _ids(count: int, salt: int) -> list[int]:
    """Token ids below 64, never the end of text, by a fixed rule."""
    return [4 + (salt * 7 + place * place * 11 + place * 5) % 60 for place in range(count)]


def _differing(name: str, one: Any, other: Any, compared: Sequence[int]) -> list[Finding]:
    from assay.impl.model.state import differing

    return [
        _state(f"{name}: slot {slot}", "the state of a fresh run", owner)
        for slot in compared
        for owner in differing(one.state(slot), other.state(slot))[:1]
    ]


def _refused(code: str, where: str, work: Callable[[], object]) -> list[Finding]:
    try:
        work()
    except AssayError as error:
        got = f"{error.finding.code} at {error.finding.where}"
        return [] if got == f"{code} at {where}" else [_bound(code, f"{code} at {where}", got)]
    return [_bound(code, f"{code} at {where}", "no refusal")]


def _with(geometry: Any, **changed: Any) -> Any:
    from dataclasses import replace

    return replace(geometry, **changed)


def _state(where: str, expected: Any, got: Any) -> Finding:
    return Finding.of(STATE, _STAGE, where, expected=expected, got=got)


def _whole(where: str, expected: Any, got: Any) -> Finding:
    return Finding.of(WHOLE, _STAGE, where, expected=expected, got=got)


def _bound(where: str, expected: Any, got: Any) -> Finding:
    return Finding.of(BOUNDS, _STAGE, where, expected=expected, got=got)


def _said(error: Exception) -> str:
    if isinstance(error, AssayError):
        return f"{error.finding.code} at {error.finding.where}"
    return f"{type(error).__name__}: {error}"


def _guarded(probe: Probe, module: Modules) -> list[Finding]:
    """Runs a probe; an unexpected error is a finding of its own."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return probe(module)
    except Exception as error:  # noqa: BLE001 - whatever a wrong model raises is a result
        return [
            Finding.of(
                RAISED, _STAGE, getattr(probe, "__name__", "probe"), expected="an answer", got=_said(error)
            )
        ]


PROBES: Final[tuple[Probe, ...]] = (
    *(partial(_guarded, partial(capture, case)) for case in capture_vectors.CASES),
    *(
        partial(_guarded, probe)
        for probe in (
            bounds,
            partitions,
            padded_batch,
            slots,
            forks,
            rewinds,
            reservations,
            failures,
            abandoned,
            counters,
        )
    ),
)
"""Cheapest first."""
