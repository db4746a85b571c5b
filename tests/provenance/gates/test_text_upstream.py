"""The public library, live, agrees with the text pipeline where it reads the file and differs where it rebuilds it."""

import importlib.util
from pathlib import Path

import pytest

from assay.impl.text.miniature import write_tokenizer
from assay.spec.verdicts import Outcome


@pytest.mark.upstream
@pytest.mark.slow
def test_transformers_renders_and_tokenizes_the_same_and_its_constructor_differs(tmp_path: Path) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is absent")
    from assay.provenance.gates.text_upstream import compare_upstream

    write_tokenizer(tmp_path)
    result = compare_upstream(tmp_path, seed=3, strings=300, conversations=60)
    assert result.outcome is Outcome.PASS, result.reason
    assert result.measurements["automatic_differs"] >= 1
    assert result.measurements["rendered"] >= 20
