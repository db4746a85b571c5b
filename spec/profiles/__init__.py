"""The frozen profiles: `qwen4exp` (public) and `miniature` (private), as data in this package."""

import json
from functools import cache
from importlib import resources
from typing import Any, Final

from assay.spec.contract.contract import Contract

PROFILES: Final[tuple[str, ...]] = ("qwen4exp", "miniature")
"""Names of the packaged profiles."""

PROFILE_IDS: Final[dict[str, str]] = {
    "qwen4exp-base-v1": "qwen4exp",
    "assay-miniature-v1": "miniature",
}
"""`identity.profile_id` -> name of the packaged profile."""


def profile_text(name: str) -> str:
    """Returns the JSON text of a packaged profile."""
    if name not in PROFILES:
        raise KeyError(name)
    return resources.files("assay.spec.profiles").joinpath(f"{name}.json").read_text(encoding="utf-8")


def profile_document(name: str) -> dict[str, Any]:
    """Returns a packaged profile as a fresh JSON object; the caller may change it."""
    document: dict[str, Any] = json.loads(profile_text(name))
    return document


@cache
def load_profile(name: str) -> Contract:
    """Returns a packaged profile, validated for form; `assay.spec.rules` judges the rest."""
    return Contract.model_validate(profile_document(name))
