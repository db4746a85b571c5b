"""`assay explain CODE`: what a clause or error code means, where it comes from, how to fix it."""

import argparse
import difflib

from assay.provenance.catalogue import load_all_clauses
from assay.provenance.output import emit, emit_json, output_format
from assay.spec.clauses import Clause, clause, clauses
from assay.spec.errors import usage_error
from assay.spec.verdicts import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("code", nargs="?", help="a clause id; a prefix such as `ple.` lists what is below it")
    parser.add_argument("--list", action="store_true", help="list every clause with its meaning")


def run(arguments: argparse.Namespace) -> int:
    """Prints one clause, or the list below a prefix."""
    shape = output_format(arguments)
    if shape not in {"pretty", "json"}:
        raise usage_error("--format", expected="pretty or json for this command", got=shape)
    if not (arguments.code or arguments.list):
        raise usage_error("explain", expected="a clause or error code, or --list", got="none",
                          hint="`assay explain ple.hash.multipliers` explains one, `assay explain ple.` lists those below")  # fmt: skip
    load_all_clauses()
    found = clause(arguments.code) if arguments.code else None
    if found is not None:
        _print([found], arguments, brief=False)
        return ExitCode.OK
    prefix = (arguments.code or "").rstrip(".")
    below = [one for one in clauses() if not prefix or one.id.startswith(f"{prefix}.")]
    if not below:
        close = difflib.get_close_matches(arguments.code or "", [one.id for one in clauses()], n=3)
        hint = f"did you mean {', '.join(close)}?" if close else "`assay explain --list` shows all ids"
        raise usage_error("explain", expected="a clause id or a prefix of one", got=arguments.code, hint=hint)
    _print(below, arguments, brief=True)
    return ExitCode.OK


def _print(found: list[Clause], arguments: argparse.Namespace, *, brief: bool) -> None:
    if output_format(arguments) == "json":
        records = [
            {"id": one.id, "authority": one.authority.value, "meaning": one.meaning, "source": one.source,
             "cause": one.cause, "fix": one.fix}
            for one in found
        ]  # fmt: skip
        emit_json(records if brief else records[0])
        return
    if brief:
        width = max(len(one.id) for one in found)
        emit("\n".join(f"{one.id:<{width}}  {one.meaning}" for one in found))
        return
    one = found[0]
    rows = [
        ("authority", one.authority.value),
        ("source", one.source),
        ("usual cause", one.cause),
        ("fix", one.fix),
    ]
    emit("\n".join([one.id, f"  {one.meaning}", *(f"  {name}: {text}" for name, text in rows if text)]))
