"""Evidence records for tests, about components of no real code."""

from collections.abc import Callable
from typing import Any

import pytest

from assay.spec.documents.evidence import Bench, Evidence, Subject

MakeRecord = Callable[..., Evidence]
BENCH = Bench(python="3.11", platform="linux-x86_64", device="cpu", packages={"numpy": "2.0"})
SUBJECT = Subject(code="a" * 64, contract="b" * 64, fixtures="c" * 64)


@pytest.fixture(scope="session")
def make_record() -> MakeRecord:
    def make(gate: str = "sample.gate", outcome: str = "pass", **changes: Any) -> Evidence:
        values: dict[str, Any] = {
            "gate": gate, "outcome": outcome, "subjects": {"sample": SUBJECT}, "gate_code": None, "bench": BENCH,
            "seam": None, "measurements": {}, "findings": [], "reason": "", "run": "run-1", "seed": 0,
            "started": "2026-01-01T00:00:00Z", "duration_s": 0.0, "assay": "0.1.0", "predecessor": None,
        }  # fmt: skip
        return Evidence.model_validate(values | changes)

    return make
