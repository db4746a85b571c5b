"""The deterministic modes of the MLX model beside the fast one and upstream, at 512 tokens."""

from assay.provenance.benchmarks.base import BenchContext
from assay.provenance.benchmarks.model_speed import speeds
from assay.spec.documents.bench import Measurement


def run(context: BenchContext) -> list[Measurement]:
    """Returns what `model_speed.run` does, for every mode; only the fast one has a target."""
    return speeds(context, (512,), ("fast", "shipped", "tiled"))
