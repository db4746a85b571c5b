"""The components: what can carry a status label, what each claims, and which code and data its evidence is about.

Append one row for each new component; the gates that name it (`provenance/gates/registry.py`) decide its label. No
row states a label: labels are computed from evidence (`assay.provenance.evidence.status`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from assay.spec.verdicts import Label

_STRUCTURE, _BUILT, _VECTORS = Label.STRUCTURAL_ONLY, Label.IMPLEMENTED, Label.CORRECTNESS_FIXTURE
_QUALIFIED = Label.QUALIFIED


@dataclass(frozen=True, slots=True)
class Component:
    """Something whose status is computed.

    Attributes:
        id: word id, such as `contract` or `oracles.qsa`.
        title: a few words for a table.
        boundary: where every claim of this component ends, however high it stands.
        modules: `assay.*` modules or packages (a package stands for everything below it); with their import closure
            they are the code that the evidence is about. Name here what is reached only by a name in a string.
        fixtures: files or folders of vectors, relative to the package.
        contract: files or folders of frozen contract data, relative to the package.
        claims: rung -> what a reader may believe once that rung is reached, no more than its gates show. Every rung
            that has a gate has a sentence; those of rungs that are not reached are shown as not yet shown.
    """

    id: str
    title: str
    boundary: str
    modules: tuple[str, ...]
    fixtures: tuple[str, ...] = ()
    contract: tuple[str, ...] = ("spec/profiles",)
    claims: Mapping[Label, str] = field(default_factory=dict)


COMPONENTS: Final[tuple[Component, ...]] = (
    Component(
        id="contract",
        title="Profile contract",
        boundary="This says nothing about any implementation.",
        modules=("assay.spec.contract", "assay.spec.profiles", "assay.spec.rules"),
        claims={
            _STRUCTURE: "The frozen facts of the family agree with each other and are what was pinned.",
            _BUILT: "They agree with the configuration, tensors and tokens that upstream published.",
            _VECTORS: "The published description is accepted by them wherever it can be judged, and every changed leaf is caught.",
        },
    ),
    Component(
        id="checkpoint-reader",
        title="Checkpoint validation",
        boundary="Payload bytes are judged only when asked.",
        modules=("assay.impl.stores",),
        claims={
            _BUILT: "The miniature's checkpoint is accepted through the private seam and refused without it.",
            _VECTORS: "The real description is accepted, and every listed change of its names, shapes, types, spans or configuration is refused.",
        },
    ),
    Component(
        id="text",
        title="Text pipeline",
        boundary="Nothing is said about what a model answers.",
        modules=("assay.impl.text", "assay.oracles.tokenizer", "assay.oracles.chat", "assay.mutations.text"),
        fixtures=("fixtures/text",),
        contract=("spec/profiles", "spec/text.py"),
        claims={
            _STRUCTURE: "Every fact of the tokenizer, the template and a prompt's segments is refused when mutated.",
            _BUILT: "On the miniature's files, prompt bytes, ids, errors and origins agree with independent oracles and with transformers.",
            _VECTORS: "With the published files they agree with the published cases and with the oracles; no text of a caller becomes a control token there.",
        },
    ),
    Component(
        id="provenance",
        title="Evidence and status",
        boundary="Forged evidence is not found without a signature.",
        modules=(
            "assay.provenance.evidence",
            "assay.provenance.gates.run",
            "assay.provenance.gates.selection",
            "assay.provenance.gates.worker",
        ),
        contract=(),
        claims={
            _VECTORS: "Records that were removed from a ledger or altered in it are found and named, and lower labels.",
        },
    ),
    Component(
        id="captures",
        title="Upstream captures",
        boundary="Nothing of the real weights is in them.",
        modules=("assay.provenance.captures", "assay.impl.captures", "assay.spec.origins"),
        fixtures=("fixtures/captures",),
        contract=(),
        claims={
            _STRUCTURE: "Each shipped array has its digest, and an origin that its producer can have.",
            _BUILT: "The pinned upstream package, run again on the same small geometries, gives the shipped captures bit for bit.",
            _VECTORS: "Every listed change of a capture's bytes, origins or documents is found, and the oracles agree with each capture.",
        },
    ),
    Component(
        id="oracles",
        title="Mathematics oracles",
        boundary="Nothing is said of the real weights, or of anything but float32 on the CPU.",
        modules=("assay.oracles",),
        fixtures=("fixtures/captures", "fixtures/vectors"),
        claims={
            _VECTORS: "The plain NumPy mathematics agrees with the upstream captures of small geometries, and catches every listed mistake of a port.",
        },
    ),
    Component(
        id="model",
        title="MLX model",
        boundary="Nothing is said of the real weights, nor of a GPU that it has not run on.",
        modules=("assay.impl.model", "assay.impl.captures.writing", "assay.mutations.model"),
        fixtures=("fixtures/captures",),
        claims={
            _STRUCTURE: "Chunks, padded batches and interleaving change no bit on small random weights.",
            _BUILT: "Every stage agrees with the oracles and the upstream captures there, and a chunk is published whole or not at all.",
            _VECTORS: "It chooses the same tokens as the pinned upstream package on the same weights, and every listed mistake is caught.",
            _QUALIFIED: "Parity, partitions and faults hold on an Apple GPU.",
        },
    ),
    Component(
        id="runtime.streaming",
        title="SSD streaming",
        boundary="No speed is claimed, and nothing of macOS, the real weights or a real 180 GB artifact.",
        modules=(
            "assay.impl.runtime",
            "assay.impl.model",
            "assay.mutations.scheduler_battery",
            "assay.mutations.scheduler_model",
            "assay.mutations.scheduler_search",
            "assay.mutations.trace",
        ),
        contract=(),
        claims={
            _STRUCTURE: "Every order of steps in four small worlds keeps the scheduler's rules, and every listed lie of a trace is refused.",
            _BUILT: "Under injected faults small stores are read exactly or refused aloud, each run leaves a valid trace, and the miniature, streamed, gives the resident tokens and states.",
        },
    ),
    Component(
        id="stores.gguf",
        title="GGUF v3",
        boundary="Structure only: nothing is said of the model that a file holds.",
        modules=(
            "assay.impl.stores.gguf.reader",
            "assay.impl.stores.gguf.rules",
            "assay.impl.stores.gguf.values",
            "assay.impl.stores.gguf.writer",
        ),
        contract=(),
        claims={
            _STRUCTURE: "Published files are written bit for bit.",
            _BUILT: "Stores of true size are placed in bounded memory, and a file appears whole or not at all.",
            _VECTORS: "Every changed byte of a directory is found.",
        },
    ),
    Component(
        id="stores.expert-major",
        title="ExpertMajor v2",
        boundary="No codec's quality is judged, and no release codec exists for family 4.",
        modules=(
            "assay.impl.stores.expert_major.families",
            "assay.impl.stores.expert_major.layout",
            "assay.impl.stores.expert_major.repack",
            "assay.impl.stores.expert_major.rules",
            "assay.impl.stores.expert_major.store",
            "assay.impl.stores.expert_major.writer",
            "assay.impl.stores.publication",
            "assay.impl.stores.expert_major.record_digests",
        ),
        contract=(),
        claims={
            _STRUCTURE: "The published stores are written bit for bit.",
            _BUILT: "The public store is written, opened and located at its true size, and appears whole or not at all.",
            _VECTORS: "Every changed field and changed payload is found at its own clause.",
        },
    ),
    Component(
        id="stores.ple-rows",
        title="PLE rows v1",
        boundary="No production row codec is qualified.",
        modules=(
            "assay.impl.stores.ple_rows.digests",
            "assay.impl.stores.ple_rows.layout",
            "assay.impl.stores.ple_rows.rules",
            "assay.impl.stores.ple_rows.store",
            "assay.impl.stores.ple_rows.tables",
            "assay.impl.stores.ple_rows.writer",
            "assay.impl.stores.publication",
            "assay.impl.stores.checkpoint.row_shards",
        ),
        contract=(),
        claims={
            _STRUCTURE: "The published stores are written bit for bit.",
            _BUILT: "The public store is written, opened and located at its true size, and appears whole or not at all.",
            _VECTORS: "Every changed field, digest and page is found at its own clause.",
        },
    ),
    Component(
        id="stores.affine4",
        title="MLX affine 4-bit codec",
        boundary="Nothing is said of a model's quality in it.",
        modules=("assay.impl.stores.expert_major.affine4", "assay.impl.stores.expert_major.blocks"),
        contract=(),
        claims={
            _STRUCTURE: "A block written by hand is decoded to the values that the container's rule gives.",
            _BUILT: "Encoding moves no value by more than one quantisation step.",
            _VECTORS: "Encoder and decoder agree with MLX bit for bit on small arrays, on the default device of the machine.",
        },
    ),
    Component(
        id="artifact.admission",
        title="Artifact admission",
        boundary="What is admitted is structure: no payload was read, and no runtime is supported.",
        modules=("assay.impl.stores.artifact", "assay.mutations.gguf", "assay.mutations.artifact_cases"),
        claims={
            _STRUCTURE: "The published sizes and totals follow from the contract, and the public route admits nothing of a private profile.",
            _BUILT: "Every published bad artifact is refused at its stage and field, and a refusal touches nothing else.",
            _VECTORS: "Every mutated field of an artifact is refused at its own stage, before anything is allocated.",
        },
    ),
    Component(
        id="artifact.builder",
        title="Artifact builder",
        boundary="Only private geometries are built, and no quantisation is judged.",
        modules=("assay.impl.stores.artifact", "assay.provenance.miniature"),
        claims={
            _STRUCTURE: "The public route builds nothing.",
            _BUILT: "A built artifact holds the bits of its checkpoint, each tensor in one place, and appears whole or not at all.",
            _VECTORS: "The plan of the real artifact follows from the published headers.",
        },
    ),
)
"""Every component; ids are unique and never reused."""


def component(id_: str) -> Component | None:
    """Returns the component with this id."""
    return next((one for one in COMPONENTS if one.id == id_), None)
