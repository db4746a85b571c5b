"""`assay evidence ACTION`: check the ledger, hand evidence over as an in-toto Statement, sign it, verify it."""

import argparse
import json
from pathlib import Path
from typing import Any

from assay.provenance.evidence.heads import read_against_runs
from assay.provenance.evidence.ledger import Ledger
from assay.provenance.evidence.status import Registry, present_state
from assay.provenance.evidence.subjects import SourceTree
from assay.provenance.output import emit, emit_json, output_format, say
from assay.provenance.paths import checkpoint_directory, evidence_directory, runs_directory
from assay.spec.errors import usage_error
from assay.spec.verdicts import ExitCode

_BOUNDARY = "This detects damage, not forgery; `assay evidence sign` adds a signature."


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument(
        "action",
        choices=("check", "export", "make-key", "sign", "verify"),
        help="check the chain; export a Statement; make an ed25519 key; sign a Statement; verify a signed one",
    )
    parser.add_argument("file", nargs="?", type=Path, help="verify: the envelope; make-key: the new key")
    parser.add_argument("--evidence", type=Path, metavar="DIR", help="the evidence folder (default: .assay)")
    parser.add_argument("--key", type=Path, metavar="PEM", help="sign: the private key")
    parser.add_argument("--public-key", type=Path, metavar="PEM", help="verify: the public key")


def run(arguments: argparse.Namespace) -> int:
    """Does the action; 4 for damaged evidence or a signature that does not hold."""
    if arguments.action == "check":
        return _check(arguments)
    from assay.provenance.evidence import statement as statements

    if arguments.action == "make-key":
        statements.make_key(_needed(arguments.file, "FILE"))
        say(f"wrote {arguments.file} (keep it secret) and {arguments.file}.pub")
    elif arguments.action == "verify":
        public_key = _needed(arguments.public_key, "--public-key")
        found = statements.verify(_needed(arguments.file, "FILE"), public_key)
        statements.demand_labels(found, Registry.default(), arguments.file.name)
        _print_verified(found, statements.key_id(public_key), output_format(arguments))
    else:
        registry = Registry.default()
        ledger = Ledger(evidence_directory(arguments.evidence))
        chain = read_against_runs(ledger, runs_directory(arguments.out))
        present = present_state(registry, SourceTree(), checkpoint_directory())
        statement = statements.make_statement(chain, present, registry)
        if arguments.action == "sign":
            statement = statements.sign(statement, _needed(arguments.key, "--key"))
        emit(json.dumps(statement, ensure_ascii=False, sort_keys=True))
    return ExitCode.OK


def _check(arguments: argparse.Namespace) -> int:
    folder = evidence_directory(arguments.evidence)
    chain = read_against_runs(Ledger(folder), runs_directory(arguments.out))
    if output_format(arguments) == "json":
        emit_json(
            {
                "records": len(chain.entries),
                "head": chain.head,
                "findings": [finding.as_json() for finding in chain.findings],
                "boundary": _BOUNDARY,
            }
        )
    else:
        lines = [finding.line for finding in chain.findings]
        emit(
            "\n".join(
                [*lines, f"{folder}: {len(chain.entries)} records, head {chain.head or 'none'}", _BOUNDARY]
            )
        )
    return ExitCode.EVIDENCE if chain.findings else ExitCode.OK


def _print_verified(statement: dict[str, Any], key: str, style: str) -> None:
    if style == "json":
        emit_json(statement)
        say(f"verified, key {key}")
        return
    labels = statement["predicate"]["status"]["labels"]
    lines = [f"{one['component']}: {one['label']}" for one in labels]
    meaning = "whoever has the key says so, and the labels follow from the records that the statement carries"
    emit("\n".join([*lines, f"verified, key {key}: the signature holds: {meaning}"]))


def _needed(path: Path | None, where: str) -> Path:
    if path is None:
        raise usage_error(where, expected="a file", got="none")
    return path
