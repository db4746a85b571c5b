"""The inputs that a gate can need, and whether they are here."""

import importlib.util
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final


def _has_checkpoint(checkpoint: Path | None) -> bool:
    return checkpoint is not None


def _has_capture(_checkpoint: Path | None) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


def _has_metal(_checkpoint: Path | None) -> bool:
    return sys.platform == "darwin" and platform.machine() == "arm64"


def _has_mlx(_checkpoint: Path | None) -> bool:
    return importlib.util.find_spec("mlx") is not None


INPUTS: Final[Mapping[str, tuple[str, Callable[[Path | None], bool]]]] = {
    "checkpoint": (
        "the description of the real checkpoint (--checkpoint DIR or ASSAY_CHECKPOINT)",
        _has_checkpoint,
    ),
    "capture": ("transformers and torch (extra `capture`)", _has_capture),
    "mlx": ("the package mlx", _has_mlx),
    "metal": ("an Apple GPU", _has_metal),
}
"""Word -> (what to bring, whether it is here)."""


def gate_command(ids: Iterable[str], needs: Iterable[str]) -> str:
    """Returns one command that runs the gates `ids`, which need `needs`; only DIR is left to fill in."""
    return " ".join(["assay gate", *ids, *(["--checkpoint DIR"] if "checkpoint" in set(needs) else [])])


def missing_inputs(needs: tuple[str, ...], checkpoint: Path | None) -> tuple[str, ...]:
    """Returns what to bring for the inputs in `needs` that are not here."""
    return tuple(INPUTS[need][0] for need in needs if not INPUTS[need][1](checkpoint))
