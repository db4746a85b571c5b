"""Compares two captures rung by rung and stops at the first that differs; what follows is not blamed.

Memory is bounded: rows are mapped and compared in blocks of a few MiB. A difference in the token ids is followed back:
when an earlier token already differs in some rung, that is the cause and is reported instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.provenance.captures.arrays import OpenCapture, Rung, Stored
from assay.provenance.captures.coverage import AGREES, absent_rungs, bounds, is_partial, merged, total_tokens
from assay.provenance.captures.margins import margin
from assay.provenance.captures.numbers import absolute, beyond, coarser, ulp_distance
from assay.provenance.captures.tolerances import tolerance
from assay.spec.documents.diff import Diff, FirstDifference, RungRecord, Tolerance
from assay.spec.stages import rung, rung_name

BLOCK_VALUES: Final = 1 << 20
FILLS: Final[dict[tuple[str, str], float]] = {
    ("qsa", "index_scores"): -1.0,
    ("qsa", "selection_mask"): 0,
    ("qsa", "selected"): -1,
}
"""Parts whose rows may have another width in another capture, and the value that stands for nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked: one tolerance for all float rungs instead of those of each operation."""

    rtol: float | None = None
    atol: float | None = None


@dataclass(slots=True)
class _Tally:
    """Running figures of one rung."""

    tokens: int = 0
    max_absolute: float = 0.0
    max_ulp: int = 0
    has_nan: bool = False
    is_equal: bool = True
    first: tuple[int, int] | None = None
    compared: list[tuple[int, int]] = field(default_factory=list)
    not_finite: tuple[int, int, float] | None = None
    values: tuple[Any, Any, float, int] = field(default=(None, None, 0.0, 0))


def compare(a: OpenCapture, b: OpenCapture, names: tuple[str, str], options: Options | None = None) -> Diff:
    """Returns where two captures of the same sequence first differ.

    Raises:
        AdmissionError: `input.file.*` when a file goes away while it is read.
    """
    asked = options or Options()
    records: list[RungRecord] = []
    prompt = _prompt_record(a, b)
    records.append(prompt)
    first = _text_difference(a, b) if prompt.state == "differs" else None
    shared, tokens_record, tokens_first = _token_rung(a, b)
    records.append(tokens_record)
    keys = sorted({*a.rungs(), *b.rungs(), *absent_rungs(a, b)}, key=lambda key: rung(*key))
    if first is None:
        arrays, found = _walk(a, b, keys, shared, asked)
        if found is not None or tokens_first is None:
            first = found
            records += arrays
            if tokens_first is not None and found is not None:
                note = f"token ids differ from token {shared} on; this earlier difference comes first"
                first = found.model_copy(update={"note": note})
        else:
            first = tokens_first
            records += [_downstream(key) for key in keys]
    else:
        records += [_downstream(key) for key in keys]
    return _result(names, records, first)


def _result(names: tuple[str, str], records: list[RungRecord], first: FirstDifference | None) -> Diff:
    equal = [record.rung for record in records if record.state in AGREES]
    computed = [name for name in equal if name not in {"prompt_bytes", "token_ids"}]
    unknown = [record.rung for record in records if record.state == "unknown"]
    partial = [record.rung for record in records if is_partial(record)]
    non_finite = [record for record in records if record.state == "non-finite"]
    verdict: Any = "diverges" if first else "equal" if computed and not non_finite else "inconclusive"
    before = list(takewhile(lambda record: first is not None and record.rung != first.rung, records))
    last, between = bounds(first, before) if first else (next(reversed(equal), None), [])
    counts = {state: sum(1 for record in records if record.state == state) for state in
              ("equal", "within", "differs", "unknown", "downstream", "non-finite")}  # fmt: skip
    if first is not None:
        reason = f"first difference at {first.rung}"
        reason += f", token {first.token}" if first.token is not None else ""
        reason += f"; {len(between)} rungs just before it could not be compared there" if between else ""
    elif non_finite:
        reason = f"{non_finite[0].rung} is not finite in both captures ({non_finite[0].reason}), which is no agreement"
    elif computed:
        reason = f"{len(computed)} computed rungs agree"
        reason += f"; {len(unknown)} rungs are unknown, which is not equal" if unknown else ""
        reason += f"; {len(partial)} rungs were compared at some of their tokens only" if partial else ""
    else:
        reason = "no computed rung is in both captures"
    return Diff(
        a=names[0], b=names[1], verdict=verdict, first=first, counts=counts, reason=reason,
        last_equal=last, unknown_between=between, partial=partial,
        non_finite=[record.rung for record in non_finite], rungs=records,
    )  # fmt: skip


def _prompt_record(a: OpenCapture, b: OpenCapture) -> RungRecord:
    left, right = a.document.prompt_hex, b.document.prompt_hex
    if left is None or right is None:
        return RungRecord(rung="prompt_bytes", state="unknown", reason=_absent(left is None, right is None))
    return RungRecord(rung="prompt_bytes", state="equal" if left == right else "differs")


def _text_difference(a: OpenCapture, b: OpenCapture) -> FirstDifference:
    left, right = (bytes.fromhex(one.document.prompt_hex or "") for one in (a, b))
    at = next(
        (i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), min(len(left), len(right))
    )
    return FirstDifference(
        rung="prompt_bytes", stage="prompt_bytes", layer=None, part="", kind="value", token=None, index=[at],
        a=left[at] if at < len(left) else "end", b=right[at] if at < len(right) else "end",
        absolute=None, ulp=None, ulp_of="", tolerance=None, margin=None,
        note=f"byte {at} of prompts of {len(left)} and {len(right)} bytes",
    )  # fmt: skip


def _token_rung(a: OpenCapture, b: OpenCapture) -> tuple[int | None, RungRecord, FirstDifference | None]:
    """Returns how many leading token ids agree (None: unknown, or all of both), the record, and the difference."""
    left, right = a.document.token_ids, b.document.token_ids
    if left is None or right is None:
        record = RungRecord(rung="token_ids", state="unknown", reason=_absent(left is None, right is None))
        return None, record, None
    shorter = min(len(left), len(right))
    at = next((i for i in range(shorter) if left[i] != right[i]), None)
    if at is None:
        reason = "" if len(left) == len(right) else f"{len(left)} and {len(right)} ids; the common ones agree"
        return shorter, _token_record("equal", shorter, max(len(left), len(right)), reason), None
    first = FirstDifference(
        rung="token_ids", stage="token_ids", layer=None, part="", kind="value", token=at, index=[],
        a=left[at], b=right[at], absolute=None, ulp=None, ulp_of="", tolerance=None, margin=None,
    )  # fmt: skip
    return at, _token_record("differs", at, max(len(left), len(right)), ""), first


def _token_record(state: Any, tokens: int, total: int, reason: str) -> RungRecord:
    compared = merged([(0, tokens)])
    return RungRecord(
        rung="token_ids", state=state, tokens=tokens, total=total, compared=compared, reason=reason
    )


def _walk(
    a: OpenCapture, b: OpenCapture, keys: list[Rung], limit: int | None, options: Options
) -> tuple[list[RungRecord], FirstDifference | None]:
    """Compares rungs in order, tokens below `limit` only, up to the first difference."""
    records: list[RungRecord] = []
    found: FirstDifference | None = None
    for key in keys:
        if found is not None:
            records.append(_downstream(key))
            continue
        record, found = _compare_rung(a, b, key, limit, options)
        records.append(record)
    return records, found


def _compare_rung(
    a: OpenCapture, b: OpenCapture, key: Rung, limit: int | None, options: Options
) -> tuple[RungRecord, FirstDifference | None]:
    name = rung_name(*key)
    in_a, in_b = bool(a.segments(key)), bool(b.segments(key))
    if not (in_a and in_b):
        return RungRecord(rung=name, state="unknown", reason=_absent(not in_a, not in_b)), None
    types = (a.dtype(key), b.dtype(key))
    if types[0].startswith("i") != types[1].startswith("i"):
        first = _located(key, "type", None, [], types[0], types[1])
        return RungRecord(rung=name, state="differs", reason=f"{types[0]} and {types[1]}"), first
    chosen = _chosen(key, types, options)
    tally = _Tally()
    if key[0] == "state":
        reason = _compare_states(a, b, key, limit, chosen, tally)
    else:
        mismatch = _compare_tokens(a, b, key, limit, chosen, tally)
        if mismatch is not None:
            shapes = tuple(_sizes(one.row_shape(key, mismatch)) for one in (a, b))
            first = _located(key, "shape", mismatch, [], *shapes)
            return RungRecord(rung=name, state="differs", reason=f"rows {shapes[0]} and {shapes[1]}"), first
        reason = "no token in common" if tally.tokens == 0 else ""
    if reason:
        total = total_tokens(a, b, key)
        return RungRecord(rung=name, state="unknown", total=total, reason=reason), None
    return _record(a, b, key, name, tally, chosen, types)


def _record(
    a: OpenCapture,
    b: OpenCapture,
    key: Rung,
    name: str,
    tally: _Tally,
    chosen: Tolerance,
    types: tuple[str, str],
) -> tuple[RungRecord, FirstDifference | None]:
    largest: float | str = "nan" if tally.has_nan else _shown(tally.max_absolute)
    is_float = types[0].startswith(("f", "b"))
    state: Any = "differs" if tally.first else "equal" if tally.is_equal else "within"
    reason = ""
    if tally.not_finite is not None:
        token, place, value = tally.not_finite
        reason = f"{value} in both at token {token}, index {_index(a, key, token, place)}"
        state = state if tally.first else "non-finite"
    record = RungRecord(
        rung=name, state=state, tokens=tally.tokens, total=total_tokens(a, b, key),
        compared=merged(tally.compared), max_absolute=largest, max_ulp=tally.max_ulp if is_float else None,
        reason=reason,
    )  # fmt: skip
    if tally.first is None:
        return record, None
    token, place = tally.first
    left, right, far, ulps = tally.values
    first = FirstDifference(
        rung=name, stage=key[0], layer=key[1], part=key[2], kind="value", token=token,
        index=_index(a, key, token, place), a=_shown(left), b=_shown(right), absolute=_shown(far),
        ulp=ulps if is_float and ulps >= 0 else None,
        ulp_of=coarser(*types) if is_float else "",
        tolerance=chosen,
        margin=None if key[0] == "state" else margin(key, token, place, a, b),
    )  # fmt: skip
    return record, first


def _index(a: OpenCapture, key: Rung, token: int, place: int) -> list[int]:
    """Returns the place in a token's row, or in a state, as an index by axes."""
    shape = (
        a.row_shape(key, token) if key[0] != "state" else tuple(list(a.states(key).values())[-1].entry.shape)
    )
    if not shape:
        return []
    return [int(axis) for axis in np.unravel_index(place, shape)] if place < np.prod(shape) else [place]


def _compare_tokens(
    a: OpenCapture, b: OpenCapture, key: Rung, limit: int | None, chosen: Tolerance, tally: _Tally
) -> int | None:
    """Compares common tokens block by block up to the first difference; returns the token where rows don't fit."""
    for first, end in _common(a.segments(key), b.segments(key), limit):
        sizes = [int(np.prod(one.row_shape(key, first), dtype=np.int64)) for one in (a, b)]
        fill = FILLS.get((key[0], key[2]))
        if sizes[0] != sizes[1] and fill is None:
            return first
        step = max(1, BLOCK_VALUES // max(1, *sizes))
        for start in range(first, end, step):
            stop = min(end, start + step)
            left, right = a.rows(key, start, stop), b.rows(key, start, stop)
            if fill is not None:
                left, right = _widen(left, max(sizes), fill), _widen(right, max(sizes), fill)
            _block(left, right, chosen, tally, max(1, *sizes), (start, 0))
            tally.tokens += stop - start
            tally.compared.append((start, stop))
            if tally.first is not None:
                return None
    return None


def _compare_states(
    a: OpenCapture, b: OpenCapture, key: Rung, limit: int | None, chosen: Tolerance, tally: _Tally
) -> str:
    """Compares what is carried on after the same number of tokens; returns why it could not, or nothing."""
    left, right = a.states(key), b.states(key)
    common = [end for end in sorted(left.keys() & right.keys()) if limit is None or end <= limit]
    if not common:
        return f"states after {sorted(left)} and {sorted(right)} tokens"
    for end in common:
        one, other = left[end], right[end]
        if one.entry.shape != other.entry.shape:
            return f"layouts {one.entry.shape} and {other.entry.shape} are each runtime's own"
        total = int(np.prod(one.entry.shape, dtype=np.int64))
        for start in range(0, total, BLOCK_VALUES):
            stop = min(total, start + BLOCK_VALUES)
            blocks = a.state(one, start, stop), b.state(other, start, stop)
            _block(*blocks, chosen, tally, total, (end - 1, start))
            if tally.first is not None:
                return ""
        tally.tokens = end
        tally.compared.append((0, end))
    return ""


def _block(
    left: Stored, right: Stored, chosen: Tolerance, tally: _Tally, width: int, start: tuple[int, int]
) -> None:
    """Adds one block of rows of `width` values to the tally; `start` is the token and the place it begins at."""
    x, y = left.values(), right.values()
    if x.size == 0:
        return
    if tally.not_finite is None:
        tally.not_finite = _not_finite_in_both(x, y, width, start)
    if np.array_equal(x, y):
        return
    tally.is_equal = False
    distance = absolute(x, y)
    with_nan = np.isnan(distance)
    tally.has_nan = tally.has_nan or bool(with_nan.any())
    tally.max_absolute = max(tally.max_absolute, float(np.where(with_nan, 0.0, distance).max()))
    is_float = x.dtype.kind == "f"
    ulps = ulp_distance(left, right) if is_float else None
    if ulps is not None:
        tally.max_ulp = max(tally.max_ulp, int(ulps.max()))
    wrong = beyond(x, y, chosen.rtol, chosen.atol)
    if wrong.any():
        flat = int(np.flatnonzero(wrong.ravel())[0])
        row, column = divmod(flat + start[1], width)
        tally.first = (start[0] + row, column)
        tally.values = (
            x.ravel()[flat].item(), y.ravel()[flat].item(), float(distance.ravel()[flat]),
            int(ulps.ravel()[flat]) if ulps is not None else 0,
        )  # fmt: skip


def _not_finite_in_both(
    x: NDArray[Any], y: NDArray[Any], width: int, start: tuple[int, int]
) -> tuple[int, int, float] | None:
    """Returns token, place and value of the first NaN or infinity that both sides hold in one place."""
    both = ~(np.isfinite(x) | np.isfinite(y))
    if not both.any():
        return None
    flat = int(np.flatnonzero(both.ravel())[0])
    row, column = divmod(flat + start[1], width)
    return start[0] + row, column, float(x.ravel()[flat])


def _widen(stored: Stored, width: int, fill: float) -> Stored:
    missing = width - stored.raw.shape[1]
    if missing == 0:
        return stored
    values = np.pad(stored.values(), [(0, 0), (0, missing)], constant_values=fill)
    return Stored(values, "f32" if values.dtype.kind == "f" else "i64")


def _common(
    a: list[tuple[int, int]], b: list[tuple[int, int]], limit: int | None
) -> Iterator[tuple[int, int]]:
    """Yields the token ranges that both have, cut where either array ends."""
    i = j = 0
    while i < len(a) and j < len(b):
        first, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        end = end if limit is None else min(end, limit)
        if first < end:
            yield first, end
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1


def _chosen(key: Rung, types: tuple[str, str], options: Options) -> Tolerance:
    found = tolerance(key[0], key[2], types)
    if types[0].startswith("i") or (options.rtol is None and options.atol is None):
        return found
    return Tolerance(
        rtol=found.rtol if options.rtol is None else options.rtol,
        atol=found.atol if options.atol is None else options.atol,
        reason="asked for on the command line",
    )


def _located(key: Rung, kind: Any, token: int | None, index: list[int], a: str, b: str) -> FirstDifference:
    return FirstDifference(
        rung=rung_name(*key), stage=key[0], layer=key[1], part=key[2], kind=kind, token=token, index=index, a=a, b=b,
        absolute=None, ulp=None, ulp_of="", tolerance=None, margin=None,
    )  # fmt: skip


def _downstream(key: Rung) -> RungRecord:
    return RungRecord(
        rung=rung_name(*key), state="downstream", reason="follows the first difference; not compared"
    )


def _absent(in_a: bool, in_b: bool) -> str:
    return "in neither capture" if in_a and in_b else f"not in {'A' if in_a else 'B'}"


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _shown(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value
