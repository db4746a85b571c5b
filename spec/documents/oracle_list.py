"""The list of oracles that `assay oracle --list --format json` prints."""

from typing import Any, Literal

from pydantic import Field

from assay.spec.documents.base import Document


class OracleResult(Document):
    """One result of an oracle; `shape` names the axes, null when more than one rank is given."""

    name: str
    dtype: str
    shape: tuple[str, ...] | None
    unit: str


class OracleArgument(OracleResult):
    """One argument of an oracle; `default` stands where an argument that isn't required is left out."""

    required: bool
    default: Any = None


class OracleOperation(Document):
    """One oracle: what it takes and gives, and whether it answers in float64 too."""

    name: str
    summary: str
    arguments: tuple[OracleArgument, ...]
    results: tuple[OracleResult, ...]
    float64: bool


class OracleBound(Document):
    """Where an oracle stops being an authority, and what must answer beyond."""

    operation: str
    domain: str
    first_rejected: str
    clause: str
    complexity: str
    replacement: str
    lifted_by: str


class OracleList(Document):
    """All oracles with their bounds."""

    schema_: Literal["assay.oracle-list/1"] = Field(alias="schema")
    operations: tuple[OracleOperation, ...]
    bounds: tuple[OracleBound, ...]
