"""`assay diff A B`: the first place where two captures differ."""

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.provenance.output import emit, emit_json, output_format
from assay.spec.documents.diff import Diff
from assay.spec.errors import AdmissionError, usage_error
from assay.spec.verdicts import ExitCode

if TYPE_CHECKING:
    from assay.provenance.captures.arrays import OpenCapture


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("a", type=Path, metavar="A", help="a capture: a folder with capture.json")
    parser.add_argument("b", type=Path, metavar="B", help="another capture of the same sequence")
    parser.add_argument("--rtol", type=float, metavar="X", help="relative tolerance of all float rungs")
    parser.add_argument("--atol", type=float, metavar="X", help="absolute tolerance of all float rungs")
    parser.add_argument(
        "--complete",
        action="store_true",
        help="unknown rungs and tokens make the result inconclusive (exit 3)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compares two captures: 0 when all common rungs agree, 1 when one differs, 3 when that can't be told."""
    for name, value in (("--rtol", arguments.rtol), ("--atol", arguments.atol)):
        if value is not None and not (value >= 0 and math.isfinite(value)):
            raise usage_error(name, expected="a number from 0 up", got=value)
    from assay.provenance.captures.compare import Options, compare

    left, right = _opened("A", arguments.a), _opened("B", arguments.b)
    result = compare(
        left, right, (str(arguments.a), str(arguments.b)), Options(arguments.rtol, arguments.atol)
    )
    if arguments.complete and result.verdict == "equal" and (result.counts["unknown"] or result.partial):
        result = result.model_copy(update={"verdict": "inconclusive"})
    if output_format(arguments) == "json":
        emit_json(result.model_dump(by_alias=True))
    else:
        emit(pretty(result))
    return {"equal": ExitCode.OK, "diverges": ExitCode.FAILED, "inconclusive": ExitCode.INCONCLUSIVE}[
        result.verdict
    ]


def _opened(side: str, path: Path) -> "OpenCapture":
    """Opens one of the two captures, its stated digests compared; a fault says whose it is."""
    from assay.provenance.captures.arrays import OpenCapture

    try:
        return OpenCapture(path, digests=True)
    except AdmissionError as error:
        hint = error.finding.hint
        if not hint and error.finding.code.startswith("capture."):
            hint = f"`assay validate {path}` lists every fault of {side}"
        raise AdmissionError(
            replace(error.finding, where=f"{side} {error.finding.where}", hint=hint)
        ) from None


def pretty(result: Diff) -> str:
    """Returns the result as lines for a reader: the answer first, then the ladder around it."""
    lines = [f"{result.verdict}: {result.reason}"]
    if result.first is not None:
        one = result.first
        where = f"token {one.token}" if one.token is not None else "all tokens"
        where += f", index {one.index}" if one.index else ""
        lines.append(f"  at          {one.rung}, {where}")
        lines.append(f"  A           {one.a}")
        lines.append(f"  B           {one.b}")
        if one.absolute is not None:
            lines.append(
                f"  distance    {one.absolute}" + (f", {one.ulp} ulp of {one.ulp_of}" if one.ulp else "")
            )
        if one.tolerance is not None:
            lines.append(
                f"  tolerance   rtol {one.tolerance.rtol:g}, atol {one.tolerance.atol:g}: {one.tolerance.reason}"
            )
        if one.margin is not None:
            gaps = f"{one.margin.a} in A, {one.margin.b} in B"
            lines.append(f"  margin      {one.margin.judged}: {one.margin.of} gap {gaps}")
        lines += [f"  note        {one.note}"] if one.note else []
        lines.append(f"  last equal  {result.last_equal or 'none'}")
        if result.unknown_between:
            lines.append(f"  unknown between them: {_some(result.unknown_between)}")
    lines += [f"  in part     {line}" for line in _partial_lines(result)]
    for record in result.rungs:
        if record.rung in result.non_finite:
            lines.append(f"  non-finite  {record.rung}: {record.reason}")
    counts = ", ".join(f"{count} {state}" for state, count in result.counts.items() if count)
    lines.append(f"  rungs       {counts}")
    return "\n".join(lines)


def _partial_lines(result: Diff) -> list[str]:
    """One line for all rungs of which the same share of tokens was compared."""
    shares: dict[tuple[int, int], list[str]] = {}
    for record in result.rungs:
        if record.rung in result.partial:
            shares.setdefault((record.tokens, record.total), []).append(record.rung)
    return [
        f"{tokens} of {total} tokens compared: {names[0]}"
        + (f" and {len(names) - 1} more" if names[1:] else "")
        for (tokens, total), names in shares.items()
    ]


def _some(names: list[str], limit: int = 12) -> str:
    """The names nearest to the difference, and how many stand before them."""
    before = f"{len(names) - limit} more, " if len(names) > limit else ""
    return before + ", ".join(names[-limit:])
