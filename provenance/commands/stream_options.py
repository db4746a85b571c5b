"""The options of a streamed run, shared by the commands that have one; nothing heavy is imported here."""

import argparse
from pathlib import Path
from typing import Final

from assay.spec.errors import usage_error

POLICIES: Final = ("lru", "lfu", "s3-fifo", "greedy-dual", "layer-lru")
_NEEDING: Final = ("memory_budget", "expert_cache", "policy", "trace", "unverified")


def add_stream_options(parser: argparse.ArgumentParser) -> None:
    """Adds them."""
    group = parser.add_argument_group("streaming, from an artifact")
    group.add_argument(
        "--stream",
        action="store_true",
        help="experts and rows from the file, as they are needed; without it all is resident",
    )
    group.add_argument(
        "--memory-budget",
        metavar="SIZE",
        help="bound of the whole process, such as 200MB or 1GiB (default: none)",
    )
    group.add_argument(
        "--expert-cache", type=int, metavar="N",
        help="records over all layers (default: what the budget leaves, or half of all)",
    )  # fmt: skip
    group.add_argument("--policy", choices=POLICIES, help="who leaves a full cache (default: lru)")
    group.add_argument(
        "--trace", type=Path, metavar="FILE", help="record tickets, reads, waits and routes as JSON lines"
    )
    group.add_argument(
        "--unverified",
        action="store_true",
        help="don't compare records with digests where none were derived yet",
    )


def check_stream_options(arguments: argparse.Namespace) -> None:
    """Refuses what can't be meant.

    Raises:
        UsageError: usage.argument or runtime.budget.size.
    """
    if not arguments.stream:
        for name in _NEEDING:
            value = getattr(arguments, name)
            if value is not None and value is not False:  # 0 equals False, and was said
                raise usage_error(f"--{name.replace('_', '-')}", expected="--stream beside it", got="none")
        return
    if arguments.memory_budget is not None:
        from assay.impl.runtime.budget import parse_size

        parse_size(arguments.memory_budget, "--memory-budget")
        if arguments.dump is not None:
            raise usage_error(
                "--dump", expected="no --memory-budget beside it", got=arguments.memory_budget,
                hint="a capture of the whole run is kept in memory until it is written, and no budget is planned for it",
            )  # fmt: skip
    if arguments.expert_cache is not None and arguments.expert_cache < 1:
        raise usage_error("--expert-cache", expected="at least 1", got=arguments.expert_cache)
    if arguments.path.is_dir():
        raise usage_error(
            "PATH", expected="an artifact, to stream from", got="a checkpoint directory",
            hint="build one: assay build DIR -o model.gguf --private; records and pages lie together in it",
        )  # fmt: skip
