"""`assay.device-probe/1`: what a device was measured to do, and how a runtime should read from it because of that."""

from typing import Literal

from pydantic import Field

from assay.spec.documents.base import Document

ProbeState = Literal["fresh", "host-warm", "warm"]


class ProbePoint(Document):
    """One measurement: reads of one size at one depth.

    Attributes:
        what: `record` for expert records, `rows` for batches of pages.
        size_bytes: bytes of one read; of a batch, of all its pages.
        pages: pages of one batch; 1 for a record.
        depth: reads in flight.
        state: `fresh`: at places that this process had neither read nor written; `host-warm`: at places that it had,
            dropped from this machine's page cache (a host may still hold them); `warm`: from the page cache.
        direct: whether every byte was read past the page cache.
        cached_share: share of the bytes that the page cache had; null when the system doesn't say.
        mib_per_s: all bytes over all time.
        p50_us: median time of one read.
        p99_us: 99th percentile.
        reads: reads that were measured.
    """

    what: Literal["record", "rows"]
    size_bytes: int = Field(ge=1)
    pages: int = Field(ge=1)
    depth: int = Field(ge=1)
    state: ProbeState
    direct: bool
    cached_share: float | None
    mib_per_s: float = Field(ge=0)
    p50_us: float = Field(ge=0)
    p99_us: float = Field(ge=0)
    reads: int = Field(ge=1)


class ProbeChoice(Document):
    """What follows from the measurements.

    Attributes:
        expert_readers: reads of records in flight: the fewest that reach 95% of the best bandwidth.
        ple_readers: batches of pages in flight, by the same rule.
        wants_direct: whether direct reads of records were at least 5% faster.
        record_mib_per_s: bandwidth of records so read.
        sequential_mib_per_s: bandwidth of neighbouring records read in order, so read.
        batch_us: median time of a batch of pages so read.
    """

    expert_readers: int = Field(ge=1)
    ple_readers: int = Field(ge=1)
    wants_direct: bool
    record_mib_per_s: float = Field(gt=0)
    sequential_mib_per_s: float = Field(gt=0)
    batch_us: float = Field(gt=0)


class DeviceProbe(Document):
    """The whole probe of one device for one pair of sizes."""

    schema_: Literal["assay.device-probe/1"] = Field("assay.device-probe/1", alias="schema")
    device: str
    measured: str
    record_bytes: int = Field(ge=1)
    page_bytes: int = Field(ge=1)
    batch_pages: int = Field(ge=1)
    direct_refusal: str
    points: list[ProbePoint]
    choice: ProbeChoice
