"""`assay.capture/1`: the arrays that one run of a model left behind, of one sequence, from any runtime.

A capture is a folder: this document as `capture.json` beside raw little-endian arrays (or `.npy` files).
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from assay.spec.documents.base import Document, Sha256

Dtype = Literal["f32", "f16", "bf16", "i32", "i64"]
StageName = Literal[
    "ple_rows",
    "embedding",
    "four_stream_residual",
    "ple",
    "attn_gr_prepare",
    "gdn",
    "qsa",
    "attn_gr_apply",
    "moe_gr_prepare",
    "router",
    "routed_shared_moe",
    "moe_gr_apply",
    "final_gr_mixer",
    "output_head",
    "sampled_id",
    "state",
]
Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]*$", max_length=64)]
Count = Annotated[int, Field(ge=0, lt=2**53)]


class Producer(Document):
    """Who wrote the capture; free text, because a capture of a foreign runtime is only what it says it is."""

    name: str
    version: str = ""
    detail: str = ""


class CaptureEntry(Document):
    """One array.

    For all stages but `state` the first axis counts tokens and equals `tokens`; `first_token` is the place of the
    first of them in the sequence. For `state` the array is what the run carries on after `first_token + tokens`
    tokens, in any shape. Bytes of `.bin` start at `offset` and have no header.
    """

    stage: StageName
    layer: Annotated[int, Field(ge=0, lt=65536)] | None = None
    part: Word = ""
    first_token: Count = 0
    tokens: Annotated[int, Field(ge=1, lt=2**53)]
    dtype: Dtype
    shape: Annotated[list[Count], Field(max_length=8)]
    file: str
    offset: Count = 0
    sha256: Sha256 | None = None


class Capture(Document):
    """One run over one sequence."""

    schema_: Literal["assay.capture/1"] = Field("assay.capture/1", alias="schema")
    producer: Producer
    artifact: Sha256 | None = None
    tokenizer: Sha256 | None = None
    prompt_hex: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})*$")] | None = None
    token_ids: list[Annotated[int, Field(ge=0, lt=2**31)]] | None = None
    entries: list[CaptureEntry]
