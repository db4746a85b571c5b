"""The exported JSON Schema and pydantic agree: on both profiles, and on structural mutations of every leaf."""

import copy
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import pytest
from jsonschema.validators import extend
from pydantic import ValidationError

import assay.spec.contract
from assay.provenance.catalogue import json_schema
from assay.spec.contract import Contract
from assay.spec.contract.schema_limits import SCHEMA_CANNOT_SAY
from assay.spec.documents.base import Document
from assay.spec.leaves import Path, leaves, path_text
from assay.spec.profiles import PROFILES, profile_document
from assay.spec.rules import judge_contract

SCHEMA = json_schema("contract")


# Draft 2020-12 takes 1.0 for an integer and 1 for a number. A contract judges what is written, so the second reader
# tells the two literals apart, as `$comment` in the schema asks for.
def written_type(validator: Any, types: Any, instance: Any, _: Any) -> Iterator[jsonschema.ValidationError]:
    names = [types] if isinstance(types, str) else types
    number = type(instance) in {int, float}
    fits = {"integer": type(instance) is int, "number": type(instance) is float}
    if not any(
        fits[name] if number and name in fits else validator.is_type(instance, name) for name in names
    ):
        yield jsonschema.ValidationError(f"{instance!r} is not of type {', '.join(names)}")


Reader: Any = extend(jsonschema.Draft202012Validator, validators={"type": written_type})


def models() -> dict[str, type[Document]]:
    found: dict[str, type[Document]] = {}
    for module in pkgutil.iter_modules(assay.spec.contract.__path__):
        members = vars(importlib.import_module(f"assay.spec.contract.{module.name}")).values()
        found.update(
            {one.__name__: one for one in members if inspect.isclass(one) and issubclass(one, Document)}
        )
    return found


MODELS = models()


@cache
def reader(name: str) -> Any:
    """The second reader of one model: its part of the exported schema."""
    return Reader(SCHEMA if name == "Contract" else {"$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{name}"})


def pydantic_accepts(name: str, value: Any) -> bool:
    try:
        MODELS[name].model_validate(value)
    except ValidationError:
        return False
    return True


def enclosing(path: Path) -> tuple[str, int]:
    """The model that holds a leaf, by walking the exported schema, and the depth at which it stands."""
    name, depth = "Contract", 0
    schema: dict[str, Any] = SCHEMA
    for index, part in enumerate(path[:-1]):
        if isinstance(part, int):
            schema = schema["items"]
        else:
            schema = (
                schema["properties"].get(part, schema.get("additionalProperties"))
                if "properties" in schema
                else schema["additionalProperties"]
            )
        branches = [schema, *schema.get("anyOf", [])]
        for branch in branches:
            if "$ref" in branch:
                name, depth = branch["$ref"].rsplit("/", 1)[-1], index + 1
                schema = SCHEMA["$defs"][name]
            elif branch is not schema and branch.get("type") in {"array", "object"}:
                schema = branch
    return name, depth


def structural(value: Any) -> Iterator[Any]:
    """Values of another type, another constant or another length; most of them break the form."""
    yield from (None, {}, [value], "", True)
    if isinstance(value, bool):
        yield from (int(value), str(value).lower())
    elif isinstance(value, int):
        yield from (str(value), float(value), -1, 2**70)
    elif isinstance(value, float):
        yield from (str(value), int(value), -value)
    elif isinstance(value, str):
        yield from (f"{value}x", 1, [])
        if value.isdigit():
            yield from (int(value), f"0{value}", f"-{value}", "9" * 21)


def at(document: Any, path: Path) -> Any:
    for part in path:
        document = document[part]
    return document


@pytest.mark.parametrize("name", PROFILES)
def test_both_readers_accept_the_profile(name: str) -> None:
    document = profile_document(name)
    reader("Contract").validate(document)
    assert pydantic_accepts("Contract", document)


def test_the_schema_itself_is_valid_draft_2020_12() -> None:
    Reader.check_schema(SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_both_readers_agree_on_structural_mutations_of_every_leaf(name: str) -> None:
    """Each leaf in its own model; that models are judged in their place is the next test's claim."""
    document = profile_document(name)
    refused = 0
    tried: set[tuple[str, str]] = set()
    for path, value in leaves(document):
        model, depth = enclosing(path)
        whole = at(document, path[:depth])
        inner = path[depth:]
        key = (model, repr((inner, whole)))
        if key in tried:
            continue
        tried.add(key)
        for mutation in (*structural(value), "DROP", "EXTRA"):
            changed = copy.deepcopy(whole)
            place = at(changed, inner[:-1])
            if mutation == "DROP":
                del place[inner[-1]]
            elif mutation == "EXTRA":
                changed["another_field"] = 1
            else:
                place[inner[-1]] = mutation
            accepted = pydantic_accepts(model, changed)
            assert accepted == reader(model).is_valid(changed), f"{path_text(path)} as {mutation!r}"
            refused += not accepted
    assert refused > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_both_readers_agree_on_whole_documents_at_the_place_of_each_section(name: str) -> None:
    document = profile_document(name)
    for section, value in document.items():
        for mutation in (None, {}, [], "x", 1, "DROP", "EXTRA"):
            changed = dict(document)
            if mutation == "DROP":
                del changed[section]
            elif mutation == "EXTRA":
                changed[f"{section}_"] = value
            else:
                changed[section] = mutation
            accepted = pydantic_accepts("Contract", changed)
            assert accepted == reader("Contract").is_valid(changed), f"{section} as {mutation!r}"
            if not accepted:
                found = judge_contract(changed, pins=False)
                place = f"{section}_" if mutation == "EXTRA" else section
                assert any(one.where == place or one.where.startswith(f"{place}.") for one in found)


def test_what_the_schema_cannot_say_stands_in_its_comment() -> None:
    assert all(sentence in SCHEMA["$comment"] for sentence in SCHEMA_CANNOT_SAY)


def test_a_rule_that_the_schema_cannot_say_is_really_beyond_it() -> None:
    document = profile_document("qwen4exp")
    document["derived_constants"]["wide_size"]["value"] = 10241
    document["admission"] = None
    assert reader("Contract").is_valid(document)
    codes = {one.code for one in judge_contract(document, pins=False)}
    assert {"derived.wide-size", "profile.sections"} <= codes


def test_integers_above_2_to_53_travel_as_decimal_strings() -> None:
    document = profile_document("qwen4exp")
    assert document["ple_hash"]["max_hash_product"] == "5886047582964040311"
    assert document["ple_hash"]["derivation"]["max_long"] == "9223372036854775807"
    numbers = [value for _, value in leaves(document) if isinstance(value, int)]
    assert max(numbers) < 2**53
    assert Contract.model_validate(document).ple_hash.max_hash_product == 5886047582964040311
