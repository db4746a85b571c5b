"""The MLX model under a fast BLAS, in a process of its own: what tiles restore, and how far whole products lie off.

The BLAS must be loaded before MLX is, so nothing here imports MLX at its head; callers start a fresh interpreter.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def measure_fast(config: dict[str, Any], length: int, seed: int) -> dict[str, Any]:
    """Returns what `under_fast_blas` finds, in a spawned process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(under_fast_blas, config, length, seed).result()


def under_fast_blas(config: dict[str, Any], length: int, seed: int) -> dict[str, Any]:
    """Loads a fast BLAS, then compares tiles with themselves under partitions, and whole products with tiles.

    Returns:
        `isLoaded`; if so `differing` (where a partition of the tiled mode shows) and the figures of the fast mode.
    """
    from assay.impl.model.backend import are_rows_independent, load_fast_blas

    if load_fast_blas() is None:
        return {"isLoaded": False}
    from assay.impl.model.numerics import HALVED_FROM, PLAIN, TILE_ROWS, Numerics
    from assay.provenance.captures.geometries import counter_tokens
    from assay.provenance.captures.mlx_partition import differing_partitions, fast_difference

    tiled = Numerics(is_deterministic=True, tile_rows=TILE_ROWS)
    tokens = list(counter_tokens(4, length, config["vocab_size"], avoid=config["eos_token_id"]))
    wrong, runs = differing_partitions(config, tokens, tiled, seed)
    return {
        "isLoaded": not are_rows_independent(),
        "differing": [f"{name}: {owner}" for name, owner in wrong],
        "runs": runs,
        "fast": fast_difference(
            config, max(length, 2 * HALVED_FROM), seed, PLAIN, tiled
        ),  # both streams at work
        "wholeProductsDiffering": len(differing_partitions(config, tokens, PLAIN, seed)[0]),
    }
