"""Prefill and decode of the MLX model in its fast mode against upstream at 8,192 tokens."""

from assay.provenance.benchmarks.base import BenchContext
from assay.provenance.benchmarks.model_speed import speeds
from assay.spec.documents.bench import Measurement


def run(context: BenchContext) -> list[Measurement]:
    """Returns what `model_speed.run` does, at the long context."""
    return speeds(context, (8192,), ("fast",))
