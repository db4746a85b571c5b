"""Judges a `config.json` field by field, types included, against the profile that it is nearest to."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from assay.impl.stores.strict_json import json_type, same_json
from assay.spec.clauses import Authority, declare
from assay.spec.contract import Contract, expand_tensors
from assay.spec.errors import Finding
from assay.spec.profiles import PROFILES, load_profile

_SOURCE: Final = "the pinned config.json"
MISSING: Final = declare(
    "config.missing", Authority.FORM, "A field that the profile pins is present.", source=_SOURCE,
    cause="a re-save by a library that leaves out fields equal to its own defaults",
)  # fmt: skip
EXTRA: Final = declare(
    "config.extra", Authority.FORM, "A config holds no field that the profile does not know.", source=_SOURCE,
    cause="a conversion or a newer library version added one",
)  # fmt: skip
TYPE: Final = declare(
    "config.type", Authority.FORM, "A field has its JSON type: 1, 1.0 and true are three values.", source=_SOURCE,
    cause="a re-save that turns whole decimals into integers, or numbers into text",
)  # fmt: skip
VALUE: Final = declare(
    "config.value", Authority.PIN, "A field has the pinned value.", source=_SOURCE,
    cause="another size or revision of the model, or an edit",
)  # fmt: skip
FAMILY: Final = declare(
    "config.family", Authority.RULE, "`model_type` and `text_config.model_type` name this family.",
    source="field note AFN-001: a name that resembles is not an identity",
    cause="a checkpoint of another model", fix="use the runtime and the contract of that family",
)  # fmt: skip
PRIVATE: Final = declare(
    "profile.private", Authority.PROCESS, "A private profile is accepted through the private seam only.",
    source="field note AFN-013", cause="the miniature or another test geometry on the public route",
    fix="say --private; what follows is stamped `seam: private`",
)  # fmt: skip

STAGE: Final = "config"
_ABSENT: Final = object()


def nearest_profile(config: dict[str, Any]) -> Contract:
    """Returns the packaged profile whose config differs in the fewest leaves; the public one for another family."""
    public = load_profile(PROFILES[0])
    if is_other_family(config, public):
        return public
    return min(map(load_profile, PROFILES), key=lambda profile: sum(1 for _ in _differences(profile, config)))


def nearest_profile_by_tensors(tensors: Iterable[tuple[str, tuple[int, ...] | None]]) -> Contract:
    """Returns the packaged profile that knows the most of these tensors; the public one among equals.

    Args:
        tensors: name and shape; without a shape the name alone counts, and names that are not there count against.
    """
    found = dict(tensors)

    def fit(profile: Contract) -> int:
        specs = {spec.name: spec.shape for spec in expand_tensors(profile)}
        known = sum(1 for name, shape in found.items() if name in specs and shape in {None, specs[name]})
        return known - (len(specs.keys() - found.keys()) if None in found.values() else 0)

    return max(map(load_profile, PROFILES), key=fit)


def is_other_family(config: dict[str, Any], contract: Contract) -> bool:
    """Says whether both model types name another family; one alone is an edit and is judged as one."""
    text = config.get("text_config")
    text_type = text.get("model_type") if isinstance(text, dict) else None
    return (
        isinstance(config.get("model_type"), str)
        and config["model_type"] not in {contract.identity.model_type, contract.identity.text_model_type}
        and text_type != contract.identity.text_model_type
    )


def judge_family(config: dict[str, Any], contract: Contract, *, file: str = "config.json") -> list[Finding]:
    """Says whether a config is of this family at all."""
    text = config.get("text_config")
    found = {
        "model_type": (config.get("model_type"), contract.identity.model_type),
        "text_config.model_type": (text.get("model_type") if isinstance(text, dict) else None,
                                   contract.identity.text_model_type),
    }  # fmt: skip
    return [
        Finding.of(
            FAMILY, STAGE, f"{file}: {field}", expected=expected, got="nothing" if got is None else got
        )
        for field, (got, expected) in found.items()
        if got != expected
    ]


def judge_config(
    config: dict[str, Any],
    contract: Contract,
    *,
    tolerated: frozenset[str] = frozenset(),
    file: str = "config.json",
) -> list[Finding]:
    """Returns every disagreement of a config with a profile.

    Args:
        config: the parsed file.
        contract: the profile.
        tolerated: top-level or dotted fields that may be there in addition, such as `quantization`.
        file: the name of the file, for findings.
    """
    return [
        _finding(f"{file}: {path}", expected, got)
        for path, expected, got in _differences(contract, config)
        if not (expected is _ABSENT and path in tolerated)
    ]


def _finding(where: str, expected: Any, got: Any) -> Finding:
    if got is _ABSENT:
        return Finding.of(MISSING, STAGE, where, expected=_shown(expected), got="nothing")
    if expected is _ABSENT:
        return Finding.of(EXTRA, STAGE, where, expected="no such field", got=_shown(got))
    if json_type(expected) != json_type(got):
        expected, got = _typed(expected), _typed(got)
        return Finding.of(TYPE, STAGE, where, expected=expected, got=got)
    return Finding.of(VALUE, STAGE, where, expected=_shown(expected), got=_shown(got))


def _typed(value: Any) -> str:
    return "null" if value is None else f"{json_type(value)} {_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, bool | dict | list) or value is None:
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _differences(contract: Contract, config: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yields path, expected and got of each leaf that differs; leaves that the profile does not judge are skipped."""
    unjudged = {leaf.path for leaf in contract.config.unjudged}
    for path, expected, got in _walk("", contract.config.as_file(), config):
        if path not in unjudged:
            yield path, expected, got


def _walk(path: str, expected: Any, got: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            at = f"{path}.{key}" if path else key
            yield from _walk(at, expected.get(key, _ABSENT), got.get(key, _ABSENT))
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for number, (left, right) in enumerate(zip(expected, got, strict=True)):
            yield from _walk(f"{path}[{number}]", left, right)
    elif not same_json(expected, got):
        yield path, expected, got
