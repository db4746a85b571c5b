"""`assay.record-digests/1`: the digest of every record of one expert store, kept on the machine that derived it.

Local evidence, never a sidecar of the artifact and never read by admission. It is bound to manifest and payload
digest, and its own digest shows damage; nothing here protects against forgery.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from assay.spec.documents.base import Document, Sha256

LayerDigests = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64}){1,512}$")]
"""Digests of the experts of one layer, in order, 64 hexadecimal digits each, one after another."""


class RecordDigestsDocument(Document):
    """Record digests of one store."""

    schema_: Literal["assay.record-digests/1"] = Field("assay.record-digests/1", alias="schema")
    derivedBy: Literal["build", "verify-all"]  # noqa: N815 - the published field name
    manifestSha256: Sha256  # noqa: N815 - as above
    payloadSha256: Sha256  # noqa: N815 - as above
    layers: list[LayerDigests] = Field(min_length=1, max_length=79)
    sha256: Sha256
    """SHA-256 of the canonical JSON of all other fields."""
