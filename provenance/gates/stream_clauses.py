"""The clause of the gate of streamed execution, apart from it, so that it can be listed where MLX is absent."""

from typing import Final

from assay.spec.clauses import Authority, declare

IDENTITY: Final = declare(
    "runtime.stream-identity", Authority.RULE,
    "A streamed run gives the tokens and every state of the resident one, and a fault publishes nothing.",
    source="field note AFN-019; bug reports A23, A24 and A25",
    cause="a slot handed on too early, bytes used before they were verified, or an order of arrival that is in a sum",
)  # fmt: skip
