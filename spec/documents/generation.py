"""`assay.generation/1`: the tokens that one run of the model gave, why it ended, and what the output is worth."""

from typing import Annotated, Literal

from pydantic import Field

from assay.spec.documents.base import Document

Count = Annotated[int, Field(ge=0, lt=2**53)]


class SparseWork(Document):
    """Physical work of sparse attention, all layers and queries together."""

    groups_scored: Count
    groups_selected: Count
    largest_width: Count
    gathered_rows: Count
    gathered_bytes: Count
    raw_key_bytes: Count
    pooled_key_bytes: Count
    workspace_bytes: Count
    dense_mask_bytes: Literal[0]


class Statistics(Document):
    """How much was done, and how long it took; seconds are of this run on this machine."""

    prompt_tokens: Count
    new_tokens: Count
    prefill_seconds: float
    decode_seconds: float
    weight_bytes: Count
    state_bytes: Count
    sparse: SparseWork


class Generation(Document):
    """One run.

    `ids` are the new tokens, the stop token included where it ended the run. `seam` is `private` while the profile is
    not supported; `worth` says what may be concluded then.
    """

    schema_: Literal["assay.generation/1"] = Field("assay.generation/1", alias="schema")
    ids: list[Annotated[int, Field(ge=0, lt=2**31)]]
    text: str | None
    ended_by: Literal["stop-token", "length", "context"]
    seam: Literal["private", "public"]
    worth: str
    numerics: Literal["deterministic", "fast"]
    statistics: Statistics
