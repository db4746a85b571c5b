"""A miniature artifact for tests that run a streamed model."""

from pathlib import Path
from typing import Any


def miniature_source(folder: Path) -> Any:
    """Builds the miniature's artifact in a folder and returns it as a source of runs."""
    from assay.impl.model.numerics import Numerics
    from assay.impl.stores.artifact.build import build_artifact
    from assay.provenance.captures.mlx_stream import Source
    from assay.provenance.miniature import miniature_checkpoint

    build_artifact(miniature_checkpoint(folder / "checkpoint"), folder / "miniature.gguf")
    return Source.of(folder / "miniature.gguf", Numerics(is_deterministic=True), range(5, 29), 5)
