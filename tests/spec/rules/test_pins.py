"""Pins notice every leaf; what only a pin notices has a written reason."""

import copy
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest

from assay.provenance.paths import checkpoint_directory
from assay.spec.clauses import Authority, clause
from assay.spec.leaves import Path, leaves, path_text
from assay.spec.profiles import PROFILES, profile_document
from assay.spec.rules import UpstreamFacts, judge_contract, read_upstream
from assay.spec.rules.pin_reasons import PIN_REASONS, leaf_words, pin_reason
from assay.spec.rules.pins import GROUPS, judge_pins, pin_clause


def other(value: Any) -> Any:
    """A value of the same form that differs."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + 1.0
    if isinstance(value, str):
        if value.isdigit():
            return str(int(value) - 1)
        return (
            value[:-1] + ("0" if value[-1] != "0" else "1")
            if len(value) in {40, 64} or value.startswith("0x")
            else f"{value}x"
        )
    return 7 if value is None else [1]


def replaced(document: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    changed = copy.copy(document)
    place: Any = changed
    for part in path[:-1]:
        place[part] = copy.copy(place[part])
        place = place[part]
    place[path[-1]] = value
    return changed


@pytest.mark.parametrize("name", PROFILES)
def test_a_pin_speaks_at_every_changed_leaf_with_the_clause_of_its_group(name: str) -> None:
    document = profile_document(name)
    profile = {"profile": name}
    for path, value in leaves(document):
        if path[0] == "identity" and path[-1] == "profile_id":
            continue
        # Only the section at hand is compared, so that this stays linear in the size of the profile.
        changed = {str(path[0]): replaced(document, path, other(value))[str(path[0])]}
        findings = judge_pins(changed, **profile)
        assert {one.where for one in findings} == {
            path_text(path) if value != [] else f"{path_text(path)}[0]"
        }
        assert pin_clause(path) in {one.code for one in findings}


def test_every_group_of_pins_has_a_leaf() -> None:
    used = {pin_clause(path) for name in PROFILES for path, _ in leaves(profile_document(name))}
    assert used == {f"pin.{group}" for group in GROUPS}


@pytest.fixture(scope="module")
def upstream() -> UpstreamFacts | None:
    directory = checkpoint_directory()
    return read_upstream(directory) if directory is not None else None


def sampled(document: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Every leaf, but first, middle and last of an array of more than 16; the battery tries all of them."""
    alike: dict[str, list[tuple[Path, Any]]] = {}
    for path, value in leaves(document):
        alike.setdefault(leaf_words(path), []).append((path, value))
    for group in alike.values():
        yield from group if len(group) <= 16 else (group[0], group[len(group) // 2], group[-1])


def pin_only(name: str, upstream: UpstreamFacts | None) -> Iterator[Path]:
    document = profile_document(name)
    for path, value in sampled(document):
        findings = judge_contract(replaced(document, path, other(value)), upstream=upstream, profile=name)
        assert findings, path_text(path)
        if {clause(one.code).authority for one in findings} == {Authority.PIN}:  # type: ignore[union-attr]
            yield path


@pytest.mark.slow
def test_a_leaf_of_the_miniature_that_only_a_pin_holds_has_a_reason() -> None:
    assert [path_text(path) for path in pin_only("miniature", None) if pin_reason(path) is None] == []


@pytest.mark.slow
@pytest.mark.checkpoint
def test_a_leaf_that_only_a_pin_holds_has_a_reason_and_every_reason_has_a_leaf(
    upstream: UpstreamFacts | None,
) -> None:
    if upstream is None:
        pytest.skip("the description of the real checkpoint is absent")
    found = [*pin_only("qwen4exp", upstream), *pin_only("miniature", None)]
    assert [path_text(path) for path in found if pin_reason(path) is None] == []
    words = {leaf_words(path) for path in found}
    unused = [
        pattern
        for one in PIN_REASONS
        for pattern in one.patterns
        if not any(fnmatchcase(word, pattern) for word in words)
    ]
    assert unused == []
