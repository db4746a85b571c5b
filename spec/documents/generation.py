"""`assay.generation/1`: the tokens that one run of the model gave, why it ended, and what the output is worth."""

from typing import Annotated, Literal

from pydantic import Field

from assay.spec.documents.base import Document

Count = Annotated[int, Field(ge=0, lt=2**53)]
Policies = Literal["lru", "lfu", "s3-fifo", "greedy-dual", "layer-lru"]


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


class MemoryOwner(Document):
    """One owner of memory in the plan of a streamed run."""

    owner: str
    bytes: Count


class Streaming(Document):
    """What a streamed run read and waited for.

    `hits` were resident, `joined` on their way, `misses` asked for only then. Waits are seconds in which nothing was
    left to compute until a record, or a page of rows, had come. `physical_bytes` are those that the system fetched
    from the device for this process, and null where it does not say. `verified` says whether records were compared
    with digests; pages of rows always are. `measured` says whether depth of reads and the crossover of prefill are those
    of a probe of this device. `chunk` is the most tokens of a prompt that were computed at a time: what was asked for, or what
    the budget holds. `budget_bytes` is null where nobody set a bound.
    """

    expert_cache_records: Count
    policy: Policies
    hits: Count
    joined: Count
    misses: Count
    evicted: Count
    guessed: Count
    guessed_used: Count
    exact_bytes: Count
    guessed_bytes: Count
    row_bytes: Count
    physical_bytes: Count | None
    expert_wait_seconds: float
    row_wait_seconds: float
    exposed_wait_seconds: float
    verified: bool
    measured: bool
    chunk: Count
    budget_bytes: Count | None
    memory: list[MemoryOwner]


class Statistics(Document):
    """How much was done, and how long it took; seconds are of this run on this machine."""

    prompt_tokens: Count
    new_tokens: Count
    prefill_seconds: float
    decode_seconds: float
    weight_bytes: Count
    state_bytes: Count
    sparse: SparseWork
    streaming: Streaming | None = None


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
