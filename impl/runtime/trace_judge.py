"""`assay validate` on a trace: line by line, in memory that doesn't grow with the file, closed against what is new."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import ValidationError

from assay.impl.runtime.trace_clauses import TRUNCATED
from assay.impl.runtime.trace_rules import MOST, STAGE, TraceRules
from assay.impl.stores.files import open_regular, unreadable
from assay.spec.documents.trace import AnyLine, TraceLine
from assay.spec.errors import Finding
from assay.spec.judgement import Judgement, JudgeOptions

MAX_LINE_BYTES: Final = 1 << 18


def judge_trace(path: Path, options: JudgeOptions) -> Judgement:
    """Returns the judgement of a trace; one without its end is inconclusive, whatever else holds."""
    judgement = Judgement("trace", not_checked=["whether the machine did what the trace says"])
    with open_regular(path, stage=STAGE) as file:
        try:
            rules, is_whole = judge_lines(_lines(file))
        except OSError as error:
            raise unreadable(error, str(path), STAGE) from error
    gaps = []
    if rules.footer is None and len(rules.findings) < MOST:
        got = f"{sum(rules.counts.values())} lines" + ("" if is_whole else " and a piece of one")
        gaps.append(Finding.of(TRUNCATED, STAGE, path.name, expected="a footer", got=got))
    judgement.judged("lines", rules.findings, gaps)
    if rules.header is not None:
        judgement.facts |= {"producer": rules.header.producer, "start": rules.header.start}
        judgement.is_private = rules.header.seam == "private"
        if judgement.is_private and not options.is_private:
            judgement.not_checked.append("private seam: the run used private descriptors")
    judgement.facts |= {"lines": dict(sorted(rules.counts.items()))}
    return judgement


def judge_lines(lines: Iterable[bytes]) -> tuple[TraceRules, bool]:
    """Judges lines in order; returns the rules, and whether the last line was whole."""
    rules = TraceRules()
    for data in lines:
        if not data.endswith(b"\n"):
            if len(data) < MAX_LINE_BYTES:
                return rules, False
            rules.malformed(f"lines below {MAX_LINE_BYTES} bytes", "a longer one")
            return rules, True
        line = parsed(data)
        if isinstance(line, str):
            rules.malformed("a line of assay.trace/1", line)
        else:
            rules.take(line)
        if len(rules.findings) >= MOST:
            break
    return rules, True


def parsed(data: bytes) -> AnyLine | str:
    """Returns a line, or what is wrong with it in a few words."""
    try:
        return TraceLine.model_validate_json(data).root
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(one) for one in first["loc"])
        return f"{place}: {first['msg']}" if place else str(first["msg"])


def read_trace(path: Path) -> Iterator[AnyLine]:
    """Yields the lines of a trace that was accepted; stops at the first that is none.

    Raises:
        AdmissionError: input.file.*.
    """
    with open_regular(path, stage=STAGE) as file:
        for data in _lines(file):
            line = parsed(data) if data.endswith(b"\n") else ""
            if isinstance(line, str):
                return
            yield line


def _lines(file: BinaryIO) -> Iterator[bytes]:
    rest = b""
    while piece := file.read(1 << 16):
        *whole, rest = (rest + piece).split(b"\n")
        for one in whole:
            yield one + b"\n"
        if len(rest) >= MAX_LINE_BYTES:
            break
    if rest:
        yield rest
