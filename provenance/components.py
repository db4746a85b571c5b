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
        fixtures=("fixtures/captures",),
    ),
)
"""Every component; ids are unique and never reused."""


def component(id_: str) -> Component | None:
    """Returns the component with this id."""
    return next((one for one in COMPONENTS if one.id == id_), None)
