"""Where a run was made: versions, platform, device and the revision of the checkout."""

import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

from assay import __version__
from assay.provenance.evidence.subjects import device_name, package_version
from assay.provenance.paths import checkout_root
from assay.spec.canonical import canonical_digest
from assay.spec.documents.evidence import CheckpointInput
from assay.spec.documents.run import Environment


def environment(packages: Iterable[str], checkpoint: CheckpointInput | None) -> Environment:
    """Returns the environment of this process; `packages` are the distributions whose versions matter."""
    return Environment(
        assay=__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        device=device_name(),
        packages={name: package_version(name) for name in sorted({"numpy", "pydantic", *packages})},
        revision=_revision(),
        checkpoint=checkpoint is not None,
        checkpoint_input=canonical_digest(checkpoint.model_dump(mode="json")) if checkpoint else None,
    )


def _revision() -> str:
    """Returns the commit of the checkout, with `+changes` when files differ from it; empty when it can't be told."""
    root = checkout_root()
    if root is None:
        return ""
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}+changes" if changed else commit


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout.strip()
