"""`assay oracle OP`: what the numbers must be, one operation at a time, from the shell."""

import argparse
import difflib
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.provenance.oracle_input import parse_object, read_arguments, read_lines
from assay.provenance.output import emit, emit_json, output_format, say
from assay.spec.errors import AssayError, usage_error
from assay.spec.verdicts import ExitCode

if TYPE_CHECKING:
    from assay.oracles.signature import Argument, Operation

_DTYPE: Final[dict[str, Any]] = {
    "name": "dtype",
    "dtype": "text",
    "shape": [],
    "unit": "float32 or float64",
    "required": False,
    "default": "float32",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.epilog = (
        "Reads one JSON object of arguments from stdin and prints one JSON object of results. "
        "Try: assay oracle qsa.select --example | assay oracle qsa.select"
    )
    parser.add_argument("operation", nargs="?", metavar="OP", help="such as qsa.select; --list shows them")
    parser.add_argument(
        "--list", action="store_true", help="list operations with shapes, types, units and bounds"
    )
    parser.add_argument("--example", action="store_true", help="print an input that runs")
    parser.add_argument(
        "--lines", action="store_true", help="one JSON object a line; every line gives one result"
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="JSON or .npz instead of stdin")


def run(arguments: argparse.Namespace) -> int:
    """Runs one operation, or says what there is."""
    from assay.oracles.catalogue import OPERATIONS

    if arguments.list:
        asked = [OPERATIONS[arguments.operation]] if arguments.operation in OPERATIONS else []
        if arguments.operation and not asked:
            raise _unknown(arguments.operation, list(OPERATIONS))
        _list(asked or list(OPERATIONS.values()), arguments)
        return ExitCode.OK
    if arguments.operation not in OPERATIONS:
        raise _unknown(arguments.operation, list(OPERATIONS))
    operation = OPERATIONS[arguments.operation]
    if arguments.example:
        emit_json(dict(operation.example))
        return ExitCode.OK
    if arguments.lines:
        return _run_lines(operation, arguments)
    if arguments.input is None and sys.stdin.isatty():
        say(f"assay: reading JSON from the terminal; `assay oracle {operation.name} --example` prints one")
    emit_json(operation.call(read_arguments(arguments.input, sys.stdin.buffer)))
    return ExitCode.OK


def _run_lines(operation: "Operation", arguments: argparse.Namespace) -> int:
    """One result for every line; a bad or blank line gives its finding in its place, and exit 1 at the end."""
    code = ExitCode.OK
    for number, line in read_lines(arguments.input, sys.stdin.buffer):
        try:
            result: dict[str, Any] = operation.call(parse_object(line, f"line {number}"))
        except AssayError as error:
            code = ExitCode.FAILED
            result = {"error": {**error.finding.as_json(), "line": number}}
            if not arguments.quiet:
                say(f"assay: line {number}: {error.finding.line}")
        emit(json.dumps(result, ensure_ascii=False))
    return code


def _list(operations: "list[Operation]", arguments: argparse.Namespace) -> None:
    from assay.oracles.bounds import BOUNDS

    if output_format(arguments) == "json":
        emit_json(
            {
                "schema": "assay.oracle-list/1",
                "operations": [
                    {
                        "name": one.name,
                        "summary": one.summary,
                        "arguments": [
                            {
                                **_described(each),
                                **_default(one.default(each.name)),
                            }
                            for each in one.arguments
                        ]
                        + [_DTYPE] * one.has_dtype,
                        "results": [_described(each) for each in one.results],
                        "float64": one.has_dtype,
                    }
                    for one in operations
                ],
                "bounds": [
                    {
                        "operation": one.operation,
                        "domain": one.domain,
                        "first_rejected": one.first_rejected,
                        "clause": one.clause,
                        "complexity": one.complexity,
                        "replacement": one.replacement,
                        "lifted_by": one.lifted_by,
                    }
                    for one in BOUNDS
                    if one.operation in {each.name for each in operations}
                ],
            }
        )
        return
    lines = []
    for one in operations:
        lines += [one.name, f"  {one.summary}"]
        for each in one.arguments:
            default = one.default(each.name)
            optional = "" if default is inspect.Parameter.empty else f" (default {default})"
            lines.append(f"    {_line(each)}{optional}")
        if one.has_dtype:
            lines.append("    dtype: text, float32 or float64 (default float32)")
        lines += [f"    -> {_line(each)}" for each in one.results]
    names = {one.name for one in operations}
    for bound in BOUNDS:
        if bound.operation in names:
            lines.append(
                f"bound of {bound.operation}: {bound.domain}; refuses {bound.first_rejected} ({bound.clause})"
            )
    emit("\n".join(lines))


def _default(value: Any) -> dict[str, Any]:
    """Whether an argument must be given, and what stands for it when it isn't; null: the operation goes without."""
    if value is inspect.Parameter.empty:
        return {"required": True}
    plain = list(value) if isinstance(value, tuple) else value
    return {"required": False, "default": plain}


def _described(argument: "Argument") -> dict[str, Any]:
    shape = None if argument.shape is None else list(argument.shape)
    return {"name": argument.name, "dtype": argument.dtype, "shape": shape, "unit": argument.unit}


def _line(argument: "Argument") -> str:
    shape = (
        "any shape" if argument.shape is None else f"[{', '.join(argument.shape)}]" if argument.shape else ""
    )
    return f"{argument.name}{shape and ' '}{shape}: {argument.dtype}, {argument.unit}"


def _unknown(name: str | None, known: list[str]) -> AssayError:
    close = difflib.get_close_matches(name or "", known, n=3)
    hint = f"did you mean {', '.join(close)}?" if close else "`assay oracle --list` shows all operations"
    return usage_error("oracle", expected="an operation", got=name or "none", hint=hint)
