"""`assay.build/1`: what `assay build` wrote, and `assay.conversion/1`: where every source tensor goes."""

from typing import Any, Literal

from pydantic import Field

from assay.spec.documents.base import Document, Sha256


class ConversionClass(Document):
    """Source tensors with one kind of destination; `policy` names why a class is left out."""

    tensors: int
    bytes: int
    policy: str | None


class ConversionLine(Document):
    """One source tensor and its one destination."""

    source: str
    shard: str
    dtype: str
    shape: list[int]
    bytes: int
    destination: Literal[
        "dense",
        "dense-control",
        "ple-rows",
        "ple-metadata",
        "routed-experts",
        "excluded-vision",
        "excluded-mtp",
    ]
    targets: list[str]
    policy: str | None


class Conversion(Document):
    """The conversion report; `reportSha256` is over its canonical JSON without that field, and a newline."""

    schema_: Literal["assay.conversion/1"] = Field("assay.conversion/1", alias="schema")
    kind: Literal["qwen4exp-conversion-dry-run", "qwen4exp-conversion"]
    profileId: str  # noqa: N815 - the published field names
    seam: Literal["private"] | None
    inventorySha256: Sha256  # noqa: N815 - as above
    contractSha256: Sha256 | None  # noqa: N815 - as above
    sourceTensors: int  # noqa: N815 - as above
    sourceBytes: int  # noqa: N815 - as above
    expertComponents: int  # noqa: N815 - as above
    classes: dict[str, ConversionClass]
    bytes: dict[str, int]
    destinations: list[ConversionLine]
    reportSha256: Sha256  # noqa: N815 - as above


class Build(Document):
    """What one build wrote.

    Attributes:
        kind: artifact of a checkpoint, repacked GGUF, or structural fixture.
        source: what it was built from; None for the structural fixture.
        target: the file.
        file_bytes: its length.
        allocated_bytes: what it takes of the disk.
        profile_id: profile it was admitted as; None for a repacked file.
        physical_profile_id: how it is stored.
        payload_sha256: digest of the expert payload; None for the structural fixture.
        report: the conversion report of a checkpoint.
    """

    schema_: Literal["assay.build/1"] = Field("assay.build/1", alias="schema")
    kind: Literal["artifact", "repack", "structural"]
    source: str | None
    target: str
    file_bytes: int
    allocated_bytes: int
    profile_id: str | None = None
    physical_profile_id: str | None = None
    payload_sha256: Sha256 | None = None
    facts: dict[str, Any] = Field(default_factory=dict)
    report: Conversion | None = None
    seam: Literal["private"] | None = None
