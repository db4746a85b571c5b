"""`assay.contract/1`: the whole contract of one profile."""

from typing import Literal

from pydantic import ConfigDict, Field

from assay.spec.contract.admission import Admission
from assay.spec.contract.config import PinnedConfig
from assay.spec.contract.expert_store import ExpertStore
from assay.spec.contract.facts import DerivedConstant, GraphFacts, NormConventions
from assay.spec.contract.identity import Exclusions, Identity, License
from assay.spec.contract.ple import PleExtent, PleHash
from assay.spec.contract.schema_limits import SCHEMA_CANNOT_SAY
from assay.spec.contract.source_pins import SourcePins
from assay.spec.contract.support import MemoryTargets, SupportGate
from assay.spec.contract.tensor_roles import TensorRoles
from assay.spec.contract.types import Seq, Text
from assay.spec.contract.vocabulary import Vocabulary
from assay.spec.documents.base import Document


class Contract(Document):
    """One profile. A private profile may leave out the four sections that speak of a publication."""

    model_config = ConfigDict(
        populate_by_name=False,
        title="assay.contract/1",
        json_schema_extra={"$comment": "Not said here: " + " ".join(SCHEMA_CANNOT_SAY)},
    )

    schema_: Literal["assay.contract/1"] = Field(alias="schema")
    kind: Literal["qwen4exp-profile-contract"]
    visibility: Literal["public", "private"]
    status: Literal["pinned-not-supported", "supported"]
    notes: Seq[Text]
    identity: Identity
    source_pins: SourcePins | None
    exclusions: Exclusions
    config: PinnedConfig
    tensor_roles: TensorRoles
    derived_constants: dict[str, DerivedConstant]
    graph_facts: GraphFacts
    ple_hash: PleHash
    norm_conventions: NormConventions
    expert_store: ExpertStore
    ple_extent: PleExtent
    vocabulary: Vocabulary
    admission: Admission | None
    memory_targets: MemoryTargets | None
    support_gates: Seq[SupportGate] | None
    license: License
