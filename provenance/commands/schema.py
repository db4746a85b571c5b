"""`assay schema NAME`: print the JSON Schema of a contract or document."""

import argparse

from assay.provenance.catalogue import json_schema
from assay.provenance.output import emit, emit_json
from assay.spec.documents import DOCUMENTS
from assay.spec.errors import usage_error
from assay.spec.verdicts import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("name", nargs="?", help="such as `contract` or `assay.validation/1`")
    parser.add_argument("--list", action="store_true", help="list the names")


def run(arguments: argparse.Namespace) -> int:
    """Prints one schema, or their names."""
    if arguments.list:
        emit("\n".join(sorted(DOCUMENTS)))
        return ExitCode.OK
    if not arguments.name:
        raise usage_error(
            "schema", expected="a schema name", got="none", hint="`assay schema --list` shows them"
        )
    emit_json(json_schema(arguments.name))
    return ExitCode.OK
