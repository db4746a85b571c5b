"""The components: what can carry a status label, what each claims, and which code and data its evidence is about.

Append one row for each new component; the gates that name it (`provenance/gates/registry.py`) decide its label. No
row states a label: labels are computed from evidence (`assay.provenance.evidence.status`).
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Component:
    """Something whose status is computed.

    Attributes:
        id: word id, such as `contract` or `oracles.qsa`.
        title: a few words for a table.
        claim: one sentence: what a reader may believe when the label is reached, and where that ends.
        modules: `assay.*` modules or packages (a package stands for everything below it); with their import closure
            they are the code that the evidence is about. Name here what is reached only by a name in a string.
        fixtures: files or folders of vectors, relative to the package.
        contract: files or folders of frozen contract data, relative to the package.
    """

    id: str
    title: str
    claim: str
    modules: tuple[str, ...]
    fixtures: tuple[str, ...] = ()
    contract: tuple[str, ...] = ("spec/profiles",)


COMPONENTS: Final[tuple[Component, ...]] = (
    Component(
        id="contract",
        title="Profile contract",
        claim=(
            "The frozen facts of the family agree with each other and with what upstream published; "
            "this says nothing about any implementation."
        ),
        modules=("assay.spec.contract", "assay.spec.profiles", "assay.spec.rules"),
    ),
    Component(
        id="checkpoint-reader",
        title="Checkpoint validation",
        claim=(
            "A checkpoint directory is accepted only when its names, shapes, types, spans and configuration are the "
            "contract's; payload bytes are judged only when asked."
        ),
        modules=("assay.impl.stores",),
    ),
    Component(
        id="text",
        title="Text pipeline",
        claim=(
            "Prompt bytes, token ids, errors and the origin of every byte agree with the published cases and with "
            "independent oracles; no text of a caller becomes a control token. Nothing is said about what a model answers."
        ),
        modules=("assay.impl.text", "assay.oracles.tokenizer", "assay.oracles.chat", "assay.mutations.text"),
        fixtures=("fixtures/text",),
        contract=("spec/profiles", "spec/text.py"),
    ),
    Component(
        id="provenance",
        title="Evidence and status",
        claim=(
            "Damaged, missing and stale evidence is found and lowers labels; forged evidence is not found without a "
            "signature."
        ),
        modules=(
            "assay.provenance.evidence",
            "assay.provenance.gates.run",
            "assay.provenance.gates.selection",
            "assay.provenance.gates.worker",
        ),
        contract=(),
    ),
    Component(
        id="captures",
        title="Upstream captures",
        claim=(
            "Each shipped array is what the pinned upstream package held when it ran on a small geometry, or is "
            "labelled otherwise; nothing of the real weights is in them."
        ),
        modules=("assay.provenance.captures", "assay.impl.captures", "assay.spec.origins"),
        fixtures=("fixtures/captures",),
        contract=(),
    ),
    Component(
        id="oracles",
        title="Mathematics oracles",
        claim=(
            "The plain NumPy mathematics agrees with the pinned upstream package on small geometries, in float32 and "
            "on the CPU; nothing is said of the real weights."
        ),
        modules=("assay.oracles",),
        fixtures=("fixtures/captures", "fixtures/vectors"),
    ),
    Component(
        id="model",
        title="MLX model",
        claim=(
            "The MLX graph agrees with the oracles, and with the pinned upstream package where that ran, on small random "
            "weights; a chunk is published whole or not at all. Nothing is said of the real weights, nor of a GPU that "
            "it has not run on."
        ),
        modules=("assay.impl.model", "assay.impl.captures.writing", "assay.mutations.model"),
        fixtures=("fixtures/captures",),
    ),
    Component(
        id="stores.gguf",
        title="GGUF v3",
        claim="Files are read within bounds and written exactly; structure only, nothing about the model that a file holds.",
        modules=(
            "assay.impl.stores.gguf",
            "assay.impl.stores.gguf_rules",
            "assay.impl.stores.gguf_values",
            "assay.impl.stores.gguf_writer",
        ),
        contract=(),
    ),
    Component(
        id="stores.expert-major",
        title="ExpertMajor v2",
        claim="Families 1 to 4 and private ones are written, read and verified bit for bit; no codec's quality is judged, and no release codec exists for family 4.",
        modules=(
            "assay.impl.stores.expert_families",
            "assay.impl.stores.expert_layout",
            "assay.impl.stores.expert_repack",
            "assay.impl.stores.expert_rules",
            "assay.impl.stores.expert_store",
            "assay.impl.stores.expert_writer",
            "assay.impl.stores.publication",
            "assay.impl.stores.record_digests",
        ),
        contract=(),
    ),
    Component(
        id="stores.ple-rows",
        title="PLE rows v1",
        claim="Rows come only from verified pages, and a store is published whole or not at all; no production row codec is qualified.",
        modules=(
            "assay.impl.stores.ple_digests",
            "assay.impl.stores.ple_layout",
            "assay.impl.stores.ple_rules",
            "assay.impl.stores.ple_store",
            "assay.impl.stores.ple_tables",
            "assay.impl.stores.ple_writer",
            "assay.impl.stores.publication",
            "assay.impl.stores.row_shards",
        ),
        contract=(),
    ),
    Component(
        id="stores.affine4",
        title="MLX affine 4-bit codec",
        claim="Encoder and decoder agree with MLX bit for bit on small arrays; nothing is said of a model's quality in it.",
        modules=("assay.impl.stores.affine4", "assay.impl.stores.blocks"),
        contract=(),
    ),
    Component(
        id="artifact.admission",
        title="Artifact admission",
        claim=(
            "A bad artifact is refused at its published stage and field before anything is allocated; what is admitted "
            "is its structure: no payload was read, and no runtime is supported."
        ),
        modules=("assay.impl.stores.artifact", "assay.mutations.gguf", "assay.mutations.artifact_cases"),
    ),
    Component(
        id="artifact.builder",
        title="Artifact builder",
        claim=(
            "An artifact holds the bits of its checkpoint, each tensor in one place, and appears whole or not at all; "
            "only private geometries are built, and no quantisation is judged."
        ),
        modules=("assay.impl.stores.artifact", "assay.provenance.miniature"),
    ),
)
"""Every component; ids are unique and never reused."""


def component(id_: str) -> Component | None:
    """Returns the component with this id."""
    return next((one for one in COMPONENTS if one.id == id_), None)
