"""The gates: one row each, in the order in which they run and are reported (cheapest and lowest rung first).

To add a gate: write a function `(GateContext) -> GateResult` in a module beside this one and append a row that names
it. The row decides which components the gate counts for and from which rung on it is required. A component reaches a
rung only when every gate of that rung and of all lower rungs has passing, current evidence; a rung without a gate
can't be reached, so a component without gates stays a `hypothesis`.

Import what the gate judges in the gate's own module, not by a computed name: evidence is about the import closure of
that module and of the component, and a gate that loads anything else is inconclusive (`gate.subject-incomplete`). A
gate that runs a mutation battery is one call of `assay.provenance.gates.batteries.battery_result`.
"""

from typing import Final

from assay.provenance.gates.base import Gate
from assay.spec.verdicts import Label

_PRODUCT = (
    "needs the product on its target machine with the real 360 GB checkpoint; assay has no procedure for it"
)

SUPPORT_GATES: Final[dict[str, tuple[Gate, ...]]] = {
    "qwen4exp": (
        Gate(
            "support.scalar-oracle-parity",
            "The product agrees with the scalar oracle on the real weights.",
            (), Label.SUPPORTED, "", blocked=_PRODUCT,
        ),
        Gate(
            "support.artifact-admission",
            "The product refuses every bad artifact before it touches the GPU.",
            (), Label.SUPPORTED, "", blocked=_PRODUCT,
        ),
        Gate(
            "support.transactional-state",
            "The product's state survives injected failures as whole transactions.",
            (), Label.SUPPORTED, "", blocked=_PRODUCT,
        ),
        Gate(
            "support.m5-pro-run",
            "A run on a physical M5 Pro accounts for its bytes, does not swap and gives the exact output.",
            (), Label.SUPPORTED, "", blocked=_PRODUCT,
        ),
        Gate(
            "support.long-context",
            "The 32K merge screen and the near-endpoint release lane pass.",
            (), Label.SUPPORTED, "", blocked=_PRODUCT,
        ),
        Gate(
            "support.target-performance",
            "The performance of the target tier is recorded.",
            (), Label.SUPPORTED, "", blocked=_PRODUCT,
        ),
    ),
}  # fmt: skip
"""Profile -> the gates that decide its support state; every component of the profile needs them for `supported`."""

GATES: Final[tuple[Gate, ...]] = (
    Gate(
        "contract.rules",
        "Every packaged profile obeys all rules of the contract, and is what was pinned.",
        ("contract",),
        Label.STRUCTURAL_ONLY,
        "assay.provenance.gates.contract:rules",
        packages=("pydantic",),
        limit_s=300.0,
    ),
    Gate(
        "contract.upstream",
        "The public profile agrees with the configuration, tensors and tokens that upstream published.",
        ("contract",),
        Label.IMPLEMENTED,
        "assay.provenance.gates.contract:upstream",
        needs=("checkpoint",),
        packages=("pydantic",),
        limit_s=300.0,
    ),
    Gate(
        "checkpoint.private-seam",
        "The miniature's checkpoint is accepted through the private seam and refused without it.",
        ("checkpoint-reader",),
        Label.IMPLEMENTED,
        "assay.provenance.gates.checkpoint:private_seam",
        packages=("pydantic",),
        limit_s=300.0,
    ),
    Gate(
        "contract.checkpoint",
        "The description of the real checkpoint agrees with the contract wherever it can be judged.",
        ("contract", "checkpoint-reader"),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.checkpoint:real_description",
        needs=("checkpoint",),
        packages=("pydantic",),
        limit_s=300.0,
    ),
    Gate(
        "mutations.contract",
        "Every mutation of the contract, and of the real config and inventory where they are here, is caught.",
        ("contract", "checkpoint-reader"),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.mutations:contract_battery",
        packages=("pydantic",),
        limit_s=900.0,
    ),
    Gate(
        "provenance.ledger-detects-damage",
        "Every record removed from or altered in a ledger is found and named, and no damage raises a label.",
        ("provenance",),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.selfcheck:ledger_detects_damage",
        packages=("pydantic",),
        limit_s=120.0,
    ),
    Gate(
        "fixtures.provenance",
        "Every shipped array has its digest, and an origin that its producer can have.",
        ("captures",),
        Label.STRUCTURAL_ONLY,
        "assay.provenance.gates.parity:fixtures_provenance",
        packages=("pydantic",),
        limit_s=120.0,
    ),
    Gate(
        "mutations.fixtures",
        "Every change of a shipped capture's bytes, origins, counts or documents is found at its own clause.",
        ("captures",),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.parity:fixtures_battery",
        packages=("pydantic",),
        limit_s=300.0,
    ),
    Gate(
        "parity.oracle-upstream",
        "The oracles agree with every upstream capture; ids, orders and rows exactly.",
        ("captures", "oracles"),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.parity:oracle_upstream",
        packages=("numpy",),
        limit_s=300.0,
    ),
    Gate(
        "mutations.mathematics",
        "Every plausible mistake of a port, made in the oracles, is caught by a literal vector or an upstream capture.",
        ("oracles",),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.mathematics:mathematics_battery",
        packages=("numpy",),
        limit_s=600.0,
    ),
    Gate(
        "capture.check",
        "The pinned upstream, run again, gives the shipped captures bit for bit.",
        ("captures",),
        Label.IMPLEMENTED,
        "assay.provenance.gates.parity:capture_check",
        needs=("capture",),
        packages=("transformers", "torch", "numpy"),
        limit_s=600.0,
    ),
    Gate(
        "stores.golden",
        "Our writers reproduce every published store and file bit for bit.",
        ("stores.gguf", "stores.expert-major", "stores.ple-rows"),
        Label.STRUCTURAL_ONLY,
        "assay.provenance.gates.stores:golden",
        packages=("pydantic",),
        limit_s=120.0,
    ),
    Gate(
        "stores.true-size",
        "Both public stores are written, opened and located at their true size in bounded memory.",
        ("stores.gguf", "stores.expert-major", "stores.ple-rows"),
        Label.IMPLEMENTED,
        "assay.provenance.gates.stores:true_size",
        packages=("pydantic",),
        limit_s=120.0,
    ),
    Gate(
        "stores.faults",
        "Under every injected fault the target is the whole old file or the whole new one.",
        ("stores.gguf", "stores.expert-major", "stores.ple-rows"),
        Label.IMPLEMENTED,
        "assay.provenance.gates.stores:faults",
        packages=("pydantic",),
        limit_s=120.0,
    ),
    Gate(
        "mutations.expert-store",
        "Every changed field of an expert store, and changed payload, is found at its own clause.",
        ("stores.expert-major",),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.stores:expert_battery",
        packages=("pydantic",),
        limit_s=300.0,
    ),
    Gate(
        "mutations.ple-store",
        "Every changed field, digest and page of a row store is found at its own clause.",
        ("stores.ple-rows",),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.stores:ple_battery",
        packages=("pydantic",),
        limit_s=300.0,
    ),
    Gate(
        "mutations.store-bytes",
        "Every changed byte of a store manifest or GGUF directory is found.",
        ("stores.gguf", "stores.expert-major", "stores.ple-rows"),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.stores:bytes_battery",
        packages=("pydantic",),
        limit_s=300.0,
    ),
    Gate(
        "stores.affine4-layout",
        "A block written by hand is decoded to the values that the container's rule gives.",
        ("stores.affine4",),
        Label.STRUCTURAL_ONLY,
        "assay.provenance.gates.stores:affine4_layout",
        packages=("numpy",),
        limit_s=60.0,
    ),
    Gate(
        "stores.affine4-bound",
        "Encoding moves no value by more than one quantisation step.",
        ("stores.affine4",),
        Label.IMPLEMENTED,
        "assay.provenance.gates.stores:affine4_bound",
        packages=("numpy",),
        limit_s=60.0,
    ),
    Gate(
        "stores.affine4-mlx",
        "Encoder and decoder agree with MLX bit for bit on the default device of this machine.",
        ("stores.affine4",),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.stores:affine4_mlx",
        packages=("numpy", "mlx"),
        limit_s=120.0,
    ),
    Gate(
        "text.mutations",
        "Every fact of the tokenizer, the template and a prompt's segments is rejected for its own reason when mutated.",
        ("text",),
        Label.STRUCTURAL_ONLY,
        "assay.provenance.gates.text:mutations_killed",
        packages=("pydantic",),
        limit_s=120.0,
    ),
    Gate(
        "text.cases-miniature",
        "The published inputs, on the miniature's tokenizer and template, give what the oracles give.",
        ("text",),
        Label.IMPLEMENTED,
        "assay.provenance.gates.text:miniature_cases",
        packages=("tokenizers", "jinja2"),
        limit_s=120.0,
    ),
    Gate(
        "text.agreement-miniature",
        "Engine and oracles agree on 100,000 strings across scripts and 1,000 conversations, on the miniature.",
        ("text",),
        Label.IMPLEMENTED,
        "assay.provenance.gates.text:miniature_agreement",
        packages=("tokenizers", "jinja2"),
        limit_s=600.0,
    ),
    Gate(
        "text.upstream",
        "On the miniature's files transformers renders and tokenizes the same; its AutoTokenizer, not authoritative, differs.",
        ("text",),
        Label.IMPLEMENTED,
        "assay.provenance.gates.text_upstream:live_upstream",
        needs=("capture",),
        packages=("transformers", "tokenizers", "jinja2"),
        limit_s=300.0,
    ),
    Gate(
        "text.cases",
        "The 59 text cases, 6 decode controls, 33 identities and 39 chat cases give their published ids, bytes and errors.",
        ("text",),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.text:published_cases",
        needs=("checkpoint",),
        packages=("tokenizers", "jinja2"),
        limit_s=120.0,
    ),
    Gate(
        "text.agreement",
        "Engine and oracles agree on 100,000 strings across scripts and 1,000 conversations, with the published files.",
        ("text",),
        Label.CORRECTNESS_FIXTURE,
        "assay.provenance.gates.text:published_agreement",
        needs=("checkpoint",),
        packages=("tokenizers", "jinja2"),
        limit_s=600.0,
    ),
)
"""Every gate that can be run; ids are unique and never reused."""


def all_gates() -> tuple[Gate, ...]:
    """Returns the gates that can be run, then the support gates of every profile."""
    return (*GATES, *(gate for gates in SUPPORT_GATES.values() for gate in gates))
