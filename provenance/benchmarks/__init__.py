"""Benchmarks: speeds as ratios of one run. To add one, write a module with `run(context)` and append a row."""

from typing import Final

BENCHMARKS: Final[dict[str, tuple[str, str]]] = {
    "stores.verify": (
        "assay.provenance.benchmarks.stores_verify",
        "row store: verify_all against one core's SHA-256 and the disk; page digests against threads",
    ),
    "stores.rows": (
        "assay.provenance.benchmarks.stores_rows",
        "row store: 16 verified rows of random pages, against LMDB, lance, SQLite and numpy.memmap",
    ),
    "stores.experts": (
        "assay.provenance.benchmarks.stores_experts",
        "expert store: verified records against unverified reads of the same file and depth",
    ),
    "stores.open": (
        "assay.provenance.benchmarks.stores_open",
        "opening: the row table at its true size in 4, 16 and 64 KiB pages; a GGUF directory with a vocabulary",
    ),
    "device": (
        "assay.provenance.benchmarks.device",
        "device: reads like the runtime's at several sizes and depths; saves what the runtime chooses by",
    ),
    "runtime.reader": (
        "assay.provenance.benchmarks.stream_reader",
        "streaming: verified records against fio on the same file, and what one ticket costs",
    ),
    "artifact": (
        "assay.provenance.benchmarks.artifact",
        "artifact: admission of the 180 GB fixture, in process and as a command; a build against disk and SHA-256",
    ),
    "text.prompt": (
        "assay.provenance.benchmarks.text_pipeline",
        "text: 1 MB of caller text rendered with origins and tokenized by segments, against plain Jinja and tokenizers",
    ),
    "model.speed": (
        "assay.provenance.benchmarks.model_speed",
        "MLX model: prefill and decode in the fast mode at 512 and 2,048 tokens against transformers on one checkpoint",
    ),
    "model.speed-long": (
        "assay.provenance.benchmarks.model_speed_long",
        "MLX model: the same at 8,192 tokens",
    ),
    "model.modes": (
        "assay.provenance.benchmarks.model_modes",
        "MLX model: the same at 512 tokens for the deterministic modes too",
    ),
    "model.query": (
        "assay.provenance.benchmarks.model_query",
        "MLX model: one query of the published attention dimensions over 65,537, 100,000 and 262,144 tokens",
    ),
    "stream.decode": (
        "assay.provenance.benchmarks.stream_decode",
        "streaming: waits of decode with half of the experts cached, against a barrier and a memory map; memory from outside",
    ),
    "stream.decode-large": (
        "assay.provenance.benchmarks.stream_large",
        "streaming: the same waits with records of 2.75 MB, against memory maps with and without advice",
    ),
}
"""Name -> (module, title), in the order in which they run; a module is imported only when it runs."""
