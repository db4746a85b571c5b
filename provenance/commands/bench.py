"""`assay bench`: speed against the machine's limits and against peers, as ratios of one run."""

import argparse
import importlib
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.provenance.benchmarks import BENCHMARKS
from assay.provenance.output import emit, emit_json, output_format, say
from assay.spec.errors import usage_error
from assay.spec.verdicts import ExitCode

if TYPE_CHECKING:
    from assay.spec.documents.bench import BenchResult


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks; without any, all of them")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="a folder on the disk to measure (default: the temporary one)"
    )
    parser.add_argument(
        "--size",
        type=int,
        default=256,
        metavar="MIB",
        help="about how much one benchmark writes (default: 256)",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="repetitions of each figure, a median is shown (default: 3)"
    )
    parser.add_argument("--fail-on-miss", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Runs benchmarks and prints their figures; missed targets are listed, and are an error with --fail-on-miss."""
    if arguments.list:
        width = max(map(len, BENCHMARKS))
        emit("\n".join(f"{name:<{width}}  {title}" for name, (_, title) in BENCHMARKS.items()))
        return ExitCode.OK
    names = arguments.names or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            raise usage_error("benchmark", expected=f"one of {', '.join(BENCHMARKS)}", got=name)
    for option, least in (("size", 16), ("rounds", 1)):
        if getattr(arguments, option) < least:
            raise usage_error(f"--{option}", expected=f"at least {least}", got=getattr(arguments, option))
    if arguments.dir is not None and not arguments.dir.is_dir():
        raise usage_error("--dir", expected="an existing directory", got=str(arguments.dir))
    results = [_one(name, arguments) for name in names]
    from assay.spec.documents.bench import Bench

    missed = [
        f"{one.name}: {figure.name}"
        for one in results
        for figure in one.measurements
        if figure.target is not None and not figure.target.met
    ]
    document = Bench(environment=_environment(), benchmarks=results, targets_missed=missed).model_dump(
        by_alias=True
    )
    if output_format(arguments) == "json":
        emit_json(document)
    else:
        emit("\n".join(_lines(document)))
    return ExitCode.FAILED if missed and arguments.fail_on_miss else ExitCode.OK


def _one(name: str, arguments: argparse.Namespace) -> "BenchResult":
    from assay.provenance.benchmarks.base import BenchContext, BenchmarkNotRunError, timed
    from assay.spec.documents.bench import BenchResult

    module, title = BENCHMARKS[name]
    if not arguments.quiet:
        say(f"{name}: {title}")
    measurements, reason = [], ""
    not_measured: list[str] = []
    with tempfile.TemporaryDirectory(prefix="assay-bench-", dir=arguments.dir) as folder, timed() as watch:
        context = BenchContext(Path(folder), arguments.size, arguments.seed, arguments.rounds)
        try:
            benchmark = importlib.import_module(module)
            not_measured = benchmark.not_measured() if hasattr(benchmark, "not_measured") else []
            measurements = benchmark.run(context)
        except BenchmarkNotRunError as error:
            reason = str(error)
    return BenchResult(
        name=name,
        title=title,
        seconds=round(watch.seconds, 3),
        measurements=measurements,
        not_run=reason,
        not_measured=not_measured,
    )


def _environment() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.2f}" if sys.platform != "win32" else "unknown",
    }


def _lines(document: dict[str, Any]) -> list[str]:
    lines = []
    for one in document["benchmarks"]:
        lines.append(f"{one['name']}  ({one['seconds']:.1f} s)")
        if one["not_run"]:
            lines.append(f"  not run: {one['not_run']}")
        for figure in one["measurements"]:
            text = f"  {figure['name']:<38} {figure['value']:>10.1f} {figure['unit']}"
            if figure["ratio"] is not None:
                text += (
                    f"  = {figure['ratio']:.2f} of {figure['reference']} ({figure['reference_value']:.1f})"
                )
            aim = figure["target"]
            if aim is not None:
                sign = ">=" if aim["bound"] == "at-least" else "<="
                text += f"  [{'met' if aim['met'] else 'MISSED'}: {aim['of']} {sign} {aim['value']:g}]"
            lines += [text, f"      {figure['conditions']}"]
        lines += [f"  not measured: {peer}" for peer in one["not_measured"]]
    aims = [figure["target"] for one in document["benchmarks"] for figure in one["measurements"]]
    missed = document["targets_missed"]
    lines.append(f"targets: {sum(aim is not None for aim in aims)}, MISSED: {len(missed)}")
    lines += [f"  MISSED  {name}" for name in missed]
    return lines
