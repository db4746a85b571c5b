"""The clauses of the battery `model`, apart from its probes, so that they can be listed where NumPy is absent."""

from typing import Final

from assay.spec.clauses import Authority, declare

_SOURCE: Final = "field note AFN-010; design: the battery `model`"
CAPTURE: Final = declare(
    "probe.model.capture", Authority.UPSTREAM, "The MLX model gives what upstream held, in the capture's own chunks.",
    source="transformers 5.24.0 models/qwen4_exp", cause="a mistake of the mathematics, or of state between chunks",
)  # fmt: skip
STATE: Final = declare(
    "probe.model.state", Authority.RULE, "Chunks, neighbours, padding, forks and rewinds leave the state of a fresh run.",
    source=_SOURCE, cause="an owner that is forgotten, reset or shared",
)  # fmt: skip
WHOLE: Final = declare(
    "probe.model.whole", Authority.RULE, "A chunk that fails leaves everything public as it was.",
    source=_SOURCE, cause="a write outside of the one publication point, or a check that is left out",
)  # fmt: skip
BOUNDS: Final = declare(
    "probe.model.bounds", Authority.RULE, "What is out of bounds is refused at its own clause, and ties are broken as published.",
    source="field notes AFN-005, AFN-011, AFN-017, AFN-018", cause="a bound, a mask or a tie rule that is left out",
)  # fmt: skip
RAISED: Final = declare(
    "probe.model.raised", Authority.PROCESS, "A probe ends with an answer, not with an unexpected error.",
    source=_SOURCE, cause="an edit that makes the code unable to run",
)  # fmt: skip
