"""`assay.mutation-run/1`: what the mutation batteries killed, where, and what survived."""

from typing import Literal

from pydantic import Field

from assay.spec.documents.base import Document

Count = Field(ge=0)


class BatteryCounts(Document):
    """Counts of one battery; every mutation stands in exactly one of the last five."""

    total: int = Count
    killed: int = Count
    killed_elsewhere: int = Count
    survived: int = Count
    equivalent: int = Count
    invalid: int = Count


class MutationRecord(Document):
    """One mutation that needs a reader: a survivor, one killed elsewhere, an equivalent or an invalid one."""

    battery: str
    id: str
    area: str
    field: str
    change: str
    expected_code: str
    got_codes: list[str]
    reason: str = ""


class AreaCounts(Document):
    """Counts of one area of one battery, and of what killed its mutations."""

    total: int = Count
    killed: int = Count
    by_rule: int = Count
    by_upstream: int = Count
    by_pin: int = Count
    by_form: int = Count


class PinOnly(Document):
    """Leaves for which only the pin stands, and why no rule can exist."""

    leaves: list[str]
    reason: str


class Excused(Document):
    """Mutations that nothing kills, and the written reason why none of them changes anything that matters."""

    mutations: list[str]
    reason: str


class BatteryDetail(Document):
    """What a reader of one battery wants to know beside the counts.

    `caught_by` names the vectors that caught each mutation, by its id, where the battery's checks are vectors.
    `timed_out` of the killed failed no test but ran out of time.
    """

    areas: dict[str, AreaCounts]
    pin_only: list[PinOnly] = Field(default_factory=list)
    controls: dict[str, bool] = Field(default_factory=dict)
    timed_out: int = Field(default=0, ge=0)
    not_run: list[str] = Field(default_factory=list)
    caught_by: dict[str, list[str]] = Field(default_factory=dict)
    excused: list[Excused] = Field(default_factory=list)


class MutationRun(Document):
    """The result of `assay mutate`."""

    schema_: Literal["assay.mutation-run/1"] = Field("assay.mutation-run/1", alias="schema")
    batteries: dict[str, BatteryCounts]
    survivors: list[MutationRecord]
    killed_elsewhere: list[MutationRecord] = Field(default_factory=list)
    details: dict[str, BatteryDetail] = Field(default_factory=dict)
