"""The command line: finds the command, runs it, and turns every ending into one line and an exit code."""

import importlib
import os
import sys
import traceback
from typing import Final

from assay import __version__
from assay.provenance.output import OutputError, add_shared_options, emit, say, tolerate_any_text
from assay.provenance.usage import COMMAND, SYSTEM, Parser
from assay.spec.errors import AssayError, Finding, UsageError, shown
from assay.spec.verdicts import ExitCode

COMMANDS: Final[dict[str, str]] = {
    "validate": "judge checkpoints, artifacts, stores, tokenizers and evidence against the contract",
    "build": "make an artifact from a checkpoint, plan it, repack a GGUF, or write the structural fixture",
    "gate": "run gates, leave evidence, write a run with its report",
    "status": "say which labels the evidence allows, and what is missing for the next rung",
    "report": "render a run again, or compare two runs",
    "evidence": "check the evidence, hand it over as an in-toto Statement, sign and verify it",
    "mutate": "run a battery of mutations: killed, killed elsewhere, survived, by area",
    "capture": "run the pinned upstream implementation on small cases and keep what it computed",
    "diff": "find the first place where two captures differ",
    "oracle": "say what the numbers must be: one operation, JSON in, JSON out",
    "text": "render a conversation with the origin of every byte, encode, decode, read a model's turn",
    "generate": "run the MLX model: tokens from ids or from a chat prompt, through the private seam",
    "trace": "sum up, compare and draw traces of streaming runs",
    "bench": "measure speed against the machine's limits and against peers, as ratios of one run",
    "explain": "say what a clause or error code means, where it comes from, how to fix it",
    "schema": "print the JSON Schema of a contract or document",
}
"""Command -> one line of help, in the order of a first session; the module is `assay.provenance.commands.<name>`."""


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code; never raises."""
    arguments = sys.argv[1:] if argv is None else argv
    tolerate_any_text()
    try:
        return _dispatch(arguments)
    except OutputError as error:
        _let_go_of_stdout()
        return _told(error)
    except AssayError as error:
        return _told(error)
    except BrokenPipeError:
        _let_go_of_stdout()
        return ExitCode.OK
    except OSError as error:
        where = shown(error.filename) if isinstance(error.filename, str) else arguments[0]
        got = error.strerror or type(error).__name__
        return _told(AssayError(Finding.of(SYSTEM, "system", where, expected="it to be done", got=got)))
    except MemoryError as error:
        got = str(error) or "none left"
        return _told(
            AssayError(Finding.of(SYSTEM, "system", arguments[0], expected="enough memory", got=got))
        )
    except KeyboardInterrupt:
        say("assay: interrupted")
        return 130
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug must be told from a finding
        if os.environ.get("ASSAY_TRACEBACK"):
            traceback.print_exc()
        say(f"assay: internal error: {type(error).__name__}: {error}")
        say("hint: this is a bug of assay; run again with ASSAY_TRACEBACK=1 and report what it prints")
        return ExitCode.BUG


def _told(error: AssayError) -> int:
    said = ""
    for finding in (error.finding, *error.more):
        say(f"assay: error: {finding.line}")
        if finding.hint and finding.hint != said:
            say(f"hint: {finding.hint}")
            said = finding.hint
    return error.exit_code


def _let_go_of_stdout() -> None:
    """Sends what is still buffered nowhere: a second complaint would follow when the interpreter ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):  # closed from the start, or not a file
        return


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        emit(_overview())
        return ExitCode.OK if arguments else ExitCode.USAGE
    if arguments[0] in {"-V", "--version"}:
        emit(f"assay {__version__}")
        return ExitCode.OK
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        expected = f"one of {', '.join(COMMANDS)}"
        raise UsageError(Finding.of(COMMAND, "usage", "command line", expected=expected, got=repr(name)))
    module = importlib.import_module(f"assay.provenance.commands.{name}")
    parser = Parser(prog=f"assay {name}", description=f"{COMMANDS[name].capitalize()}.")
    module.configure(parser)
    add_shared_options(parser)
    try:
        parsed = parser.parse_args(rest)
    except SystemExit as ending:  # argparse: 0 after --help
        return ending.code if isinstance(ending.code, int) else ExitCode.USAGE
    return int(module.run(parsed))


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: assay COMMAND [options]",
            "",
            "Judges whether a port of a model family is the model it says it is.",
            "",
            *lines,
            "",
            "Shared options: --format pretty|json|junit|markdown, --out DIR, -q. `assay COMMAND --help` says more.",
            "Exit codes: 0 all claims hold; 1 a claim fails; 2 usage; 3 inconclusive; 4 evidence damaged; 70 our bug.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
