"""What the commands share about printing: data on stdout, progress and diagnostics on stderr."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

FORMATS: Final = ("pretty", "json", "junit", "markdown")


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that every command takes."""
    group = parser.add_argument_group("shared options")
    group.add_argument("--format", choices=FORMATS, help="pretty on a terminal, json when piped")
    group.add_argument("--out", type=Path, metavar="DIR", help="where runs and reports go")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress and no diagnostics")


def output_format(arguments: argparse.Namespace) -> str:
    """Returns the asked format; without one, pretty on a terminal and json when piped."""
    return arguments.format or ("pretty" if sys.stdout.isatty() else "json")


def say(text: str) -> None:
    """Prints one diagnostic line on stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the one place for diagnostics


def emit(text: str) -> None:
    """Prints data on stdout."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()


def emit_json(value: Any) -> None:
    """Prints one JSON object on stdout, keys in their given order, UTF-8 not escaped.

    Lone surrogates (a file name that is not UTF-8) are escaped as JSON escapes, so that the output stays UTF-8.
    """
    _emit_json(value, indent=2 if sys.stdout.isatty() else None)


def emit_json_line(value: Any) -> None:
    """Prints one JSON object on one line of stdout, for commands that print several."""
    _emit_json(value, indent=None)


def _emit_json(value: Any, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    emit(text.encode("utf-8", "backslashreplace").decode("utf-8") if _has_surrogate(text) else text)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
