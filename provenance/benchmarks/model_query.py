"""One query of one attention layer at the published dimensions over long histories: time, memory, physical work."""

import importlib.util
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from assay.provenance.benchmarks.base import BenchContext, BenchmarkNotRunError, measurement
from assay.spec.documents.bench import Measurement

if TYPE_CHECKING:
    from assay.impl.model.long_query import Asked

VISIBLE = (65_537, 100_000, 262_144)


def run(context: BenchContext) -> list[Measurement]:
    """Returns milliseconds and peak memory of one query at each number of visible tokens.

    Raises:
        BenchmarkNotRunError: without mlx.
    """
    if importlib.util.find_spec("mlx") is None:
        raise BenchmarkNotRunError("needs mlx")
    found: list[Measurement] = []
    for visible in VISIBLE:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            asked = pool.submit(_one, visible, context.seed).result()
        told = (
            f"24 heads of 256, index 4 x 128, {asked.counters.groups_scored} groups scored, "
            f"{asked.counters.largest_width} rows gathered; reference BLAS"
        )
        found.append(measurement(f"query.{visible}", asked.seconds * 1000, "ms", told))
        found.append(
            measurement(
                f"flip.{visible}", asked.published_bytes, "bytes",
                f"written behind the history when the query is published, in {asked.publish_seconds * 1e6:.0f} us",
                reference=("the layer's history", asked.history_bytes), target=("ratio", "at-most", 1e-4),
            )
        )  # fmt: skip
        dense = visible * 2 * 256 * 4 * 2
        found.append(
            measurement(
                f"memory.{visible}",
                asked.peak_bytes / (1 << 20),
                "MiB",
                f"peak above what was held; {told}",
                reference=("reading every key and value once", dense / (1 << 20)),
                target=("ratio", "at-most", 0.25),
            )
        )
    return found


def _one(visible: int, seed: int) -> "Asked":
    """Runs in a process of its own, so that memory is its own."""
    from assay.impl.model.geometry import read_geometry
    from assay.impl.model.long_query import LongHistory
    from assay.provenance.captures.mlx_speed import MIDDLE

    published = {
        "num_attention_heads": 24, "num_key_value_heads": 2, "head_dim": 256, "indexer_n_heads": 4,
        "indexer_head_dim": 128, "indexer_budget": 2048, "max_position_embeddings": 262144,
        "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]},
    }  # fmt: skip
    return LongHistory(read_geometry({**MIDDLE, **published}), visible, seed).ask()
