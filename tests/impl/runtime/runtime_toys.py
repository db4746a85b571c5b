"""Two small stores on disk, opened: experts with record digests, and rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.impl.runtime.plans import store_digest
from assay.impl.stores.expert_major.store import ExpertStore
from assay.impl.stores.expert_major.writer import write_expert_store
from assay.impl.stores.extents import StoreFile
from assay.impl.stores.ple_rows.store import PleStore
from assay.mutations import store_samples as samples


@dataclass(frozen=True)
class Stores:
    """The stores, and the files that a reader is given."""

    experts: ExpertStore
    rows: PleStore
    files: dict[str, StoreFile]
    folder: Path


def write_stores(folder: Path) -> None:
    """Writes both stores into a folder."""
    digests = write_expert_store(
        folder / "experts", samples.small_manifest(), samples.SMALL_FAMILY, samples.small_component
    )
    assert digests is not None
    samples.golden_ple(folder / "rows")


@contextmanager
def opened(written: Path) -> Iterator[Stores]:
    """Opens the stores of a folder, record digests derived."""
    with StoreFile.open(written / "experts") as experts, StoreFile.open(written / "rows") as rows:
        plain = ExpertStore.open(experts.extent(), samples.SMALL_FAMILY)
        digests = plain.verify_all().digests
        assert digests is not None
        store = plain.with_digests(digests)
        table = PleStore.open(rows.extent(), samples.GOLDEN_PLE)
        yield Stores(store, table, {store_digest(store): experts, store_digest(table): rows}, written)
