"""The clauses of the gates of the MLX model, apart from them, so that they can be listed where NumPy is absent."""

from typing import Final

from assay.spec.clauses import Authority, declare

ORACLE: Final = declare(
    "parity.mlx-oracle.value", Authority.RULE,
    "Every stage of the MLX model agrees with the oracle and with what upstream held, on every shipped capture.",
    source="field note AFN-014; transformers 5.24.0 models/qwen4_exp", cause="a mistake in the MLX code",
    fix="the finding names the first rung that differs; `assay diff` on the gate's captures shows the values",
)  # fmt: skip
UPSTREAM: Final = declare(
    "parity.mlx-upstream.value", Authority.UPSTREAM,
    "On the same saved weights the MLX model and upstream choose the same tokens and hold the same arrays.",
    source="transformers 5.24.0 models/qwen4_exp", cause="a mistake in the MLX code, its loader or its state",
    fix="`assay diff` on the gate's captures names the first rung that differs",
)  # fmt: skip
PARTITION: Final = declare(
    "model.partition", Authority.RULE,
    "Chunks, batches and neighbours change no bit of logits, routes or state in the deterministic mode.",
    source="field note AFN-012; bug reports A12, A14", cause="a reduction whose kernel depends on the number of rows",
)  # fmt: skip
TRANSACTION: Final = declare(
    "model.transaction", Authority.RULE,
    "A fault after any stage publishes nothing, and a retry is a fresh run.",
    source="field note AFN-010", cause="an owner that is written outside of the one publication point",
)  # fmt: skip
