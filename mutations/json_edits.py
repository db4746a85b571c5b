"""Edits of JSON documents by path, and the smallest other value and other type of a leaf."""

import copy
import json
from dataclasses import dataclass
from typing import Any

from assay.mutations.battery import InvalidMutationError
from assay.spec.leaves import Path, path_text, same


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit: `set`, `remove` or `add` at a path; `swap` exchanges an array item with the next one."""

    action: str
    path: Path
    value: Any = None

    @property
    def text(self) -> str:
        """The edit in words, one line."""
        where, value = path_text(self.path), json.dumps(self.value, ensure_ascii=False)
        shown = value if len(value) <= 80 else f"{value[:79]}…"
        return {
            "set": f"{where} = {shown}",
            "add": f"{where} added as {shown}",
            "remove": f"{where} removed",
            "swap": f"{where} exchanged with the next item",
        }[self.action]


def apply_edits(document: Any, edits: tuple[Edit, ...]) -> Any:
    """Returns `document` with the edits applied; what is not on an edited path is shared, nothing is changed in place.

    Raises:
        InvalidMutationError: when a path leads nowhere, or an edit changes nothing.
    """
    for edit in edits:
        document = _apply(document, edit)
    return document


def another_value(value: Any) -> Any:
    """Returns a value of the same JSON type that differs as little as possible."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * 1.5 if value else 0.5
        case str() if value.isdigit():
            return str(int(value) + 1)
        case str() if value:
            last = value[-1]
            return value[:-1] + ("0" if last == "1" else "1" if last.isalnum() else "x")
        case str():
            return "x"
        case None:
            return 0
        case list():
            return [0]
        case dict():
            return {"x": 0}
    raise InvalidMutationError(f"no other value for {type(value).__name__}")


def another_type(value: Any) -> Any:
    """Returns a value that prints alike but has another JSON type: 4 and "4", true and 1, 0.25 and "0.25"."""
    match value:
        case bool():
            return int(value)
        case int():
            return str(value)
        case float():
            return int(value) if value.is_integer() else repr(value)
        case str() if value.isdigit():
            return int(value)
        case str():
            return [value]
        case None:
            return "null"
        case list():
            return {}
        case dict():
            return []
    raise InvalidMutationError(f"no other type for {type(value).__name__}")


def value_at(document: Any, path: Path) -> Any:
    """Returns the value at a path.

    Raises:
        InvalidMutationError: when it leads nowhere.
    """
    found = document
    for part in path:
        try:
            found = found[part]
        except (KeyError, IndexError, TypeError):
            raise InvalidMutationError(f"{path_text(path)} is not there") from None
    return found


def _apply(document: Any, edit: Edit) -> Any:
    changed = parent = copy.copy(document)
    for part in edit.path[:-1]:
        try:
            parent[part] = copy.copy(parent[part])
            parent = parent[part]
        except (KeyError, IndexError, TypeError):
            raise InvalidMutationError(f"{path_text(edit.path)} is not there") from None
    _edit_item(parent, edit)
    return changed


def _edit_item(parent: Any, edit: Edit) -> None:
    key, where = edit.path[-1], path_text(edit.path)
    if edit.action == "add":
        if isinstance(parent, list):
            parent.insert(int(key), edit.value)
        elif key in parent:
            raise InvalidMutationError(f"{where} is there already")
        else:
            parent[key] = edit.value
        return
    old = value_at(parent, (key,))
    if edit.action == "remove":
        del parent[key]
    elif edit.action == "set":
        if same(old, edit.value):
            raise InvalidMutationError(f"{where} holds {edit.value!r} already")
        parent[key] = edit.value
    elif edit.action == "swap":
        other = value_at(parent, (int(key) + 1,))
        if same(old, other):
            raise InvalidMutationError(f"{where} equals the next item")
        parent[key], parent[int(key) + 1] = other, old
    else:
        raise InvalidMutationError(f"unknown action {edit.action}")
