"""Both packaged profiles obey every rule, and the public one agrees with what upstream published."""

import pytest

from assay.provenance.paths import checkpoint_directory
from assay.spec.profiles import PROFILES, load_profile, profile_document
from assay.spec.rules import judge_contract, read_upstream


@pytest.mark.parametrize("name", PROFILES)
def test_a_packaged_profile_has_no_finding(name: str) -> None:
    assert judge_contract(profile_document(name)) == []


@pytest.mark.parametrize("name", PROFILES)
def test_a_loaded_profile_has_no_finding(name: str) -> None:
    assert judge_contract(load_profile(name)) == []


@pytest.mark.checkpoint
def test_the_public_profile_agrees_with_the_published_checkpoint() -> None:
    directory = checkpoint_directory()
    if directory is None:
        pytest.skip("the description of the real checkpoint is absent")
    upstream = read_upstream(directory)
    assert upstream.tensors is not None
    assert len(upstream.tensors) == 1658
    assert judge_contract(profile_document("qwen4exp"), upstream=upstream) == []
