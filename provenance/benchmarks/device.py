"""The probe of the device under a folder, saved for the runtime, beside fio at the same point."""

from assay.impl.runtime.probe import probe, save_probe
from assay.impl.stores.extents import StoreFile
from assay.provenance.benchmarks.base import BenchContext, BenchmarkNotRunError, drop_from_cache, measurement
from assay.provenance.benchmarks.stream_samples import PAGE_BYTES, RECORD_BYTES, expert_sample, fio_mib_per_s
from assay.provenance.paths import cache_directory
from assay.spec.documents.bench import Measurement
from assay.spec.documents.device_probe import ProbePoint


def run(context: BenchContext) -> list[Measurement]:
    """Probes the device, saves what follows, and measures fio at the chosen depth."""
    sample = expert_sample(context)
    drop_from_cache(sample.path)
    with StoreFile.open(sample.path) as file:
        found = probe(file, RECORD_BYTES, PAGE_BYTES, state="host-warm", seconds=0.5, seed=context.seed)
    saved = save_probe(cache_directory() / "device-probe", found)
    figures = [_figure(one) for one in found.points]
    choice = found.choice
    chosen = f"{choice.expert_readers} readers, {'direct' if choice.wants_direct else 'buffered'}; saved as {saved.name}"
    try:
        theirs = fio_mib_per_s(sample.path, RECORD_BYTES, choice.expert_readers, 2.0, context.seed + 1)
    except BenchmarkNotRunError as error:
        return [
            *figures,
            measurement("chosen for records", choice.record_mib_per_s, "MiB/s", f"{chosen}; {error}"),
        ]
    reference = (f"fio psync direct, {choice.expert_readers} jobs", theirs)
    return [
        *figures,
        measurement("chosen for records", choice.record_mib_per_s, "MiB/s", chosen, reference=reference),
    ]


def _figure(point: ProbePoint) -> Measurement:
    kind = "direct" if point.direct else "buffered"
    what = "record" if point.what == "record" else f"{point.pages} pages"
    cached = "unknown" if point.cached_share is None else f"{100 * point.cached_share:.0f}%"
    return measurement(
        f"{what}, {kind}, depth {point.depth}, {point.state}",
        point.mib_per_s,
        "MiB/s",
        f"{point.size_bytes} B, {point.reads} reads; p50 {point.p50_us:.0f} us, p99 {point.p99_us:.0f} us; cached {cached}",
    )
