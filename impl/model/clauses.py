"""The clauses of the running model: what it refuses before, during and after a chunk.

Kept apart from the modules that check them, so that they can be listed where MLX is absent.
"""

from typing import Any, Final

from assay.spec.clauses import Authority, declare
from assay.spec.errors import AdmissionError, ContractError, Finding

STAGE: Final = "model"

CONFIG: Final = declare(
    "model.config", Authority.FORM,
    "The configuration holds every size that the graph needs, in its range, and only mathematics that the graph has.",
    source="transformers 5.24.0 Qwen4ExpTextConfig", cause="a field dropped or changed by a conversion",
)  # fmt: skip
TENSOR: Final = declare(
    "model.tensor", Authority.RULE, "Every tensor of the graph is there with the shape that the configuration gives it.",
    source="the tensor names of the checkpoint and of transformers 5.24.0 save_pretrained",
    cause="weights of another geometry, or a form of storing experts or tables that is not known",
)  # fmt: skip
HASH: Final = declare(
    "model.hash-buffers", Authority.RULE, "The stored hash buffers are those that the configuration derives.",
    source="transformers 5.24.0 Qwen4ExpTextNGramEmbedding; bug report A6",
    cause="a table of another vocabulary, seed or base",
)  # fmt: skip
TOKENS: Final = declare(
    "model.tokens", Authority.FORM, "A chunk has at least one token, and every id is a row of the embedding.",
    source="facts, graph tests; field note AFN-010", cause="ids of another tokenizer",
)  # fmt: skip
CONTEXT: Final = declare(
    "model.context", Authority.FORM, "A sequence stays within the context of its configuration.",
    source="facts, graph tests", cause="a prompt, or a generation, longer than max_position_embeddings",
)  # fmt: skip
PADDING: Final = declare(
    "model.padding", Authority.FORM, "Padding stands to the left of a row, and every row has at least one token.",
    source="field note AFN-018: a hole is not padding", cause="a mask with a hole, or right padding",
)  # fmt: skip
SLOT: Final = declare(
    "model.slot", Authority.FORM, "A slot is inside the bank, named once in a batch; slot 0 is a slot like any other.",
    source="bug report A15", cause="a filler row given a slot number",
)  # fmt: skip
REWIND: Final = declare(
    "model.rewind", Authority.FORM, "A sequence goes back to a length at which its state was kept.",
    source="field note AFN-010; bug report A7", cause="a recurrent matrix can't be run backwards",
)  # fmt: skip
CEILING: Final = declare(
    "model.qsa.dense-ceiling", Authority.RULE,
    "The dense form sees at most the keys that a query can select; more is refused before anything is allocated.",
    source="field note AFN-011", cause="the bounded oracle used as an implementation",
    fix="use the sparse form",
)  # fmt: skip
FINITE: Final = declare(
    "model.finite", Authority.RULE, "Every stage and every owner of state is finite before a chunk is published.",
    source="field note AFN-010", cause="damaged weights, or an overflow",
)  # fmt: skip
ROUTES: Final = declare(
    "model.routes", Authority.RULE,
    "Expert ids are in range, distinct and ordered by probability, ties to the lower id, and their weights sum to one.",
    source="facts, graph coordinator; bug report A18", cause="a device whose sort is not stable, or a NaN in the router",
)  # fmt: skip
CLOSED: Final = declare(
    "model.transaction.closed", Authority.PROCESS, "Nothing is installed into a chunk that has ended.",
    source="field note AFN-010", cause="a worker that finished after its chunk was given up",
)  # fmt: skip
CANCELLED: Final = declare(
    "model.transaction.cancelled", Authority.PROCESS, "A cancelled chunk publishes nothing.",
    source="field note AFN-010", cause="the caller asked for it",
)  # fmt: skip
EVALUATION: Final = declare(
    "model.transaction.evaluation", Authority.PROCESS, "The device evaluates a whole chunk without an error.",
    source="field note AFN-010", cause="too little memory, or a failed command", fix="a smaller chunk needs less memory",
)  # fmt: skip
SIZE: Final = declare(
    "model.state-size", Authority.FORM, "State sizes are computed for 1, 2 or 4 bytes a value and fit 64 bits.",
    source="facts, state owners and sizes", cause="an element size of another type, or an absurd context",
)  # fmt: skip
LOGITS: Final = declare(
    "model.logits", Authority.FORM, "Logits are finite or -inf, and at least one valid id can be chosen.",
    source="field note AFN-005; bug report A2", cause="a mask that allows nothing, or a broken producer",
)  # fmt: skip
UNSUPPORTED: Final = declare(
    "generate.unsupported", Authority.PROCESS,
    "Tokens are generated on the public route only by a profile whose computed support state is `supported`.",
    source="field note AFN-013", cause="code that exists is not a feature: no profile is supported yet",
    fix="say --private: the output is stamped with what it is worth",
)  # fmt: skip


def refuse(code: str, where: str, *, expected: Any, got: Any, hint: str = "") -> ContractError:
    """Returns the error for an input that breaks a clause of the running model."""
    return ContractError(Finding.of(code, STAGE, where, expected=expected, got=got, hint=hint))


def reject(code: str, where: str, *, expected: Any, got: Any, hint: str = "") -> AdmissionError:
    """Returns the error for a checkpoint that breaks a clause of the running model."""
    return AdmissionError(Finding.of(code, STAGE, where, expected=expected, got=got, hint=hint))
