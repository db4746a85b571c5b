"""Where things lie: the source checkout, the installed package, the real checkpoint, runs and evidence."""

import os
from importlib import resources
from pathlib import Path
from typing import Final

from assay.spec.errors import usage_error

PUBLISHED_FOLDER: Final = "qwen3.8-flash-next-de4b8e4d"


def checkout_root() -> Path | None:
    """Returns the root of the source checkout that this package runs from, or None when installed."""
    root = Path(__file__).resolve().parent.parent
    return root if _is_checkout(root) else None


def fixture_path(*parts: str) -> Path:
    """Returns the path of a file under `fixtures/`, in a checkout or in the installed package."""
    return Path(str(resources.files("assay").joinpath("fixtures", *parts)))


def checkpoint_directory(asked: Path | None = None) -> Path | None:
    """Returns the directory that describes the real checkpoint.

    Looks at `asked` (must exist), then at the environment variable ASSAY_CHECKPOINT (must exist if set), then at
    `../shared/upstream` beside a checkout. None means that it is absent and its checks are not run.
    """
    named = asked or (Path(value) if (value := os.environ.get("ASSAY_CHECKPOINT")) else None)
    if named is not None:
        if not named.is_dir():
            raise usage_error("checkpoint", expected="an existing directory", got=str(named))
        return named
    root = checkout_root()
    beside = root.parent / "shared" / "upstream" / PUBLISHED_FOLDER if root else None
    return beside if beside is not None and beside.is_dir() else None


def runs_directory(asked: Path | None = None) -> Path:
    """Returns the folder under which runs are written: `reports/out` in the root of a checkout, else `./assay-out`.

    The current folder decides, not where the package lies: an installed assay that runs in a checkout writes there.
    """
    if asked is not None:
        return asked
    return Path("reports", "out") if _is_checkout(Path.cwd()) else Path("assay-out")


def evidence_directory(asked: Path | None = None) -> Path:
    """Returns the folder of the evidence ledger: `.assay` of the current folder unless another is named."""
    return asked if asked is not None else Path(".assay")


def cache_directory() -> Path:
    """Returns the folder for what can be made again: `$XDG_CACHE_HOME/assay`, or `~/.cache/assay`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "assay"


def _is_checkout(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file() and (folder / ".dev" / "assay").is_dir()
