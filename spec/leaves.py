"""Paths into a JSON document: every leaf, and how its place is written."""

from collections.abc import Iterator
from typing import Any, Final

Path = tuple[str | int, ...]

ABSENT: Final = "absent"


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yields every leaf with its path, in document order; an empty array or object is a leaf."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def path_text(path: Path) -> str:
    """Returns the path as text: `a.b[3]`, and `a["x.y"]` for a key that is not a plain word."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def same(left: Any, right: Any) -> bool:
    """Decides equality of values and of types, so that 1, 1.0 and true differ; tuple and list are one."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and bool(left == right)
