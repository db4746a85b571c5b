"""How a command line that can't be used, and an output that can't be written, are told: in one line with a code."""

import argparse
from pathlib import Path
from typing import Any, Final, NoReturn

from assay.spec.clauses import Authority, declare
from assay.spec.errors import Finding, UsageError

ARGUMENT: Final = declare(
    "usage.argument", Authority.INPUT, "An argument has a value that its command can use.",
    source="assay: command line", cause="a number out of range, an unknown word, or something that had to be given",
    fix="the line says what is expected; `assay COMMAND --help` shows every argument",
)  # fmt: skip
ARGUMENTS: Final = declare(
    "usage.arguments", Authority.INPUT, "The arguments are those that the command takes, each of its form.",
    source="assay: command line", cause="an option that is misspelt, lacks its value, or belongs to another command",
    fix="`assay COMMAND --help` shows every argument",
)  # fmt: skip
COMMAND: Final = declare(
    "usage.command", Authority.INPUT, "The first word is a command.",
    source="assay: command line", cause="a misspelt command, or an option before it", fix="`assay --help` lists the commands",
)  # fmt: skip
EXTRA: Final = declare(
    "usage.extra", Authority.INPUT, "The optional packages that a command needs are installed.",
    source="assay: packaging", cause="an installation without the extra", fix="install the extra that the hint names",
)  # fmt: skip
WRITE: Final = declare(
    "output.write", Authority.INPUT, "What a command prints can be written to its end.",
    source="assay: output", cause="a full disk, or a standard output that was closed before the command began",
    fix="the work was done and its words were lost: free space, or give it another output, and run it again",
)  # fmt: skip
SYSTEM: Final = declare(
    "system.refused", Authority.INPUT, "The operating system does what a command needs of it.",
    source="assay: command line", cause="a full disk, a folder that may not be written, or too many open files",
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are findings like all others; subparsers inherit it.

    An option has its whole name or none: a prefix of `--private` would be an undocumented way through the private seam.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)
        self.register("type", Path, _path)

    def error(self, message: str) -> NoReturn:
        """Ends the parse.

        Raises:
            UsageError: `usage.arguments`, always.
        """
        raise UsageError(
            Finding.of(
                ARGUMENTS, "usage", self.prog, expected="arguments as its help shows them", got=message,
                hint=f"`{self.prog} --help` shows every argument",
            )
        )  # fmt: skip


def _path(text: str) -> Path:
    """Returns a path; an empty text is none, though `Path` makes the current folder of it."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got an empty text")
    return Path(text)
