"""What the commands share about printing: data on stdout, progress and diagnostics on stderr."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, ClassVar, Final

from assay.provenance.usage import WRITE
from assay.spec.errors import AssayError, Finding

FORMATS: Final = ("pretty", "json", "junit", "markdown")


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that every command takes."""
    group = parser.add_argument_group("shared options")
    group.add_argument("--format", choices=FORMATS, help="pretty on a terminal, json when piped")
    group.add_argument("--out", type=Path, metavar="DIR", help="where runs and reports go")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress and no diagnostics")


class OutputError(AssayError):
    """What a command has to say can't be written."""

    exit_code: ClassVar[int] = 1


def tolerate_any_text() -> None:
    """Makes both streams escape what their encoding can't say, instead of failing on it."""
    for stream in (sys.stdout, sys.stderr):
        if (
            stream is not None
            and getattr(stream, "errors", None) == "strict"
            and hasattr(stream, "reconfigure")
        ):
            stream.reconfigure(errors="backslashreplace")


def output_format(arguments: argparse.Namespace) -> str:
    """Returns the asked format; without one, pretty on a terminal and json when piped."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return arguments.format or ("pretty" if is_terminal else "json")


def say(text: str) -> None:
    """Prints one diagnostic line on stderr; without a stderr there is nobody to tell."""
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - the one place for diagnostics
    except OSError:
        return


def emit(text: str) -> None:
    """Prints data on stdout.

    Raises:
        OutputError: `output.write` when it can't be written.
        BrokenPipeError: when the reader went away.
    """
    emit_piece(text if text.endswith("\n") else f"{text}\n")


def emit_piece(text: str) -> None:
    """Prints a piece of a line on stdout, for what streams.

    Raises:
        OutputError: `output.write` when it can't be written.
        BrokenPipeError: when the reader went away.
    """
    if sys.stdout is None:
        raise _unwritable("it is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(error.strerror or type(error).__name__) from error


def emit_json(value: Any) -> None:
    """Prints one JSON object on stdout, keys in their given order, UTF-8 not escaped.

    Lone surrogates (a file name that is not UTF-8) are escaped as JSON escapes, so that the output stays UTF-8.
    """
    _emit_json(value, indent=2 if sys.stdout is not None and sys.stdout.isatty() else None)


def emit_json_line(value: Any) -> None:
    """Prints one JSON object on one line of stdout, for commands that print several."""
    _emit_json(value, indent=None)


def _emit_json(value: Any, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if not text.isascii() and not _can_say(text):
        text = json.dumps(value, indent=indent)  # JSON's own escapes, never the stream's
    emit(text)


def _can_say(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _unwritable(why: str) -> OutputError:
    return OutputError(
        Finding.of(WRITE, "output", "standard output", expected="it to take every line", got=why)
    )
